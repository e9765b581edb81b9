/* SPDX-License-Identifier: BSD-2-Clause */
#include "nic_rig.h"

#include <stdlib.h>

#include "device/nic/netdev.h"

struct rig_log rig_log;

void rig_draw_next(struct sw_draw *draw, uint32_t index)
{
    uint32_t place = 0;
    while (draw->order[place] != index % SW_DRAW_BLOCK)
        place++;
    draw->next = index - index % SW_DRAW_BLOCK + place;
}

static int link_start(void)
{
    rig_log.starts++;
    sw_nic.slot = 77;
    return 0;
}

static int link_connect(struct sw_qp *qp)
{
    rig_log.connects++;
    if (!rig_log.connect_rc)
        sw_qp_publish(qp, qp->state);
    return rig_log.connect_rc;
}

static void link_disconnect(struct sw_qp *qp)
{
    rig_log.disconnects++;
    sw_qp_publish(qp, IBV_QPS_RESET);
}

static void link_send(struct sw_qp *qp)
{
    (void)qp;
    rig_log.sends++;
}

static void link_progress(struct sw_qp *qp)
{
    if (rig_log.progresses < 16)
        rig_log.order[rig_log.progresses] = qp;
    rig_log.progresses++;
    if (rig_log.on_progress)
        rig_log.on_progress(qp);
}

static void link_quiesce(void)
{
    rig_log.quiesces++;
}

static void link_segment_gone(uint32_t id)
{
    assert_int_not_equal(id, 0);
    rig_log.gones++;
}

static void link_fork_prepare(void)
{
    rig_log.fork_prepares++;
}

static void link_fork_parent(void)
{
    rig_log.fork_parents++;
}

static void link_fork_child(void)
{
    rig_log.forks++;
}

static void link_kick(void)
{
    rig_log.kicks++;
}

static void link_receive(struct sw_cq *cq, uint32_t want)
{
    (void)cq;
    (void)want;
    rig_log.receives++;
}

static bool link_has_datagrams(void)
{
    return rig_log.datagrams_wait;
}

static void link_qp_forget(struct sw_qp *qp)
{
    (void)qp;
    rig_log.forgets++;
}

static int link_group_join(const union ibv_gid *gid)
{
    (void)gid;
    rig_log.joins++;
    return rig_log.join_rc;
}

static void link_group_leave(const union ibv_gid *gid)
{
    (void)gid;
    rig_log.leaves++;
}

static const struct sw_qp_ops qp_ops = {
    .connect = link_connect,
    .disconnect = link_disconnect,
    .send = link_send,
    .progress = link_progress,
};

static const struct sw_qp_ops *link_choose(struct sw_qp *qp)
{
    (void)qp;
    return &qp_ops;
}

static void link_poll(bool waits)
{
    (void)waits;
    rig_log.polls++;
}

static void link_mind(void)
{
    rig_log.minds++;
}

static const struct sw_link_ops link_ops = {
    .start = link_start,
    .choose = link_choose,
    .receive = link_receive,
    .has_datagrams = link_has_datagrams,
    .qp_forget = link_qp_forget,
    .poll = link_poll,
    .mind = link_mind,
    .group_join = link_group_join,
    .group_leave = link_group_leave,
    .quiesce = link_quiesce,
    .segment_gone = link_segment_gone,
    .fork_prepare = link_fork_prepare,
    .fork_parent = link_fork_parent,
    .fork_child = link_fork_child,
    .kick = link_kick,
};

static void on_event(void *owner, enum ibv_event_type type, void *element)
{
    (void)owner;
    rig_log.events++;
    rig_log.event = type;
    rig_log.element = element;
}

static void on_notify(void *owner)
{
    (void)owner;
    rig_log.notified++;
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

int rig_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    sw_nic_set_link(&link_ops);
    assert_int_equal(sw_context_open(loopback(), on_event, rig, &rig->ctx), 0);
    assert_int_equal(sw_pd_alloc(rig->ctx, &rig->pd), 0);
    memset(&rig_log, 0, sizeof(rig_log));
    rig->cq = rig_cq(rig, 64);
    *state = rig;
    return 0;
}

int rig_down(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(sw_cq_destroy(rig->cq), 0);
    assert_int_equal(sw_pd_dealloc(rig->pd), 0);
    sw_context_close(rig->ctx);
    free(rig);
    return 0;
}

struct sw_cq *rig_cq(struct rig *rig, int entries)
{
    struct sw_cq *cq = NULL;
    assert_int_equal(sw_cq_create(rig->ctx, entries, on_notify, rig, &cq), 0);
    return cq;
}

struct sw_qp *rig_qp(struct rig *rig, uint32_t send_wr, uint32_t recv_wr, struct sw_srq *srq)
{
    struct sw_qp_init init = {
        .type = IBV_QPT_RC,
        .pd = rig->pd,
        .send_cq = rig->cq,
        .recv_cq = rig->cq,
        .srq = srq,
        .cap = {.max_send_wr = send_wr,
                .max_recv_wr = recv_wr,
                .max_send_sge = 4,
                .max_recv_sge = 4,
                .max_inline_data = 64},
    };
    struct sw_qp *qp = NULL;
    assert_int_equal(sw_qp_create(rig->ctx, &init, &qp), 0);
    return qp;
}

void rig_take_to(struct sw_qp *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = sw_qp_num(qp),
        .max_dest_rd_atomic = 16,
        .max_rd_atomic = 16,
        .min_rnr_timer = 12,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1}},
    };
    assert_int_equal(
        sw_qp_modify(qp, &attr,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    if (state == IBV_QPS_INIT)
        return;
    attr.qp_state = IBV_QPS_RTR;
    assert_int_equal(sw_qp_modify(qp, &attr,
                                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                      IBV_QP_MIN_RNR_TIMER),
                     0);
    if (state == IBV_QPS_RTR)
        return;
    attr.qp_state = IBV_QPS_RTS;
    assert_int_equal(sw_qp_modify(qp, &attr,
                                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
}

struct sw_mr *rig_mr(struct rig *rig, void *addr, uint64_t len_bytes, unsigned int access)
{
    struct sw_mr *mr = NULL;
    assert_int_equal(sw_mr_reg(rig->pd, addr, len_bytes, (uintptr_t)addr, access, &mr), 0);
    return mr;
}

struct ibv_sge rig_sge(const struct sw_mr *mr, void *addr, uint32_t len_bytes)
{
    return (struct ibv_sge){(uintptr_t)addr, len_bytes, sw_mr_key(mr)};
}
