/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where all members are active, a change of a reservation is done when no member does a command for
 * a host any more that the change forbids. Each member carries out the changes in the order of the
 * log, and says which ones hold there (APPLIED). The leader waits for each process that owns a
 * host, or may still do commands of one: until it has said so, or is fenced. It needs no others: a
 * member that owns a host later has seen the change before. So a leader that was replaced, and does
 * not know it, is right, too.
 */
#include <string.h>

#include "nvme/target/group/machine.h"

static void say_applied(struct nvg_machine *m, uint32_t nsid)
{
    const uint64_t number = m->mine[nsid].applied;
    if (!number || m->role != NVG_FOLLOWER || !m->is_synced)
        return;
    memset(&m->out, 0, offsetof(struct nvg_message, record));
    m->out.kind = NVG_APPLIED;
    m->out.nsid = nsid;
    m->out.number = number;
    nvg_send(m, m->leader_link, &m->out);
}

void nvg_machine_applied(struct nvg_machine *m, uint32_t nsid, uint64_t number)
{
    if (!nsid || nsid > NVG_NSID_MAX || number <= m->mine[nsid].applied)
        return;
    m->mine[nsid].applied = number;
    say_applied(m, nsid);
}

void nvg_settle_anew(struct nvg_machine *m)
{
    for (uint32_t nsid = 1; nsid <= NVG_NSID_MAX; nsid++)
        say_applied(m, nsid);
}

/* ---- the leader ---- */

void nvg_settle_begin(struct nvg_machine *m)
{
    memset(m->settling, 0, sizeof(m->settling));
    memset(m->settled, 0, sizeof(m->settled));
}

void nvg_settle_hear(struct nvg_machine *m, uint8_t slot, uint64_t incarnation, uint32_t nsid,
                     uint64_t number)
{
    struct nvg_settling *settling = &m->settling[slot];
    if (settling->incarnation != incarnation)
        memset(settling, 0, sizeof(*settling));
    settling->incarnation = incarnation;
    if (number > settling->applied[nsid])
        settling->applied[nsid] = number;
}

/* The last change that holds at that process. */
static uint64_t applied_at(const struct nvg_machine *m, const struct nvg_former *who, uint32_t nsid)
{
    const struct nvg_settling *settling = &m->settling[who->slot];
    if (nvg_is_self(m, who->slot, who->incarnation))
        return m->mine[nsid].applied;
    return settling->incarnation == who->incarnation ? settling->applied[nsid] : 0;
}

/* The last change that holds at all processes that may do commands of that host. */
static uint64_t applied_for(const struct nvg_machine *m, const struct nvg_hold *hold, uint32_t nsid)
{
    uint64_t least = hold->phase == NVG_FREE ? UINT64_MAX : applied_at(m, &hold->owner, nsid);
    for (uint32_t i = 0; i < hold->former_count; i++) {
        const uint64_t applied = applied_at(m, &hold->formers[i], nsid);
        least = applied < least ? applied : least;
    }
    return least;
}

static void tell_settled(struct nvg_machine *m, uint32_t link, uint32_t nsid)
{
    memset(&m->out, 0, offsetof(struct nvg_message, record));
    m->out.kind = NVG_SETTLED;
    m->out.nsid = nsid;
    m->out.number = m->settled[nsid];
    nvg_send(m, link, &m->out);
}

void nvg_settle_welcome(struct nvg_machine *m, uint32_t link)
{
    for (uint32_t nsid = 1; nsid <= NVG_NSID_MAX; nsid++)
        if (m->settled[nsid])
            tell_settled(m, link, nsid);
}

static void say_settled(struct nvg_machine *m, uint32_t nsid, uint64_t number)
{
    m->settled[nsid] = number;
    for (uint32_t i = NVG_LINKS_IN; i < NVG_LINKS; i++)
        if (m->links[i].is_member)
            tell_settled(m, i, nsid);
    nvg_wish_settled(m, nsid, number);
}

void nvg_settle_tick(struct nvg_machine *m)
{
    const struct nvg_state *now = &m->replica.now;
    for (uint32_t nsid = 1; now->is_all_active && nsid <= NVG_NSID_MAX; nsid++) {
        uint64_t number = now->places[nsid].hold.reservation_id;
        if (number == m->settled[nsid])
            continue;
        for (uint32_t i = NVG_NSID_MAX + 1; i <= NVG_PLACES_MAX; i++) {
            const uint64_t applied = applied_for(m, &now->places[i].hold, nsid);
            number = applied < number ? applied : number;
        }
        if (number > m->settled[nsid])
            say_settled(m, nsid, number);
    }
}

bool nvg_settle_wants(const struct nvg_machine *m, uint32_t number)
{
    const struct nvg_state *now = &m->replica.now;
    if (nvg_hosts_is_anywhere(m, number))
        return false;
    for (uint32_t nsid = 1; nsid <= NVG_NSID_MAX; nsid++) {
        const uint64_t last = now->places[nsid].hold.reservation_id;
        if (last > m->settled[nsid] && applied_for(m, &now->places[number].hold, nsid) < last)
            return true;
    }
    return false;
}
