/* SPDX-License-Identifier: BSD-2-Clause */
/* All is rounded against the sender, so that the limit holds to the byte. */
#include "device/queue/pacer.h"

#include "base/minmax.h"

#define NS_OF_BYTE_AT_1_KBPS 8000000ull
#define BURST_BYTES 65536u

static uint64_t time_of(const struct sw_pacer *pacer, uint32_t len_bytes)
{
    return (len_bytes * NS_OF_BYTE_AT_1_KBPS + pacer->rate_kbps - 1) / pacer->rate_kbps;
}

void sw_pacer_set(struct sw_pacer *pacer, uint64_t now_ns, uint32_t rate_kbps, uint32_t burst_bytes,
                  uint32_t packet_bytes)
{
    uint32_t in_ms = rate_kbps / 8;
    if (!burst_bytes)
        burst_bytes = sw_max_u32(in_ms, BURST_BYTES);
    pacer->rate_kbps = rate_kbps;
    pacer->packet_bytes = packet_bytes;
    pacer->burst_bytes = sw_max_u32(burst_bytes, packet_bytes);
    uint64_t empty_ns = now_ns + time_of(pacer, pacer->burst_bytes);
    if (pacer->full_ns > empty_ns)
        pacer->full_ns = empty_ns; /* the bucket is smaller now, or fills faster */
}

static uint64_t bytes_in(const struct sw_pacer *pacer, uint64_t ns)
{
    return (ns * pacer->rate_kbps + NS_OF_BYTE_AT_1_KBPS - 1) / NS_OF_BYTE_AT_1_KBPS;
}

uint32_t sw_pacer_allows(const struct sw_pacer *pacer, uint64_t now_ns, uint32_t len_bytes)
{
    uint64_t missing = pacer->full_ns > now_ns ? bytes_in(pacer, pacer->full_ns - now_ns) : 0;
    uint64_t there = missing < pacer->burst_bytes ? pacer->burst_bytes - missing : 0;
    return len_bytes <= there ? len_bytes : (uint32_t)(there - there % pacer->packet_bytes);
}

uint64_t sw_pacer_due_ns(const struct sw_pacer *pacer, uint32_t len_bytes)
{
    uint64_t spare_bytes = len_bytes < pacer->burst_bytes ? pacer->burst_bytes - len_bytes : 0;
    uint64_t early_ns = spare_bytes * NS_OF_BYTE_AT_1_KBPS / pacer->rate_kbps;
    return pacer->full_ns > early_ns ? pacer->full_ns - early_ns : 0;
}

void sw_pacer_charge(struct sw_pacer *pacer, uint64_t now_ns, uint32_t len_bytes)
{
    uint64_t from_ns = sw_max_u64(pacer->full_ns, now_ns);
    pacer->full_ns = from_ns + time_of(pacer, len_bytes);
}
