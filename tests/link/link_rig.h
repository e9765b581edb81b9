/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of the direct link share: cmocka, the NIC of this process on the loopback device
 * with the real link, and two QPs connected with each other, one of which is under test. */
#ifndef SW_TESTS_LINK_LINK_RIG_H
#define SW_TESTS_LINK_LINK_RIG_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/memory/mr_impl.h"
#include "device/nic/context_impl.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/process/block.h"

#define RIG_BYTES 65536u
#define RIG_RIGHTS                                                               \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
     IBV_ACCESS_REMOTE_ATOMIC)

struct rig {
    struct sw_context *ctx;
    struct sw_pd *pd;
    struct sw_cq *cq;
    uint8_t *bytes; /* RIG_BYTES, registered, with an unmapped page before and after */
    struct sw_mr *mr;
    struct sw_qp *qp;       /* under test */
    struct sw_direct_qp *d; /* the QP's */
    struct sw_block *block; /* what its peer writes */
    struct sw_qp *other;    /* its peer, in this process; or NULL */
    struct sw_block *out;   /* what the QP writes */
    atomic_int events;
    _Atomic(enum ibv_event_type) event; /* the last */
};

void rig_open(struct rig *rig);
void rig_close(struct rig *rig);
/* A fresh QP in RTS towards `dest_qpn`, or (0) towards a second one. Their locks are held, so that
 * only the test drives them, until rig_drop(). */
void rig_connect(struct rig *rig, uint32_t dest_qpn);
void rig_drop(struct rig *rig);

/* cmocka setup and teardown around rig_connect(); *state is the struct rig. */
int rig_up(void **state);
int rig_down(void **state);

/* A UD QP in RTR, whose completions go to rig->cq. */
struct sw_qp *rig_ud(struct rig *rig, const struct ibv_qp_cap *cap, uint32_t qkey);

/* The empty tables of a peer that the test plays. They are mapped: under MALLOC_PERTURB_, which
 * `meson test` sets, an allocator writes all of their 270 MiB. */
struct sw_pub *rig_pub(void);
void rig_pub_free(struct sw_pub *pub);

struct ibv_sge rig_sge(const struct rig *rig, uint32_t offset, uint32_t len_bytes);
void rig_recv(struct rig *rig, uint64_t wr_id, uint32_t offset, uint32_t len_bytes);
/* Posts to the send queue without starting it; returns the request. */
struct sw_wqe *rig_append(struct rig *rig, struct ibv_send_wr *wr, struct ibv_sge *sge);
/* Polls exactly one completion and returns it. */
struct ibv_wc rig_wc(struct rig *rig);
void rig_no_wc(struct rig *rig);

/* The next record the responder will read, zeroed; made valid and served by rig_serve(), which
 * returns whether anything was consumed. */
struct sw_record *rig_request(struct rig *rig, enum sw_record_kind kind);
bool rig_serve(struct rig *rig, struct sw_record *record);
/* What the responder answered. */
const struct sw_record *rig_answer(const struct rig *rig, uint32_t position);
/* How many requests it has only said to be done. */
uint32_t rig_acknowledged(const struct rig *rig);
void rig_is_answered(struct rig *rig, enum sw_verdict verdict);
/* The QP has failed, with this event or (-1) none. */
void rig_is_dead(struct rig *rig, int event);

#define rig_test(function) cmocka_unit_test_setup_teardown(function, rig_up, rig_down)

#endif
