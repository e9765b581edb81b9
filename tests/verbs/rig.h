/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of the verbs layer share: cmocka and an opened loopback device. They use nothing
 * but <infiniband/verbs.h>. */
#ifndef SW_TESTS_VERBS_RIG_H
#define SW_TESTS_VERBS_RIG_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define RIG_DEVICE "sw_lo"
#define RIG_BUF_BYTES 4096

/* A device, a PD, a CQ and a registered buffer; the QP is added by rig_connect_self. */
struct rig {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;
    uint8_t *buf; /* RIG_BUF_BYTES */
};

struct ibv_context *rig_open(void);
void rig_setup(struct rig *rig, struct ibv_comp_channel *channel);
void rig_teardown(struct rig *rig);

struct ibv_qp_init_attr rig_qp_attr(struct ibv_cq *cq);
/* Takes a QP of the rig to RTS, connected with itself. */
void rig_connect_self(struct rig *rig, struct ibv_qp *qp);
/* The index of a valid RoCE v2 GID of the device. */
int rig_gid_index(struct ibv_context *ctx, union ibv_gid *gid);

/* Creates rig->qp, connected with itself. */
void rig_add_qp(struct rig *rig, struct ibv_srq *srq);
int rig_post_recv(struct ibv_qp *qp, uint64_t wr_id, struct ibv_sge *sge);
int rig_post_send(struct ibv_qp *qp, uint64_t wr_id, struct ibv_sge *sge, unsigned int flags);
/* Polls until `count` completions are there, all of them successful; fails after some seconds. */
void rig_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc);
struct ibv_sge rig_sge(const struct rig *rig, size_t offset, uint32_t len_bytes);
/* Whether the descriptor is readable within so many milliseconds. */
bool rig_readable(int fd, int timeout_ms);

#endif
