/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a program that polls completions treats the UDP port and the processor.
 *
 * A queue pair for datagrams can hear from other hosts, so polls of its completion queue look at
 * the port. Where no packet has come or gone for some time a look each few microseconds is enough:
 * all peers may be on this host.
 *
 * A program that polls in vain may hold the very processor that its peer is waiting for. So after a
 * while it yields. Whether that is of use is seen by what comes of it: a peer that polls as well
 * gives the processor back soon, and a packet is there. A program that comes back much later has
 * given its processor to some other work, and beside such work it must not yield: it does so again
 * after 1 ms, and each time that it is in vain after twice as long.
 *
 * No clock, no system call: times are given.
 */
#ifndef SW_LINK_ROCE_POLL_PACE_H
#define SW_LINK_ROCE_POLL_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"

struct sw_poll_pace {
    uint64_t found_ns;         /* when a poll last found packets */
    uint64_t yielded_ns;       /* 0: it has not yielded since it was last judged */
    uint64_t holds_ns;         /* until when it does not yield */
    struct sw_backoff backoff; /* of yields that were of no use */
};

/* Whether nothing is expected; `moved_ns`: when a packet last came or went. */
bool sw_poll_pace_is_quiet(uint64_t moved_ns, uint64_t now_ns);
/* Whether a poll is to look at the port all the same; `looked_ns`: when the last one did. */
bool sw_poll_pace_glances(uint64_t looked_ns, uint64_t now_ns);
/* What a look has found; `returned_ns`: when the yield before it ended. Whether to yield now. */
bool sw_poll_pace_yields(struct sw_poll_pace *pace, uint32_t found, uint64_t returned_ns,
                         uint64_t now_ns);

#endif
