/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A namespace moves because an operator wants it to, and so does a host where all members are
 * active: by its number, to a member that it is connected to. A member hands the wish to the
 * leader, which has the owner give it up, and then chooses the wanted member in place of the one
 * that has the fewest. All that is decided goes the way of any owner that leaves: RELEASE, TAKE,
 * OWN. So a wish needs no record; one that its leader forgets, by its death, changes nothing or
 * leaves the choice to the next leader.
 *
 * A wish is for one epoch, that of the owner which is to give the namespace up. It ends with the
 * next owner, whoever that is. So whoever asked knows as soon as it sees another owner that its own
 * wish has come to nothing, and will not be fulfilled later.
 */
#include <errno.h>
#include <string.h>

#include "nvme/target/group/machine.h"

enum { WISHED_MS = 10000 /* then it is forgotten: its owner does not give it up */ };

int nvg_machine_move(struct nvg_machine *m, const struct nvg_moved *what, const char *member,
                     uint64_t *epoch)
{
    const struct nvg_state *now = &m->replica.now;
    const uint32_t nsid = what->host ? nvg_state_number_of(now, what->host) : what->nsid;
    const struct nvg_place *place = nvg_state_place(now, nsid);
    const struct nvg_join *to = nvg_state_member(now, member);
    if (!m->is_synced || !nvg_may_decide(m))
        return -EAGAIN;
    if (!what->host == now->is_all_active)
        return -EOPNOTSUPP;
    if (!place || (!what->host && nvg_is_of_host(nsid)))
        return -ENOENT;
    if (!to || !to->is_here)
        return -ESRCH;
    if (place->hold.phase == NVG_OWNED &&
        nvg_state_is_owner(place, to->who.slot, to->who.incarnation))
        return -EALREADY;
    *epoch = place->hold.epoch;
    if (m->role == NVG_LEADER) {
        nvg_move_wish(m, nsid, to->who.slot, *epoch);
        return 0;
    }
    memset(&m->out, 0, offsetof(struct nvg_message, record));
    m->out.kind = NVG_MOVE;
    m->out.nsid = nsid;
    m->out.slot = to->who.slot;
    m->out.epoch = *epoch;
    nvg_send(m, m->leader_link, &m->out);
    return 0;
}

/* ---- the leader ---- */

void nvg_move_wish(struct nvg_machine *m, uint32_t nsid, uint8_t slot, uint64_t epoch)
{
    const struct nvg_place *place = nvg_state_place(&m->replica.now, nsid);
    if (!place || place->hold.epoch != epoch || slot >= NVG_SLOTS)
        return;
    m->moves[nsid] = (struct nvg_move){.is_wanted = true,
                                       .slot = slot,
                                       .epoch = epoch,
                                       .until_ns = m->now_ns + (uint64_t)WISHED_MS * NVG_MS};
}

static void move_ask_owner(struct nvg_machine *m, uint32_t nsid, const struct nvg_former *owner)
{
    if (nvg_is_self(m, owner->slot, owner->incarnation)) {
        nvg_wish_give_up(m, nsid, owner->epoch);
        return;
    }
    for (uint32_t i = NVG_LINKS_IN; i < NVG_LINKS; i++) {
        if (!m->links[i].is_member || m->links[i].slot != owner->slot ||
            m->links[i].incarnation != owner->incarnation)
            continue;
        memset(&m->out, 0, offsetof(struct nvg_message, record));
        m->out.kind = NVG_MOVE;
        m->out.nsid = nsid;
        m->out.slot = m->moves[nsid].slot;
        m->out.epoch = owner->epoch;
        nvg_send(m, i, &m->out);
    }
}

static bool move_is_over(const struct nvg_machine *m, const struct nvg_move *move,
                         const struct nvg_place *place)
{
    return !place || m->now_ns >= move->until_ns ||
           (place->hold.phase == NVG_OWNED &&
            (place->hold.epoch != move->epoch || place->hold.owner.slot == move->slot));
}

/* An owner is asked once; while it takes the namespace, it is not asked yet. */
void nvg_move_tick(struct nvg_machine *m)
{
    for (uint32_t nsid = 1; nsid <= NVG_PLACES_MAX; nsid++) {
        struct nvg_move *move = &m->moves[nsid];
        const struct nvg_place *place = nvg_state_place(&m->replica.now, nsid);
        if (!move->is_wanted)
            continue;
        if (move_is_over(m, move, place)) {
            move->is_wanted = false;
            continue;
        }
        if (place->hold.phase != NVG_OWNED || move->asked == place->hold.epoch ||
            !nvg_lead_may_own(m, nsid, move->slot))
            continue;
        move->asked = place->hold.epoch;
        move_ask_owner(m, nsid, &place->hold.owner);
    }
}

int nvg_move_choice(const struct nvg_machine *m, uint32_t nsid)
{
    const struct nvg_move *move = &m->moves[nsid];
    return move->is_wanted && nvg_lead_may_own(m, nsid, move->slot) ? move->slot : -1;
}
