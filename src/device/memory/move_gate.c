/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/move_gate.h"

#include "device/adopt/adopt.h"
#include "device/memory/mr_impl.h"
#include "device/nic/nic.h"

static void gate_close(uint64_t va, uint64_t len_bytes)
{
    if (!sw_nic.pub)
        return; /* no region yet that anybody could reach */
    struct sw_pub_header *header = &sw_nic.pub->header;
    atomic_store_explicit(&header->moving_va, va, memory_order_relaxed);
    atomic_store_explicit(&header->moving_end, va + len_bytes, memory_order_relaxed);
    /* Ordered with the start of an access section as the withdrawal of a key is. */
    atomic_store_explicit(&header->moving, 1, memory_order_seq_cst);
    sw_nic.link->quiesce();
}

static void gate_open(void)
{
    if (sw_nic.pub)
        atomic_store_explicit(&sw_nic.pub->header.moving, 0, memory_order_release);
}

void sw_move_gate_install(void)
{
    static const struct sw_adopt_guard gate = {sw_mr_revoke, gate_close, gate_open};
    sw_adopt_set_guard(&gate);
}

bool sw_move_gate_bars(const struct sw_pub *peer, uint64_t va, uint64_t len_bytes)
{
    const struct sw_pub_header *header = &peer->header;
    if (__builtin_expect(!atomic_load_explicit(&header->moving, memory_order_acquire), 1))
        return false;
    /* If the range is a later one than what `moving` was loaded for, that move is over and the
     * later one waits for this access section: either answer is right. */
    uint64_t start = atomic_load_explicit(&header->moving_va, memory_order_relaxed);
    uint64_t end = atomic_load_explicit(&header->moving_end, memory_order_relaxed);
    return va < end && va + len_bytes > start;
}
