/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: memory windows, and invalidation by their owner. IBTA Vol1 10.6.7.2, 11.2.10.9 to .12. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sem_window.h"

#define FILL 0xb5
#define WRITTEN 0xa1

static struct ibv_send_wr bind_wr(struct rig *rig, struct ibv_mw *mw, uint32_t rkey, int access)
{
    return (struct ibv_send_wr){
        .wr_id = 900,
        .opcode = IBV_WR_BIND_MW,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_mw = {.mw = mw,
                    .rkey = rkey,
                    .bind_info = {.mr = rig->mr,
                                  .addr = (uintptr_t)rig->buf + START,
                                  .length = LEN,
                                  .mw_access_flags = (unsigned int)access}},
    };
}

static enum ibv_wc_status run(struct vu_ep *ep, struct ibv_send_wr *wr, enum ibv_wc_opcode opcode)
{
    struct ibv_send_wr *bad;
    struct ibv_wc wc;
    VU_EQ(ibv_post_send(ep->qp, wr, &bad), 0);
    VU_EQ(vu_poll(ep->scq, &wc, 1, 20000), 1);
    VU_EQ(wc.wr_id, wr->wr_id);
    if (wc.status == IBV_WC_SUCCESS)
        VU_EQ(wc.opcode, opcode);
    return wc.status;
}

enum ibv_wc_status bind_through(struct rig *rig, struct vu_ep *ep, struct window *window,
                                int access)
{
    enum ibv_wc_status status;
    if (window->mw->type == IBV_MW_TYPE_1) {
        struct ibv_send_wr wr = bind_wr(rig, window->mw, 0, access);
        struct ibv_mw_bind bind = {900, IBV_SEND_SIGNALED, wr.bind_mw.bind_info};
        struct ibv_wc wc;
        VU_EQ(ibv_bind_mw(ep->qp, window->mw, &bind), 0);
        VU_EQ(vu_poll(ep->scq, &wc, 1, 20000), 1);
        status = wc.status;
    } else {
        uint32_t rkey = ibv_inc_rkey(window->mw->rkey);
        struct ibv_send_wr wr = bind_wr(rig, window->mw, rkey, access);
        status = run(ep, &wr, IBV_WC_BIND_MW);
        if (status == IBV_WC_SUCCESS)
            window->mw->rkey = rkey;
    }
    window->key.rkey = window->mw->rkey;
    window->key.addr = access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)rig->buf + START;
    window->key.len_bytes = LEN;
    return status;
}

static enum ibv_wc_status invalidate(struct vu_ep *ep, uint32_t rkey)
{
    struct ibv_send_wr wr = {.wr_id = 901,
                             .opcode = IBV_WR_LOCAL_INV,
                             .send_flags = IBV_SEND_SIGNALED,
                             .invalidate_rkey = rkey};
    return run(ep, &wr, IBV_WC_LOCAL_INV);
}

void window_alloc(struct rig *rig, struct window *window, enum ibv_mw_type type)
{
    window->mw = ibv_alloc_mw(rig->dev.pd, type);
    VU_TRUE(window->mw);
    window->key = (struct vu_key){(uintptr_t)rig->buf + START, LEN, window->mw->rkey};
}

void window_second_qp(struct rig *rig, struct vu_ep *ep)
{
    vu_ep_create(&rig->dev, NULL, ep);
    vu_connect_here(ep);
}

enum use {
    USE_WRITE,
    USE_READ,
    USE_ATOMIC,
    USE_LAST_BYTE,
    USE_ZERO_BASED,
    USE_REBOUND,
    USE_BOUND_AGAIN,
    USE_OTHER_QP,
    /* From here on the access is refused. */
    USE_PAST_END,
    USE_BEFORE_START,
    USE_NO_RIGHT,
    USE_NEVER_BOUND,
    USE_OLD_KEY,
    USE_UNBOUND,
    USE_INVALIDATED,
    USE_DEALLOCATED,
    USE_OF_OTHER_QP,
    USE_QP_DESTROYED,
};
enum ibv_qp_type window_qp_type(int param)
{
    return param & UC_BIT ? IBV_QPT_UC : IBV_QPT_RC;
}

enum ibv_wc_status window_refusal(int param)
{
    return param & UC_BIT ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
}

static void use_a(int sock, int param)
{
    enum use use = (enum use)(param & (TYPE_BIT - 1));
    struct rig rig;
    struct rig_attr attr = {.fill = WRITTEN, .ep = {.type = window_qp_type(param)}};
    struct vu_key key;
    rig_open(&rig, sock, &attr);
    vu_get(sock, &key, sizeof(key));
    struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 4096);
    send.remote = key.addr;
    send.rkey = key.rkey;
    if (use == USE_READ)
        send.opcode = IBV_WR_RDMA_READ;
    if (use == USE_ATOMIC) {
        send.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        send.len_bytes = 8;
        send.compare_add = 1;
    }
    if (use == USE_LAST_BYTE)
        send.remote += LEN - send.len_bytes;
    if (use == USE_PAST_END)
        send.remote += LEN - send.len_bytes + 1;
    if (use == USE_BEFORE_START)
        send.remote -= 1;
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, use < USE_PAST_END ? IBV_WC_SUCCESS : window_refusal(param));
    if (use == USE_READ)
        rig_bytes(&rig, 0, 4096, FILL);
    vu_barrier(sock);
    rig_close(&rig);
}

static void arrange(struct rig *rig, struct vu_ep *second, struct window *window, enum use use)
{
    int access = use == USE_READ || use == USE_NO_RIGHT ? IBV_ACCESS_REMOTE_READ
                 : use == USE_ATOMIC                    ? IBV_ACCESS_REMOTE_ATOMIC
                                                        : IBV_ACCESS_REMOTE_WRITE;
    if (use == USE_ZERO_BASED)
        access |= IBV_ACCESS_ZERO_BASED;
    bool others = use == USE_OF_OTHER_QP || use == USE_OTHER_QP || use == USE_QP_DESTROYED;
    if (use == USE_NEVER_BOUND)
        return;
    VU_EQ(bind_through(rig, others ? second : &rig->ep, window, access), IBV_WC_SUCCESS);
    uint32_t first = window->key.rkey;
    if (use == USE_REBOUND || use == USE_OLD_KEY)
        VU_EQ(bind_through(rig, &rig->ep, window, access), IBV_WC_SUCCESS);
    if (use == USE_OLD_KEY)
        window->key.rkey = first;
    if (use == USE_INVALIDATED || use == USE_BOUND_AGAIN)
        VU_EQ(invalidate(&rig->ep, first), IBV_WC_SUCCESS);
    if (use == USE_BOUND_AGAIN) {
        VU_EQ(bind_through(rig, &rig->ep, window, access), IBV_WC_SUCCESS);
        VU_TRUE(window->key.rkey != first);
    }
    if (use == USE_UNBOUND) {
        struct ibv_mw_bind bind = {.wr_id = 902, .send_flags = IBV_SEND_SIGNALED};
        VU_EQ(ibv_bind_mw(rig->ep.qp, window->mw, &bind), 0);
        vu_expect(rig->ep.scq, 902, IBV_WC_SUCCESS);
    }
    if (use == USE_DEALLOCATED) {
        VU_EQ(ibv_dealloc_mw(window->mw), 0);
        window->mw = NULL;
    }
}

static void use_b(int sock, int param)
{
    enum use use = (enum use)(param & (TYPE_BIT - 1));
    struct rig rig;
    /* The region itself lets peers do nothing, and all rights are the window's own; but where the
     * window is to have fewer. */
    struct rig_attr attr = {.fill = FILL,
                            .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
                            .ep = {.type = window_qp_type(param)}};
    if (use == USE_NO_RIGHT)
        attr.access |= IBV_ACCESS_REMOTE_WRITE;
    struct vu_ep second;
    struct window window;
    rig_open(&rig, sock, &attr);
    window_second_qp(&rig, &second);
    window_alloc(&rig, &window, param & TYPE_BIT ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
    arrange(&rig, &second, &window, use);
    if (use == USE_QP_DESTROYED)
        vu_ep_destroy(&second);
    vu_put(sock, &window.key, sizeof(window.key));
    vu_barrier(sock);
    bool changed = use < USE_PAST_END && use != USE_READ;
    uint32_t at = use == USE_LAST_BYTE ? START + LEN - 4096 : START;
    if (use != USE_ATOMIC)
        rig_written(&rig, at, 4096, changed ? WRITTEN : FILL);
    else
        VU_EQ(rig.buf[START], FILL + 1);
    rig_bytes(&rig, 0, START, FILL);
    rig_bytes(&rig, START + LEN, RIG_BYTES - START - LEN, FILL);
    if (window.mw)
        VU_EQ(ibv_dealloc_mw(window.mw), 0);
    if (use != USE_QP_DESTROYED)
        vu_ep_destroy(&second);
    rig_close(&rig);
}

/* Requests that cannot be done end with an error, and take the QP (of UC: its send queue) with
 * them. */
enum misuse {
    NO_BIND_RIGHT,
    OUT_OF_REGION,
    REGION_OF_OTHER_PD,
    WRITE_TO_READ_ONLY,
    UNKNOWN_RIGHT,
    BOUND_TWICE,
    NOTHING_TO_TYPE2,
    INVALIDATE_REGION,
    INVALIDATE_TYPE1,
    INVALIDATE_TWICE,
    INVALIDATE_OF_OTHER_QP,
    INVALIDATE_GARBAGE,
};

static enum ibv_wc_status misuse(struct rig *rig, struct window *window, struct vu_ep *second,
                                 enum misuse how)
{
    struct ibv_send_wr wr =
        bind_wr(rig, window->mw, ibv_inc_rkey(window->mw->rkey),
                how == WRITE_TO_READ_ONLY ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ);
    struct ibv_mw_bind_info *info = &wr.bind_mw.bind_info;
    if (how == OUT_OF_REGION)
        info->length = RIG_BYTES - START + 1;
    if (how == UNKNOWN_RIGHT)
        info->mw_access_flags |= IBV_ACCESS_MW_BIND;
    if (how == NOTHING_TO_TYPE2)
        info->length = 0;
    if (how == INVALIDATE_REGION)
        return invalidate(&rig->ep, rig->mr->rkey);
    if (how == INVALIDATE_GARBAGE)
        return invalidate(&rig->ep, 0xdeadbeef);
    if (how == INVALIDATE_OF_OTHER_QP)
        VU_EQ(bind_through(rig, second, window, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
    if (how == BOUND_TWICE || how == INVALIDATE_TYPE1 || how == INVALIDATE_TWICE)
        VU_EQ(bind_through(rig, &rig->ep, window, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
    if (how == INVALIDATE_TWICE)
        VU_EQ(invalidate(&rig->ep, window->key.rkey), IBV_WC_SUCCESS);
    if (how >= INVALIDATE_TYPE1)
        return invalidate(&rig->ep, window->key.rkey);
    return run(&rig->ep, &wr, IBV_WC_BIND_MW);
}

static void misuse_a(int sock, int param)
{
    enum misuse how = (enum misuse)(param & (TYPE_BIT - 1));
    struct rig rig;
    struct rig_attr attr = {.access = VU_ACCESS_ALL | IBV_ACCESS_MW_BIND,
                            .ep = {.type = window_qp_type(param)}};
    if (how == NO_BIND_RIGHT)
        attr.access = VU_ACCESS_ALL;
    if (how == WRITE_TO_READ_ONLY)
        attr.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
    struct vu_ep second;
    struct window window;
    rig_open(&rig, sock, &attr);
    window_second_qp(&rig, &second);
    struct ibv_pd *other = ibv_alloc_pd(rig.dev.ctx);
    window_alloc(&rig, &window, how == INVALIDATE_TYPE1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
    if (how == REGION_OF_OTHER_PD)
        VU_EQ(ibv_rereg_mr(rig.mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
    VU_EQ(misuse(&rig, &window, &second, how), IBV_WC_MW_BIND_ERR);
    VU_EQ(vu_ep_state(&rig.ep), param & UC_BIT ? IBV_QPS_SQE : IBV_QPS_ERR);
    VU_EQ(ibv_dealloc_mw(window.mw), 0);
    if (how == REGION_OF_OTHER_PD)
        VU_EQ(ibv_rereg_mr(rig.mr, IBV_REREG_MR_CHANGE_PD, rig.dev.pd, NULL, 0, 0), 0);
    VU_EQ(ibv_dealloc_pd(other), 0);
    vu_barrier(sock);
    vu_ep_destroy(&second);
    rig_close(&rig);
}

static void misuse_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.ep = {.type = window_qp_type(param)}};
    rig_open(&rig, sock, &attr);
    vu_barrier(sock);
    rig_close(&rig);
}

/* While windows are bound to it, a region neither goes nor changes; a PD with windows stays. */
static void busy_a(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.access = VU_ACCESS_ALL | IBV_ACCESS_MW_BIND};
    struct window window;
    rig_open(&rig, sock, &attr);
    window_alloc(&rig, &window, param & TYPE_BIT ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
    VU_EQ(ibv_dereg_mr(rig.mr), 0); /* nothing is bound to it yet */
    rig.mr = vu_reg(&rig.dev, rig.buf, RIG_BYTES, attr.access);
    VU_EQ(bind_through(&rig, &rig.ep, &window, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
    VU_EQ(ibv_dereg_mr(rig.mr), EBUSY);
    errno = 0;
    VU_EQ(ibv_rereg_mr(rig.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, rig.buf, 4096, 0),
          IBV_REREG_MR_ERR_INPUT);
    VU_EQ(errno, EBUSY);
    VU_EQ(ibv_dealloc_pd(rig.dev.pd), EBUSY);
    VU_EQ(ibv_dealloc_mw(window.mw), 0);
    vu_barrier(sock);
    rig_close(&rig);
}

/* A bind concerns nobody but its owner: it is done also where no peer takes what is sent around
 * it. */
static void alone_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.access = VU_ACCESS_ALL | IBV_ACCESS_MW_BIND,
                            .ep = {.type = IBV_QPT_UC}};
    struct window window;
    rig_open(&rig, sock, &attr);
    window_alloc(&rig, &window, IBV_MW_TYPE_2);
    vu_barrier(sock);
    vu_barrier(sock); /* the peer's QP is gone */
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, 64);
    uint32_t rkey = ibv_inc_rkey(window.mw->rkey);
    struct ibv_send_wr *bad, wr = bind_wr(&rig, window.mw, rkey, IBV_ACCESS_REMOTE_READ);
    rig_post(&rig, &send);
    VU_EQ(ibv_post_send(rig.ep.qp, &wr, &bad), 0);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_expect(rig.ep.scq, 900, IBV_WC_SUCCESS);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    VU_EQ(ibv_dereg_mr(rig.mr), EBUSY);
    VU_EQ(invalidate(&rig.ep, rkey), IBV_WC_SUCCESS);
    VU_EQ(invalidate(&rig.ep, rkey), IBV_WC_MW_BIND_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_SQE);
    VU_EQ(ibv_dealloc_mw(window.mw), 0);
    rig_close(&rig);
}

static void alone_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.type = IBV_QPT_UC}};
    rig_open(&rig, sock, &attr);
    vu_barrier(sock);
    vu_ep_to(&rig.ep, IBV_QPS_RESET);
    vu_barrier(sock);
    rig_close(&rig);
}

/* Requests posted together are executed in order: who hears of a window by the SEND behind its bind
 * may use it, who hears of its end by the SEND behind the invalidate may not. */
static void order_a(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.fill = WRITTEN, .ep = {.type = window_qp_type(param)}};
    rig_prepare(&rig, sock, &attr);
    rig_connect(&rig, NULL);
    rig_recv(&rig, 10, 0, 64);
    rig_recv(&rig, 11, 64, 64);
    vu_barrier(sock);
    struct vu_key key;
    vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
    memcpy(&key, rig.buf, sizeof(key));
    for (uint64_t i = 0; i < 2; i++) {
        struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, i, 4096, 4096);
        write.remote = key.addr;
        write.rkey = key.rkey;
        rig_post(&rig, &write);
        vu_expect(rig.ep.scq, i, i == 0 ? IBV_WC_SUCCESS : window_refusal(param));
        if (i == 0) {
            vu_barrier(sock);
            vu_expect(rig.ep.rcq, 11, IBV_WC_SUCCESS);
            memset(rig.buf + 4096, ~WRITTEN, 4096);
        }
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void order_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.fill = FILL,
                            .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
                            .ep = {.type = window_qp_type(param), .extended = true}};
    struct window window;
    rig_open(&rig, sock, &attr);
    window_alloc(&rig, &window, IBV_MW_TYPE_2);
    vu_barrier(sock);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(rig.ep.qp);
    struct ibv_send_wr wr = bind_wr(&rig, window.mw, 0, IBV_ACCESS_REMOTE_WRITE);
    window.key.rkey = ibv_inc_rkey(window.mw->rkey);
    memcpy(rig.buf, &window.key, sizeof(window.key));
    for (int i = 0; i < 2; i++) {
        ibv_wr_start(ex);
        ex->wr_id = 1;
        ex->wr_flags = 0;
        if (i == 0)
            ibv_wr_bind_mw(ex, window.mw, window.key.rkey, &wr.bind_mw.bind_info);
        else
            ibv_wr_local_inv(ex, window.key.rkey);
        ex->wr_id = 2;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(ex);
        ibv_wr_set_sge(ex, rig.mr->lkey, (uintptr_t)rig.buf, 64);
        VU_EQ(ibv_wr_complete(ex), 0);
        vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
        vu_barrier(sock);
        rig_written(&rig, START, 4096, WRITTEN);
    }
    VU_EQ(ibv_dealloc_mw(window.mw), 0);
    rig_close(&rig);
}

/* Once the completion of the request that takes a key away is there, the memory is its owner's. */
#define RACE_ROUNDS 20

static void race_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = WRITTEN};
    for (int i = 0; i < RACE_ROUNDS; i++) {
        rig_open(&rig, sock, &attr);
        struct vu_key key;
        vu_get(sock, &key, sizeof(key));
        struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
        vu_barrier(sock);
        while (wc.status == IBV_WC_SUCCESS) {
            struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, LEN);
            write.remote = key.addr;
            write.rkey = key.rkey;
            rig_post(&rig, &write);
            VU_EQ(vu_poll(rig.ep.scq, &wc, 1, 20000), 1);
        }
        if (!vu_is_iwarp(&rig.dev) || wc.status != IBV_WC_WR_FLUSH_ERR) /* refused before */
            VU_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
        vu_barrier(sock);
        rig_close(&rig);
    }
}

static void race_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND};
    for (int i = 0; i < RACE_ROUNDS; i++) {
        struct vu_ep second;
        struct window window;
        rig_open(&rig, sock, &attr);
        window_second_qp(&rig, &second);
        window_alloc(&rig, &window, param & TYPE_BIT ? IBV_MW_TYPE_2 : IBV_MW_TYPE_1);
        VU_EQ(bind_through(&rig, &rig.ep, &window, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
        vu_put(sock, &window.key, sizeof(window.key));
        vu_barrier(sock);
        struct ibv_wc wc;
        VU_EQ(vu_poll(rig.ep.rcq, &wc, 1, (unsigned int)(i % 4)), 0);
        if (i % 3 == 2)
            VU_EQ(ibv_dealloc_mw(window.mw), 0);
        else if (param & TYPE_BIT)
            VU_EQ(invalidate(&rig.ep, window.key.rkey), IBV_WC_SUCCESS);
        else
            VU_EQ(bind_through(&rig, &second, &window, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
        memset(rig.buf, FILL, RIG_BYTES);
        vu_barrier(sock);
        rig_bytes(&rig, 0, RIG_BYTES, FILL);
        if (i % 3 != 2)
            VU_EQ(ibv_dealloc_mw(window.mw), 0);
        vu_ep_destroy(&second);
        rig_close(&rig);
    }
}

const struct sem_case sem_windows[] = {
    {"window1__write", use_a, use_b, TYPE1(USE_WRITE)},
    {"window1__read", use_a, use_b, TYPE1(USE_READ)},
    {"window1__atomic", use_a, use_b, TYPE1(USE_ATOMIC)},
    {"window1__last_byte", use_a, use_b, TYPE1(USE_LAST_BYTE)},
    {"window1__zero_based", use_a, use_b, TYPE1(USE_ZERO_BASED)},
    {"window1__rebound", use_a, use_b, TYPE1(USE_REBOUND)},
    {"window1__through_any_qp", use_a, use_b, TYPE1(USE_OTHER_QP)},
    {"window1__past_end", use_a, use_b, TYPE1(USE_PAST_END)},
    {"window1__before_start", use_a, use_b, TYPE1(USE_BEFORE_START)},
    {"window1__no_right", use_a, use_b, TYPE1(USE_NO_RIGHT)},
    {"window1__never_bound", use_a, use_b, TYPE1(USE_NEVER_BOUND)},
    {"window1__old_key", use_a, use_b, TYPE1(USE_OLD_KEY)},
    {"window1__unbound", use_a, use_b, TYPE1(USE_UNBOUND)},
    {"window1__deallocated", use_a, use_b, TYPE1(USE_DEALLOCATED)},
    {"window2__write", use_a, use_b, TYPE2(USE_WRITE)},
    {"window2__read", use_a, use_b, TYPE2(USE_READ)},
    {"window2__atomic", use_a, use_b, TYPE2(USE_ATOMIC)},
    {"window2__zero_based", use_a, use_b, TYPE2(USE_ZERO_BASED)},
    {"window2__bound_again", use_a, use_b, TYPE2(USE_BOUND_AGAIN)},
    {"window2__past_end", use_a, use_b, TYPE2(USE_PAST_END)},
    {"window2__before_start", use_a, use_b, TYPE2(USE_BEFORE_START)},
    {"window2__no_right", use_a, use_b, TYPE2(USE_NO_RIGHT)},
    {"window2__never_bound", use_a, use_b, TYPE2(USE_NEVER_BOUND)},
    {"window2__invalidated", use_a, use_b, TYPE2(USE_INVALIDATED)},
    {"window2__deallocated", use_a, use_b, TYPE2(USE_DEALLOCATED)},
    {"window2__of_other_qp", use_a, use_b, TYPE2(USE_OF_OTHER_QP)},
    {"window2__qp_destroyed", use_a, use_b, TYPE2(USE_QP_DESTROYED)},
    {"bind__no_bind_right", misuse_a, misuse_b, NO_BIND_RIGHT},
    {"bind__out_of_region", misuse_a, misuse_b, OUT_OF_REGION},
    {"bind__region_of_other_pd", misuse_a, misuse_b, REGION_OF_OTHER_PD},
    {"bind__write_to_read_only", misuse_a, misuse_b, WRITE_TO_READ_ONLY},
    {"bind__unknown_right", misuse_a, misuse_b, UNKNOWN_RIGHT},
    {"bind__type2_twice", misuse_a, misuse_b, BOUND_TWICE},
    {"bind__type2_to_nothing", misuse_a, misuse_b, NOTHING_TO_TYPE2},
    {"local_inv__region", misuse_a, misuse_b, INVALIDATE_REGION},
    {"local_inv__type1", misuse_a, misuse_b, INVALIDATE_TYPE1},
    {"local_inv__twice", misuse_a, misuse_b, INVALIDATE_TWICE},
    {"local_inv__of_other_qp", misuse_a, misuse_b, INVALIDATE_OF_OTHER_QP},
    {"local_inv__garbage", misuse_a, misuse_b, INVALIDATE_GARBAGE},
    {"window1__region_is_busy", busy_a, misuse_b, TYPE1(0)},
    {"window2__region_is_busy", busy_a, misuse_b, TYPE2(0)},
    {"order__bind_and_invalidate", order_a, order_b, 0},
    {"window1__taken_away_under_writes", race_a, race_b, TYPE1(0)},
    {"window2__taken_away_under_writes", race_a, race_b, TYPE2(0)},
    {"uc_window1__write", use_a, use_b, UC(TYPE1(USE_WRITE))},
    {"uc_window1__old_key", use_a, use_b, UC(TYPE1(USE_OLD_KEY))},
    {"uc_window1__unbound", use_a, use_b, UC(TYPE1(USE_UNBOUND))},
    {"uc_window2__write", use_a, use_b, UC(TYPE2(USE_WRITE))},
    {"uc_window2__zero_based", use_a, use_b, UC(TYPE2(USE_ZERO_BASED))},
    {"uc_window2__bound_again", use_a, use_b, UC(TYPE2(USE_BOUND_AGAIN))},
    {"uc_window2__past_end", use_a, use_b, UC(TYPE2(USE_PAST_END))},
    {"uc_window2__no_right", use_a, use_b, UC(TYPE2(USE_NO_RIGHT))},
    {"uc_window2__invalidated", use_a, use_b, UC(TYPE2(USE_INVALIDATED))},
    {"uc_window2__of_other_qp", use_a, use_b, UC(TYPE2(USE_OF_OTHER_QP))},
    {"uc_bind__no_bind_right", misuse_a, misuse_b, UC(NO_BIND_RIGHT)},
    {"uc_bind__type2_twice", misuse_a, misuse_b, UC(BOUND_TWICE)},
    {"uc_local_inv__type1", misuse_a, misuse_b, UC(INVALIDATE_TYPE1)},
    {"uc_local_inv__garbage", misuse_a, misuse_b, UC(INVALIDATE_GARBAGE)},
    {"uc_order__bind_and_invalidate", order_a, order_b, UC(0)},
    {"uc_bind__without_a_peer", alone_a, alone_b, 0},
    {0},
};
