/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/crowd.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/origin.h"

/* What one address has of all places: three quarters of them where it is alone. */
enum { TIMES_FREE = 3 };

/* A guest that came just now is about to prove itself: it does not go for one that is refused
 * anyway. */
#define YOUNG_NS 1000000000ull

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

static uint32_t entries_of(uint32_t entries)
{
    return entries > NVT_CROWD_ENTRY_MIN ? entries : NVT_CROWD_ENTRY_MIN;
}

static void crowd_note_older(void **oldest, uint64_t *since_ns, const struct nvt_guest *guest)
{
    if (*oldest && *since_ns <= guest->since_ns)
        return;
    *oldest = guest->user;
    *since_ns = guest->since_ns;
}

static void count_io_queues(struct nvt_crowd *crowd, const struct nvt_guest *guest)
{
    if (guest->is_ending)
        return;
    crowd->io_places += guest->io_queues_max;
    crowd->io_taken += guest->is_io && (guest->is_expected || guest->is_proven);
}

static void count_unproven(struct nvt_crowd *crowd, const struct nvt_guest *guest,
                           bool is_of_address)
{
    const uint32_t entries = entries_of(guest->entries);
    if (guest->is_ending) {
        crowd->ending += entries;
        return;
    }
    crowd->unproven += entries;
    crowd_note_older(&crowd->oldest, &crowd->since_ns, guest);
    if (!is_of_address)
        return;
    crowd->unproven_of_address += entries;
    crowd_note_older(&crowd->oldest_of_address, &crowd->since_of_address_ns, guest);
}

void nvt_crowd_add(struct nvt_crowd *crowd, const struct nvt_guest *guest)
{
    const bool is_of_address = !strcmp(guest->address, crowd->address);
    crowd->count++;
    crowd->count_of_address += is_of_address;
    if (is_of_address)
        count_io_queues(crowd, guest);
    if (!guest->is_proven && !guest->is_expected)
        count_unproven(crowd, guest, is_of_address);
}

bool nvt_crowd_expects(const struct nvt_crowd *crowd)
{
    return crowd->is_io && crowd->io_taken < crowd->io_places;
}

static void *unless_young(const struct nvt_crowd *crowd, void *guest, uint64_t since_ns)
{
    return guest && crowd->now_ns > since_ns + YOUNG_NS ? guest : NULL;
}

bool nvt_crowd_admits(const struct nvt_crowd *crowd, void **leaves)
{
    const uint32_t entries = entries_of(crowd->entries);
    const bool is_expected = nvt_crowd_expects(crowd);
    *leaves = NULL;
    if (!is_expected && crowd->unproven + crowd->ending + entries > NVT_CROWD_ENDING)
        return false; /* until those have gone that are asked to */
    if (crowd->count >= crowd->places) {
        *leaves = unless_young(crowd, crowd->oldest, crowd->since_ns);
        return false;
    }
    if (crowd->count_of_address &&
        crowd->count_of_address + 1 > TIMES_FREE * (crowd->places - crowd->count - 1)) {
        *leaves = unless_young(crowd, crowd->oldest_of_address, crowd->since_of_address_ns);
        return false;
    }
    if (is_expected)
        return true;
    if (crowd->unproven_of_address + entries > NVT_CROWD_OF_ADDRESS)
        *leaves = crowd->oldest_of_address;
    else if (crowd->unproven + entries > NVT_CROWD_MAX)
        *leaves = crowd->oldest;
    return true;
}
