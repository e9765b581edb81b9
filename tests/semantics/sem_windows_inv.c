/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: SEND with invalidate: what it invalidates, and the receives it takes, or does not. */
#include "sem_window.h"

#define FILL 0xb5
#define WRITTEN 0xa1

/* SEND with invalidate of what is not the sender's to invalidate is refused, and invalidates
 * nothing. */
enum inv { INV_GOOD, INV_LONG, INV_TYPE1, INV_OF_OTHER_QP, INV_TWICE };

static bool is_good(enum inv inv)
{
    return inv == INV_GOOD || inv == INV_LONG;
}

static void send_inv_a(int sock, int param)
{
    enum inv inv = (enum inv)(param & (TYPE_BIT - 1));
    struct rig rig;
    struct rig_attr attr = {.fill = WRITTEN, .ep = {.type = window_qp_type(param)}};
    struct vu_key key;
    rig_open(&rig, sock, &attr);
    vu_get(sock, &key, sizeof(key));
    struct vu_send write = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 4096);
    write.remote = key.addr;
    write.rkey = key.rkey;
    struct vu_send send = rig_send(&rig, IBV_WR_SEND_WITH_INV, 2, 0, inv == INV_LONG ? 100000 : 64);
    send.imm = key.rkey;
    if (inv != INV_OF_OTHER_QP) {
        rig_post(&rig, &write);
        vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    }
    rig_post(&rig, &send);
    write.wr_id = 3; /* posted at once: it finds the key gone all the same */
    write.addr = rig.buf + TOO_LATE;
    memset(rig.buf + TOO_LATE, ~WRITTEN, 4096);
    if (inv == INV_TWICE)
        rig_post(&rig, &send);
    else if (is_good(inv))
        rig_post(&rig, &write);
    vu_expect(rig.ep.scq, 2,
              is_good(inv) || inv == INV_TWICE ? IBV_WC_SUCCESS : window_refusal(param));
    if (inv == INV_TWICE)
        vu_expect(rig.ep.scq, 2, window_refusal(param));
    else if (is_good(inv))
        vu_expect(rig.ep.scq, 3, window_refusal(param));
    vu_barrier(sock);
    rig_close(&rig);
}

static void send_inv_b(int sock, int param)
{
    enum inv inv = (enum inv)(param & (TYPE_BIT - 1));
    struct rig rig;
    struct rig_attr attr = {.fill = FILL,
                            .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
                            .ep = {.type = window_qp_type(param)}};
    struct vu_ep second;
    struct window window;
    rig_open(&rig, sock, &attr);
    window_second_qp(&rig, &second);
    window_alloc(&rig, &window, inv == INV_TYPE1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
    VU_EQ(bind_through(&rig, inv == INV_OF_OTHER_QP ? &second : &rig.ep, &window,
                       IBV_ACCESS_REMOTE_WRITE),
          IBV_WC_SUCCESS);
    rig_recv(&rig, 10, 131072, 100000);
    rig_recv(&rig, 11, 131072, 100000);
    vu_put(sock, &window.key, sizeof(window.key));
    if (is_good(inv) || inv == INV_TWICE) {
        struct ibv_wc wc = vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
        VU_EQ(wc.wc_flags & (IBV_WC_WITH_INV | IBV_WC_WITH_IMM), IBV_WC_WITH_INV);
        VU_EQ(wc.invalidated_rkey, window.key.rkey);
        VU_EQ(wc.byte_len, inv == INV_LONG ? 100000 : 64);
        rig_bytes(&rig, 131072, wc.byte_len, WRITTEN);
    }
    if (param & UC_BIT) /* what was refused used no receive */
        vu_expect_none(rig.ep.rcq, 100);
    else if (is_good(inv) || inv == INV_TWICE)
        vu_expect(rig.ep.rcq, 11, IBV_WC_WR_FLUSH_ERR);
    else
        vu_expect(rig.ep.rcq, 10, IBV_WC_WR_FLUSH_ERR);
    vu_barrier(sock);
    if (is_good(inv) || inv == INV_TWICE) {
        rig_bytes(&rig, START, 4096, WRITTEN);
        VU_EQ(ibv_dereg_mr(rig.mr), 0); /* nothing is bound to it any more */
        rig.mr = vu_reg(&rig.dev, rig.buf, RIG_BYTES, attr.access);
    } else {
        VU_EQ(ibv_dereg_mr(rig.mr), EBUSY);
    }
    if (param & UC_BIT)
        VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    VU_EQ(ibv_dealloc_mw(window.mw), 0);
    vu_ep_destroy(&second);
    rig_close(&rig);
}

/* It uses up a receive like any other: the SEND behind it waits for one of its own. */
static void counts_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_key key;
    rig_open(&rig, sock, NULL);
    vu_get(sock, &key, sizeof(key));
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 1, 0, 64);
    struct vu_send inv = rig_send(&rig, IBV_WR_SEND_WITH_INV, 2, 0, 64);
    inv.imm = key.rkey;
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    vu_barrier(sock);
    vu_barrier(sock); /* one more receive is there */
    rig_post(&rig, &inv);
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 2, IBV_WC_SUCCESS);
    vu_expect_none(rig.ep.scq, 20);
    vu_barrier(sock);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    rig_close(&rig);
}

static void counts_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.access = VU_ACCESS_ALL | IBV_ACCESS_MW_BIND};
    struct window window;
    rig_open(&rig, sock, &attr);
    window_alloc(&rig, &window, IBV_MW_TYPE_2);
    VU_EQ(bind_through(&rig, &rig.ep, &window, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
    rig_recv(&rig, 10, 0, 64);
    vu_put(sock, &window.key, sizeof(window.key));
    vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_recv(&rig, 11, 0, 64);
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 11, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_recv(&rig, 12, 0, 64);
    vu_expect(rig.ep.rcq, 12, IBV_WC_SUCCESS);
    VU_EQ(ibv_dealloc_mw(window.mw), 0);
    rig_close(&rig);
}

/* Where it fails, what was posted behind it leaves no trace in the receives. */
static void trace_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = WRITTEN};
    struct vu_key key;
    rig_open(&rig, sock, &attr);
    vu_get(sock, &key, sizeof(key));
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 2, 0, 1024);
    struct vu_send inv = rig_send(&rig, IBV_WR_SEND_WITH_INV, 1, 0, 64);
    inv.imm = key.rkey;
    rig_post(&rig, &inv);
    rig_post(&rig, &send);
    vu_barrier(sock); /* until here nobody looks */
    vu_expect(rig.ep.scq, 1, IBV_WC_REM_INV_REQ_ERR);
    vu_expect(rig.ep.scq, 2, IBV_WC_WR_FLUSH_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void trace_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.fill = FILL, .access = VU_ACCESS_ALL | IBV_ACCESS_MW_BIND};
    struct window window;
    rig_open(&rig, sock, &attr);
    window_alloc(&rig, &window, IBV_MW_TYPE_2);
    VU_EQ(bind_through(&rig, &rig.ep, &window, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
    rig_recv(&rig, 10, 0, 63);
    rig_recv(&rig, 11, START, 1024);
    vu_put(sock, &window.key, sizeof(window.key));
    vu_barrier(sock);
    vu_expect(rig.ep.rcq, 10, IBV_WC_LOC_LEN_ERR);
    vu_expect(rig.ep.rcq, 11, IBV_WC_WR_FLUSH_ERR);
    vu_barrier(sock);
    rig_bytes(&rig, START, 1024, FILL);
    VU_EQ(ibv_dealloc_mw(window.mw), 0);
    rig_close(&rig);
}

/* Each combination of faults, and what both sides are told: it is the same on every link. For a
 * message of many packets a wire knows the length when its first ones are placed already, so there
 * the two faults of the receive are not combined. PLAIN: a SEND that invalidates nothing. */
enum fault {
    TOO_LONG = 1,
    BAD_LKEY = 2,
    BAD_INV = 4,
    LONG_MESSAGE = 8,
    NO_RECEIVE = 16,
    PLAIN = 32,
};
#define SHORT_BYTES 64u
#define LONG_BYTES 100000u

static void faults_a(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.conn = vu_conn_default};
    struct vu_key key;
    if (param & NO_RECEIVE)
        attr.conn.rnr_retry = 1;
    rig_open(&rig, sock, &attr);
    vu_get(sock, &key, sizeof(key));
    struct vu_send inv = rig_send(&rig, param & PLAIN ? IBV_WR_SEND : IBV_WR_SEND_WITH_INV, 1, 0,
                                  param & LONG_MESSAGE ? LONG_BYTES : SHORT_BYTES);
    inv.imm = param & BAD_INV ? key.rkey ^ 0x5a5a5a00 : key.rkey;
    rig_post(&rig, &inv);
    vu_expect(rig.ep.scq, 1,
              param & NO_RECEIVE ? IBV_WC_RNR_RETRY_EXC_ERR
              : param & TOO_LONG ? IBV_WC_REM_INV_REQ_ERR
              : param & BAD_LKEY ? IBV_WC_REM_OP_ERR
              : param & BAD_INV  ? IBV_WC_REM_ACCESS_ERR
                                 : IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void faults_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.access = VU_ACCESS_ALL | IBV_ACCESS_MW_BIND};
    struct window window;
    rig_open(&rig, sock, &attr);
    window_alloc(&rig, &window, IBV_MW_TYPE_2);
    VU_EQ(bind_through(&rig, &rig.ep, &window, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
    const uint32_t len_bytes = param & LONG_MESSAGE ? LONG_BYTES : SHORT_BYTES;
    const uint32_t lkey = param & BAD_LKEY ? rig.mr->lkey ^ 0x5a5a5a00 : rig.mr->lkey;
    if (!(param & NO_RECEIVE))
        VU_EQ(vu_post_recv(rig.ep.qp, 10, rig.buf, param & TOO_LONG ? len_bytes - 1 : len_bytes,
                           lkey),
              0);
    vu_put(sock, &window.key, sizeof(window.key));
    if (!(param & NO_RECEIVE))
        vu_expect(rig.ep.rcq, 10,
                  param & TOO_LONG   ? IBV_WC_LOC_LEN_ERR
                  : param & BAD_LKEY ? IBV_WC_LOC_PROT_ERR
                  : param & BAD_INV  ? IBV_WC_WR_FLUSH_ERR
                                     : IBV_WC_SUCCESS);
    vu_barrier(sock);
    VU_EQ(ibv_dealloc_mw(window.mw), 0);
    rig_close(&rig);
}

/* The side over UC that uses a window of the other's, whose key it is told. */
static void uc_user(struct rig *rig, int sock, uint8_t fill, struct vu_key *key)
{
    const struct rig_attr attr = {.fill = fill, .ep = {.type = IBV_QPT_UC}};
    rig_open(rig, sock, &attr);
    vu_get(sock, key, sizeof(*key));
}

/* The side that has the window, bound with these rights; the key is the case's to tell. */
static void uc_holder(struct rig *rig, int sock, uint8_t fill, unsigned int rights,
                      struct window *window)
{
    const struct rig_attr attr = {
        .fill = fill, .access = VU_ACCESS_ALL | IBV_ACCESS_MW_BIND, .ep = {.type = IBV_QPT_UC}};
    rig_open(rig, sock, &attr);
    window_alloc(rig, window, IBV_MW_TYPE_2);
    VU_EQ(bind_through(rig, &rig->ep, window, rights), IBV_WC_SUCCESS);
}

static void uc_holder_close(struct rig *rig, struct window *window)
{
    VU_EQ(ibv_dealloc_mw(window->mw), 0);
    rig_close(rig);
}

/* On UC one that does not fit is lost as a whole: key and receive serve what comes next. */
static void lost_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct vu_key key;
    uc_user(&rig, sock, WRITTEN, &key);
    for (uint32_t i = 0; i < 3; i++) {
        struct vu_send inv = rig_send(&rig, IBV_WR_SEND_WITH_INV, i, 0, i ? 1000 : 1001);
        inv.imm = key.rkey;
        inv.opcode = i < 2 ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND;
        rig_post(&rig, &inv);
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void lost_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct window window;
    uc_holder(&rig, sock, FILL, IBV_ACCESS_REMOTE_READ, &window);
    rig_recv(&rig, 10, START, 1000);
    rig_recv(&rig, 11, 2 * START, 1000);
    vu_put(sock, &window.key, sizeof(window.key));
    VU_EQ(vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS).invalidated_rkey, window.key.rkey);
    vu_expect(rig.ep.rcq, 11, IBV_WC_SUCCESS);
    rig_bytes(&rig, START, 1000, WRITTEN);
    rig_bytes(&rig, 2 * START, 1000, WRITTEN);
    vu_barrier(sock);
    uc_holder_close(&rig, &window);
}

/* A fault of the receiver's own fails its QP; over UC the sender does not hear of it. */
static void own_fault_a(int sock, int param)
{
    struct rig rig;
    struct vu_key key;
    uc_user(&rig, sock, 0, &key);
    struct vu_send inv = rig_send(&rig, IBV_WR_SEND_WITH_INV, 1, 0, (uint32_t)param);
    inv.imm = key.rkey;
    rig_post(&rig, &inv);
    vu_expect(rig.ep.scq, 1, IBV_WC_SUCCESS);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_RTS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void own_fault_b(int sock, int param)
{
    struct rig rig;
    struct window window;
    uc_holder(&rig, sock, 0, IBV_ACCESS_REMOTE_READ, &window);
    uint32_t bad_lkey = rig.mr->lkey ^ 0x5a5a5a00;
    VU_EQ(vu_post_recv(rig.ep.qp, 10, rig.buf, (uint32_t)param, bad_lkey), 0);
    vu_put(sock, &window.key, sizeof(window.key));
    vu_expect(rig.ep.rcq, 10, IBV_WC_LOC_PROT_ERR);
    VU_EQ(vu_ep_state(&rig.ep), IBV_QPS_ERR);
    vu_barrier(sock);
    uc_holder_close(&rig, &window);
}

/* A key that an invalidation before it takes away: over UC the request is lost, and the receive
 * that it would have used serves the next one. param: its opcode. */
static void too_late_a(int sock, int param)
{
    struct rig rig;
    struct vu_key key;
    uc_user(&rig, sock, WRITTEN, &key);
    struct vu_send inv = rig_send(&rig, IBV_WR_SEND_WITH_INV, 1, 0, 64);
    struct vu_send late = rig_send(&rig, (enum ibv_wr_opcode)param, 2, 0, 64);
    struct vu_send send = rig_send(&rig, IBV_WR_SEND, 3, 0, 1000);
    inv.imm = late.imm = late.rkey = key.rkey;
    late.remote = key.addr;
    rig_post(&rig, &inv);
    rig_post(&rig, &late);
    rig_post(&rig, &send);
    vu_barrier(sock); /* until here nobody looks */
    for (uint64_t wr_id = 1; wr_id <= 3; wr_id++)
        vu_expect(rig.ep.scq, wr_id, IBV_WC_SUCCESS);
    vu_barrier(sock);
    rig_close(&rig);
}

static void too_late_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct window window;
    uc_holder(&rig, sock, FILL, IBV_ACCESS_REMOTE_WRITE, &window);
    rig_recv(&rig, 10, 0, 64);
    rig_recv(&rig, 11, 2048, 1000);
    rig_recv(&rig, 12, 4096, 10); /* too short for the last */
    vu_put(sock, &window.key, sizeof(window.key));
    vu_barrier(sock);
    VU_EQ(vu_expect(rig.ep.rcq, 10, IBV_WC_SUCCESS).wc_flags, IBV_WC_WITH_INV);
    VU_EQ(vu_expect(rig.ep.rcq, 11, IBV_WC_SUCCESS).byte_len, 1000);
    rig_bytes(&rig, 2048, 1000, WRITTEN);
    rig_bytes(&rig, START, LEN, FILL);
    vu_barrier(sock);
    uc_holder_close(&rig, &window);
}

const struct sem_case sem_windows_inv[] = {
    {"send_inv__window", send_inv_a, send_inv_b, INV_GOOD},
    {"send_inv__long_message", send_inv_a, send_inv_b, INV_LONG},
    {"send_inv__type1", send_inv_a, send_inv_b, INV_TYPE1},
    {"send_inv__of_other_qp", send_inv_a, send_inv_b, INV_OF_OTHER_QP},
    {"send_inv__twice", send_inv_a, send_inv_b, INV_TWICE},
    {"uc_send_inv__window", send_inv_a, send_inv_b, UC(INV_GOOD)},
    {"uc_send_inv__long_message", send_inv_a, send_inv_b, UC(INV_LONG)},
    {"uc_send_inv__type1", send_inv_a, send_inv_b, UC(INV_TYPE1)},
    {"uc_send_inv__of_other_qp", send_inv_a, send_inv_b, UC(INV_OF_OTHER_QP)},
    {"uc_send_inv__twice", send_inv_a, send_inv_b, UC(INV_TWICE)},
    {"send_inv__counts_its_receive", counts_a, counts_b, 0},
    {"send_inv__failure_leaves_no_trace", trace_a, trace_b, 0},
    {"send_inv__too_long", faults_a, faults_b, TOO_LONG},
    {"send_inv__too_long_bad_key", faults_a, faults_b, TOO_LONG | BAD_INV},
    {"send_inv__too_long_bad_lkey", faults_a, faults_b, TOO_LONG | BAD_LKEY},
    {"send_inv__too_long_bad_lkey_bad_key", faults_a, faults_b, TOO_LONG | BAD_LKEY | BAD_INV},
    {"send_inv__bad_lkey", faults_a, faults_b, BAD_LKEY},
    {"send_inv__bad_lkey_bad_key", faults_a, faults_b, BAD_LKEY | BAD_INV},
    {"send_inv__bad_key", faults_a, faults_b, BAD_INV},
    {"send_inv__long_too_long_bad_key", faults_a, faults_b, LONG_MESSAGE | TOO_LONG | BAD_INV},
    {"send_inv__long_bad_lkey_bad_key", faults_a, faults_b, LONG_MESSAGE | BAD_LKEY | BAD_INV},
    {"send_inv__long_bad_key", faults_a, faults_b, LONG_MESSAGE | BAD_INV},
    {"send_inv__no_receive", faults_a, faults_b, NO_RECEIVE},
    {"send_inv__no_receive_bad_key", faults_a, faults_b, NO_RECEIVE | BAD_INV},
    {"send_inv__long_no_receive_bad_key", faults_a, faults_b, LONG_MESSAGE | NO_RECEIVE | BAD_INV},
    {"send_inv__long_too_long", faults_a, faults_b, LONG_MESSAGE | TOO_LONG},
    {"send_inv__long_bad_lkey", faults_a, faults_b, LONG_MESSAGE | BAD_LKEY},
    {"send__too_long_bad_lkey", faults_a, faults_b, PLAIN | TOO_LONG | BAD_LKEY},
    {"send__long_bad_lkey", faults_a, faults_b, PLAIN | LONG_MESSAGE | BAD_LKEY},
    {"send_inv__uc_too_long", lost_a, lost_b, 0},
    {"send_inv__uc_write_imm_too_late", too_late_a, too_late_b, IBV_WR_RDMA_WRITE_WITH_IMM},
    {"send_inv__uc_twice_at_once", too_late_a, too_late_b, IBV_WR_SEND_WITH_INV},
    {"send_inv__uc_receivers_own_fault", own_fault_a, own_fault_b, 64},
    {"send_inv__uc_receivers_own_fault_long_message", own_fault_a, own_fault_b, 100000},
    {0},
};
