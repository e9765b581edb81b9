/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where all members are active, each host's commands are done by one of them at a time. Members say
 * again and again which hosts are connected to them. The leader gives a host a number, and to one
 * of these members: that with the fewest hosts. All that is decided goes the way of any owner
 * (TAKE, OWN, RELEASE), so what is said here needs no record. A host goes to another member only
 * when its owner has given it up, or is suspected: the next one fences it then.
 */
#include <string.h>

#include "nvme/target/group/machine.h"

enum {
    HERE_MS = 1000, /* so long a member is believed that a host is connected to it */
    EARLY_MS = 200  /* within which a host that comes connects to most members */
};

void nvg_machine_host_is_here(struct nvg_machine *m, const struct nvg_host *host)
{
    if (!m->is_synced || !m->has_joined)
        return;
    if (m->role == NVG_LEADER) {
        nvg_hosts_hear(m, m->slot, host);
    } else if (m->role == NVG_FOLLOWER) {
        memset(&m->out, 0, offsetof(struct nvg_message, record));
        m->out.kind = NVG_HOST_HERE;
        m->out.host = *host;
        nvg_send(m, m->leader_link, &m->out);
    }
}

/* ---- the leader ---- */

static const struct nvg_presence *presence_of(const struct nvg_machine *m, uint32_t number)
{
    return &m->presences[number - NVG_NSID_MAX - 1];
}

bool nvg_hosts_is_anywhere(const struct nvg_machine *m, uint32_t number)
{
    for (uint8_t slot = 0; slot < NVG_SLOTS; slot++)
        if (presence_of(m, number)->until_ns[slot] > m->now_ns)
            return true;
    return false;
}

/* One that no host has, or whose host is gone and belongs to nobody; 0: there is none. */
static uint32_t free_host_number(const struct nvg_machine *m)
{
    const struct nvg_state *now = &m->replica.now;
    uint32_t number = 0;
    for (uint32_t i = NVG_PLACES_MAX; i > NVG_NSID_MAX; i--) {
        const struct nvg_hold *hold = &now->places[i].hold;
        if (!now->places[i].is_used || (!number && hold->phase == NVG_FREE && !hold->former_count &&
                                        !nvg_hosts_is_anywhere(m, i)))
            number = i;
    }
    return number;
}

void nvg_hosts_hear(struct nvg_machine *m, uint8_t slot, const struct nvg_host *host)
{
    uint32_t number = nvg_state_number_of(&m->replica.now, host);
    if (!m->replica.now.is_all_active)
        return;
    if (!number) {
        number = free_host_number(m);
        if (number)
            nvg_lead_name_host(m, number, host);
        return; /* it is said again */
    }
    struct nvg_presence *presence = &m->presences[number - NVG_NSID_MAX - 1];
    if (!nvg_hosts_is_anywhere(m, number))
        presence->since_ns = m->now_ns;
    presence->until_ns[slot] = m->now_ns + (uint64_t)HERE_MS * NVG_MS;
}

/* Its owner has given it up: until that member says so again, it is not connected there. */
void nvg_hosts_leave(struct nvg_machine *m, uint32_t number, uint8_t slot)
{
    m->presences[number - NVG_NSID_MAX - 1].until_ns[slot] = 0;
}

bool nvg_hosts_may_own(const struct nvg_machine *m, uint32_t number, uint8_t slot)
{
    return presence_of(m, number)->until_ns[slot] > m->now_ns || nvg_settle_wants(m, number);
}

bool nvg_hosts_is_early(const struct nvg_machine *m, uint32_t number)
{
    return m->now_ns - presence_of(m, number)->since_ns < (uint64_t)EARLY_MS * NVG_MS;
}
