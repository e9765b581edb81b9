/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a leader does: one append at a time, so that each decision is made in the state that it
 * changes. A record counts when it is in the log; then the leader tells it to all members.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "nvme/target/group/machine.h"

enum {
    GRACE_MS = 100, /* for a member whose link was lost, to call again */
    REFUSED_MS = 1000,
    PULSE_MS = 1000
};

bool nvg_lead_counts(const struct nvg_machine *m)
{
    return m->role == NVG_LEADER && m->has_joined &&
           m->replica.now.lead_incarnation == m->setup.self.who.incarnation;
}

static void refuse_job(struct nvg_machine *m, uint32_t link, uint64_t number, int status)
{
    if (!number)
        return;
    if (link == NVG_LINKS) {
        nvg_wish_refused(m, number, status);
        return;
    }
    memset(&m->out, 0, sizeof(m->out));
    m->out.kind = NVG_REFUSE;
    m->out.number = number;
    m->out.status = status;
    nvg_send(m, link, &m->out);
}

static bool queue_bytes(struct nvg_machine *m, uint32_t link, uint64_t number,
                        const uint8_t *record, size_t bytes)
{
    if (m->job_count == NVG_JOBS)
        return false;
    struct nvg_job *job = &m->jobs[(m->job_first + m->job_count++) % NVG_JOBS];
    job->link = (uint8_t)link;
    job->number = number;
    job->bytes = (uint16_t)bytes;
    memcpy(job->record, record, bytes);
    return true;
}

/* A decision of the leader itself: m->made. */
static void queue_made(struct nvg_machine *m)
{
    uint8_t record[NVG_RECORD_MAX];
    const size_t bytes = nvg_record_put(&m->made, record);
    if (bytes)
        queue_bytes(m, NVG_LINKS, 0, record, bytes);
}

static void append_job(struct nvg_machine *m)
{
    m->is_appending = true;
    m->appends++;
    m->port.journal_append(m->port.context, m->now.record, m->now.bytes);
}

static bool append_dump(struct nvg_machine *m)
{
    if (!m->is_dumping || !nvg_state_dump(&m->replica.now, &m->dump, &m->made)) {
        m->is_dumping = false;
        return false;
    }
    m->now = (struct nvg_job){.link = NVG_LINKS};
    m->now.bytes = (uint16_t)nvg_record_put(&m->made, m->now.record);
    assert(m->now.bytes);
    append_job(m);
    return true;
}

/* The next record of the queue that fits what is decided. */
static void lead_pump(struct nvg_machine *m)
{
    if (m->is_appending || m->role != NVG_LEADER || append_dump(m))
        return;
    while (m->job_count) {
        m->now = m->jobs[m->job_first];
        m->job_first = (m->job_first + 1) % NVG_JOBS;
        m->job_count--;
        if (nvg_record_get(m->now.record, m->now.bytes, &m->made) &&
            nvg_replica_allows(&m->replica, &m->made) == NVG_FITS) {
            append_job(m);
            return;
        }
        refuse_job(m, m->now.link, m->now.number, -ESTALE);
    }
    if (m->wants_checkpoint && nvg_lead_counts(m) && m->has_quorum) {
        m->wants_checkpoint = false;
        m->is_dumping = true;
        m->dump = 0;
        append_dump(m);
    }
}

void nvg_lead_begin(struct nvg_machine *m, bool wants_checkpoint)
{
    const struct nvg_state *now = &m->replica.now;
    const uint64_t own = m->setup.self.who.incarnation;
    if (nvg_stops_unfit(m))
        return;
    if (m->has_joined && !nvg_state_has(now, m->slot, own)) {
        nvg_stop(m, -EEXIST, "another process has joined the group as %s",
                 m->setup.self.who.member);
        return;
    }
    m->role = NVG_LEADER;
    m->is_synced = m->has_quorum = true;
    m->lead_ns = m->now_ns;
    m->is_replaced = m->was_cut = false;
    m->shunned = 0;
    memset(m->moves, 0, sizeof(m->moves)); /* of an earlier lead */
    memset(m->presences, 0, sizeof(m->presences));
    nvg_settle_begin(m);
    m->slot = (uint8_t)nvg_state_slot_for(now, m->setup.self.who.member);
    m->wants_checkpoint = wants_checkpoint;
    memset(&m->made, 0, sizeof(m->made));
    m->made.kind = NVG_ABANDON;
    if (m->replica.is_filling)
        queue_made(m);
    m->made.kind = m->setup.is_all_active ? NVG_GROUP_ALL : NVG_GROUP;
    for (int i = 0; i < 16; i++)
        m->made.identity[i] = (uint8_t)m->port.draw(m->port.context);
    strncpy(m->made.nqn, m->setup.nqn, sizeof(m->made.nqn) - 1);
    if (!now->has_group)
        queue_made(m);
    m->made.kind = NVG_JOIN;
    m->made.join = m->setup.self;
    m->made.join.who.slot = m->slot;
    m->made.join.is_here = true;
    if (!nvg_state_has(now, m->slot, own))
        queue_made(m);
    m->made.kind = NVG_LEAD;
    m->made.slot = m->slot;
    m->made.incarnation = own;
    queue_made(m);
    lead_pump(m);
}

/* ---- members ---- */

static void push_record(struct nvg_machine *m, uint32_t link, const uint8_t *record, size_t bytes)
{
    memset(&m->out, 0, offsetof(struct nvg_message, record));
    m->out.kind = NVG_PUSH;
    m->out.record_bytes = (uint16_t)bytes;
    memcpy(m->out.record, record, bytes);
    nvg_send(m, link, &m->out);
}

static void welcome_link(struct nvg_machine *m, uint32_t link, uint8_t slot)
{
    uint8_t record[NVG_RECORD_MAX];
    uint32_t cursor = 0;
    struct nvg_link *l = &m->links[link];
    for (uint32_t i = NVG_LINKS_IN; i < NVG_LINKS; i++)
        if (i != link && m->links[i].is_member && m->links[i].slot == slot)
            nvg_hang_up(m, i); /* an earlier call of the same process */
    l->is_member = true;
    l->is_joining = false;
    l->slot = slot;
    m->peers[slot].gone = 0;
    memset(&m->out, 0, sizeof(m->out));
    m->out.kind = NVG_WELCOME;
    m->out.slot = slot;
    nvg_send(m, link, &m->out);
    while (nvg_state_dump(&m->replica.now, &cursor, &m->made))
        push_record(m, link, record, nvg_record_put(&m->made, record));
    nvg_settle_welcome(m, link);
}

static void halt_link(struct nvg_machine *m, uint32_t link, const char *text)
{
    memset(&m->out, 0, sizeof(m->out));
    m->out.kind = NVG_HALT;
    strncpy(m->out.text, text, sizeof(m->out.text) - 1);
    nvg_send(m, link, &m->out);
    nvg_hang_up(m, link);
}

void nvg_lead_hello(struct nvg_machine *m, uint32_t link, const struct nvg_message *hello)
{
    const struct nvg_state *now = &m->replica.now;
    const struct nvg_former *who = &hello->join.who;
    const struct nvg_join *known = nvg_state_member(now, who->member);
    struct nvg_link *l = &m->links[link];
    const int slot = nvg_state_slot_for(now, who->member);
    l->incarnation = who->incarnation;
    if (nvg_lead_counts(m) && known && nvg_state_has(now, known->who.slot, who->incarnation)) {
        welcome_link(m, link, known->who.slot);
    } else if (hello->is_member && nvg_lead_counts(m)) {
        halt_link(m, link, "another process has joined the group under this member's name");
    } else if (slot < 0) {
        halt_link(m, link, "the group has 16 members already");
    } else if (!nvg_lead_counts(m) || !m->has_quorum || m->is_leaving ||
               m->job_count > NVG_JOBS / 2) {
        memset(&m->out, 0, sizeof(m->out));
        m->out.kind = NVG_ANSWER;
        m->out.role = NVG_CANDIDATE;
        m->out.slot = m->slot;
        m->out.leads_slot = NVG_SLOTS;
        nvg_send(m, link, &m->out);
        nvg_hang_up(m, link);
    } else {
        l->is_joining = true;
        memset(&m->made, 0, sizeof(m->made));
        m->made.kind = NVG_JOIN;
        m->made.join = hello->join;
        m->made.join.who.slot = (uint8_t)slot;
        m->made.join.is_here = true;
        queue_made(m);
        lead_pump(m);
    }
}

uint32_t nvg_lead_link_of(const struct nvg_machine *m, uint8_t slot, uint64_t incarnation)
{
    for (uint32_t i = NVG_LINKS_IN; i < NVG_LINKS; i++)
        if (m->links[i].is_member && m->links[i].slot == slot &&
            m->links[i].incarnation == incarnation)
            return i;
    return NVG_LINKS;
}

static bool is_linked(const struct nvg_machine *m, uint8_t slot, uint64_t incarnation)
{
    return nvg_lead_link_of(m, slot, incarnation) < NVG_LINKS || nvg_is_self(m, slot, incarnation);
}

/* Tells the members that the log names who leads. A refused call says that one is gone. */
static void call_members(struct nvg_machine *m)
{
    for (uint8_t i = 0; i < NVG_SLOTS; i++) {
        const struct nvg_join *member = &m->replica.now.members[i];
        if (m->links[i].is_open || !m->replica.now.has_member[i] || !member->is_here ||
            is_linked(m, i, member->who.incarnation))
            continue;
        m->links[i] = (struct nvg_link){.is_open = true,
                                        .slot = i,
                                        .incarnation = member->who.incarnation,
                                        .heard_ns = m->now_ns,
                                        .since_ns = m->now_ns};
        m->port.dial(m->port.context, i, member->group_address);
    }
}

/* A member has joined: it hears the state, and one that had its name before ends. */
static void greet_member(struct nvg_machine *m, const struct nvg_former *who)
{
    for (uint32_t i = NVG_LINKS_IN; i < NVG_LINKS; i++) {
        const struct nvg_link *l = &m->links[i];
        if (l->is_member && l->slot == who->slot && l->incarnation != who->incarnation)
            halt_link(m, i, "another process has joined the group under this member's name");
    }
    for (uint32_t i = NVG_LINKS_IN; i < NVG_LINKS; i++)
        if (m->links[i].is_joining && m->links[i].incarnation == who->incarnation)
            welcome_link(m, i, who->slot);
}

/* ---- what members propose ---- */

static bool may_propose(const struct nvg_machine *m, const struct nvg_record *record, uint8_t slot,
                        uint64_t incarnation)
{
    const struct nvg_place *place = nvg_state_place(&m->replica.now, record->nsid);
    switch (record->kind) {
    case NVG_OWN:
    case NVG_RELEASED_IT:
    case NVG_RESERVATION:
        return place && nvg_state_is_owner(place, slot, incarnation);
    case NVG_LEAVE:
    case NVG_CALMED:
        return record->slot == slot && record->incarnation == incarnation;
    case NVG_RESERVE:
        return place && record->incarnation == incarnation;
    case NVG_DISK:
        return place && !nvg_is_of_host(record->nsid);
    case NVG_NAMESPACE:
        return true;
    case NVG_GROUP:
    case NVG_GROUP_ALL:
    case NVG_HOST:
    case NVG_LEAD:
    case NVG_JOIN:
    case NVG_TAKING_IT:
    case NVG_BEGIN:
    case NVG_HOLD:
    case NVG_END:
    case NVG_ABANDON:
    case NVG_CALM:
        return false;
    }
    return false;
}

static bool lead_is_under_way(const struct nvg_machine *m, const uint8_t *record, size_t bytes)
{
    if (m->is_appending && m->now.bytes == bytes && !memcmp(m->now.record, record, bytes))
        return true;
    for (uint32_t i = 0; i < m->job_count; i++) {
        const struct nvg_job *job = &m->jobs[(m->job_first + i) % NVG_JOBS];
        if (job->bytes == bytes && !memcmp(job->record, record, bytes))
            return true;
    }
    return false;
}

void nvg_lead_propose(struct nvg_machine *m, uint32_t link, uint64_t number, const uint8_t *record,
                      size_t bytes)
{
    const bool is_own = link == NVG_LINKS;
    const uint8_t slot = is_own ? m->slot : m->links[link].slot;
    const uint64_t incarnation =
        is_own ? m->setup.self.who.incarnation : m->links[link].incarnation;
    if (!nvg_record_get(record, bytes, &m->made)) {
        refuse_job(m, link, number, -EINVAL);
        return;
    }
    if (lead_is_under_way(m, record, bytes))
        return; /* its member has asked again, and will see it */
    if (!may_propose(m, &m->made, slot, incarnation))
        refuse_job(m, link, number, -ESTALE);
    else if (!nvg_lead_counts(m) || !m->has_quorum || !queue_bytes(m, link, number, record, bytes))
        refuse_job(m, link, number, -EAGAIN);
    lead_pump(m);
}

void nvg_lead_quorum(struct nvg_machine *m, bool has_quorum)
{
    if (m->has_quorum && !has_quorum)
        m->quorum_ns = m->now_ns;
    m->has_quorum = has_quorum;
    for (uint32_t i = m->job_count; !has_quorum && i; i--) {
        const struct nvg_job job = m->jobs[m->job_first];
        m->job_first = (m->job_first + 1) % NVG_JOBS;
        m->job_count--;
        if (job.number)
            refuse_job(m, job.link, job.number, -EAGAIN);
        else
            queue_bytes(m, NVG_LINKS, 0, job.record, job.bytes);
    }
}

/* ---- decisions ---- */

bool nvg_lead_suspects(const struct nvg_machine *m, uint8_t slot, uint64_t incarnation)
{
    const struct nvg_peer *peer = &m->peers[slot];
    if (!nvg_state_has(&m->replica.now, slot, incarnation))
        return true;
    if (is_linked(m, slot, incarnation))
        return false;
    const uint64_t since_ns = peer->gone_ns > m->lead_ns ? peer->gone_ns : m->lead_ns;
    if (peer->gone == incarnation && m->now_ns - since_ns >= (uint64_t)GRACE_MS * NVG_MS)
        return true;
    return m->now_ns - m->lead_ns >= m->setup.timeout_ns;
}

bool nvg_lead_may_own(const struct nvg_machine *m, uint32_t nsid, uint8_t slot)
{
    const struct nvg_state *now = &m->replica.now;
    if (nvg_is_of_host(nsid) && !nvg_hosts_may_own(m, nsid, slot))
        return false;
    if (m->mine[nsid].refused_ns[slot] > m->now_ns || !now->has_member[slot] ||
        nvg_state_calm(now, slot, now->members[slot].who.incarnation))
        return false;
    if (slot == m->slot)
        return !m->is_leaving;
    for (uint32_t i = NVG_LINKS_IN; i < NVG_LINKS; i++)
        if (m->links[i].is_member && m->links[i].slot == slot)
            return !m->links[i].is_leaving;
    return false;
}

static uint32_t count_owned(const struct nvg_machine *m, uint8_t slot)
{
    uint32_t count = 0;
    for (uint32_t i = 1; i <= NVG_PLACES_MAX; i++) {
        const struct nvg_place *place = &m->replica.now.places[i];
        count += place->is_used && place->hold.phase != NVG_FREE && place->hold.owner.slot == slot;
    }
    return count;
}

/* The one that is wanted, or has the fewest namespaces or hosts; -1: nobody can have it now. */
static int choose_owner(const struct nvg_machine *m, uint32_t nsid)
{
    int best = nvg_move_choice(m, nsid);
    uint32_t fewest = best < 0 ? UINT32_MAX : 0;
    for (uint8_t slot = 0; slot < NVG_SLOTS; slot++) {
        const uint32_t count = nvg_lead_may_own(m, nsid, slot) ? count_owned(m, slot) : UINT32_MAX;
        if (count < fewest) {
            best = slot;
            fewest = count;
        }
    }
    return best;
}

/* True: it has queued a decision. */
static bool assign_place(struct nvg_machine *m, uint32_t nsid)
{
    const struct nvg_place *place = &m->replica.now.places[nsid];
    const struct nvg_hold *hold = &place->hold;
    if (!place->is_used || (hold->phase != NVG_FREE &&
                            !nvg_lead_suspects(m, hold->owner.slot, hold->owner.incarnation)))
        return false;
    if (nvg_is_of_host(nsid) != m->replica.now.is_all_active ||
        (nvg_is_of_host(nsid) && nvg_hosts_is_early(m, nsid)))
        return false;
    const int slot = choose_owner(m, nsid);
    if (slot < 0)
        return false;
    memset(&m->made, 0, sizeof(m->made));
    m->made.kind = NVG_TAKING_IT;
    m->made.nsid = nsid;
    m->made.owner = m->replica.now.members[slot].who;
    m->made.owner.epoch = hold->epoch + 1;
    if (nvg_replica_allows(&m->replica, &m->made) != NVG_FITS)
        return false;
    queue_made(m);
    return true;
}

static bool announce_namespaces(struct nvg_machine *m)
{
    for (uint32_t i = 0; i < m->setup.namespace_count; i++) {
        if (nvg_state_place(&m->replica.now, m->setup.namespaces[i].nsid))
            continue;
        memset(&m->made, 0, sizeof(m->made));
        m->made.kind = NVG_NAMESPACE;
        m->made.about = m->setup.namespaces[i];
        queue_made(m);
        return true;
    }
    return false;
}

void nvg_lead_name_host(struct nvg_machine *m, uint32_t number, const struct nvg_host *host)
{
    uint8_t record[NVG_RECORD_MAX];
    memset(&m->made, 0, sizeof(m->made));
    m->made.kind = NVG_HOST;
    m->made.nsid = number;
    m->made.host = *host;
    const size_t bytes = nvg_record_put(&m->made, record);
    if (!bytes || !nvg_lead_counts(m) || !m->has_quorum || lead_is_under_way(m, record, bytes))
        return;
    queue_bytes(m, NVG_LINKS, 0, record, bytes);
    lead_pump(m);
}

void nvg_lead_order_calm(struct nvg_machine *m, uint8_t slot)
{
    memset(&m->made, 0, sizeof(m->made));
    m->made.kind = NVG_CALM;
    m->made.slot = slot;
    m->made.incarnation = m->replica.now.members[slot].who.incarnation;
    do
        m->made.id = m->port.draw(m->port.context);
    while (!m->made.id);
    queue_made(m);
}

void nvg_lead_prove(struct nvg_machine *m)
{
    memset(&m->made, 0, sizeof(m->made));
    m->made.kind = NVG_LEAD;
    m->made.slot = m->slot;
    m->made.incarnation = m->setup.self.who.incarnation;
    queue_made(m);
}

/* A member that does not reach this one reads the log. It sees the log grow, so somebody leads. */
static bool show_life(struct nvg_machine *m)
{
    const struct nvg_state *now = &m->replica.now;
    bool is_missing = false;
    for (uint8_t i = 0; i < NVG_SLOTS; i++)
        is_missing |= now->has_member[i] && now->members[i].is_here &&
                      !is_linked(m, i, now->members[i].who.incarnation);
    if (!is_missing || m->now_ns - m->pulse_ns < (uint64_t)PULSE_MS * NVG_MS)
        return false;
    m->pulse_ns = m->now_ns;
    nvg_lead_prove(m);
    return true;
}

void nvg_lead_tick(struct nvg_machine *m)
{
    if (!m->has_quorum && m->now_ns - m->quorum_ns >= m->setup.timeout_ns) {
        /* Perhaps others reach the log. */
        nvg_close_links(m);
        m->port.journal_close(m->port.context);
        nvg_seek(m);
        m->retry_ns = m->now_ns + m->setup.timeout_ns;
        return;
    }
    lead_pump(m);
    nvg_settle_tick(m);
    if (m->is_appending || m->job_count || !nvg_lead_counts(m) || !m->has_quorum)
        return;
    nvg_move_tick(m);
    bool has_decided = announce_namespaces(m) || nvg_quiesce_decide(m) || show_life(m);
    for (uint32_t i = 1; !has_decided && i <= NVG_PLACES_MAX; i++)
        has_decided = assign_place(m, i);
    lead_pump(m);
}

void nvg_lead_done(struct nvg_machine *m, bool wants_checkpoint)
{
    struct nvg_record *done = &m->record;
    m->is_appending = false;
    m->appended = m->appends;
    if (!nvg_record_get(m->now.record, m->now.bytes, done))
        return;
    const struct nvg_hold *hold = &m->replica.now.places[done->nsid].hold;
    const bool has_left = nvg_is_of_host(done->nsid) && hold->phase == NVG_OWNED;
    if (done->kind == NVG_RELEASED_IT && !has_left) /* it could not have it, or has lost it */
        m->mine[done->nsid].refused_ns[hold->owner.slot] =
            m->now_ns + (uint64_t)REFUSED_MS * NVG_MS;
    if (done->kind == NVG_RELEASED_IT && has_left)
        nvg_hosts_leave(m, done->nsid, hold->owner.slot);
    nvg_wish_note(m, done);
    nvg_replica_take(&m->replica, done);
    if (done->kind == NVG_CALM && !m->replica.is_filling)
        m->calm_appended[done->slot] = m->appended;
    for (uint32_t i = NVG_LINKS_IN; i < NVG_LINKS; i++)
        if (m->links[i].is_member)
            push_record(m, i, m->now.record, m->now.bytes);
    m->wants_checkpoint |= wants_checkpoint && !m->is_dumping;
    if (done->kind == NVG_END)
        m->port.journal_trim(m->port.context);
    if (done->kind == NVG_JOIN && !m->replica.is_filling)
        greet_member(m, &done->join.who);
    const uint32_t nsid = done->kind == NVG_NAMESPACE ? done->about.nsid : done->nsid;
    const bool is_lead = done->kind == NVG_LEAD;
    if (!m->replica.is_filling)
        nvg_state_moved(m, nsid);
    if (is_lead && m->role == NVG_LEADER) {
        call_members(m);
        nvg_wish_anew(m);
    }
    if (m->role == NVG_LEADER) {
        nvg_quiesce_tick(m);
        nvg_lead_tick(m);
    }
}
