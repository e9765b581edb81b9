/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a member asks the group for, and what its target is told. A wish lasts until the log has it,
 * or until the leader says that it never will; a new leader is asked again. So it does not matter
 * which leader has heard it.
 */
#include <errno.h>
#include <string.h>

#include "nvme/target/group/machine.h"

enum { WISH_AGAIN_MS = 200 };

static bool is_of_reservation(enum nvg_record_kind kind)
{
    return kind == NVG_RESERVATION || kind == NVG_RESERVE;
}

static void finish_wish(struct nvg_machine *m, struct nvg_wish *wish, int status)
{
    const struct nvg_wish was = *wish;
    memset(wish, 0, sizeof(*wish));
    if (!is_of_reservation(was.kind))
        return;
    memset(&m->event, 0, sizeof(m->event));
    m->event.kind = NVG_COMMITTED;
    m->event.nsid = was.nsid;
    m->event.epoch = was.epoch;
    m->event.id = was.user;
    m->event.status = status;
    m->port.tell(m->port.context, &m->event);
}

static struct nvg_wish *find_wish(struct nvg_machine *m, enum nvg_record_kind kind, uint32_t nsid)
{
    for (uint32_t i = 0; i < NVG_WISHES; i++)
        if (m->wishes[i].is_used && m->wishes[i].kind == kind && m->wishes[i].nsid == nsid)
            return &m->wishes[i];
    return NULL;
}

/* Each kind has at most one for a namespace. */
static struct nvg_wish *add_wish(struct nvg_machine *m, enum nvg_record_kind kind, uint32_t nsid,
                                 uint64_t epoch)
{
    struct nvg_wish *wish = find_wish(m, kind, nsid);
    for (uint32_t i = 0; !wish && i < NVG_WISHES; i++)
        if (!m->wishes[i].is_used)
            wish = &m->wishes[i];
    *wish = (struct nvg_wish){
        .is_used = true, .number = ++m->numbers, .kind = kind, .nsid = nsid, .epoch = epoch};
    return wish;
}

static bool is_owner_at(const struct nvg_machine *m, uint32_t nsid, uint64_t epoch)
{
    const struct nvg_place *place = nvg_state_place(&m->replica.now, nsid);
    return place && place->hold.epoch == epoch &&
           nvg_state_is_owner(place, m->slot, m->setup.self.who.incarnation);
}

/* Another member's change came first, or the log has this one. */
static void look_at_reserve(struct nvg_machine *m, struct nvg_wish *wish,
                            const struct nvg_place *place)
{
    const uint64_t last = place->hold.reservation_id;
    const bool is_own = place->reserved_by == m->setup.self.who.incarnation;
    wish->is_logged |= last == wish->id && is_own;
    if (wish->is_logged && m->mine[wish->nsid].settled >= wish->id) {
        finish_wish(m, wish, 0);
    } else if (!wish->is_logged && last > wish->id && wish->was_sent) {
        finish_wish(m, wish, -ESTALE); /* a checkpoint does not tell */
    } else if (!wish->is_logged && last >= wish->id) {
        wish->id = last + 1;
        wish->number = ++m->numbers;
        wish->is_sent = wish->was_sent = false;
    }
}

/* The log has it, or nobody can want it any more. */
static void look_at_wish(struct nvg_machine *m, struct nvg_wish *wish)
{
    const struct nvg_place *place = nvg_state_place(&m->replica.now, wish->nsid);
    const bool is_owner = is_owner_at(m, wish->nsid, wish->epoch);
    if (!place)
        return; /* LEAVE */
    if (wish->kind == NVG_RESERVE) {
        look_at_reserve(m, wish, place);
        return;
    }
    if (wish->kind == NVG_DISK) {
        if (place->disk.number >= wish->id) /* or another one: the target asks again */
            finish_wish(m, wish, 0);
        return;
    }
    if (wish->kind == NVG_RESERVATION && is_owner && place->hold.reservation_id >= wish->id)
        finish_wish(m, wish, 0);
    else if (!is_owner)
        finish_wish(m, wish, -ESTALE);
    else if ((wish->kind == NVG_OWN && place->hold.phase == NVG_OWNED) ||
             (wish->kind == NVG_NAMESPACE && place->about.size_bytes >= wish->size_bytes))
        finish_wish(m, wish, 0);
}

/* ---- what the target is told ---- */

static void wish_tell_of(struct nvg_machine *m, enum nvg_event_kind kind, uint32_t nsid)
{
    struct nvg_mine *mine = &m->mine[nsid];
    const struct nvg_place *place = &m->replica.now.places[nsid];
    memset(&m->event, 0, sizeof(m->event));
    m->event.kind = kind;
    m->event.nsid = nsid;
    m->event.epoch = kind == NVG_RELEASE ? mine->epoch : place->hold.epoch;
    m->event.is_taken = kind == NVG_RELEASE && place->hold.epoch > mine->epoch;
    m->event.host = place->host;
    m->event.size_bytes = place->about.size_bytes;
    m->event.disk_error = place->disk.error;
    if (place->hold.phase != NVG_FREE)
        memcpy(m->event.member, place->hold.owner.member, sizeof(m->event.member));
    m->event.former_count = kind == NVG_TAKE ? place->hold.former_count : 0;
    memcpy(m->event.formers, place->hold.formers,
           m->event.former_count * sizeof(m->event.formers[0]));
    if (kind == NVG_SERVE)
        m->event.reservation = place->reservation;
    m->port.tell(m->port.context, &m->event);
}

static void tell_release(struct nvg_machine *m, uint32_t nsid)
{
    m->mine[nsid].told = NVG_TOLD_RELEASE;
    wish_tell_of(m, NVG_RELEASE, nsid);
}

void nvg_wish_give_up(struct nvg_machine *m, uint32_t nsid, uint64_t epoch)
{
    if (m->mine[nsid].told == NVG_TOLD_SERVE && m->mine[nsid].epoch == epoch)
        tell_release(m, nsid);
}

/* The log names this member as the owner, and it has nothing of it open. */
static void wish_give_back(struct nvg_machine *m, uint32_t nsid)
{
    if (!find_wish(m, NVG_RELEASED_IT, nsid))
        add_wish(m, NVG_RELEASED_IT, nsid, m->mine[nsid].epoch);
}

static void look_at_owned(struct nvg_machine *m, uint32_t nsid, const struct nvg_hold *hold)
{
    struct nvg_mine *mine = &m->mine[nsid];
    if (hold->epoch > mine->epoch && m->is_leaving) {
        mine->epoch = hold->epoch;
        wish_give_back(m, nsid);
    } else if (hold->epoch > mine->epoch && hold->phase == NVG_TAKING) {
        mine->told = NVG_TOLD_TAKE;
        mine->epoch = hold->epoch;
        wish_tell_of(m, NVG_TAKE, nsid);
    } else if (mine->told == NVG_TOLD_TAKE && hold->phase == NVG_OWNED) {
        mine->told = NVG_TOLD_SERVE;
        wish_tell_of(m, NVG_SERVE, nsid);
    } else if (mine->told == NVG_TOLD_NOTHING || mine->told == NVG_TOLD_STANDBY) {
        wish_give_back(m, nsid); /* it gave that up while it had no leader */
    }
}

static void look_at_standby(struct nvg_machine *m, uint32_t nsid, const struct nvg_hold *hold)
{
    struct nvg_mine *mine = &m->mine[nsid];
    const uint64_t owner = hold->phase == NVG_FREE ? 0 : hold->owner.incarnation;
    if (mine->told == NVG_TOLD_STANDBY && mine->owner == owner)
        return;
    mine->told = NVG_TOLD_STANDBY;
    mine->owner = owner;
    wish_tell_of(m, NVG_STANDBY, nsid);
}

/* Each member carries out each change, in the order of the log. */
static void tell_reserved(struct nvg_machine *m, uint32_t nsid)
{
    const struct nvg_place *place = &m->replica.now.places[nsid];
    const struct nvg_wish *wish = find_wish(m, NVG_RESERVE, nsid);
    const uint64_t number = place->hold.reservation_id;
    struct nvt_applied *applied = &m->event.applied;
    memset(&m->event, 0, sizeof(m->event));
    m->event.kind = NVG_RESERVED;
    m->event.nsid = nsid;
    applied->number = number;
    applied->is_next = number == m->mine[nsid].reserved + 1 && place->change.opcode;
    applied->change = place->change;
    applied->after = place->reservation;
    if (wish && wish->is_logged && wish->id == number)
        applied->id = wish->user;
    m->mine[nsid].reserved = number;
    m->port.tell(m->port.context, &m->event);
}

void nvg_wish_note(struct nvg_machine *m, const struct nvg_record *record)
{
    if (record->kind != NVG_RESERVE || record->incarnation != m->setup.self.who.incarnation ||
        nvg_replica_allows(&m->replica, record) != NVG_FITS)
        return;
    struct nvg_wish *wish = find_wish(m, NVG_RESERVE, record->nsid);
    if (wish && wish->id == record->id)
        wish->is_logged = true;
}

void nvg_wish_settled(struct nvg_machine *m, uint32_t nsid, uint64_t number)
{
    struct nvg_wish *wish = find_wish(m, NVG_RESERVE, nsid);
    if (number > m->mine[nsid].settled)
        m->mine[nsid].settled = number;
    if (wish && wish->is_logged && m->mine[nsid].settled >= wish->id)
        finish_wish(m, wish, 0);
}

void nvg_wish_look(struct nvg_machine *m, uint32_t nsid)
{
    const struct nvg_place *place = nvg_state_place(&m->replica.now, nsid);
    struct nvg_mine *mine = &m->mine[nsid];
    if (!place)
        return;
    for (uint32_t i = 0; i < NVG_WISHES; i++)
        if (m->wishes[i].is_used && m->wishes[i].nsid == nsid)
            look_at_wish(m, &m->wishes[i]);
    if (m->replica.now.is_all_active && mine->reserved < place->hold.reservation_id)
        tell_reserved(m, nsid);
    if (mine->size_bytes < place->about.size_bytes) {
        mine->size_bytes = place->about.size_bytes;
        wish_tell_of(m, NVG_RESIZED, nsid);
    }
    if (mine->disk < place->disk.number) {
        mine->disk = place->disk.number;
        wish_tell_of(m, NVG_DISK_IS, nsid);
    }
    const bool has = mine->told == NVG_TOLD_TAKE || mine->told == NVG_TOLD_SERVE;
    if (has && !is_owner_at(m, nsid, mine->epoch))
        tell_release(m, nsid);
    if (mine->told == NVG_TOLD_RELEASE)
        return; /* one after the other */
    if (nvg_state_is_owner(place, m->slot, m->setup.self.who.incarnation))
        look_at_owned(m, nsid, &place->hold);
    else
        look_at_standby(m, nsid, &place->hold);
}

void nvg_wish_look_at_calm(struct nvg_machine *m)
{
    const uint64_t id = nvg_state_calm(&m->replica.now, m->slot, m->setup.self.who.incarnation);
    struct nvg_wish *wish = find_wish(m, NVG_CALMED, 0);
    if (wish && wish->id != id)
        finish_wish(m, wish, 0);
    if (!id || id == m->calm_told)
        return;
    m->calm_told = id;
    memset(&m->event, 0, sizeof(m->event));
    m->event.kind = NVG_CALM_DOWN;
    m->event.id = id;
    m->port.tell(m->port.context, &m->event);
}

/* ---- what the target says ---- */

void nvg_machine_calmed(struct nvg_machine *m, uint64_t id)
{
    if (m->role != NVG_STOPPED && id == m->calm_told)
        add_wish(m, NVG_CALMED, 0, 0)->id = id;
}

void nvg_machine_taken(struct nvg_machine *m, uint32_t nsid, uint64_t epoch, uint64_t size_bytes)
{
    if (!nsid || nsid > NVG_PLACES_MAX || m->mine[nsid].told != NVG_TOLD_TAKE ||
        m->mine[nsid].epoch != epoch)
        return; /* RELEASE was told meanwhile */
    add_wish(m, NVG_OWN, nsid, epoch)->size_bytes = size_bytes;
}

void nvg_machine_released(struct nvg_machine *m, uint32_t nsid, uint64_t epoch)
{
    if (!nsid || nsid > NVG_PLACES_MAX)
        return;
    struct nvg_mine *mine = &m->mine[nsid];
    if (mine->epoch != epoch || mine->told == NVG_TOLD_NOTHING || mine->told == NVG_TOLD_STANDBY)
        return;
    struct nvg_wish *own = find_wish(m, NVG_OWN, nsid);
    if (own)
        finish_wish(m, own, -ESTALE);
    mine->told = NVG_TOLD_NOTHING;
    if (m->is_synced)
        nvg_wish_look(m, nsid);
}

void nvg_machine_resized(struct nvg_machine *m, uint32_t nsid, uint64_t epoch, uint64_t size_bytes)
{
    if (is_owner_at(m, nsid, epoch))
        add_wish(m, NVG_NAMESPACE, nsid, epoch)->size_bytes = size_bytes;
}

int nvg_machine_reserve(struct nvg_machine *m, uint32_t nsid, uint64_t epoch,
                        const struct nvt_reservation *reservation, uint64_t id)
{
    if (!nvg_state_place(&m->replica.now, nsid) || reservation->count > NVT_REGISTRANTS_MAX)
        return -EINVAL;
    if (m->mine[nsid].told != NVG_TOLD_SERVE || m->mine[nsid].epoch != epoch)
        return -ESTALE;
    if (find_wish(m, NVG_RESERVATION, nsid))
        return -EBUSY;
    if (!nvg_may_decide(m))
        return -EAGAIN;
    struct nvg_wish *wish = add_wish(m, NVG_RESERVATION, nsid, epoch);
    wish->id = m->replica.now.places[nsid].hold.reservation_id + 1;
    wish->user = id;
    m->mine[nsid].wanted = *reservation;
    return 0;
}

int nvg_machine_change(struct nvg_machine *m, uint32_t nsid,
                       const struct nvt_reservation_change *change, uint64_t id)
{
    const struct nvg_place *place = nvg_state_place(&m->replica.now, nsid);
    if (!place || nvg_is_of_host(nsid) || !m->replica.now.is_all_active)
        return -EINVAL;
    if (find_wish(m, NVG_RESERVE, nsid))
        return -EBUSY;
    if (!nvg_may_decide(m) || !m->is_synced)
        return -EAGAIN;
    struct nvg_wish *wish = add_wish(m, NVG_RESERVE, nsid, 0);
    wish->id = place->hold.reservation_id + 1;
    wish->user = id;
    m->mine[nsid].change = *change;
    return 0;
}

int nvg_machine_disk(struct nvg_machine *m, uint32_t nsid, uint32_t error)
{
    const struct nvg_place *place = nvg_state_place(&m->replica.now, nsid);
    if (!place || nvg_is_of_host(nsid))
        return -ENOENT;
    if (!error && !nvg_may_decide(m))
        return -EAGAIN;
    struct nvg_wish *wish = find_wish(m, NVG_DISK, nsid);
    if (!place->disk.error == !error && !wish)
        return 0; /* it is known */
    if (wish && wish->error)
        return error ? 0 : -EAGAIN; /* a failure is on its way to the log */
    wish = add_wish(m, NVG_DISK, nsid, 0);
    wish->id = place->disk.number + 1;
    wish->error = error;
    return 0;
}

static bool has_own(const struct nvg_machine *m)
{
    for (uint32_t i = 1; i <= NVG_PLACES_MAX; i++) {
        const enum nvg_told told = m->mine[i].told;
        const struct nvg_place *place = nvg_state_place(&m->replica.now, i);
        if (told == NVG_TOLD_TAKE || told == NVG_TOLD_SERVE || told == NVG_TOLD_RELEASE ||
            (place && nvg_state_is_owner(place, m->slot, m->setup.self.who.incarnation)))
            return true;
    }
    return false;
}

void nvg_machine_leave(struct nvg_machine *m)
{
    if (m->role == NVG_STOPPED || m->is_leaving)
        return;
    m->is_leaving = true;
    m->leave_ns = m->now_ns;
    for (uint32_t i = 0; i < NVG_LINKS; i++)
        m->links[i].said_ns = 0; /* so that they hear of it at once */
    for (uint32_t i = 1; i <= NVG_PLACES_MAX; i++)
        if (m->mine[i].told == NVG_TOLD_TAKE || m->mine[i].told == NVG_TOLD_SERVE)
            tell_release(m, i);
}

/* ---- what the leader hears ---- */

void nvg_wish_refused(struct nvg_machine *m, uint64_t number, int status)
{
    for (uint32_t i = 0; i < NVG_WISHES; i++) {
        struct nvg_wish *wish = &m->wishes[i];
        if (!wish->is_used || wish->number != number)
            continue;
        const bool is_late = status == -ESTALE && wish->kind == NVG_RESERVE; /* it is seen there */
        if (is_late || (status == -EAGAIN && !is_of_reservation(wish->kind))) {
            wish->is_sent = false;
            wish->retry_ns = m->now_ns + (uint64_t)WISH_AGAIN_MS * NVG_MS;
        } else {
            finish_wish(m, wish, status);
        }
        return;
    }
}

static size_t wish_record(struct nvg_machine *m, const struct nvg_wish *wish,
                          uint8_t record[NVG_RECORD_MAX])
{
    struct nvg_record *made = &m->made;
    memset(made, 0, sizeof(*made));
    made->kind = wish->kind;
    made->nsid = wish->nsid;
    made->epoch = wish->epoch;
    made->id = wish->id;
    made->size_bytes = wish->size_bytes;
    made->error = wish->error;
    made->slot = m->slot;
    made->incarnation = m->setup.self.who.incarnation;
    made->reservation = m->mine[wish->nsid].wanted;
    made->change = m->mine[wish->nsid].change;
    made->about = m->replica.now.places[wish->nsid].about;
    if (wish->kind == NVG_NAMESPACE)
        made->about.size_bytes = wish->size_bytes;
    return nvg_record_put(made, record);
}

static void send_wish(struct nvg_machine *m, struct nvg_wish *wish)
{
    uint8_t record[NVG_RECORD_MAX];
    const uint64_t number = wish->number;
    const size_t bytes = wish_record(m, wish, record);
    wish->is_sent = wish->was_sent = true;
    if (m->role == NVG_LEADER) {
        nvg_lead_propose(m, NVG_LINKS, number, record, bytes);
        return;
    }
    memset(&m->out, 0, offsetof(struct nvg_message, record));
    m->out.kind = NVG_PROPOSE;
    m->out.number = number;
    m->out.record_bytes = (uint16_t)bytes;
    memcpy(m->out.record, record, bytes);
    nvg_send(m, m->leader_link, &m->out);
}

static void leave_when_free(struct nvg_machine *m)
{
    if (!m->is_leaving)
        return;
    const bool is_owner = has_own(m);
    if (!m->has_joined && !is_owner)
        nvg_stop(m, 0, "%s has not joined", m->setup.self.who.member);
    else if (!is_owner && m->is_synced && !find_wish(m, NVG_LEAVE, 0))
        add_wish(m, NVG_LEAVE, 0, 0);
    else if (m->now_ns - m->leave_ns >= m->setup.timeout_ns)
        nvg_stop(m, -EAGAIN, "%s has left, and could not tell the group", m->setup.self.who.member);
}

void nvg_wish_tick(struct nvg_machine *m)
{
    const bool has_leader = m->is_synced && (m->role == NVG_LEADER || m->role == NVG_FOLLOWER);
    for (uint32_t i = 0; i < NVG_WISHES; i++) {
        struct nvg_wish *wish = &m->wishes[i];
        if (!wish->is_used || wish->is_sent || wish->is_logged || wish->retry_ns > m->now_ns)
            continue;
        if (has_leader && m->has_joined)
            send_wish(m, wish);
        else if (is_of_reservation(wish->kind) && !wish->was_sent && m->role == NVG_SEEKING &&
                 m->now_ns - m->seek_ns >= m->setup.timeout_ns)
            finish_wish(m, wish, -EAGAIN);
    }
    leave_when_free(m);
}

/* There is another leader, and its state is known. */
void nvg_wish_anew(struct nvg_machine *m)
{
    for (uint32_t i = 0; i < NVG_WISHES; i++)
        m->wishes[i].is_sent = false;
    nvg_quiesce_anew(m);
    nvg_settle_anew(m);
    if (m->role != NVG_STOPPED)
        nvg_wish_tick(m);
}
