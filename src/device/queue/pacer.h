/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rate limit: a bucket of `burst_bytes` that fills at the rate, and of which each byte that is
 * sent takes one. In any time t no more than rate x t + burst_bytes leave. Its state is the time at
 * which the bucket will be full. Pure: the time is an argument.
 */
#ifndef SW_DEVICE_QUEUE_PACER_H
#define SW_DEVICE_QUEUE_PACER_H

#include <stdint.h>

struct sw_pacer {
    uint32_t rate_kbps;
    uint32_t burst_bytes;
    uint32_t packet_bytes; /* a longer message goes in multiples of it */
    uint64_t full_ns;
};

/* burst_bytes 0: 64 KiB, or what the rate makes of a millisecond; never less than a packet. */
void sw_pacer_set(struct sw_pacer *pacer, uint64_t now_ns, uint32_t rate_kbps, uint32_t burst_bytes,
                  uint32_t packet_bytes);
/* How much of `len_bytes` may go now: all, a multiple of packets, or nothing. */
uint32_t sw_pacer_allows(const struct sw_pacer *pacer, uint64_t now_ns, uint32_t len_bytes);
/* When all of `len_bytes`, at most the burst, may go. */
uint64_t sw_pacer_due_ns(const struct sw_pacer *pacer, uint32_t len_bytes);
/* It went. */
void sw_pacer_charge(struct sw_pacer *pacer, uint64_t now_ns, uint32_t len_bytes);

#endif
