/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/crowd.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/serve/origin.h"
#include "common/time/units.h"

struct crowd_limits {
    uint32_t of_address, max, ending_of_address, ending, spare, bound;
};

static const struct crowd_limits crowd_limits[NVT_CROWD_KINDS] = {
    [NVT_CROWD_STRANGE] = {NVT_CROWD_OF_ADDRESS, NVT_CROWD_MAX, NVT_CROWD_ENDING_OF_ADDRESS,
                           NVT_CROWD_ENDING, NVT_CROWD_SPARE, NVT_CROWD_BOUND},
    [NVT_CROWD_AWAITED] = {NVT_CROWD_EXPECTED_OF_ADDRESS, NVT_CROWD_EXPECTED_MAX,
                           NVT_CROWD_EXPECTED_ENDING_OF_ADDRESS, NVT_CROWD_EXPECTED_ENDING,
                           NVT_CROWD_EXPECTED_SPARE, NVT_CROWD_EXPECTED_BOUND},
};

static bool has_network(const struct sockaddr *from)
{
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)from;
    return from->sa_family == AF_INET6 && mover_origin_is_network(&in6->sin6_addr);
}

void nvt_crowd_address(const struct sockaddr *from, char *text, size_t size)
{
    char prefix[INET6_ADDRSTRLEN];
    *text = '\0';
    if (has_network(from)) {
        const struct in6_addr network =
            mover_origin_of(&((const struct sockaddr_in6 *)(const void *)from)->sin6_addr);
        if (inet_ntop(AF_INET6, &network, prefix, sizeof(prefix)))
            snprintf(text, size, "%s/64", prefix);
        return;
    }
    const socklen_t len =
        from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (getnameinfo(from, len, text, (socklen_t)size, NULL, 0, NI_NUMERICHOST))
        *text = '\0';
}

/* ---- what is there ---- */

static uint32_t chain_of(const char *address)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *address; address++)
        hash = (hash ^ (uint8_t)*address) * 16777619u;
    return hash % NVT_CROWD_CHAINS;
}

/* Makes it where it is new. */
static struct nvt_crowd_address *crowd_address_of(struct nvt_crowd *crowd, const char *text)
{
    uint32_t *chain = &crowd->chains[chain_of(text)];
    uint32_t at = *chain;
    while (at && strcmp(crowd->addresses[at].address, text) != 0)
        at = crowd->addresses[at].next;
    if (at)
        return &crowd->addresses[at];
    assert(crowd->address_count < NVT_CROWD_ADDRESSES);
    at = ++crowd->address_count;
    crowd->addresses[at] = (struct nvt_crowd_address){.address = text, .next = *chain};
    *chain = at;
    return &crowd->addresses[at];
}

void nvt_crowd_clear(struct nvt_crowd *crowd)
{
    memset(crowd, 0, offsetof(struct nvt_crowd, addresses) + sizeof(crowd->addresses[0]));
}

static uint32_t entries_of(uint32_t entries)
{
    return entries > NVT_CROWD_ENTRY_MIN ? entries : NVT_CROWD_ENTRY_MIN;
}

static void share_count(struct nvt_crowd_share *share, const struct nvt_guest *guest)
{
    if (guest->is_ending)
        share->ending += entries_of(guest->entries);
    else
        mover_share_add(&share->there, entries_of(guest->entries), guest->since_ns, guest->user);
}

void nvt_crowd_add(struct nvt_crowd *crowd, const struct nvt_guest *guest)
{
    struct nvt_crowd_address *address = crowd_address_of(crowd, guest->address);
    const enum nvt_crowd_kind kind = guest->is_expected ? NVT_CROWD_AWAITED : NVT_CROWD_STRANGE;
    crowd->count++;
    crowd->all_completions += guest->completions;
    address->count++;
    address->completions += guest->completions;
    if (!guest->is_ending) {
        address->io_places += guest->io_queues_max;
        address->io_taken += guest->is_io && (guest->is_expected || guest->is_proven);
    }
    if (guest->is_proven)
        return;
    share_count(&crowd->unproven[kind], guest);
    share_count(&address->unproven[kind], guest);
}

/* ---- who may come, and who goes ---- */

bool nvt_crowd_expects(struct nvt_crowd *crowd)
{
    const struct nvt_crowd_address *address = crowd_address_of(crowd, crowd->address);
    return crowd->is_io && address->io_taken < address->io_places;
}

/* That of the address that has most. Where one has more come all the time, the oldest of all are
 * those of others. */
static const struct mover_share *largest_of(const struct nvt_crowd *crowd, enum nvt_crowd_kind kind)
{
    const struct mover_share *largest = &crowd->addresses[0].unproven[kind].there;
    for (uint32_t i = 1; i <= crowd->address_count; i++) {
        const struct mover_share *share = &crowd->addresses[i].unproven[kind].there;
        if (mover_share_goes_first(share, largest, crowd_limits[kind].spare))
            largest = share;
    }
    return largest;
}

static void *unless_young(const struct nvt_crowd *crowd, const struct mover_share *share)
{
    return mover_share_is_young(share, crowd->now_ns, NS_PER_S) ? NULL : share->oldest;
}

/* Until those have gone that are asked to. */
static bool has_to_wait(const struct nvt_crowd_share *all, const struct nvt_crowd_share *share,
                        const struct crowd_limits *limits, uint32_t entries)
{
    const uint64_t own = share->there.amount + share->ending + entries;
    return own > limits->ending_of_address ||
           all->there.amount + all->ending + entries >
               (own <= limits->spare ? limits->bound : limits->ending);
}

static bool crowd_is_full(uint64_t there, uint64_t more, uint64_t max)
{
    return there + more > max;
}

/* Places, or completions. `*leaves` is for the next one to come. */
static bool has_room(const struct nvt_crowd *crowd, const struct nvt_crowd_address *address,
                     void **leaves)
{
    if (crowd_is_full(crowd->count, 1, crowd->places) ||
        crowd_is_full(crowd->all_completions, crowd->completions, crowd->completions_max)) {
        *leaves = unless_young(crowd, largest_of(crowd, NVT_CROWD_STRANGE));
        return false;
    }
    if (mover_share_is_too_large(address->count, 1, crowd->places - crowd->count) ||
        mover_share_is_too_large(address->completions, crowd->completions,
                                 crowd->completions_max - crowd->all_completions)) {
        *leaves = unless_young(crowd, &address->unproven[NVT_CROWD_STRANGE].there);
        return false;
    }
    return true;
}

bool nvt_crowd_admits(struct nvt_crowd *crowd, void **leaves)
{
    const struct nvt_crowd_address *address = crowd_address_of(crowd, crowd->address);
    const enum nvt_crowd_kind kind =
        nvt_crowd_expects(crowd) ? NVT_CROWD_AWAITED : NVT_CROWD_STRANGE;
    const struct crowd_limits *limits = &crowd_limits[kind];
    const struct nvt_crowd_share *all = &crowd->unproven[kind], *share = &address->unproven[kind];
    const uint32_t entries = entries_of(crowd->entries);
    *leaves = NULL;
    if (has_to_wait(all, share, limits, entries) || !has_room(crowd, address, leaves))
        return false;
    if (share->there.amount + entries > limits->of_address)
        *leaves = share->there.oldest;
    else if (all->there.amount + entries > limits->max)
        *leaves = largest_of(crowd, kind)->oldest;
    return true;
}
