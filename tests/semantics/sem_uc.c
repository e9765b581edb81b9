/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: unreliable connections (IBTA Vol1 9.8). A message that cannot be delivered is lost in
 * silence, and the next one arrives. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "sem.h"

#define LONG_BYTES 100000 /* longer than any buffer on the way */
#define EXTENDED 1

static void uc_open(struct rig *rig, int sock, bool extended)
{
    struct rig_attr attr = {.ep = {.type = IBV_QPT_UC, .inline_bytes = 64, .extended = extended}};
    rig_open(rig, sock, &attr);
}

/* --- what works --- */

static void post_built(struct rig *rig, const struct vu_send *send)
{
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(rig->ep.qp);
    ibv_wr_start(ex);
    ex->wr_id = send->wr_id;
    ex->wr_flags = send->flags & ~(unsigned int)IBV_SEND_INLINE;
    if (send->opcode == IBV_WR_SEND)
        ibv_wr_send(ex);
    else if (send->opcode == IBV_WR_SEND_WITH_IMM)
        ibv_wr_send_imm(ex, htobe32(send->imm));
    else if (send->opcode == IBV_WR_RDMA_WRITE)
        ibv_wr_rdma_write(ex, send->rkey, send->remote);
    else
        ibv_wr_rdma_write_imm(ex, send->rkey, send->remote, htobe32(send->imm));
    if (send->flags & IBV_SEND_INLINE)
        ibv_wr_set_inline_data(ex, send->addr, send->len_bytes);
    else
        ibv_wr_set_sge(ex, send->lkey, (uintptr_t)send->addr, send->len_bytes);
    VU_EQ(ibv_wr_complete(ex), 0);
}

static const enum ibv_wr_opcode uc_opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
                                                IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM};
static const uint32_t uc_lengths[] = {1, 64, 4000, LONG_BYTES};

static void works_a(int sock, int param)
{
    struct rig rig;
    uc_open(&rig, sock, param == EXTENDED);
    vu_barrier(sock);
    for (unsigned int i = 0; i < 16; i++) {
        uint32_t len = uc_lengths[i / 4];
        memset(rig.buf, (int)(0x10 + i), len);
        struct vu_send send = rig_send(&rig, uc_opcodes[i % 4], i, 0, len);
        send.imm = 1000 + i;
        if (len <= 64)
            send.flags |= IBV_SEND_INLINE;
        if (param == EXTENDED)
            post_built(&rig, &send);
        else
            rig_post(&rig, &send);
        struct ibv_wc wc = vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
        VU_EQ(wc.opcode, i % 4 < 2 ? IBV_WC_SEND : IBV_WC_RDMA_WRITE);
        vu_barrier(sock);
        vu_barrier(sock);
    }
    rig_close(&rig);
}

static void works_b(int sock, int param)
{
    struct rig rig;
    uc_open(&rig, sock, param == EXTENDED);
    for (unsigned int i = 0; i < 4; i++)
        rig_recv(&rig, 100 + i, 0, LONG_BYTES);
    vu_barrier(sock);
    for (unsigned int i = 0, recv = 100; i < 16; i++) {
        uint32_t len = uc_lengths[i / 4];
        vu_barrier(sock);
        if (uc_opcodes[i % 4] != IBV_WR_RDMA_WRITE) {
            struct ibv_wc wc = vu_expect(rig.ep.rcq, recv, IBV_WC_SUCCESS);
            VU_EQ(wc.byte_len, len);
            VU_EQ(wc.opcode, i % 4 == 3 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
            VU_EQ((wc.wc_flags & IBV_WC_WITH_IMM) != 0, i % 2);
            if (i % 2)
                VU_EQ(be32toh(wc.imm_data), 1000 + i);
            rig_recv(&rig, ++recv + 3, 0, LONG_BYTES);
        }
        rig_written(&rig, 0, len, (uint8_t)(0x10 + i));
        vu_barrier(sock);
    }
    rig_close(&rig);
}

/* Operations that want an answer do not exist on the type: EINVAL at post. */
static void refused_a(int sock, int param)
{
    static const enum ibv_wr_opcode none[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
                                              IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_WRITE};
    (void)param;
    struct rig rig;
    uc_open(&rig, sock, false);
    for (int i = 0; i < 4; i++) {
        struct vu_send send = rig_send(&rig, none[i], 1, 0, 8);
        VU_EQ(vu_post_send(rig.ep.qp, &send), EINVAL);
    }
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    struct ibv_qp_init_attr_ex init = {.send_cq = rig.ep.scq,
                                       .recv_cq = rig.ep.rcq,
                                       .cap = {.max_send_wr = 1, .max_send_sge = 1},
                                       .qp_type = IBV_QPT_UC,
                                       .comp_mask =
                                           IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                       .pd = rig.dev.pd,
                                       .send_ops_flags = IBV_QP_EX_WITH_RDMA_READ};
    errno = 0;
    VU_TRUE(!ibv_create_qp_ex(rig.dev.ctx, &init) && errno == EOPNOTSUPP);
    vu_barrier(sock);
    rig_close(&rig);
}

static void quiet_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    uc_open(&rig, sock, false);
    vu_barrier(sock);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    rig_close(&rig);
}

/* --- what is lost --- */

enum loss { NO_RECV, SHORT_RECV, BAD_KEY, PAST_END, NO_RIGHT, NO_RECV_FOR_IMM };
#define LONG_LOSS 16

/* The sender of a lost message sees success, and so does the sender of the next one, which
 * arrives. */
static void lost_a(int sock, int param)
{
    struct rig rig;
    uc_open(&rig, sock, false);
    uint32_t len = param & LONG_LOSS ? LONG_BYTES : 128;
    enum loss loss = (enum loss)(param & ~LONG_LOSS);
    bool is_send = loss == NO_RECV || loss == SHORT_RECV;
    struct vu_send bad = rig_send(&rig, is_send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, 1, 0, len);
    if (loss == NO_RECV_FOR_IMM)
        bad.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    else if (loss == BAD_KEY)
        bad.rkey ^= 0x5a5a5a00;
    else if (loss == PAST_END)
        bad.remote += RIG_BYTES - len + 8;
    vu_barrier(sock);
    memset(rig.buf, 0xa1, LONG_BYTES);
    rig_post(&rig, &bad);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    vu_barrier(sock); /* a receive is posted */
    memset(rig.buf, 0xa2, LONG_BYTES);
    struct vu_send next = rig_send(&rig, IBV_WR_SEND, 2, 0, 64);
    rig_post(&rig, &next);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void lost_b(int sock, int param)
{
    enum loss loss = (enum loss)(param & ~LONG_LOSS);
    struct rig rig;
    struct rig_attr attr = {.ep = {.type = IBV_QPT_UC}};
    if (loss == NO_RIGHT)
        attr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    rig_open(&rig, sock, &attr);
    bool needs_none = loss != NO_RECV && loss != NO_RECV_FOR_IMM;
    if (needs_none)
        rig_recv(&rig, 10, 0, 64);
    vu_barrier(sock);
    vu_barrier(sock);
    vu_expect_none(rig.ep.rcq, 100);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    rig_bytes(&rig, 0, RIG_BYTES, 0);
    if (!needs_none)
        rig_recv(&rig, 10, 0, 64);
    vu_barrier(sock);
    struct ibv_wc wc = vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
    VU_EQ(wc.byte_len, 64);
    rig_bytes(&rig, 0, 64, 0xa2);
    rig_bytes(&rig, 64, 1024, 0);
    vu_expect_none(rig.ep.rcq, 10);
    vu_barrier(sock);
    rig_close(&rig);
}

/* --- a shared receive queue --- */

static struct ibv_srq *srq_open(struct rig *rig, int sock, bool with_srq, struct vu_ep *ep)
{
    struct ibv_srq *srq = NULL;
    uc_open(rig, sock, false);
    if (with_srq) {
        struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
        srq = ibv_create_srq(rig->dev.pd, &init);
        VU_CHECK(srq, "ibv_create_srq: %s", strerror(errno));
    }
    struct vu_ep_attr attr = {
        .type = IBV_QPT_UC, .srq = srq, .send_cq = rig->ep.scq, .recv_cq = rig->ep.rcq};
    vu_ep_create(&rig->dev, &attr, ep);
    vu_connect(ep, sock, NULL);
    return srq;
}

/* A receive that has left the shared queue cannot serve the next message: it ends in an error
 * (class E of IBTA Vol1 9.9.3), which is no error of the QP. param: bytes of the message that is
 * lost. */
static void srq_a(int sock, int param)
{
    struct rig rig;
    struct vu_ep ep;
    srq_open(&rig, sock, false, &ep);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, (uint32_t)param);
    memset(rig.buf, 0xa1, LONG_BYTES);
    vu_barrier(sock);
    for (send.wr_id = 1; send.wr_id <= 2; send.wr_id++) { /* no receive; then one too short */
        VU_EQ(vu_post_send(ep.qp, &send), 0);
        vu_expect(rig.ep.scq, send.wr_id, IBV_WC_SUCCESS);
        vu_barrier(sock);
        vu_barrier(sock);
    }
    send.len_bytes = 100;
    VU_EQ(vu_post_send(ep.qp, &send), 0);
    vu_expect(rig.ep.scq, 3, IBV_WC_SUCCESS);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_RTS);
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    rig_close(&rig);
}

static void srq_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_ep ep;
    struct ibv_srq *srq = srq_open(&rig, sock, true, &ep);
    vu_barrier(sock);
    vu_expect_none(rig.ep.rcq, 50); /* also lets the responder see that there is no receive */
    vu_barrier(sock);
    VU_EQ(vu_post_srq(srq, 10, rig.buf, 100, rig.mr->lkey), 0);
    VU_EQ(vu_post_srq(srq, 11, rig.buf + 4096, 100, rig.mr->lkey), 0);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 10, IBV_WC_LOC_LEN_ERR);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_RTS);
    vu_barrier(sock);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 11, IBV_WC_SUCCESS);
    rig_bytes(&rig, 0, 4096, 0);
    rig_bytes(&rig, 4096, 100, 0xa1);
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    VU_EQ(ibv_destroy_srq(srq), 0);
    rig_close(&rig);
}

/* A message that is too long is lost. The receive it met is for the next, and keeps its place. */
static void place_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    uc_open(&rig, sock, false);
    vu_barrier(sock);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, 5000);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    vu_barrier(sock);
    send.len_bytes = 100;
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static int fill_receives(struct rig *rig)
{
    int count = 0;
    while (vu_post_recv(rig->ep.qp, 7, rig->buf, 4096, rig->mr->lkey) == 0)
        count++;
    return count;
}

static void place_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    uc_open(&rig, sock, false);
    VU_EQ(fill_receives(&rig), rig.ep.recv_wr);
    vu_barrier(sock);
    vu_barrier(sock);
    rig_settle();
    VU_EQ(fill_receives(&rig), 0);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 7, IBV_WC_SUCCESS);
    VU_EQ(fill_receives(&rig), 1);
    vu_barrier(sock);
    rig_close(&rig);
}

/* --- local errors, and a peer that is gone --- */

/* A request whose own key is wrong takes the send queue to SQE: what follows is flushed, receiving
 * goes on, and RTS makes it whole again (IBTA Vol1 10.3.1.6). param: bytes; 0: an invalidation. */
static void sqe_a(int sock, int param)
{
    struct rig rig;
    uc_open(&rig, sock, false);
    memset(rig.buf, 0xa1, LONG_BYTES);
    rig_recv(&rig, 10, LONG_BYTES + 100, 64);
    vu_barrier(sock);
    struct vu_send bad = rig_send(&rig, IBV_WR_SEND, 1, 0, (uint32_t)param);
    struct vu_send good = rig_send(&rig, IBV_WR_SEND, 2, 0, 64);
    bad.lkey ^= 0x5a5a5a00;
    if (!param)
        bad = (struct vu_send){.opcode = IBV_WR_LOCAL_INV, .wr_id = 1}; /* key 0 */
    rig_post(&rig, &bad);
    rig_post(&rig, &good);
    vu_expect(rig.ep.scq, 1, param ? IBV_WC_LOC_PROT_ERR : IBV_WC_MW_BIND_ERR);
    vu_expect(rig.ep.scq, 2, IBV_WC_WR_FLUSH_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_SQE);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE};
    VU_EQ(ibv_modify_qp(rig.ep.qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
    good.wr_id = 3;
    rig_post(&rig, &good);
    vu_expect(rig.ep.scq, 3, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void sqe_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    uc_open(&rig, sock, false);
    rig_recv(&rig, 20, 0, LONG_BYTES);
    vu_barrier(sock);
    vu_barrier(sock);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, LONG_BYTES + 100, 64);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    struct ibv_wc wc = vu_expect(rig.ep.rcq, 20, IBV_WC_SUCCESS);
    VU_EQ(wc.byte_len, 64);
    rig_bytes(&rig, 0, 64, 0xa1);
    vu_barrier(sock);
    rig_close(&rig);
}

/* The receiver's own fault: its receive has a bad key. Its QP fails; the sender is not told. */
#define IN_SHARED \
    (1 << 20) /* the bad receive is in a shared queue; below it, bytes of the message */

static void own_fault_a(int sock, int param)
{
    struct rig rig;
    struct vu_ep ep;
    srq_open(&rig, sock, false, &ep);
    vu_barrier(sock);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, (uint32_t)(param & ~IN_SHARED));
    VU_EQ(vu_post_send(ep.qp, &send), 0);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_RTS);
    vu_barrier(sock);
    for (send.wr_id = 2; send.wr_id < 5; send.wr_id++) {
        VU_EQ(vu_post_send(ep.qp, &send), 0); /* to a QP in ERR: lost */
        vu_expect(rig.ep.scq, send.wr_id, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    rig_close(&rig);
}

static void own_fault_b(int sock, int param)
{
    struct rig rig;
    struct vu_ep ep;
    struct ibv_srq *srq = srq_open(&rig, sock, param & IN_SHARED, &ep);
    uint32_t len = (uint32_t)(param & ~IN_SHARED), bad_lkey = rig.mr->lkey ^ 0x5a5a5a00;
    if (srq)
        VU_EQ(vu_post_srq(srq, 10, rig.buf, len, bad_lkey), 0);
    else
        VU_EQ(vu_post_recv(ep.qp, 10, rig.buf, len, bad_lkey), 0);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 10, IBV_WC_LOC_PROT_ERR);
    VU_EQ(vu_ep_state(&ep), IBV_QPS_ERR);
    vu_barrier(sock);
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    if (srq)
        VU_EQ(ibv_destroy_srq(srq), 0);
    rig_close(&rig);
}

enum gone { GONE_EXIT, GONE_RESET, GONE_ERR };

/* Nobody answers a wire either: sends succeed, receives stay posted. */
static void gone_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    uc_open(&rig, sock, false);
    rig_recv(&rig, 10, 0, 64);
    vu_barrier(sock);
    uint64_t wr_id = 1;
    for (uint64_t start = vu_now_ms(); vu_now_ms() - start < 600; wr_id += 2) {
        struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, wr_id, 0, 64);
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, wr_id + 1, 0, LONG_BYTES);
        rig_post(&rig, &write);
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, wr_id, IBV_WC_SUCCESS);
        vu_expect(rig.ep.scq, wr_id + 1, IBV_WC_SUCCESS);
        vu_sleep_ms(20);
    }
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    vu_expect_none(rig.ep.rcq, 50);
    vu_ep_to(&rig.ep, IBV_QPS_ERR);
    vu_expect(rig.ep.rcq, 10, IBV_WC_WR_FLUSH_ERR);
    rig_close(&rig);
}

static void gone_b(int sock, int param)
{
    struct rig rig;
    uc_open(&rig, sock, false);
    vu_barrier(sock);
    if (param == GONE_EXIT)
        _exit(0);
    vu_ep_to(&rig.ep, param == GONE_RESET ? IBV_QPS_RESET : IBV_QPS_ERR);
    vu_sleep_ms(700);
    rig_close(&rig);
}

/* --- one side alone begins anew: there is nothing that the other would have to agree on --- */

static void connect_again(struct rig *rig)
{
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    VU_EQ(ibv_query_qp(rig->ep.qp, &attr, IBV_QP_DEST_QPN | IBV_QP_AV, &init), 0);
    const struct vu_peer peer = {.qpn = attr.dest_qp_num, .gid = attr.ah_attr.grh.dgid};
    vu_ep_to(&rig->ep, IBV_QPS_RESET);
    vu_ep_init(&rig->ep, &vu_conn_default);
    rig_recv(rig, 20, 0x20000, 64);
    vu_ep_rtr(&rig->ep, &peer, &vu_conn_default);
    vu_ep_rts(&rig->ep, &vu_conn_default);
}

#define LIVES 4

static void again_a(int sock, int param)
{
    const uint32_t len = (uint32_t)param;
    struct rig rig;
    uc_open(&rig, sock, false);
    rig_recv(&rig, 20, 0x20000, 64);
    vu_barrier(sock);
    for (unsigned int life = 0; life < LIVES; life++) {
        for (unsigned int i = 0; i < 3; i++) {
            memset(rig.buf, (int)(0x10 * life + i + 1), len);
            struct vu_send send = rig_send(&rig, IBV_WR_SEND, i, 0, len);
            rig_post(&rig, &send);
            vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
            vu_barrier(sock); /* the other side has it */
        }
        memset(rig.buf, (int)(0x70 + life), len);
        struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, 9, 0, len);
        rig_post(&rig, &write);
        vu_expect(rig.ep.scq, 9, IBV_WC_SUCCESS);
        vu_barrier(sock);
        vu_expect(rig.ep.rcq, 20, IBV_WC_SUCCESS);
        rig_bytes(&rig, 0x20000, 64, (uint8_t)(0x50 + life));
        connect_again(&rig);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void again_b(int sock, int param)
{
    const uint32_t len = (uint32_t)param;
    struct rig rig;
    uc_open(&rig, sock, false);
    for (unsigned int i = 0; i < 5; i++) /* more than are used: receives outlive a connection */
        rig_recv(&rig, 10, 0, LONG_BYTES);
    vu_barrier(sock);
    for (unsigned int life = 0; life < LIVES; life++) {
        for (unsigned int i = 0; i < 3; i++) {
            struct ibv_wc wc = vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
            VU_EQ(wc.byte_len, len);
            rig_bytes(&rig, 0, len, (uint8_t)(0x10 * life + i + 1));
            rig_recv(&rig, 10, 0, LONG_BYTES);
            vu_barrier(sock);
        }
        vu_barrier(sock);
        rig_written(&rig, 0, len, (uint8_t)(0x70 + life));
        memset(rig.buf + 0x20000, (int)(0x50 + life), 64);
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0x20000, 64);
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    rig_close(&rig);
}

/* Messages sent while the other side is away are lost; those sent when it is back arrive, though
 * the sender has not looked since. */
static void away_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    uc_open(&rig, sock, false);
    for (int i = 0; i < LIVES; i++) {
        vu_barrier(sock);
        rig_settle();
        connect_again(&rig);
        vu_barrier(sock);
        vu_expect(rig.ep.rcq, 20, IBV_WC_SUCCESS);
        rig_bytes(&rig, 0x20000, 64, (uint8_t)(0xa0 + i));
        vu_expect_none(rig.ep.rcq, 10);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void away_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    uc_open(&rig, sock, false);
    for (int i = 0; i < LIVES; i++) {
        memset(rig.buf + 0x20000, 0x99, 64);
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0x20000, 64);
        rig_post(&rig, &send); /* finds no receive */
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
        vu_barrier(sock);
        vu_barrier(sock);
        memset(rig.buf + 0x20000, 0xa0 + i, 64);
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

const struct sem_case sem_uc[] = {
    {"uc__works", works_a, works_b, 0},
    {"uc__works_with_builders", works_a, works_b, EXTENDED},
    {"uc__operations_it_has_not", refused_a, quiet_b, 0},
    {"uc__no_receive_is_a_loss", lost_a, lost_b, NO_RECV},
    {"uc__no_receive_for_a_long_message", lost_a, lost_b, NO_RECV | LONG_LOSS},
    {"uc__short_receive_is_a_loss", lost_a, lost_b, SHORT_RECV},
    {"uc__short_receive_for_a_long_message", lost_a, lost_b, SHORT_RECV | LONG_LOSS},
    {"uc__bad_key_is_a_loss", lost_a, lost_b, BAD_KEY},
    {"uc__bad_key_of_a_long_write", lost_a, lost_b, BAD_KEY | LONG_LOSS},
    {"uc__past_end_is_a_loss", lost_a, lost_b, PAST_END},
    {"uc__missing_right_is_a_loss", lost_a, lost_b, NO_RIGHT},
    {"uc__no_receive_for_an_immediate", lost_a, lost_b, NO_RECV_FOR_IMM},
    {"uc__no_receive_for_a_long_immediate", lost_a, lost_b, NO_RECV_FOR_IMM | LONG_LOSS},
    {"uc__shared_receives", srq_a, srq_b, 200},
    {"uc__shared_receives_long_message", srq_a, srq_b, LONG_BYTES},
    {"uc__a_lost_message_frees_no_receive", place_a, place_b, 0},
    {"uc__local_error_is_sqe", sqe_a, sqe_b, 64},
    {"uc__bad_invalidation_is_sqe", sqe_a, sqe_b, 0},
    {"uc__local_error_of_a_long_message_is_sqe", sqe_a, sqe_b, LONG_BYTES},
    {"uc__receivers_own_fault", own_fault_a, own_fault_b, 64},
    {"uc__receivers_own_fault_long_message", own_fault_a, own_fault_b, LONG_BYTES},
    {"uc__receivers_own_fault_shared", own_fault_a, own_fault_b, 64 | IN_SHARED},
    {"uc__receivers_own_fault_shared_long_message", own_fault_a, own_fault_b,
     LONG_BYTES | IN_SHARED},
    {"uc__peer_gone_exit", gone_a, gone_b, GONE_EXIT | SEM_PROCESSES},
    {"uc__peer_gone_reset", gone_a, gone_b, GONE_RESET},
    {"uc__peer_gone_err", gone_a, gone_b, GONE_ERR},
    {"uc__one_side_connects_again", again_a, again_b, 64},
    {"uc__one_side_connects_again_long", again_a, again_b, LONG_BYTES},
    {"uc__one_side_was_away", away_a, away_b, 0},
    {0},
};
