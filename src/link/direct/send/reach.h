/* SPDX-License-Identifier: BSD-2-Clause */
/* Direct access to the peer's memory: mapped, or by process_vm_readv() and its like. */
#ifndef SW_LINK_DIRECT_SEND_REACH_H
#define SW_LINK_DIRECT_SEND_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "link/direct/bind/step.h"
#include "link/gather.h"

struct sw_peer;
struct sw_pub_mr;

enum sw_reach { SW_REACH_DIRECT, SW_REACH_WAIT, SW_REACH_RING };
/* Whether [addr, addr+len) of a region (checked before) can be accessed directly. */
enum sw_reach sw_reach_probe(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                             uint64_t len_bytes);
/* The same where only stores of this process will do, since the kernel copies in any order. */
enum sw_reach sw_reach_probe_stores(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                                    uint64_t len_bytes);
/* Bytes that are reached alike. */
struct sw_reach_run {
    uint64_t len_bytes;
    uint8_t *at;         /* mapped, and can be written to; or NULL: */
    enum sw_reach reach; /* how else */
    bool is_coming;      /* it will be mapped in a moment */
};
/* The bytes at addr of a region (checked before), at most len_bytes. */
struct sw_reach_run sw_reach_run_at(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                                    uint64_t len_bytes);
enum sw_move {
    SW_MOVE_OUT,      /* to addr */
    SW_MOVE_IN,       /* from addr */
    SW_MOVE_IN_ORDER, /* to addr, by stores of this process alone: else BLOCKED */
};
/* Moves bytes [*done, len) of the gather, at most the budget. */
enum sw_step sw_reach_move(struct sw_direct_qp *d, const struct sw_gather *gather,
                           uint64_t gather_offset, const struct sw_pub_mr *mr, uint64_t addr,
                           uint64_t len_bytes, enum sw_move move, uint32_t *done);
/* Mapped address of a range, or NULL. */
uint8_t *sw_reach_mapped(struct sw_peer *peer, const struct sw_pub_mr *mr, uint64_t addr,
                         uint64_t len_bytes, bool *wait);
/* The bytes of an access went to nowhere: the peer's file has no such pages (base/fault.h). */
enum sw_step sw_reach_lost(struct sw_direct_qp *d);
/* After a copy between the two since `mark`. BLOCKED: it is to be made again. */
enum sw_step sw_reach_judge(struct sw_direct_qp *d, uint64_t mark, const void *remote,
                            const void *local, uint64_t len_bytes);
/* Fast path: the remembered mapping of a region, if it covers the access and is still valid. */
uint8_t *sw_reach_remembered(struct sw_direct_qp *d, uint32_t rkey, uint64_t addr,
                             uint64_t len_bytes, uint32_t need);
void sw_reach_remember(struct sw_direct_qp *d, uint32_t rkey, const struct sw_pub_mr *mr,
                       uint64_t word, uint64_t addr);

#endif
