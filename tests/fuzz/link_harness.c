/* SPDX-License-Identifier: BSD-2-Clause */
#include "link_harness.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/nic/netdev.h"
#include "link/direct/bind/bind.h"
#include "link/direct/datagram/receive.h"
#include "link/direct/process/attach.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/state.h"
#include "link/engine.h"

#define PAGE 4096u
#define CANARY 0xc5

struct harness harness;

/* One page of canaries around each region, an unmapped one at both ends. */
static uint8_t *arena;
#define ARENA_BYTES (HARNESS_OPEN_BYTES + HARNESS_LOCAL_BYTES + 3 * PAGE)

uint8_t feed_u8(struct feed *feed)
{
    uint8_t value = 0;
    feed_bytes(feed, &value, 1);
    return value;
}

uint32_t feed_u16(struct feed *feed)
{
    uint16_t value = 0;
    feed_bytes(feed, &value, 2);
    return value;
}

uint32_t feed_u32(struct feed *feed)
{
    uint32_t value = 0;
    feed_bytes(feed, &value, 4);
    return value;
}

uint64_t feed_u64(struct feed *feed)
{
    uint64_t value = 0;
    feed_bytes(feed, &value, 8);
    return value;
}

void feed_bytes(struct feed *feed, void *out, size_t len)
{
    size_t have = len < feed->left ? len : feed->left;
    memcpy(out, feed->at, have);
    memset((uint8_t *)out + have, 0, len - have);
    feed->at += have;
    feed->left -= have;
}

uint64_t feed_value(struct feed *feed, const uint64_t *values, unsigned int count)
{
    uint8_t how = feed_u8(feed);
    if (how >= 0xf0)
        return feed_u64(feed);
    uint64_t value = values[how % count];
    return how >= 0x80 ? value + (uint64_t)(int8_t)feed_u8(feed) : value;
}

static int start_link(void)
{
    sw_nic.slot = 5;
    sw_direct.modes = (struct sw_direct_modes){true, true, true};
    return sw_engine_open();
}

static void nothing(struct sw_qp *qp)
{
    (void)qp;
}

static void nothing_either(void)
{
}

static int connect_qp(struct sw_qp *qp)
{
    if (!qp->rules->is_datagram)
        return sw_bind_connect(qp);
    sw_datagram_enter(qp);
    sw_qp_publish(qp, qp->state);
    return 0;
}

static int join(const union ibv_gid *gid)
{
    (void)gid; /* nobody shall find us */
    return 0;
}

static void leave(const union ibv_gid *gid)
{
    (void)gid;
}

static const struct sw_qp_ops qp_ops = {
    .connect = connect_qp,
    .disconnect = sw_bind_disconnect,
    .send = nothing,
    .progress = nothing,
};

static const struct sw_qp_ops *choose(struct sw_qp *qp)
{
    (void)qp;
    return &qp_ops;
}

static const struct sw_link_ops ops = {
    .start = start_link,
    .choose = choose,
    .quiesce = sw_inbox_wait_all,
    .segment_gone = sw_attach_segment_gone,
    .fork_child = nothing_either,
    .kick = nothing_either,
    .qp_forget = sw_datagram_forget,
    .group_join = join,
    .group_leave = leave,
    .receive = sw_datagram_receive,
    .has_datagrams = sw_datagram_any,
};

static struct sw_netdev *loopback(void)
{
    struct sw_netdev_info info;
    harness_needs(sw_netdev_refresh(NULL, NULL) == 0);
    for (int i = 0; i < sw_netdev_count(); i++) {
        sw_netdev_read(sw_netdev_get(i), &info);
        if (!strcmp(info.ifname, "lo"))
            return sw_netdev_get(i);
    }
    __builtin_trap();
}

static void start_memory(void)
{
    arena = mmap(NULL, ARENA_BYTES + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    harness_needs(arena != MAP_FAILED);
    arena += PAGE;
    harness_needs(mprotect(arena, ARENA_BYTES, PROT_READ | PROT_WRITE) == 0);
    memset(arena, CANARY, ARENA_BYTES);
    harness.open = arena + PAGE;
    harness.local = harness.open + HARNESS_OPEN_BYTES + PAGE;
    const unsigned int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    harness_needs(sw_mr_reg(harness.pd, harness.open, HARNESS_OPEN_BYTES, (uintptr_t)harness.open,
                            rights, &harness.open_mr) == 0);
    harness_needs(sw_mr_reg(harness.pd, harness.local, HARNESS_LOCAL_BYTES,
                            (uintptr_t)harness.local, IBV_ACCESS_LOCAL_WRITE,
                            &harness.local_mr) == 0);
}

void harness_start(void)
{
    if (harness.ctx)
        return;
    setenv("SIDEWIRE_LOG", "error", 0);
    setenv("SIDEWIRE_ADOPT", "never", 1); /* the memory stays where it is */
    sw_nic_set_link(&ops);
    harness_needs(sw_context_open(loopback(), NULL, NULL, &harness.ctx) == 0);
    harness_needs(sw_pd_alloc(harness.ctx, &harness.pd) == 0);
    harness_needs(sw_cq_create(harness.ctx, 4096, NULL, NULL, &harness.cq) == 0);
    struct ibv_srq_attr attr = {.max_wr = 64, .max_sge = 2};
    harness_needs(sw_srq_create(harness.pd, &attr, NULL, &harness.srq) == 0);
    start_memory();
}

static void modify(struct ibv_qp_attr *attr, enum ibv_qp_state state, int mask)
{
    attr->qp_state = state;
    harness_needs(sw_qp_modify(harness.qp, attr, mask | IBV_QP_STATE) == 0);
}

void harness_connect(uint32_t dest_qpn, bool shared)
{
    struct sw_gid gid;
    struct sw_qp_init init = {
        .type = IBV_QPT_RC,
        .pd = harness.pd,
        .send_cq = harness.cq,
        .recv_cq = harness.cq,
        .srq = shared ? harness.srq : NULL,
        .cap = {.max_send_wr = 64,
                .max_recv_wr = 64,
                .max_send_sge = 2,
                .max_recv_sge = 2,
                .max_inline_data = 256},
    };
    harness_needs(sw_qp_create(harness.ctx, &init, &harness.qp) == 0);
    harness_needs(sw_netdev_gid(sw_context_netdev(harness.ctx), 1, &gid));
    struct ibv_qp_attr attr = {
        .port_num = 1,
        .qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = dest_qpn ? dest_qpn : sw_qp_num(harness.qp),
        .max_dest_rd_atomic = 16,
        .max_rd_atomic = 16,
        .min_rnr_timer = 1,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid.gid, .sgid_index = 1}},
    };
    modify(&attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    modify(&attr, IBV_QPS_RTR,
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    modify(&attr, IBV_QPS_RTS,
           IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC);
    harness.d = harness.qp->link_state;
    harness.block = harness.d->rx;
}

/* The length is remembered in wr_id: no completion may say more. */
void harness_post_recv(uint32_t offset, uint32_t len_bytes)
{
    struct ibv_sge sge = {(uintptr_t)harness.open + offset, len_bytes, sw_mr_key(harness.open_mr)};
    struct ibv_recv_wr wr = {.wr_id = len_bytes, .sg_list = &sge, .num_sge = 1}, *bad;
    if (harness.qp->srq)
        sw_srq_post_recv(harness.qp->srq, &wr, &bad);
    else
        sw_qp_post_recv(harness.qp, &wr, &bad);
}

static void poll_for(uint32_t qpn)
{
    struct ibv_wc wc;
    int count;
    while ((count = sw_cq_poll(harness.cq, 1, &wc)) == 1) {
        harness_needs(wc.qp_num == qpn);
        if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV)
            harness_needs(wc.byte_len <= wc.wr_id);
    }
    harness_needs(count == 0);
}

void harness_poll(void)
{
    poll_for(sw_qp_num(harness.qp));
}

bool harness_alive(void)
{
    return harness.qp->link_state == harness.d;
}

static bool is_canary(const uint8_t *from, const uint8_t *to)
{
    while (from < to)
        if (*from++ != CANARY)
            return false;
    return true;
}

void harness_finish(void)
{
    struct sw_recv_claim claim;
    harness_poll();
    const uint32_t qpn = sw_qp_num(harness.qp);
    harness_needs(sw_qp_destroy(harness.qp) == 0);
    poll_for(qpn); /* what came outlives it */
    harness.qp = NULL;
    while (sw_srq_take(harness.srq, &claim)) {
    }
    harness_needs(is_canary(arena, harness.open));
    harness_needs(is_canary(harness.open + HARNESS_OPEN_BYTES, arena + ARENA_BYTES));
}
