/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verbs that are not built, each failing as its own contract says: functions that create return
 * NULL with errno, the others a positive errno. The inline functions of the headers mostly cope
 * with a missing operation, but not all of them and not the older ones.
 */
#include <errno.h>

#include "verbs/context.h"

static struct ibv_counters *create_counters(struct ibv_context *context,
                                            struct ibv_counters_init_attr *attr)
{
    (void)context;
    (void)attr;
    return sw_verbs_fail(-EOPNOTSUPP);
}

static int destroy_counters(struct ibv_counters *counters)
{
    (void)counters;
    return EOPNOTSUPP;
}

static int read_counters(struct ibv_counters *counters, uint64_t *values, uint32_t ncounters,
                         uint32_t flags)
{
    (void)counters;
    (void)values;
    (void)ncounters;
    (void)flags;
    return EOPNOTSUPP;
}

static int attach_counters_point_flow(struct ibv_counters *counters,
                                      struct ibv_counter_attach_attr *attr, struct ibv_flow *flow)
{
    (void)counters;
    (void)attr;
    (void)flow;
    return EOPNOTSUPP;
}

static struct ibv_flow_action *create_flow_action_esp(struct ibv_context *context,
                                                      struct ibv_flow_action_esp_attr *attr)
{
    (void)context;
    (void)attr;
    return sw_verbs_fail(-EOPNOTSUPP);
}

static int modify_flow_action_esp(struct ibv_flow_action *action,
                                  struct ibv_flow_action_esp_attr *attr)
{
    (void)action;
    (void)attr;
    return EOPNOTSUPP;
}

static int destroy_flow_action(struct ibv_flow_action *action)
{
    (void)action;
    return EOPNOTSUPP;
}

static struct ibv_flow *create_flow(struct ibv_qp *qp, struct ibv_flow_attr *attr)
{
    (void)qp;
    (void)attr;
    return sw_verbs_fail(-EOPNOTSUPP);
}

static int destroy_flow(struct ibv_flow *flow)
{
    (void)flow;
    return EOPNOTSUPP;
}

static int post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad_op)
{
    (void)srq;
    *bad_op = op;
    return EOPNOTSUPP;
}

static struct ibv_wq *create_wq(struct ibv_context *context, struct ibv_wq_init_attr *attr)
{
    (void)context;
    (void)attr;
    return sw_verbs_fail(-EOPNOTSUPP);
}

static int modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr)
{
    (void)wq;
    (void)attr;
    return EOPNOTSUPP;
}

static int destroy_wq(struct ibv_wq *wq)
{
    (void)wq;
    return EOPNOTSUPP;
}

static struct ibv_rwq_ind_table *create_rwq_ind_table(struct ibv_context *context,
                                                      struct ibv_rwq_ind_table_init_attr *attr)
{
    (void)context;
    (void)attr;
    return sw_verbs_fail(-EOPNOTSUPP);
}

static int destroy_rwq_ind_table(struct ibv_rwq_ind_table *table)
{
    (void)table;
    return EOPNOTSUPP;
}

void sw_verbs_fill_unsupported(struct verbs_context *verbs)
{
    verbs->read_counters = read_counters;
    verbs->attach_counters_point_flow = attach_counters_point_flow;
    verbs->create_counters = create_counters;
    verbs->destroy_counters = destroy_counters;
    verbs->modify_flow_action_esp = modify_flow_action_esp;
    verbs->destroy_flow_action = destroy_flow_action;
    verbs->create_flow_action_esp = create_flow_action_esp;
    verbs->post_srq_ops = post_srq_ops;
    verbs->destroy_rwq_ind_table = destroy_rwq_ind_table;
    verbs->create_rwq_ind_table = create_rwq_ind_table;
    verbs->destroy_wq = destroy_wq;
    verbs->modify_wq = modify_wq;
    verbs->create_wq = create_wq;
    verbs->ibv_create_flow = create_flow;
    verbs->ibv_destroy_flow = destroy_flow;
    /* Where the inlines of libibverbs 1.1.8 look for the two. */
    verbs->ABI_placeholder1 = (void (*)(void))create_flow;
    verbs->ABI_placeholder2 = (void (*)(void))destroy_flow;
}
