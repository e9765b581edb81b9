/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/iwarp/pacing.h"

#include "base/clock.h"
#include "base/minmax.h"

void sw_iwarp_pacing_start(struct sw_iwarp_pacing *p)
{
    *p = (struct sw_iwarp_pacing){.is_on = true, .unlooked_bytes = SW_PACING_LOOK_BYTES};
}

bool sw_iwarp_pacing_wants_rate(const struct sw_iwarp_pacing *p)
{
    return p->is_on && p->unlooked_bytes >= SW_PACING_LOOK_BYTES;
}

void sw_iwarp_pacing_learn(struct sw_iwarp_pacing *p, uint64_t rate, uint32_t segment_bytes)
{
    const uint32_t segments = segment_bytes ? SW_PACING_BURST_MAX / segment_bytes : 0;
    p->unlooked_bytes = 0;
    p->rate = rate;
    p->burst_bytes = 0;
    if (rate >= SW_PACING_RATE_LEAST && rate != UINT64_MAX)
        p->burst_bytes = segments ? segments * segment_bytes : segment_bytes;
}

static const struct sw_backoff_rule late_programs = {.first = SW_PACING_ALONE_NS,
                                                     .doublings_max = SW_PACING_DOUBLINGS_MAX};

static void note_late(struct sw_iwarp_pacing *p, uint64_t now_ns)
{
    if (now_ns >= p->alone_ns + SW_PACING_TRUST_NS)
        sw_backoff_succeed(&p->backoff);
    p->alone_ns = now_ns + sw_backoff_fail(&p->backoff, &late_programs);
}

size_t sw_iwarp_pacing_allows(struct sw_iwarp_pacing *p, uint64_t now_ns, bool polls, size_t len)
{
    if (!p->burst_bytes)
        return len;
    if (p->holds && now_ns > p->due_ns + SW_PACING_LATE_NS)
        note_late(p, now_ns);
    p->holds = false;
    if (!polls || now_ns < p->alone_ns)
        return len;
    p->holds = now_ns < p->due_ns;
    if (p->holds)
        return 0;
    return sw_min_size(len, p->burst_bytes);
}

void sw_iwarp_pacing_charge(struct sw_iwarp_pacing *p, size_t bytes, uint64_t now_ns)
{
    if (!p->is_on)
        return;
    p->unlooked_bytes = sw_min_u32(p->unlooked_bytes + (uint32_t)bytes, SW_PACING_LOOK_BYTES);
    if (!p->burst_bytes)
        return;
    p->due_ns = sw_max_u64(p->due_ns, now_ns) + bytes * SW_NS_PER_S / p->rate;
}
