/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that have an XRC domain open announce it by its identity (registry.c). */
#include "link/direct/process/domain.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "link/names/registry.h"

/* Opening a domain takes far less; a process that takes longer was stopped in the middle of it. */
#define PATIENCE_NS (1 * SW_NS_PER_S)

/* Two processes that open the same domain do it one after the other: the first one announces that
 * it is doing so. */
static int begin_opening(const char *name)
{
    char opening[SW_ANNOUNCED_BYTES];
    snprintf(opening, sizeof(opening), "opening.%s", name);
    uint64_t end_ns = sw_clock_ns() + PATIENCE_NS;
    for (;;) {
        int turn = sw_registry_announce_alone(opening);
        if (turn != -EADDRINUSE || sw_clock_ns() >= end_ns)
            return turn;
        usleep(1000);
    }
}

int sw_domain_announce(const struct sw_pub_domain *domain, int oflags)
{
    char name[34];
    uint16_t slot;
    snprintf(name, sizeof(name), "x%016" PRIx64 "%016" PRIx64, domain->id[0], domain->id[1]);
    int turn = begin_opening(name);
    bool exists = sw_registry_announcers(name, &slot, 1);
    int rc = 0;
    if (exists && oflags & O_EXCL)
        rc = -EINVAL;
    else if (!exists && !(oflags & O_CREAT))
        rc = -EAGAIN;
    else
        rc = sw_registry_announce(name);
    if (turn >= 0)
        close(turn);
    return rc;
}
