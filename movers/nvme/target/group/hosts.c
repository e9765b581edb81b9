/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where all members are active, each host's commands are done by one of them at a time. Members say
 * again and again which hosts are connected to them. The leader gives a host a number, and to one
 * of these members: that with the fewest hosts. All that is decided goes the way of any owner
 * (TAKE, OWN, RELEASE), so what is said here needs no record. A host goes to another member only
 * when its owner has given it up, or is suspected: the next one fences it then.
 *
 * Places are few, and a host is whatever calls itself one. So an address has half of them at most,
 * and a host without a place hears so at once. The leader learns addresses from members, and the
 * log has none: a leader that is new waits until it has heard of the hosts that are there.
 */
#include <string.h>

#include "nvme/target/group/machine.h"

enum {
    HERE_MS = 1000,  /* so long a member is believed that a host is connected to it */
    EARLY_MS = 200,  /* within which a host that comes connects to most members */
    KEPT_MS = 30000, /* hosts that have lost their connections call again, each 10 s or so */
    OF_ORIGIN = NVG_HOSTS_MAX / 2 /* places of one address: anybody can invent hosts */
};

void nvg_machine_host_is_here(struct nvg_machine *m, const struct nvg_host *host,
                              const uint8_t origin[NVG_ORIGIN_BYTES])
{
    if (!m->is_synced || !m->has_joined)
        return;
    if (m->role == NVG_LEADER) {
        nvg_hosts_hear(m, NVG_LINKS, host, origin);
    } else if (m->role == NVG_FOLLOWER) {
        memset(&m->out, 0, offsetof(struct nvg_message, record));
        m->out.kind = NVG_HOST_HERE;
        m->out.host = *host;
        m->out.has_origin = true;
        memcpy(m->out.origin, origin, sizeof(m->out.origin));
        nvg_send(m, m->leader_link, &m->out);
    }
}

enum nvg_room nvg_machine_room_for(const struct nvg_machine *m, const struct nvg_host *host)
{
    const struct nvg_state *now = &m->replica.now;
    if (!m->is_synced || !now->is_all_active)
        return NVG_MAY_HAVE;
    if (nvg_state_number_of(now, host))
        return NVG_HAS_PLACE;
    for (uint32_t i = NVG_NSID_MAX + 1; i <= NVG_PLACES_MAX; i++)
        if (!now->places[i].is_used || now->places[i].hold.phase == NVG_FREE)
            return NVG_MAY_HAVE;
    return NVG_IS_FULL;
}

void nvg_hosts_tell_placeless(struct nvg_machine *m, const struct nvg_host *host, bool is_of_origin)
{
    memset(&m->event, 0, sizeof(m->event));
    m->event.kind = NVG_NO_PLACE;
    m->event.host = *host;
    m->event.is_of_origin = is_of_origin;
    m->port.tell(m->port.context, &m->event);
}

/* ---- the leader ---- */

static struct nvg_presence *presence_of(struct nvg_machine *m, uint32_t number)
{
    return &m->presences[number - NVG_NSID_MAX - 1];
}

static const struct nvg_presence *look_at_presence(const struct nvg_machine *m, uint32_t number)
{
    return &m->presences[number - NVG_NSID_MAX - 1];
}

static bool is_spoken_for(const struct nvg_machine *m, uint32_t number)
{
    for (uint8_t slot = 0; slot < NVG_SLOTS; slot++)
        if (look_at_presence(m, number)->until_ns[slot] > m->now_ns)
            return true;
    return false;
}

/* What is known is about the host that the log has under that number. */
static bool is_of_its_host(const struct nvg_machine *m, uint32_t number)
{
    return nvg_is_same_host(&look_at_presence(m, number)->host,
                            &m->replica.now.places[number].host);
}

bool nvg_hosts_is_anywhere(const struct nvg_machine *m, uint32_t number)
{
    return is_of_its_host(m, number) && is_spoken_for(m, number);
}

/* A number is on its way to the log, for that host. */
static uint32_t number_under_way(const struct nvg_machine *m, const struct nvg_host *host)
{
    for (uint32_t i = NVG_NSID_MAX + 1; i <= NVG_PLACES_MAX; i++)
        if (is_spoken_for(m, i) && nvg_is_same_host(&look_at_presence(m, i)->host, host))
            return i;
    return 0;
}

/* ---- whose place a newcomer gets ---- */

static bool is_old(const struct nvg_machine *m, uint64_t heard_ns)
{
    return !heard_ns || m->now_ns - heard_ns >= (uint64_t)KEPT_MS * NVG_MS;
}

/* Its host is there, or has not been gone for long, and is connected from there. A network that is
 * not known is nobody's. */
static bool host_is_from(const struct nvg_machine *m, uint32_t number,
                         const uint8_t origin[NVG_ORIGIN_BYTES])
{
    static const uint8_t unknown[NVG_ORIGIN_BYTES];
    const struct nvg_presence *presence = look_at_presence(m, number);
    for (uint8_t slot = 0; slot < NVG_SLOTS; slot++)
        if (!is_old(m, presence->heard_ns[slot]) &&
            !memcmp(presence->origins[slot], origin, NVG_ORIGIN_BYTES))
            return memcmp(origin, unknown, NVG_ORIGIN_BYTES) != 0;
    return false;
}

static uint64_t host_heard_ns(const struct nvg_machine *m, uint32_t number)
{
    uint64_t last_ns = m->lead_ns;
    for (uint8_t slot = 0; slot < NVG_SLOTS; slot++)
        if (look_at_presence(m, number)->heard_ns[slot] > last_ns)
            last_ns = look_at_presence(m, number)->heard_ns[slot];
    return last_ns;
}

static bool host_is_registered(const struct nvg_state *now, const struct nvt_host_id *id)
{
    for (uint32_t nsid = 1; nsid <= NVG_NSID_MAX; nsid++)
        if (now->places[nsid].is_used &&
            nvt_reservation_is_registrant(&now->places[nsid].reservation, id))
            return true;
    return false;
}

/* How gladly a newcomer is given that number; the least comes first. */
enum { PLACE_UNUSED, PLACE_LEFT, PLACE_LEFT_REGISTERED, PLACE_OWN, PLACE_OWN_REGISTERED, NO_PLACE };

/* Its host is nowhere, and nobody has anything of it any more. An address that has all that it may
 * have gets those that its own hosts have left. */
static int rank_place(const struct nvg_machine *m, uint32_t number,
                      const uint8_t origin[NVG_ORIGIN_BYTES], bool may_have_more)
{
    const struct nvg_place *place = &m->replica.now.places[number];
    if (is_spoken_for(m, number))
        return NO_PLACE;
    if (!place->is_used)
        return may_have_more ? PLACE_UNUSED : NO_PLACE;
    if (place->hold.phase != NVG_FREE || place->hold.former_count)
        return NO_PLACE;
    const bool has_key = host_is_registered(&m->replica.now, &place->host.id);
    if (may_have_more && is_old(m, host_heard_ns(m, number)))
        return has_key ? PLACE_LEFT_REGISTERED : PLACE_LEFT;
    if (host_is_from(m, number, origin))
        return has_key ? PLACE_OWN_REGISTERED : PLACE_OWN;
    return NO_PLACE;
}

/* 0: there is none. */
static uint32_t choose_number(const struct nvg_machine *m, const uint8_t origin[NVG_ORIGIN_BYTES],
                              bool may_have_more)
{
    int least = NO_PLACE;
    uint32_t number = 0;
    for (uint32_t i = NVG_NSID_MAX + 1; i <= NVG_PLACES_MAX; i++) {
        const int rank = rank_place(m, i, origin, may_have_more);
        if (rank < least || (number && rank == least && rank != PLACE_UNUSED &&
                             host_heard_ns(m, i) < host_heard_ns(m, number))) {
            least = rank;
            number = i;
        }
    }
    return number;
}

static uint32_t count_used_places(const struct nvg_machine *m)
{
    uint32_t count = 0;
    for (uint32_t i = NVG_NSID_MAX + 1; i <= NVG_PLACES_MAX; i++)
        count += m->replica.now.places[i].is_used || is_spoken_for(m, i);
    return count;
}

static uint32_t count_hosts_from(const struct nvg_machine *m,
                                 const uint8_t origin[NVG_ORIGIN_BYTES])
{
    uint32_t count = 0;
    for (uint32_t i = NVG_NSID_MAX + 1; i <= NVG_PLACES_MAX; i++)
        count += host_is_from(m, i, origin);
    return count;
}

static void refuse_host(struct nvg_machine *m, uint32_t link, const struct nvg_host *host,
                        bool is_of_origin)
{
    if (link == NVG_LINKS)
        return nvg_hosts_tell_placeless(m, host, is_of_origin);
    memset(&m->out, 0, offsetof(struct nvg_message, record));
    m->out.kind = NVG_PLACELESS;
    m->out.host = *host;
    m->out.is_of_origin = is_of_origin;
    nvg_send(m, link, &m->out);
}

/* 0: there is no place for it now. */
static uint32_t host_gets_number(struct nvg_machine *m, uint32_t link, const struct nvg_host *host,
                                 const uint8_t origin[NVG_ORIGIN_BYTES])
{
    const bool is_scarce = count_used_places(m) >= OF_ORIGIN;
    if (is_scarce && m->now_ns - m->lead_ns < (uint64_t)HERE_MS * NVG_MS)
        return 0; /* hosts that are there have not been told of yet; it is said again */
    if (!nvg_lead_counts(m) || !m->has_quorum)
        return 0;
    const bool may_have_more = !is_scarce || count_hosts_from(m, origin) < OF_ORIGIN;
    const uint32_t number = choose_number(m, origin, may_have_more);
    if (!number)
        refuse_host(m, link, host, !may_have_more);
    else
        nvg_lead_name_host(m, number, host);
    return number;
}

void nvg_hosts_hear(struct nvg_machine *m, uint32_t link, const struct nvg_host *host,
                    const uint8_t origin[NVG_ORIGIN_BYTES])
{
    const uint8_t slot = link == NVG_LINKS ? m->slot : m->links[link].slot;
    if (!m->replica.now.is_all_active)
        return;
    uint32_t number = nvg_state_number_of(&m->replica.now, host);
    if (!number)
        number = number_under_way(m, host);
    if (!number)
        number = host_gets_number(m, link, host, origin);
    if (!number)
        return;
    struct nvg_presence *presence = presence_of(m, number);
    if (!nvg_is_same_host(&presence->host, host))
        memset(presence, 0, sizeof(*presence));
    if (!is_spoken_for(m, number))
        presence->since_ns = m->now_ns;
    presence->host = *host;
    presence->until_ns[slot] = m->now_ns + (uint64_t)HERE_MS * NVG_MS;
    presence->heard_ns[slot] = m->now_ns;
    memcpy(presence->origins[slot], origin, NVG_ORIGIN_BYTES);
}

/* Its owner has given it up: until that member says so again, it is not connected there. */
void nvg_hosts_leave(struct nvg_machine *m, uint32_t number, uint8_t slot)
{
    presence_of(m, number)->until_ns[slot] = 0;
}

bool nvg_hosts_may_own(const struct nvg_machine *m, uint32_t number, uint8_t slot)
{
    const bool is_here =
        is_of_its_host(m, number) && look_at_presence(m, number)->until_ns[slot] > m->now_ns;
    return is_here || nvg_settle_wants(m, number);
}

bool nvg_hosts_is_early(const struct nvg_machine *m, uint32_t number)
{
    return m->now_ns - look_at_presence(m, number)->since_ns < (uint64_t)EARLY_MS * NVG_MS;
}
