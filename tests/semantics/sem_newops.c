/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: ATOMIC WRITE (IBTA Vol1 9.4.8): eight aligned bytes that nobody sees half of. */
#include <errno.h>
#include <string.h>

#include "sem.h"

#define ROUNDS 2000
#define WORD(i) ((i) % 2 ? 0x5555555555555555ull : 0xaaaaaaaaaaaaaaaaull)

enum how { FROM_ELEMENT, FROM_TWO_ELEMENTS, INLINE, BUILDER };

static void post_word(struct rig *rig, enum how how, uint64_t i)
{
    uint64_t word = WORD(i);
    memcpy(rig->buf + 512, &word, 8);
    memcpy(rig->buf + 1028, (uint8_t *)&word + 4, 4);
    struct ibv_sge sges[2] = {{(uintptr_t)rig->buf + 512, 8, rig->mr->lkey},
                              {(uintptr_t)rig->buf + 1028, 4, rig->mr->lkey}};
    struct ibv_send_wr *bad, wr = {.wr_id = i,
                                   .sg_list = sges,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_ATOMIC_WRITE,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {rig->peer.addr + 64, rig->peer.rkey}};
    struct ibv_qp_ex *ex = how == BUILDER ? ibv_qp_to_qp_ex(rig->ep.qp) : NULL;
    if (how == FROM_TWO_ELEMENTS) {
        sges[0].length = 4;
        wr.num_sge = 2;
    }
    if (how == INLINE) {
        sges[0] = (struct ibv_sge){(uintptr_t)&word, 8, 0};
        wr.send_flags |= IBV_SEND_INLINE;
    }
    if (!ex) {
        VU_EQ(ibv_post_send(rig->ep.qp, &wr, &bad), 0);
        return;
    }
    ibv_wr_start(ex);
    ex->wr_id = i;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_atomic_write(ex, rig->peer.rkey, rig->peer.addr + 64, &word);
    word = 0; /* taken already */
    VU_EQ(ibv_wr_complete(ex), 0);
}

static void words_a(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.ep = {.extended = param == BUILDER}};
    rig_open(&rig, sock, &attr);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        post_word(&rig, (enum how)param, i);
        VU_EQ(vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS).opcode, IBV_WC_ATOMIC_WRITE);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void words_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    const volatile uint64_t *at = (uint64_t *)(rig.buf + 64);
    uint64_t deadline = vu_now_ms() + 20000, changes = 0, before = 0;
    struct ibv_wc wc;
    while (changes < 10) {
        uint64_t seen = *at;
        VU_CHECK(seen == 0 || seen == WORD(0) || seen == WORD(1), "half a word: 0x%llx",
                 (unsigned long long)seen);
        changes += seen != before;
        before = seen;
        VU_EQ(ibv_poll_cq(rig.ep.rcq, 1, &wc), 0);
        if (vu_now_ms() > deadline || (changes && seen == WORD(ROUNDS)))
            break;
    }
    vu_barrier(sock);
    VU_EQ(*at, WORD(ROUNDS));
    rig_bytes(&rig, 0, 64, 0);
    rig_bytes(&rig, 72, 64, 0);
    rig_close(&rig);
}

enum refused { MISALIGNED, NO_REGION_RIGHT, NO_QP_RIGHT, PAST_END };

static void refused_a(int sock, int param)
{
    struct rig rig;
    rig_open(&rig, sock, NULL);
    struct vu_send send = rig_send(&rig, IBV_WR_ATOMIC_WRITE, 1, 0, 4);
    VU_EQ(vu_post_send(rig.ep.qp, &send), EINVAL);
    send.len_bytes = 16;
    VU_EQ(vu_post_send(rig.ep.qp, &send), EINVAL);
    send.len_bytes = 8;
    if (param == MISALIGNED)
        send.remote += 4;
    if (param == PAST_END)
        send.remote += RIG_BYTES;
    rig_post(&rig, &send);
    vu_expect(rig.ep.scq, 1,
              param == NO_REGION_RIGHT || param == PAST_END ? IBV_WC_REM_ACCESS_ERR
                                                            : IBV_WC_REM_INV_REQ_ERR);
    vu_barrier(sock);
    rig_close(&rig);
}

static void refused_b(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.fill = 0xb5, .conn = vu_conn_default};
    if (param == NO_REGION_RIGHT)
        attr.access = VU_ACCESS_ALL & ~IBV_ACCESS_REMOTE_WRITE;
    if (param == NO_QP_RIGHT)
        attr.conn.access &= ~IBV_ACCESS_REMOTE_WRITE;
    rig_open(&rig, sock, &attr);
    vu_barrier(sock);
    rig_bytes(&rig, 0, RIG_BYTES, 0xb5);
    rig_close(&rig);
}

const struct sem_case sem_newops[] = {
    {"atomic_write__element", words_a, words_b, FROM_ELEMENT},
    {"atomic_write__two_elements", words_a, words_b, FROM_TWO_ELEMENTS},
    {"atomic_write__inline", words_a, words_b, INLINE},
    {"atomic_write__builder", words_a, words_b, BUILDER},
    {"atomic_write__misaligned", refused_a, refused_b, MISALIGNED},
    {"atomic_write__no_region_right", refused_a, refused_b, NO_REGION_RIGHT},
    {"atomic_write__no_qp_right", refused_a, refused_b, NO_QP_RIGHT},
    {"atomic_write__past_end", refused_a, refused_b, PAST_END},
    {0},
};
