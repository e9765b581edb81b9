/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ladder: where a range of the peer's memory is mapped, plain copies; where it is not,
 * process_vm_writev/readv; where that is not allowed either, the ring (bounce.c).
 */
#include "link/direct/send/reach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "device/memory/move_gate.h"
#include "device/memory/mr_impl.h"
#include "device/memory/view.h"
#include "device/queue/counters.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/peer.h"
#include "link/direct/send/moving.h"
#include "link/gather.h"

uint8_t *sw_reach_remembered(struct sw_direct_qp *d, uint32_t rkey, uint64_t addr,
                             uint64_t len_bytes, uint32_t need)
{
    for (int i = 0; i < 2; i++) {
        const struct sw_remote_key *key = &d->keys[i];
        if (key->rkey == rkey && key->word && addr >= key->low && addr <= key->high &&
            len_bytes <= key->high - addr && (key->access & need) == need &&
            atomic_load_explicit(key->word, memory_order_acquire) == key->key_word)
            return key->bytes + (addr - key->low);
    }
    return NULL;
}

/* Finds the extent of a region that holds an address in the owner's space; otherwise false and the
 * distance to the next one. It is a copy: the peer could change its table while we calculate. */
static bool extent_at(const struct sw_pub_mr *mr, uint64_t va, struct sw_pub_extent *out,
                      uint64_t *gap)
{
    *gap = UINT64_MAX;
    struct sw_pub_extent extents[SW_MR_EXTENTS];
    uint32_t count = mr->extent_count;
    memcpy(extents, mr->extents, sizeof(extents));
    atomic_signal_fence(memory_order_seq_cst); /* what follows must not read the table again */
    for (uint32_t i = 0; i < count && i < SW_MR_EXTENTS; i++) {
        const struct sw_pub_extent *extent = &extents[i];
        if (va >= extent->va && va - extent->va < extent->len_bytes) {
            *out = *extent;
            return true;
        }
        if (extent->va > va && extent->va - va < *gap)
            *gap = extent->va - va;
    }
    return false;
}

enum piece_kind { PIECE_MAPPED, PIECE_CMA, PIECE_WAIT, PIECE_RING };
struct piece {
    enum piece_kind kind;
    uint64_t len_bytes;
    uint8_t *at; /* mapped */
    bool is_readonly;
    bool is_coming;     /* will be mapped in a moment */
    uint64_t remote_va; /* in the peer */
};

/* Whether its owner lets it be mapped, and so that it can be written to. */
static bool is_handed_out(const struct sw_pub_mr *mr, bool *writable)
{
    const uint32_t handed = atomic_load_explicit(&mr->handed, memory_order_acquire);
    *writable = handed == SW_HANDED_OUT_WRITE;
    return handed != SW_HANDED_OUT_NOT;
}

static struct piece piece_at(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                             uint64_t len_bytes)
{
    uint64_t va = mr->va + (addr - mr->iova), gap;
    struct piece piece = {.kind = PIECE_RING, .len_bytes = len_bytes, .remote_va = va};
    if (mr->kind == SW_PUB_NULL)
        return piece; /* its owner knows how to write to nowhere */
    if (peer->self) {
        piece.kind = PIECE_MAPPED;
        piece.at = sw_view_at(peer->pub, mr, addr);
        return piece;
    }
    struct sw_pub_extent extent;
    bool writable, is_handed = is_handed_out(mr, &writable);
    if (peer->can_map && is_handed && extent_at(mr, va, &extent, &gap)) {
        uint64_t offset = va - extent.va;
        if (piece.len_bytes > extent.len_bytes - offset)
            piece.len_bytes = extent.len_bytes - offset;
        bool refused;
        piece.at = sw_peer_segment_at(peer, extent.segment, extent.file_offset + offset,
                                      piece.len_bytes, writable, &refused);
        if (piece.at) {
            piece.kind = PIECE_MAPPED;
            piece.is_readonly = !writable;
            return piece;
        }
        piece.is_coming = !refused;
    } else if (peer->can_map && is_handed && gap < piece.len_bytes) {
        piece.len_bytes = gap;
    }
    if (atomic_load_explicit(&peer->can_cma, memory_order_relaxed))
        piece.kind = PIECE_CMA;
    else if (piece.is_coming)
        piece.kind = PIECE_WAIT;
    return piece;
}

void sw_reach_remember(struct sw_direct_qp *d, uint32_t rkey, const struct sw_pub_mr *mr,
                       uint64_t word, uint64_t addr)
{
    uint64_t va = mr->va + (addr - mr->iova), gap;
    uint64_t low = mr->iova, high = mr->iova + mr->len_bytes;
    uint8_t *bytes = NULL;
    bool writable = true;
    if (mr->kind == SW_PUB_NULL)
        return;
    if (d->peer->self) {
        bytes = sw_view_at(d->peer->pub, mr, mr->iova);
    } else {
        struct sw_pub_extent extent;
        bool refused;
        if (!d->peer->can_map || !is_handed_out(mr, &writable) || !extent_at(mr, va, &extent, &gap))
            return;
        bytes = sw_peer_segment_at(d->peer, extent.segment, extent.file_offset, extent.len_bytes,
                                   writable, &refused);
        if (!bytes)
            return;
        low = mr->iova + (extent.va - mr->va);
        high = low + extent.len_bytes;
        if (extent.va < mr->va || high < low || high > mr->iova + mr->len_bytes)
            return; /* an extent never reaches past its region */
    }
    uint32_t access = mr->access & d->remote.access;
    if (writable)
        access |= mr->access & IBV_ACCESS_LOCAL_WRITE; /* a message may be placed there */
    else
        access &= IBV_ACCESS_REMOTE_READ;
    struct sw_remote_key *key = &d->keys[d->key_turn++ % 2];
    *key = (struct sw_remote_key){.rkey = rkey,
                                  .access = access,
                                  .key_word = word,
                                  .word = &mr->key_word,
                                  .low = low,
                                  .high = high,
                                  .bytes = bytes};
}

uint8_t *sw_reach_mapped(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                         uint64_t len_bytes, bool *wait)
{
    struct piece piece = piece_at(peer, mr, addr, len_bytes);
    *wait = piece.kind == PIECE_WAIT;
    if (piece.kind == PIECE_CMA && peer->can_map) {
        /* An atomic wants the mapping itself: wait for one that is on its way. */
        uint64_t gap;
        bool refused = true, writable;
        struct sw_pub_extent extent;
        if (is_handed_out(mr, &writable) && extent_at(mr, piece.remote_va, &extent, &gap))
            sw_peer_segment_at(peer, extent.segment, extent.file_offset, 1, writable, &refused);
        *wait = !refused;
    }
    /* It is for atomics: what can only be read is no use. */
    return piece.kind == PIECE_MAPPED && piece.len_bytes == len_bytes && !piece.is_readonly
               ? piece.at
               : NULL;
}

struct sw_reach_run sw_reach_run_at(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                                    uint64_t len_bytes)
{
    static const enum sw_reach reaches[] = {[PIECE_MAPPED] = SW_REACH_DIRECT,
                                            [PIECE_CMA] = SW_REACH_DIRECT,
                                            [PIECE_WAIT] = SW_REACH_WAIT,
                                            [PIECE_RING] = SW_REACH_RING};
    const struct piece piece = piece_at(peer, mr, addr, len_bytes);
    return (struct sw_reach_run){piece.len_bytes,
                                 piece.kind == PIECE_MAPPED && !piece.is_readonly ? piece.at : NULL,
                                 reaches[piece.kind], piece.is_coming};
}

static enum sw_reach probe_pieces(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                                  uint64_t len_bytes, bool by_stores)
{
    enum sw_reach reach = SW_REACH_DIRECT;
    while (len_bytes) {
        struct piece piece = piece_at(peer, mr, addr, len_bytes);
        if (piece.kind == PIECE_CMA && by_stores)
            piece.kind = piece.is_coming ? PIECE_WAIT : PIECE_RING;
        if (piece.kind == PIECE_RING)
            return SW_REACH_RING;
        if (piece.kind == PIECE_WAIT)
            reach = SW_REACH_WAIT;
        addr += piece.len_bytes;
        len_bytes -= piece.len_bytes;
    }
    return reach;
}

enum sw_reach sw_reach_probe(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                             uint64_t len_bytes)
{
    return probe_pieces(peer, mr, addr, len_bytes, false);
}

enum sw_reach sw_reach_probe_stores(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                                    uint64_t len_bytes)
{
    return probe_pieces(peer, mr, addr, len_bytes, true);
}

enum sw_step sw_reach_lost(struct sw_direct_qp *d)
{
    sw_counter_add(d->dev, SW_PEER_MEMORY_LOST);
    return sw_step_refused(d, SW_NAK_ACCESS);
}

enum sw_step sw_reach_judge(struct sw_direct_qp *d, uint64_t mark, const void *remote,
                            const void *local, uint64_t len_bytes)
{
    const enum sw_fault here = sw_fault_judge(mark, local, len_bytes);
    const enum sw_fault there = sw_fault_judge(mark, remote, len_bytes);
    if (here == SW_FAULT_LOST)
        return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
    if (there == SW_FAULT_LOST)
        return sw_reach_lost(d);
    return here == SW_FAULT_NONE && there == SW_FAULT_NONE ? SW_STEP_DONE : SW_STEP_BLOCKED;
}

/* How long memory of a region may be out of reach before that is an error. */
#define FAULT_PATIENCE_NS (50 * SW_NS_PER_MS)

/* Bytes that the kernel has copied from or to our memory by a page that another thread's fault had
 * replaced, are copied again. */
static enum sw_step judge_cma(struct sw_direct_qp *d, uint64_t mark, const uint8_t *local,
                              uint64_t len_bytes)
{
    switch (sw_fault_judge(mark, local, len_bytes)) {
    case SW_FAULT_NONE:
        return SW_STEP_DONE;
    case SW_FAULT_AGAIN:
        return SW_STEP_BLOCKED;
    case SW_FAULT_LOST:
        break;
    }
    return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
}

/* One system call; *moved may fall short. */
static enum sw_step move_cma(struct sw_direct_qp *d, uint8_t *local, uint64_t remote,
                             uint64_t len_bytes, bool to_local, uint64_t *moved)
{
    if (!to_local && sw_move_gate_bars(d->peer->pub, remote, len_bytes))
        return SW_STEP_BLOCKED;
    struct iovec here = {local, len_bytes}, there = {(void *)(uintptr_t)remote, len_bytes};
    const uint64_t mark = sw_fault_mark();
    ssize_t count = to_local ? process_vm_readv(d->peer->pid, &here, 1, &there, 1, 0)
                             : process_vm_writev(d->peer->pid, &here, 1, &there, 1, 0);
    if (count > 0) {
        *moved = (uint64_t)count;
        d->send.fault_ns = 0;
        return judge_cma(d, mark, local, *moved);
    }
    if (errno == EFAULT) {
        if (!sw_fault_probe(local, len_bytes))
            return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
        /* Pages that are just being adopted fault for about a millisecond. Longer than that, the
         * peer unmapped a registered region, or we did. */
        uint64_t now_ns = sw_clock_ns();
        if (!d->send.fault_ns)
            d->send.fault_ns = now_ns;
        return now_ns - d->send.fault_ns < FAULT_PATIENCE_NS
                   ? SW_STEP_BLOCKED
                   : sw_step_refused(d, SW_NAK_OPERATIONAL);
    }
    if (errno == EPERM || errno == ENOSYS)
        atomic_store(&d->peer->can_cma, false); /* from now on by the ring */
    return SW_STEP_BLOCKED;                     /* ESRCH: the engine will see the peer's death */
}

enum sw_step sw_reach_move(struct sw_direct_qp *d, const struct sw_gather *gather,
                           uint64_t gather_offset, const struct sw_pub_mr *mr, uint64_t addr,
                           uint64_t len_bytes, enum sw_move move, uint32_t *done)
{
    const bool to_local = move == SW_MOVE_IN;
    uint32_t need = to_local ? IBV_ACCESS_LOCAL_WRITE : 0;
    while (*done < len_bytes) {
        if (!d->send.budget_bytes)
            return SW_STEP_BLOCKED;
        uint64_t want = len_bytes - *done;
        if (want > d->send.budget_bytes)
            want = d->send.budget_bytes;
        struct piece piece = piece_at(d->peer, mr, addr + *done, want);
        const bool is_late = piece.kind == PIECE_CMA && move == SW_MOVE_IN_ORDER;
        if (piece.kind == PIECE_WAIT || piece.kind == PIECE_RING || is_late)
            return SW_STEP_BLOCKED; /* was reachable at the probe; the next probe decides */
        if (piece.kind == PIECE_MAPPED && piece.is_readonly && !to_local)
            return sw_step_refused(d, SW_NAK_OPERATIONAL); /* its owner contradicts itself */
        uint64_t moved = piece.len_bytes;
        uint8_t *local = sw_gather_at(gather, gather_offset + *done, need, &moved);
        if (!local)
            return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
        if (piece.kind == PIECE_CMA) {
            enum sw_step step = move_cma(d, local, piece.remote_va, moved, to_local, &moved);
            if (step != SW_STEP_DONE)
                return step;
        } else {
            const uint64_t mark = sw_fault_mark();
            sw_move_bytes(d, to_local ? local : piece.at, to_local ? piece.at : local, moved,
                          to_local);
            if (!sw_fault_quiet(mark)) {
                enum sw_step step = sw_reach_judge(d, mark, piece.at, local, moved);
                if (step != SW_STEP_DONE)
                    return step;
            }
        }
        *done += (uint32_t)moved;
        d->send.budget_bytes -= moved;
    }
    return SW_STEP_DONE;
}
