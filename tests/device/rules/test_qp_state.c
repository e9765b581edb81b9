/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The whole truth table of sw_qp_transition_ok: for each transport and each of the 49 pairs of
 * states, every single attribute is left out, put in, and tried beside all the others. The
 * expectation below is spelled attribute by attribute, as in the Linux kernel's table
 * (drivers/infiniband/core/verbs.c), and shares no group with the implementation.
 */
#include "device/rules/qp_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define NONE 0
#define CUR IBV_QP_CUR_STATE
#define SQD_NOTIFY IBV_QP_EN_SQD_ASYNC_NOTIFY
#define ACCESS IBV_QP_ACCESS_FLAGS
#define PKEY IBV_QP_PKEY_INDEX
#define PORT IBV_QP_PORT
#define QKEY IBV_QP_QKEY
#define AV IBV_QP_AV
#define MTU IBV_QP_PATH_MTU
#define TIMEOUT IBV_QP_TIMEOUT
#define RETRY IBV_QP_RETRY_CNT
#define RNR_RETRY IBV_QP_RNR_RETRY
#define RQ_PSN IBV_QP_RQ_PSN
#define RD IBV_QP_MAX_QP_RD_ATOMIC
#define ALT IBV_QP_ALT_PATH
#define RNR_TIMER IBV_QP_MIN_RNR_TIMER
#define SQ_PSN IBV_QP_SQ_PSN
#define DEST_RD IBV_QP_MAX_DEST_RD_ATOMIC
#define MIG IBV_QP_PATH_MIG_STATE
#define DEST IBV_QP_DEST_QPN
#define RATE IBV_QP_RATE_LIMIT

struct expectation {
    enum ibv_qp_state cur;
    enum ibv_qp_state next;
    int required;
    int optional;
};

enum { ROWS_MAX = 24, BITS = 26 };

#define TO_RESET_OR_ERR                                                                     \
    {IBV_QPS_RESET, IBV_QPS_RESET, NONE, NONE}, {IBV_QPS_INIT, IBV_QPS_RESET, NONE, NONE},  \
        {IBV_QPS_RTR, IBV_QPS_RESET, NONE, NONE}, {IBV_QPS_RTS, IBV_QPS_RESET, NONE, NONE}, \
        {IBV_QPS_SQD, IBV_QPS_RESET, NONE, NONE}, {IBV_QPS_SQE, IBV_QPS_RESET, NONE, NONE}, \
        {IBV_QPS_ERR, IBV_QPS_RESET, NONE, NONE}, {IBV_QPS_INIT, IBV_QPS_ERR, NONE, NONE},  \
        {IBV_QPS_RTR, IBV_QPS_ERR, NONE, NONE}, {IBV_QPS_RTS, IBV_QPS_ERR, NONE, NONE},     \
        {IBV_QPS_SQD, IBV_QPS_ERR, NONE, NONE}, {IBV_QPS_SQE, IBV_QPS_ERR, NONE, NONE},     \
    {                                                                                       \
        IBV_QPS_ERR, IBV_QPS_ERR, NONE, NONE                                                \
    }
enum { TO_RESET_OR_ERR_ROWS = 13 };

static const struct expectation rc[ROWS_MAX] = {
    TO_RESET_OR_ERR,
    {IBV_QPS_RESET, IBV_QPS_INIT, PKEY | PORT | ACCESS, NONE},
    {IBV_QPS_INIT, IBV_QPS_INIT, NONE, PKEY | PORT | ACCESS},
    {IBV_QPS_INIT, IBV_QPS_RTR, AV | MTU | DEST | RQ_PSN | DEST_RD | RNR_TIMER,
     ALT | ACCESS | PKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, TIMEOUT | RETRY | RNR_RETRY | SQ_PSN | RD,
     CUR | ALT | ACCESS | RNR_TIMER | MIG | RATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, NONE, RATE | CUR | ACCESS | ALT | MIG | RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, NONE, SQD_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, NONE, CUR | ALT | ACCESS | RNR_TIMER | MIG},
    {IBV_QPS_SQD, IBV_QPS_SQD, NONE,
     PORT | AV | TIMEOUT | RETRY | RNR_RETRY | RD | DEST_RD | ALT | ACCESS | PKEY | RNR_TIMER |
         MIG},
};

static const struct expectation uc[ROWS_MAX] = {
    TO_RESET_OR_ERR,
    {IBV_QPS_RESET, IBV_QPS_INIT, PKEY | PORT | ACCESS, NONE},
    {IBV_QPS_INIT, IBV_QPS_INIT, NONE, PKEY | PORT | ACCESS},
    {IBV_QPS_INIT, IBV_QPS_RTR, AV | MTU | DEST | RQ_PSN, ALT | ACCESS | PKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, SQ_PSN, RATE | CUR | ALT | ACCESS | MIG},
    {IBV_QPS_RTS, IBV_QPS_RTS, NONE, RATE | CUR | ACCESS | ALT | MIG},
    {IBV_QPS_RTS, IBV_QPS_SQD, NONE, SQD_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, NONE, CUR | ALT | ACCESS | MIG},
    {IBV_QPS_SQD, IBV_QPS_SQD, NONE, AV | ALT | ACCESS | PKEY | MIG},
    {IBV_QPS_SQE, IBV_QPS_RTS, NONE, CUR | ACCESS},
};

static const struct expectation ud[ROWS_MAX] = {
    TO_RESET_OR_ERR,
    {IBV_QPS_RESET, IBV_QPS_INIT, PKEY | PORT | QKEY, NONE},
    {IBV_QPS_INIT, IBV_QPS_INIT, NONE, PKEY | PORT | QKEY},
    {IBV_QPS_INIT, IBV_QPS_RTR, NONE, PKEY | QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, SQ_PSN, RATE | CUR | QKEY},
    {IBV_QPS_RTS, IBV_QPS_RTS, NONE, RATE | CUR | QKEY},
    {IBV_QPS_RTS, IBV_QPS_SQD, NONE, SQD_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, NONE, CUR | QKEY},
    {IBV_QPS_SQD, IBV_QPS_SQD, NONE, PKEY | QKEY},
    {IBV_QPS_SQE, IBV_QPS_RTS, NONE, CUR | QKEY},
};

static const struct expectation xrc_send[ROWS_MAX] = {
    TO_RESET_OR_ERR,
    {IBV_QPS_RESET, IBV_QPS_INIT, PKEY | PORT | ACCESS, NONE},
    {IBV_QPS_INIT, IBV_QPS_INIT, NONE, PKEY | PORT | ACCESS},
    {IBV_QPS_INIT, IBV_QPS_RTR, AV | MTU | DEST | RQ_PSN, ALT | ACCESS | PKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, TIMEOUT | RETRY | RNR_RETRY | SQ_PSN | RD,
     RATE | CUR | ALT | ACCESS | MIG},
    {IBV_QPS_RTS, IBV_QPS_RTS, NONE, RATE | CUR | ACCESS | ALT | MIG},
    {IBV_QPS_RTS, IBV_QPS_SQD, NONE, SQD_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, NONE, CUR | ALT | ACCESS | MIG},
    {IBV_QPS_SQD, IBV_QPS_SQD, NONE,
     PORT | AV | TIMEOUT | RETRY | RNR_RETRY | RD | ALT | ACCESS | PKEY | MIG},
};

static const struct expectation xrc_recv[ROWS_MAX] = {
    TO_RESET_OR_ERR,
    {IBV_QPS_RESET, IBV_QPS_INIT, PKEY | PORT | ACCESS, NONE},
    {IBV_QPS_INIT, IBV_QPS_INIT, NONE, PKEY | PORT | ACCESS},
    {IBV_QPS_INIT, IBV_QPS_RTR, AV | MTU | DEST | RQ_PSN | DEST_RD | RNR_TIMER,
     ALT | ACCESS | PKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, TIMEOUT | SQ_PSN, CUR | ALT | ACCESS | RNR_TIMER | MIG},
    {IBV_QPS_RTS, IBV_QPS_RTS, NONE, CUR | ACCESS | ALT | MIG | RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, NONE, SQD_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, NONE, CUR | ALT | ACCESS | RNR_TIMER | MIG},
    {IBV_QPS_SQD, IBV_QPS_SQD, NONE,
     PORT | AV | TIMEOUT | DEST_RD | ALT | ACCESS | PKEY | RNR_TIMER | MIG},
};

static const struct expectation *find(const struct expectation *rows, enum ibv_qp_state cur,
                                      enum ibv_qp_state next)
{
    for (int i = 0; i < ROWS_MAX; i++) {
        if (i >= TO_RESET_OR_ERR_ROWS && rows[i].cur == rows[i].next &&
            rows[i].cur == IBV_QPS_RESET)
            break; /* the zeroed tail */
        if (rows[i].cur == cur && rows[i].next == next)
            return &rows[i];
    }
    return NULL;
}

static void check(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next, int mask,
                  bool want)
{
    if (sw_qp_transition_ok(type, cur, next, mask) != want)
        fail_msg("type %d, %d -> %d, mask %#x: want %s", type, cur, next, mask,
                 want ? "ok" : "refused");
}

static void check_pair(enum ibv_qp_type type, const struct expectation *rows, enum ibv_qp_state cur,
                       enum ibv_qp_state next)
{
    const struct expectation *row = find(rows, cur, next);

    if (!row) {
        check(type, cur, next, IBV_QP_STATE, false);
        for (int bit = 1; bit < BITS; bit++)
            check(type, cur, next, IBV_QP_STATE | 1 << bit, false);
        return;
    }
    const int all = row->required | row->optional;
    check(type, cur, next, IBV_QP_STATE | row->required, true);
    check(type, cur, next, IBV_QP_STATE | all, true);
    check(type, cur, next, row->required, cur == next); /* without STATE the QP stays where it is */
    for (int bit = 1; bit < BITS; bit++) {
        const int attribute = 1 << bit;
        check(type, cur, next, IBV_QP_STATE | row->required | attribute, (all & attribute) != 0);
        check(type, cur, next, IBV_QP_STATE | all | attribute, (all & attribute) != 0);
        if (row->required & attribute)
            check(type, cur, next, IBV_QP_STATE | (all & ~attribute), false);
        if (row->optional & attribute)
            check(type, cur, next, IBV_QP_STATE | (all & ~attribute), true);
    }
}

static void check_type(enum ibv_qp_type type, const struct expectation *rows)
{
    for (int cur = IBV_QPS_RESET; cur <= IBV_QPS_ERR; cur++)
        for (int next = IBV_QPS_RESET; next <= IBV_QPS_ERR; next++)
            check_pair(type, rows, (enum ibv_qp_state)cur, (enum ibv_qp_state)next);
}

static void transition__rc(void **state)
{
    (void)state;
    check_type(IBV_QPT_RC, rc);
}

static void transition__uc(void **state)
{
    (void)state;
    check_type(IBV_QPT_UC, uc);
}

static void transition__ud(void **state)
{
    (void)state;
    check_type(IBV_QPT_UD, ud);
}

static void transition__xrc_send(void **state)
{
    (void)state;
    check_type(IBV_QPT_XRC_SEND, xrc_send);
}

static void transition__xrc_recv(void **state)
{
    (void)state;
    check_type(IBV_QPT_XRC_RECV, xrc_recv);
}

static void transition__values_outside_the_enums(void **state)
{
    (void)state;
    check(IBV_QPT_RC, IBV_QPS_UNKNOWN, IBV_QPS_RESET, IBV_QP_STATE, false);
    check(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_UNKNOWN, IBV_QP_STATE, false);
    check(IBV_QPT_RC, IBV_QPS_RTS, (enum ibv_qp_state)77, IBV_QP_STATE, false);
    check(IBV_QPT_RAW_PACKET, IBV_QPS_RTS, IBV_QPS_RESET, IBV_QP_STATE, false);
    check((enum ibv_qp_type)1, IBV_QPS_RTS, IBV_QPS_RESET, IBV_QP_STATE, false);
    check(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_STATE | 1 << 30, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transition__rc),
        cmocka_unit_test(transition__uc),
        cmocka_unit_test(transition__ud),
        cmocka_unit_test(transition__xrc_send),
        cmocka_unit_test(transition__xrc_recv),
        cmocka_unit_test(transition__values_outside_the_enums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
