/* SPDX-License-Identifier: BSD-2-Clause */
#include "link_rig.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/shm.h"
#include "device/nic/netdev.h"
#include "device/rules/pub.h"
#include "link/direct/bind/bind.h"
#include "link/direct/process/block.h"
#include "link/direct/send/bounce.h"
#include "link/direct/serve/responder.h"
#include "link/link.h"

#define PAGE 4096u

static void on_event(void *owner, enum ibv_event_type type, void *element)
{
    struct rig *rig = owner;
    (void)element;
    atomic_store(&rig->event, type);
    atomic_fetch_add(&rig->events, 1);
}

static struct sw_netdev *loopback(void)
{
    assert_int_equal(sw_netdev_refresh(NULL, NULL), 0);
    for (int i = 0; i < sw_netdev_count(); i++) {
        struct sw_netdev_info info;
        sw_netdev_read(sw_netdev_get(i), &info);
        if (!strcmp(info.ifname, "lo"))
            return sw_netdev_get(i);
    }
    fail_msg("there is no loopback interface");
    return NULL;
}

static uint8_t *guarded_bytes(void)
{
    uint8_t *at = mmap(NULL, RIG_BYTES + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(mprotect(at + PAGE, RIG_BYTES, PROT_READ | PROT_WRITE), 0);
    return at + PAGE;
}

void rig_open(struct rig *rig)
{
    memset(rig, 0, sizeof(*rig));
    sw_link_init();
    assert_int_equal(sw_context_open(loopback(), on_event, rig, &rig->ctx), 0);
    assert_int_equal(sw_pd_alloc(rig->ctx, &rig->pd), 0);
    assert_int_equal(sw_cq_create(rig->ctx, 1024, NULL, rig, &rig->cq), 0);
    rig->bytes = guarded_bytes();
    assert_int_equal(
        sw_mr_reg(rig->pd, rig->bytes, RIG_BYTES, (uintptr_t)rig->bytes, RIG_RIGHTS, &rig->mr), 0);
}

void rig_close(struct rig *rig)
{
    assert_int_equal(sw_mr_dereg(rig->mr), 0);
    assert_int_equal(munmap(rig->bytes - PAGE, RIG_BYTES + 2 * PAGE), 0);
    assert_int_equal(sw_cq_destroy(rig->cq), 0);
    assert_int_equal(sw_pd_dealloc(rig->pd), 0);
    sw_context_close(rig->ctx);
}

static void modify(struct sw_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
    attr->qp_state = state;
    assert_int_equal(sw_qp_modify(qp, attr, mask | IBV_QP_STATE), 0);
}

struct sw_qp *rig_ud(struct rig *rig, const struct ibv_qp_cap *cap, uint32_t qkey)
{
    struct sw_qp_init init = {
        .type = IBV_QPT_UD, .pd = rig->pd, .send_cq = rig->cq, .recv_cq = rig->cq, .cap = *cap};
    struct ibv_qp_attr attr = {.port_num = 1, .qkey = qkey};
    struct sw_qp *qp = NULL;
    assert_int_equal(sw_qp_create(rig->ctx, &init, &qp), 0);
    modify(qp, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    modify(qp, &attr, IBV_QPS_RTR, 0);
    return qp;
}

static struct sw_qp *create(struct rig *rig)
{
    struct sw_qp_init init = {
        .type = IBV_QPT_RC,
        .pd = rig->pd,
        .send_cq = rig->cq,
        .recv_cq = rig->cq,
        .cap = {.max_send_wr = 256,
                .max_recv_wr = 256,
                .max_send_sge = 4,
                .max_recv_sge = 4,
                .max_inline_data = 256},
    };
    struct sw_qp *qp = NULL;
    assert_int_equal(sw_qp_create(rig->ctx, &init, &qp), 0);
    return qp;
}

static void take_to_rts(struct rig *rig, struct sw_qp *qp, uint32_t dest_qpn)
{
    struct sw_gid gid;
    assert_true(sw_netdev_gid(sw_context_netdev(rig->ctx), 1, &gid));
    struct ibv_qp_attr attr = {
        .port_num = 1,
        .qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = dest_qpn,
        .max_dest_rd_atomic = 16,
        .max_rd_atomic = 16,
        .min_rnr_timer = 1,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid.gid, .sgid_index = 1}},
    };
    modify(qp, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    modify(qp, &attr, IBV_QPS_RTR,
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    modify(qp, &attr, IBV_QPS_RTS,
           IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC);
}

void rig_connect(struct rig *rig, uint32_t dest_qpn)
{
    rig->qp = create(rig);
    if (!dest_qpn) {
        rig->other = create(rig);
        take_to_rts(rig, rig->other, sw_qp_num(rig->qp));
        sw_lock_acquire(&rig->other->lock);
        dest_qpn = sw_qp_num(rig->other);
    }
    take_to_rts(rig, rig->qp, dest_qpn);
    sw_lock_acquire(&rig->qp->lock);
    rig->d = rig->qp->link_state;
    rig->block = rig->d->rx;
    if (rig->other) {
        assert_true(sw_bind_enter(rig->qp, rig->d));
        sw_bind_leave(rig->d);
        rig->out = rig->d->tx;
    }
}

static void drop(struct sw_qp *qp)
{
    if (!qp)
        return;
    sw_lock_release(&qp->lock);
    assert_int_equal(sw_qp_destroy(qp), 0);
}

void rig_drop(struct rig *rig)
{
    struct ibv_wc wc[64];
    drop(rig->qp);
    drop(rig->other);
    rig->qp = rig->other = NULL;
    rig->d = NULL;
    while (sw_cq_poll(rig->cq, 64, wc) > 0) {
    }
}

int rig_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    rig_open(rig);
    rig_connect(rig, 0);
    *state = rig;
    return 0;
}

int rig_down(void **state)
{
    struct rig *rig = *state;
    rig_drop(rig);
    rig_close(rig);
    free(rig);
    return 0;
}

struct sw_pub *rig_pub(void)
{
    struct sw_pub *pub = sw_map_sparse(NULL, sizeof(*pub), PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_non_null(pub);
    return pub;
}

void rig_pub_free(struct sw_pub *pub)
{
    munmap(pub, sizeof(*pub));
}

struct ibv_sge rig_sge(const struct rig *rig, uint32_t offset, uint32_t len_bytes)
{
    return (struct ibv_sge){(uintptr_t)rig->bytes + offset, len_bytes, sw_mr_key(rig->mr)};
}

void rig_recv(struct rig *rig, uint64_t wr_id, uint32_t offset, uint32_t len_bytes)
{
    struct ibv_sge sge = rig_sge(rig, offset, len_bytes);
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = len_bytes != 0}, *bad;
    assert_int_equal(sw_qp_post_recv(rig->qp, &wr, &bad), 0);
}

struct sw_wqe *rig_append(struct rig *rig, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
    uint32_t position = rig->qp->sq.tail;
    if (sge) {
        wr->sg_list = sge;
        wr->num_sge = 1;
    }
    assert_int_equal(sw_sq_append(&rig->qp->sq, wr), 0);
    return sw_sq_at(&rig->qp->sq, position);
}

struct ibv_wc rig_wc(struct rig *rig)
{
    struct ibv_wc wc = {0};
    assert_int_equal(sw_cq_poll(rig->cq, 1, &wc), 1); /* the QP is locked: this drives nothing */
    return wc;
}

void rig_no_wc(struct rig *rig)
{
    struct ibv_wc wc;
    assert_int_equal(sw_cq_poll(rig->cq, 1, &wc), 0);
}

/* The next record the responder will read, zeroed; made valid by rig_serve(). */
struct sw_record *rig_request(struct rig *rig, enum sw_record_kind kind)
{
    struct sw_record *record = &rig->block->requests[rig->d->serve.at % SW_REQUEST_SLOTS];
    memset((void *)record, 0, sizeof(*record));
    record->kind = (uint8_t)kind;
    record->slots = 1;
    return record;
}

bool rig_serve(struct rig *rig, struct sw_record *record)
{
    atomic_store(&record->seq, rig->d->serve.at + 1);
    return sw_serve_run(rig->qp, rig->d);
}

const struct sw_record *rig_answer(const struct rig *rig, uint32_t position)
{
    const struct sw_record *record = &rig->out->responses[position % SW_RESPONSE_SLOTS];
    assert_int_equal(atomic_load(&record->seq), position + 1);
    return record;
}

uint32_t rig_acknowledged(const struct rig *rig)
{
    return atomic_load(&rig->out->acknowledged);
}

void rig_is_answered(struct rig *rig, enum sw_verdict verdict)
{
    if (verdict == SW_ACK && rig_acknowledged(rig))
        return;
    const struct sw_record *record = rig_answer(rig, 0);
    assert_int_equal(record->kind, SW_REC_ANSWER);
    assert_int_equal(record->verdict, verdict);
}

void rig_is_dead(struct rig *rig, int event)
{
    assert_int_equal(sw_qp_state(rig->qp), IBV_QPS_ERR);
    assert_null(rig->qp->link_state);
    assert_int_equal(atomic_load(&rig->events), event >= 0);
    if (event >= 0)
        assert_int_equal(atomic_load(&rig->event), event);
}
