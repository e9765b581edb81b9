/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/sim/device.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/memory/mr_impl.h"
#include "device/nic/context.h"
#include "device/queue/cq_impl.h"

#define SLOT 1u /* no other process looks for this one */

static struct sw_context *sim_context;

static void sim_need_good(int rc, const char *what)
{
    if (!rc)
        return;
    fprintf(stderr, "sim: no %s: error %d\n", what, rc);
    abort();
}

/* ---- a link that goes nowhere ---- */

static int sim_link_start(void)
{
    sw_nic.slot = SLOT;
    return 0;
}

static void sim_link_idle(void)
{
}

static void sim_forget_qp(struct sw_qp *qp)
{
    (void)qp;
}

static void sim_forget_segment(uint32_t segment_id)
{
    (void)segment_id;
}

static int sim_qp_connect(struct sw_qp *qp)
{
    sw_qp_publish(qp, qp->state);
    return 0;
}

/* Nothing more comes in: as on every link, the message under way is over. */
static void sim_qp_disconnect(struct sw_qp *qp)
{
    sw_receive_flush(qp, qp->link_state);
}

static const struct sw_qp_ops sim_qp_ops = {
    .connect = sim_qp_connect,
    .disconnect = sim_qp_disconnect,
    .send = sim_forget_qp,
    .progress = sim_forget_qp,
};

static const struct sw_qp_ops *sim_choose_link(struct sw_qp *qp)
{
    (void)qp;
    return &sim_qp_ops;
}

static const struct sw_link_ops sim_link_ops = {
    .start = sim_link_start,
    .choose = sim_choose_link,
    .qp_forget = sim_forget_qp,
    .quiesce = sim_link_idle,
    .segment_gone = sim_forget_segment,
    .fork_child = sim_link_idle,
    .kick = sim_link_idle,
};

/* ---- what hosts have of the NIC ---- */

static struct sw_netdev *sim_find_loopback(void)
{
    sim_need_good(sw_netdev_refresh(NULL, NULL), "network interfaces");
    for (int i = 0; i < sw_netdev_count(); i++) {
        struct sw_netdev_info info;
        sw_netdev_read(sw_netdev_get(i), &info);
        if (!strcmp(info.ifname, "lo") && info.kind == SW_NETDEV_ROCE)
            return sw_netdev_get(i);
    }
    sim_need_good(-ENODEV, "loopback interface");
    return NULL;
}

struct sw_pd *sw_sim_pd_open(void)
{
    struct sw_pd *pd;
    if (!sim_context) {
        sw_nic_set_link(&sim_link_ops);
        sim_need_good(sw_context_open(sim_find_loopback(), NULL, NULL, &sim_context), "device");
    }
    sim_need_good(sw_pd_alloc(sim_context, &pd), "protection domain");
    return pd;
}

struct sw_srq *sw_sim_srq_open(struct sw_pd *pd, uint32_t receives)
{
    struct ibv_srq_attr attr = {.max_wr = receives, .max_sge = SW_SIM_SGES};
    struct sw_srq *srq;
    sim_need_good(sw_srq_create(pd, &attr, NULL, &srq), "shared receive queue");
    return srq;
}

/* ---- keys ---- */

/* The next entry that is drawn is this one. */
static void sim_draw_next(uint32_t index)
{
    struct sw_draw *draw = &sw_nic.mr_draw;
    uint32_t place = 0;
    while (draw->order[place] != index % SW_DRAW_BLOCK)
        place++;
    draw->next = index - index % SW_DRAW_BLOCK + place;
}

static uint32_t sim_plan_key(struct sw_sim_keys *keys)
{
    assert(keys->count + 1 < SW_SIM_KEYS_MAX);
    const uint32_t index = keys->host * SW_SIM_KEYS_MAX + ++keys->count;
    sim_draw_next(index);
    /* A key with any one bit changed is nobody's, nor is one of another host's entry. */
    return sw_key_make(index, (0x11 * keys->count + keys->host) & 0xff);
}

struct sw_mr *sw_sim_mr_open(struct sw_pd *pd, struct sw_sim_keys *keys, void *at,
                             uint64_t len_bytes, uint64_t iova, uint32_t access)
{
    /* Nobody maps it: pages of a region that is on demand stay where they are. */
    uint32_t rights = access | IBV_ACCESS_ON_DEMAND;
    if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC))
        rights |= IBV_ACCESS_LOCAL_WRITE;
    const uint32_t key = sim_plan_key(keys);
    struct sw_mr *mr;
    sim_need_good(sw_mr_reg(pd, at, len_bytes, iova, rights, &mr), "region");
    assert(mr->index == sw_key_index(key));
    mr->key = key;
    atomic_store(&sw_nic.pub->mrs[mr->index].key_word, (uint64_t)sw_mr_generation() << 32 | key);
    return mr;
}

struct sw_mw *sw_sim_mw_open(struct sw_pd *pd, struct sw_sim_keys *keys)
{
    const uint32_t key = sim_plan_key(keys);
    struct sw_mw *mw;
    sim_need_good(sw_mw_alloc(pd, IBV_MW_TYPE_2, &mw), "window");
    assert(sw_key_index(sw_mw_key(mw)) == sw_key_index(key));
    sw_nic.mrs[sw_key_index(key)]->key = key;
    return mw;
}

/* ---- queue pairs ---- */

static uint8_t sim_find_gid(void)
{
    struct sw_netdev *dev = sw_context_netdev(sim_context);
    struct sw_gid gid;
    for (int i = 0; i < sw_netdev_gid_count(dev); i++)
        if (sw_netdev_gid(dev, i, &gid) && gid.valid)
            return (uint8_t)i;
    sim_need_good(-EADDRNOTAVAIL, "address of the loopback interface");
    return 0;
}

static enum ibv_mtu sim_mtu_of(uint32_t mtu_bytes)
{
    enum ibv_mtu mtu = IBV_MTU_256;
    while (mtu < IBV_MTU_4096 && 128u << mtu < mtu_bytes)
        mtu++;
    return mtu;
}

static void sim_connect_qp(struct sw_qp *qp, const struct sw_sim_qp_shape *shape)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = shape->access,
        .path_mtu = sim_mtu_of(shape->mtu_bytes),
        .dest_qp_num = shape->dest_qpn,
        .max_dest_rd_atomic = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = sim_find_gid()}},
    };
    const bool is_reliable = shape->type == IBV_QPT_RC;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    sim_need_good(sw_qp_modify(qp, &attr, mask), "way to INIT");
    attr.qp_state = IBV_QPS_RTR;
    mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    mask |= is_reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
    sim_need_good(sw_qp_modify(qp, &attr, mask), "way to RTR");
    attr.qp_state = IBV_QPS_RTS;
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    mask |= is_reliable
                ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                : 0;
    sim_need_good(sw_qp_modify(qp, &attr, mask), "way to RTS");
}

struct sw_qp *sw_sim_qp_open(const struct sw_sim_qp_shape *shape)
{
    struct sw_cq *cq;
    struct sw_qp *qp;
    /* A receive has a completion at most, and one more may be claimed. */
    sim_need_good(sw_cq_create(sim_context, (int)shape->receives + 1, NULL, NULL, &cq), "queue");
    struct sw_qp_init init = {
        .type = shape->type,
        .pd = shape->pd,
        .send_cq = cq,
        .recv_cq = cq,
        .srq = shape->srq,
        .cap = {.max_send_wr = 1,
                .max_recv_wr = shape->receives,
                .max_send_sge = 1,
                .max_recv_sge = SW_SIM_SGES},
    };
    sim_need_good(sw_qp_create(sim_context, &init, &qp), "queue pair");
    qp->shown_qpn = shape->shown_qpn;
    qp->link_state = shape->receive;
    sim_connect_qp(qp, shape);
    return qp;
}

void sw_sim_qp_close(struct sw_qp *qp)
{
    struct sw_cq *cq = qp->recv_cq;
    sim_need_good(sw_qp_destroy(qp), "end of a queue pair");
    sim_need_good(sw_cq_destroy(cq), "end of a queue");
}
