/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transitions a QP may make, one row for each pair of states and set of transports (IBTA Vol
 * 1 10.3.1, table 11.2.5.2). Pure and constant. Where the specification leaves room, the rows
 * follow what Linux accepts, because that is what programs were tested with: leaving RESET straight
 * for ERR is refused, CUR_STATE may name only RTR, RTS, SQD and SQE.
 */
#include "device/rules/qp_state.h"

#include <stddef.h>

enum transport_set {
    RC = 1 << 0,
    UC = 1 << 1,
    UD = 1 << 2,
    XRC_INI = 1 << 3, /* IBV_QPT_XRC_SEND */
    XRC_TGT = 1 << 4, /* IBV_QPT_XRC_RECV */
    XRC = XRC_INI | XRC_TGT,
    CONNECTED = RC | UC | XRC,
    ANY = CONNECTED | UD,
};

struct transition {
    enum ibv_qp_state from;
    enum ibv_qp_state to;
    int transports; /* enum transport_set */
    int required;   /* enum ibv_qp_attr_mask, without IBV_QP_STATE */
    int optional;
};

/* Attribute groups that recur. */
#define INIT_CONNECTED (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define INIT_DATAGRAM (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)
#define RTR_PATH (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RTR_RESPONDER (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTR_OPTIONAL (IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX)
#define RETRIES (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY)
#define LIVE (IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE)
#define LIVE_RESPONDER (LIVE | IBV_QP_MIN_RNR_TIMER)
#define LIVE_DATAGRAM (IBV_QP_CUR_STATE | IBV_QP_QKEY)
#define DRAINED \
    (IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE)
#define DRAINED_RC                                                                           \
    (DRAINED | IBV_QP_PORT | RETRIES | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | \
     IBV_QP_MIN_RNR_TIMER)

/* Towards RESET (from anywhere) and ERR (from anywhere but RESET) no attribute goes along: see
 * sw_qp_transition_ok. */
static const struct transition transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, CONNECTED, INIT_CONNECTED, 0},
    {IBV_QPS_RESET, IBV_QPS_INIT, UD, INIT_DATAGRAM, 0},

    {IBV_QPS_INIT, IBV_QPS_INIT, CONNECTED, 0, INIT_CONNECTED},
    {IBV_QPS_INIT, IBV_QPS_INIT, UD, 0, INIT_DATAGRAM},

    {IBV_QPS_INIT, IBV_QPS_RTR, RC | XRC_TGT, RTR_PATH | RTR_RESPONDER, RTR_OPTIONAL},
    {IBV_QPS_INIT, IBV_QPS_RTR, UC | XRC_INI, RTR_PATH, RTR_OPTIONAL},
    {IBV_QPS_INIT, IBV_QPS_RTR, UD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},

    {IBV_QPS_RTR, IBV_QPS_RTS, RC, RETRIES | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     LIVE_RESPONDER | IBV_QP_RATE_LIMIT},
    {IBV_QPS_RTR, IBV_QPS_RTS, XRC_INI, RETRIES | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     LIVE | IBV_QP_RATE_LIMIT},
    {IBV_QPS_RTR, IBV_QPS_RTS, XRC_TGT, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, LIVE_RESPONDER},
    {IBV_QPS_RTR, IBV_QPS_RTS, UC, IBV_QP_SQ_PSN, LIVE | IBV_QP_RATE_LIMIT},
    {IBV_QPS_RTR, IBV_QPS_RTS, UD, IBV_QP_SQ_PSN, LIVE_DATAGRAM | IBV_QP_RATE_LIMIT},

    {IBV_QPS_RTS, IBV_QPS_RTS, RC, 0, LIVE_RESPONDER | IBV_QP_RATE_LIMIT},
    {IBV_QPS_RTS, IBV_QPS_RTS, XRC_TGT, 0, LIVE_RESPONDER},
    {IBV_QPS_RTS, IBV_QPS_RTS, UC | XRC_INI, 0, LIVE | IBV_QP_RATE_LIMIT},
    {IBV_QPS_RTS, IBV_QPS_RTS, UD, 0, LIVE_DATAGRAM | IBV_QP_RATE_LIMIT},

    {IBV_QPS_RTS, IBV_QPS_SQD, ANY, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},

    {IBV_QPS_SQD, IBV_QPS_RTS, RC | XRC_TGT, 0, LIVE_RESPONDER},
    {IBV_QPS_SQD, IBV_QPS_RTS, UC | XRC_INI, 0, LIVE},
    {IBV_QPS_SQD, IBV_QPS_RTS, UD, 0, LIVE_DATAGRAM},

    {IBV_QPS_SQD, IBV_QPS_SQD, RC, 0, DRAINED_RC},
    {IBV_QPS_SQD, IBV_QPS_SQD, XRC_INI, 0, DRAINED_RC & ~RTR_RESPONDER},
    {IBV_QPS_SQD, IBV_QPS_SQD, XRC_TGT, 0,
     DRAINED_RC & ~(IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)},
    {IBV_QPS_SQD, IBV_QPS_SQD, UC, 0, DRAINED},
    {IBV_QPS_SQD, IBV_QPS_SQD, UD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},

    /* Only the unreliable transports have SQE (IBTA Vol 1 10.3.1.6). */
    {IBV_QPS_SQE, IBV_QPS_RTS, UC, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_SQE, IBV_QPS_RTS, UD, 0, LIVE_DATAGRAM},
};

static int transport_of(enum ibv_qp_type type)
{
    switch (type) {
    case IBV_QPT_RC:
        return RC;
    case IBV_QPT_UC:
        return UC;
    case IBV_QPT_UD:
        return UD;
    case IBV_QPT_XRC_SEND:
        return XRC_INI;
    case IBV_QPT_XRC_RECV:
        return XRC_TGT;
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_DRIVER:
        return 0;
    }
    return 0; /* a value from outside the enum */
}

static bool may_be_named_current(enum ibv_qp_state state)
{
    return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
           state == IBV_QPS_SQE;
}

int sw_qp_mask_of_type(enum ibv_qp_type type, int mask)
{
    if (type == IBV_QPT_XRC_SEND)
        return mask & ~RTR_RESPONDER;
    if (type == IBV_QPT_XRC_RECV)
        return mask & ~(IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    return mask;
}

bool sw_qp_transition_ok(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next,
                         int mask)
{
    const int transport = transport_of(type);
    const int attributes = mask & ~IBV_QP_STATE;

    if (!transport || (unsigned int)cur > IBV_QPS_ERR || (unsigned int)next > IBV_QPS_ERR)
        return false;
    if (!(mask & IBV_QP_STATE) && cur != next)
        return false;
    if ((mask & IBV_QP_CUR_STATE) && !may_be_named_current(cur))
        return false;
    if (next == IBV_QPS_RESET || (next == IBV_QPS_ERR && cur != IBV_QPS_RESET))
        return attributes == 0;

    for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
        const struct transition *row = &transitions[i];
        if (row->from == cur && row->to == next && (row->transports & transport))
            return (attributes & row->required) == row->required &&
                   !(attributes & ~(row->required | row->optional));
    }
    return false;
}
