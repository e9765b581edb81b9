/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: the domains that queues are made in, what the device counts and claims, and the end of
 * objects with events. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sem.h"

/* A program's allocator, which counts and remembers. */
struct arena {
    struct ibv_pd *pd;
    int live, given;
    bool leave_to_device, refuse;
};

static void *arena_alloc(struct ibv_pd *pd, void *context, size_t len_bytes, size_t alignment_bytes,
                         uint64_t type)
{
    (void)type;
    struct arena *arena = context;
    if (arena->pd)
        VU_TRUE(pd == arena->pd);
    if (arena->refuse)
        return NULL;
    if (arena->leave_to_device)
        return IBV_ALLOCATOR_USE_DEFAULT;
    uint8_t *memory = aligned_alloc(alignment_bytes, (len_bytes + alignment_bytes - 1) /
                                                         alignment_bytes * alignment_bytes);
    VU_TRUE(memory);
    memset(memory, 0xee, len_bytes);
    arena->live++;
    arena->given++;
    return memory;
}

static void arena_free(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
    (void)type;
    struct arena *arena = context;
    VU_TRUE(pd == arena->pd);
    VU_TRUE(!arena->leave_to_device); /* what it left to the device is not its own */
    arena->live--;
    free(memory);
}

static struct ibv_pd *parent_of(struct vu_dev *dev, struct ibv_td *td, struct arena *arena)
{
    struct ibv_parent_domain_init_attr attr = {
        .pd = dev->pd,
        .td = td,
        .comp_mask =
            arena ? IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
                  : 0,
        .alloc = arena_alloc,
        .free = arena_free,
        .pd_context = arena,
    };
    struct ibv_pd *parent = ibv_alloc_parent_domain(dev->ctx, &attr);
    VU_CHECK(parent, "ibv_alloc_parent_domain: %s", strerror(errno));
    if (arena)
        arena->pd = parent;
    return parent;
}

/* A CQ whose memory comes from the program, also when it is resized; *given: how often it gave. */
static struct ibv_cq *parent_cq(struct vu_dev *dev, struct ibv_pd *parent,
                                const struct arena *arena, int *given)
{
    struct ibv_cq_init_attr_ex cq_attr = {.cqe = 32,
                                          .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
                                          .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
                                          .parent_domain = parent};
    struct ibv_cq_ex *ex = ibv_create_cq_ex(dev->ctx, &cq_attr);
    VU_CHECK(ex, "ibv_create_cq_ex: %s", strerror(errno));
    struct ibv_cq *cq = ibv_cq_ex_to_cq(ex);
    VU_EQ(ibv_dealloc_pd(parent), EBUSY);
    *given = arena->given;
    VU_TRUE(*given > 0);
    VU_EQ(ibv_resize_cq(cq, 300), 0);
    VU_TRUE(arena->given > *given && arena->live == *given);
    *given = arena->given;
    return cq;
}

/* Eight SENDs while eight come, by turns inline or not: all in one CQ. */
static void parent_exchange(struct vu_ep *ep, struct ibv_cq *cq, uint8_t *bytes, uint32_t lkey)
{
    for (unsigned int i = 0; i < 8; i++) {
        struct vu_send send = {.opcode = IBV_WR_SEND,
                               .wr_id = 100 + i,
                               .flags = IBV_SEND_SIGNALED | (i % 2 ? IBV_SEND_INLINE : 0),
                               .addr = bytes,
                               .len_bytes = 32,
                               .lkey = lkey};
        VU_EQ(vu_post_send(ep->qp, &send), 0);
    }
    unsigned int sends = 0, receives = 0;
    while (sends + receives < 16) {
        struct ibv_wc wc;
        VU_EQ(vu_poll(cq, &wc, 1, 20000), 1);
        VU_EQ(wc.status, IBV_WC_SUCCESS);
        VU_EQ(wc.wr_id, wc.opcode & IBV_WC_RECV ? receives++ : 100 + sends++);
    }
}

/* CQ, SRQ and QP of a parent domain: their memory comes from the program and all of it goes back;
 * they work with each other and with regions of the PD itself. */
static void parent_a(int sock, int param)
{
    (void)param;
    struct vu_dev dev;
    struct arena arena = {0};
    static uint8_t buf[4096];
    vu_dev_open(&dev);
    struct ibv_td_init_attr td_attr = {0};
    struct ibv_td *td = ibv_alloc_td(dev.ctx, &td_attr);
    VU_TRUE(td);
    struct ibv_pd *base = dev.pd, *parent = parent_of(&dev, td, &arena);
    VU_EQ(ibv_dealloc_td(td), EBUSY);
    VU_EQ(ibv_dealloc_pd(base), EBUSY);
    VU_EQ(arena.given, 0);

    int given;
    struct ibv_cq *cq = parent_cq(&dev, parent, &arena, &given);
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(parent, &srq_attr);
    VU_TRUE(srq && arena.given > given);
    given = arena.given;

    struct ibv_mr *mr = vu_reg(&dev, buf, sizeof(buf), VU_ACCESS_ALL);
    struct vu_ep ep;
    struct vu_ep_attr attr = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .inline_bytes = 64, .send_wr = 16};
    dev.pd = parent;
    vu_ep_create(&dev, &attr, &ep);
    dev.pd = base;
    VU_TRUE(arena.given > given);
    vu_connect(&ep, sock, NULL);
    for (unsigned int i = 0; i < 8; i++)
        VU_EQ(vu_post_srq(srq, i, buf, 64, mr->lkey), 0);
    vu_barrier(sock);
    parent_exchange(&ep, cq, buf + 1024, mr->lkey);
    vu_barrier(sock);
    vu_ep_destroy(&ep);
    VU_EQ(ibv_destroy_srq(srq), 0);
    VU_EQ(ibv_destroy_cq(cq), 0);
    VU_EQ(arena.live, 0);
    VU_EQ(ibv_dealloc_pd(parent), 0);
    VU_EQ(ibv_dealloc_td(td), 0);
    VU_EQ(ibv_dereg_mr(mr), 0);
    vu_dev_close(&dev);
}

static void parent_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {0};
    rig_prepare(&rig, sock, &attr);
    vu_connect(&rig.ep, sock, NULL);
    for (unsigned int i = 0; i < 8; i++)
        rig_recv(&rig, i, 0, 64);
    vu_barrier(sock);
    for (unsigned int i = 0; i < 8; i++) {
        struct vu_send send = rig_send(&rig, IBV_WR_SEND, i, 0, 40);
        rig_post(&rig, &send);
        vu_expect(rig.ep.scq, i, IBV_WC_SUCCESS);
        vu_expect(rig.ep.rcq, i, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    rig_close(&rig);
}

static void nothing(int sock, int param)
{
    (void)sock;
    (void)param;
}

static void parent_refusals_a(int sock, int param)
{
    (void)sock;
    (void)param;
    struct vu_dev dev;
    struct arena arena = {.leave_to_device = true};
    vu_dev_open(&dev);
    struct ibv_pd *base = dev.pd, *parent = parent_of(&dev, NULL, &arena);
    struct vu_ep ep;
    dev.pd = parent;
    vu_ep_create(&dev, NULL, &ep);
    vu_ep_destroy(&ep);
    arena.refuse = true;
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
    VU_TRUE(!ibv_create_srq(parent, &srq_attr) && errno == ENOMEM);
    struct ibv_cq_init_attr_ex cq_attr = {
        .cqe = 32, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent};
    VU_TRUE(!ibv_create_cq_ex(dev.ctx, &cq_attr) && errno == ENOMEM);
    cq_attr.parent_domain = base; /* no parent domain */
    VU_TRUE(!ibv_create_cq_ex(dev.ctx, &cq_attr) && errno == EINVAL);
    VU_EQ(ibv_dealloc_pd(parent), 0);

    struct ibv_parent_domain_init_attr attr = {
        .pd = base, .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, .alloc = arena_alloc};
    VU_TRUE(!ibv_alloc_parent_domain(dev.ctx, &attr) && errno == EINVAL);
    attr = (struct ibv_parent_domain_init_attr){.pd = NULL};
    VU_TRUE(!ibv_alloc_parent_domain(dev.ctx, &attr) && errno == EINVAL);
    attr = (struct ibv_parent_domain_init_attr){.pd = base, .comp_mask = 1 << 9};
    VU_TRUE(!ibv_alloc_parent_domain(dev.ctx, &attr) && errno == EINVAL);
    struct ibv_td_init_attr td_attr = {.comp_mask = 1};
    VU_TRUE(!ibv_alloc_td(dev.ctx, &td_attr) && errno == EINVAL);
    dev.pd = base;
    vu_dev_close(&dev);
}

struct destroyer {
    struct ibv_qp *qp;
    struct ibv_cq *cq;
    atomic_bool done;
};

static void *destroy(void *arg)
{
    struct destroyer *destroyer = arg;
    VU_EQ(destroyer->qp ? ibv_destroy_qp(destroyer->qp) : ibv_destroy_cq(destroyer->cq), 0);
    atomic_store(&destroyer->done, true);
    return NULL;
}

/* Starts a thread that destroys, and sees that it waits. */
static pthread_t destroy_later(struct destroyer *destroyer)
{
    pthread_t thread;
    VU_EQ(pthread_create(&thread, NULL, destroy, destroyer), 0);
    vu_sleep_ms(50);
    VU_CHECK(!atomic_load(&destroyer->done), "destroyed before its event was acknowledged");
    return thread;
}

/* A QP and a CQ with an event that the program has fetched are not gone before it acknowledges it.
 */
static void unacknowledged_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.channel = true}};
    rig_open(&rig, sock, &attr);
    struct ibv_qp_attr drain = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
    VU_EQ(ibv_req_notify_cq(rig.ep.scq, 0), 0);
    struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 0, 64);
    rig_post(&rig, &send);
    struct ibv_cq *cq;
    void *context;
    VU_EQ(ibv_get_cq_event(rig.ep.channel, &cq, &context), 0);
    VU_TRUE(cq == rig.ep.scq);
    VU_EQ(ibv_modify_qp(rig.ep.qp, &drain, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    struct ibv_async_event event;
    VU_EQ(ibv_get_async_event(rig.dev.ctx, &event), 0);
    VU_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
    VU_TRUE(event.element.qp == rig.ep.qp);

    struct destroyer of_qp = {.qp = rig.ep.qp}, of_cq = {.cq = rig.ep.scq};
    pthread_t thread = destroy_later(&of_qp);
    ibv_ack_async_event(&event);
    VU_EQ(pthread_join(thread, NULL), 0);
    thread = destroy_later(&of_cq);
    ibv_ack_cq_events(cq, 1);
    VU_EQ(pthread_join(thread, NULL), 0);
    VU_EQ(ibv_destroy_cq(rig.ep.rcq), 0);
    VU_EQ(ibv_destroy_comp_channel(rig.ep.channel), 0);
    VU_EQ(ibv_dereg_mr(rig.mr), 0);
    vu_dev_close(&rig.dev);
    free(rig.buf);
    vu_barrier(sock);
}

/* What no CQ, QP or device of a NIC without raw packets has: refused, and not among the
 * capabilities. */
static void unbuilt_a(int sock, int param)
{
    (void)sock;
    (void)param;
    struct vu_dev dev;
    struct ibv_device_attr_ex attr;
    vu_dev_open(&dev);
    VU_EQ(ibv_query_device_ex(dev.ctx, NULL, &attr), 0);
    VU_EQ(attr.tso_caps.max_tso, 0);
    VU_EQ(attr.rss_caps.max_rwq_indirection_tables, 0);
    VU_EQ(attr.max_wq_type_rq, 0);
    VU_EQ(attr.raw_packet_caps, 0);
    VU_EQ(attr.tm_caps.max_num_tags, 0);
    VU_EQ(attr.orig_attr.max_raw_ethy_qp, 0);
    VU_EQ(attr.phys_port_cnt_ex, 1);
    VU_TRUE(!(attr.device_cap_flags_ex &
              (IBV_DEVICE_RAW_SCATTER_FCS | IBV_DEVICE_RAW_IP_CSUM | IBV_DEVICE_AUTO_PATH_MIG |
               IBV_DEVICE_MANAGED_FLOW_STEERING)));
    static const uint64_t wide[] = {IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG,
                                    IBV_WC_EX_WITH_TM_INFO};
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
        struct ibv_cq_init_attr_ex cq_attr = {.cqe = 4, .wc_flags = wide[i]};
        VU_TRUE(!ibv_create_cq_ex(dev.ctx, &cq_attr) && errno == EOPNOTSUPP);
    }
    struct ibv_counters_init_attr counters_attr = {0};
    VU_TRUE(!ibv_create_counters(dev.ctx, &counters_attr) && errno == EOPNOTSUPP);
    vu_dev_close(&dev);
}

const struct sem_case sem_objects[] = {
    {"parent_domain__memory_of_queues", parent_a, parent_b, 0},
    {"parent_domain__refusals", parent_refusals_a, nothing, 0},
    {"destroy__waits_for_acknowledgement", unacknowledged_a, sem_idle, 0},
    {"capabilities__what_is_not_built", unbuilt_a, nothing, 0},
    {0},
};
