/* SPDX-License-Identifier: BSD-2-Clause */
/* sem.h: what may be asked of a completion queue beside polling and arming it, and of the domains
 * that queues are made in. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sem.h"

#define EVENT_MS 2000
#define PERIOD_US 60000
#define HELD_MS 15
#define TRIES 20

static uint64_t clock_now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A QP of one's own that completes into an extended CQ. */
struct ex_rig {
    struct vu_dev dev;
    struct ibv_cq_ex *ex;
    struct vu_ep ep;
    uint8_t buf[4096];
    struct ibv_mr *mr;
    struct vu_key peer;
};

static void ex_open(struct ex_rig *r, int sock, struct ibv_cq_init_attr_ex *attr)
{
    vu_dev_open(&r->dev);
    r->ex = ibv_create_cq_ex(r->dev.ctx, attr);
    VU_CHECK(r->ex, "ibv_create_cq_ex: %s", strerror(errno));
    struct ibv_cq *cq = ibv_cq_ex_to_cq(r->ex);
    struct vu_ep_attr ep_attr = {.send_cq = cq, .recv_cq = cq};
    vu_ep_create(&r->dev, &ep_attr, &r->ep);
    r->mr = vu_reg(&r->dev, r->buf, sizeof(r->buf), VU_ACCESS_ALL);
    r->peer = vu_trade_keys(sock, r->mr);
    vu_connect(&r->ep, sock, NULL);
}

static void ex_close(struct ex_rig *r)
{
    vu_ep_destroy(&r->ep);
    VU_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(r->ex)), 0);
    VU_EQ(ibv_dereg_mr(r->mr), 0);
    vu_dev_close(&r->dev);
}

static void ex_write(struct ex_rig *r, uint64_t wr_id)
{
    struct vu_send send = {.opcode = IBV_WR_RDMA_WRITE,
                           .wr_id = wr_id,
                           .flags = IBV_SEND_SIGNALED,
                           .addr = r->buf,
                           .len_bytes = 8,
                           .lkey = r->mr->lkey,
                           .remote = r->peer.addr,
                           .rkey = r->peer.rkey};
    VU_EQ(vu_post_send(r->ep.qp, &send), 0);
}

static int ex_start(struct ex_rig *r)
{
    struct ibv_poll_cq_attr attr = {0};
    uint64_t deadline = vu_now_ms() + EVENT_MS;
    int rc;
    while ((rc = ibv_start_poll(r->ex, &attr)) == ENOENT && vu_now_ms() < deadline)
        ;
    return rc;
}

static uint64_t raw_clock(struct ibv_context *ctx)
{
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    VU_EQ(ibv_query_rt_values_ex(ctx, &values), 0);
    VU_EQ(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
    return (uint64_t)values.raw_clock.tv_sec * 1000000000u + (uint64_t)values.raw_clock.tv_nsec;
}

/* Each timestamp lies between the readings of its clock before posting and after polling, and later
 * completions have later ones. */
static void times_a(int sock, int param)
{
    (void)param;
    struct ex_rig r;
    struct ibv_cq_init_attr_ex attr = {.cqe = 64,
                                       .wc_flags = IBV_WC_STANDARD_FLAGS |
                                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
    struct ibv_device_attr_ex device;
    ex_open(&r, sock, &attr);
    VU_EQ(ibv_query_device_ex(r.dev.ctx, NULL, &device), 0);
    VU_TRUE(device.hca_core_clock > 0 && device.completion_timestamp_mask > UINT32_MAX);
    uint64_t latest = raw_clock(r.dev.ctx), latest_wall = clock_now_ns(CLOCK_REALTIME);
    for (unsigned int i = 0; i < 30; i++) {
        ex_write(&r, i);
        if (i % 10 != 9)
            continue;
        if (i == 19)
            VU_EQ(ibv_resize_cq(ibv_cq_ex_to_cq(r.ex), 200), 0);
        int rc = ex_start(&r);
        for (unsigned int k = i - 9; k <= i; k++, rc = ibv_next_poll(r.ex)) {
            while (rc == ENOENT)
                rc = ibv_next_poll(r.ex);
            VU_EQ(rc, 0);
            VU_EQ(r.ex->wr_id, k);
            VU_EQ(r.ex->status, IBV_WC_SUCCESS);
            uint64_t at = ibv_wc_read_completion_ts(r.ex);
            uint64_t wall = ibv_wc_read_completion_wallclock_ns(r.ex);
            VU_CHECK(at >= latest && at <= raw_clock(r.dev.ctx), "%llu after %llu",
                     (unsigned long long)at, (unsigned long long)latest);
            /* read at two moments, between which the wall's clock may be adjusted a little */
            VU_TRUE(wall + 50000000 >= latest_wall);
            VU_TRUE(wall <= clock_now_ns(CLOCK_REALTIME) + 50000000);
            latest = at;
            latest_wall = wall;
        }
        ibv_end_poll(r.ex);
    }
    vu_barrier(sock);
    ex_close(&r);
}

static void ex_idle_b(int sock, int param)
{
    (void)param;
    struct ex_rig r;
    struct ibv_cq_init_attr_ex attr = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS};
    ex_open(&r, sock, &attr);
    vu_barrier(sock);
    ex_close(&r);
}

/* Completions that do not fit are lost, and the QP lives on. */
static void overrun_a(int sock, int param)
{
    (void)param;
    struct ex_rig r;
    struct ibv_wc wc[64];
    struct ibv_cq_init_attr_ex attr = {.cqe = 4,
                                       .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
                                       .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
    ex_open(&r, sock, &attr);
    struct ibv_cq *cq = ibv_cq_ex_to_cq(r.ex);
    int room = cq->cqe, total = room + 5;
    VU_TRUE(total <= (int)r.ep.send_wr && room < 64);
    for (int i = 0; i < total; i++)
        ex_write(&r, (uint64_t)i);
    vu_sleep_ms(50);
    int got = vu_poll(cq, wc, room, EVENT_MS);
    VU_EQ(got, room);
    for (int i = 0; i < room; i++) {
        VU_EQ(wc[i].status, IBV_WC_SUCCESS);
        VU_EQ(wc[i].wr_id, i);
    }
    VU_CHECK(!vu_async_event(r.dev.ctx, IBV_EVENT_CQ_ERR, HELD_MS), "event of an ignored overrun");
    VU_EQ(vu_ep_state(&r.ep), IBV_QPS_RTS);
    ex_write(&r, 1000);
    VU_EQ(vu_poll(cq, wc, 1, EVENT_MS), 1);
    while (wc[0].wr_id != 1000)
        VU_EQ(vu_poll(cq, wc, 1, EVENT_MS), 1);
    vu_barrier(sock);
    ex_close(&r);
}

/* Of three messages the event comes by the period, of four by the count. */
static void moderate_a(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    for (;;) {
        int count;
        vu_get(sock, &count, sizeof(count));
        for (int i = 0; i < count; i++) {
            struct vu_send send = rig_send(&rig, IBV_WR_SEND, (uint64_t)i, 0, 8);
            rig_post(&rig, &send);
            vu_expect(rig.ep.scq, (uint64_t)i, IBV_WC_SUCCESS);
        }
        vu_barrier(sock);
        if (!count)
            break;
    }
    rig_close(&rig);
}

/* Returns how long the event of `count` messages took, at most. */
static uint64_t moderated(struct rig *rig, int count)
{
    for (int i = 0; i < count; i++)
        rig_recv(rig, (uint64_t)i, 0, 64);
    VU_EQ(ibv_req_notify_cq(rig->ep.rcq, 0), 0);
    uint64_t before_ms = vu_now_ms();
    vu_put(rig->sock, &count, sizeof(count));
    vu_barrier(rig->sock);
    VU_CHECK(vu_cq_event(rig->ep.channel, EVENT_MS), "no event of %d messages", count);
    uint64_t took_ms = vu_now_ms() - before_ms;
    for (int i = 0; i < count; i++)
        vu_expect(rig->ep.rcq, (uint64_t)i, IBV_WC_SUCCESS);
    return took_ms;
}

static void moderate_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    struct rig_attr attr = {.ep = {.channel = true}};
    struct ibv_modify_cq_attr moderate = {
        .attr_mask = IBV_CQ_ATTR_MODERATE,
        .moderate = {.cq_count = 4, .cq_period = PERIOD_US},
    };
    rig_open(&rig, sock, &attr);
    VU_EQ(ibv_modify_cq(rig.ep.rcq, &moderate), 0);
    uint64_t took_ms = moderated(&rig, 3);
    VU_CHECK(took_ms + 1 >= PERIOD_US / 1000, "the event came after %llu ms",
             (unsigned long long)took_ms);
    bool by_count = false; /* and not by the period, on a machine that is not too busy to tell */
    for (int i = 0; i < TRIES && !by_count; i++) {
        by_count = moderated(&rig, 4) < PERIOD_US / 1000;
    }
    VU_CHECK(by_count, "four completions waited for the period");

    moderate.moderate.cq_count = 0;
    VU_EQ(ibv_modify_cq(rig.ep.rcq, &moderate), 0);
    by_count = false;
    for (int i = 0; i < TRIES && !by_count; i++) {
        by_count = moderated(&rig, 1) < PERIOD_US / 1000;
    }
    VU_CHECK(by_count, "moderation goes on after it was switched off");
    moderate.attr_mask = 1 << 7;
    VU_EQ(ibv_modify_cq(rig.ep.rcq, &moderate), EOPNOTSUPP);
    int none = 0;
    vu_put(sock, &none, sizeof(none));
    vu_barrier(sock);
    rig_close(&rig);
}

struct resizer {
    struct ibv_cq *cq;
    atomic_bool stop;
    atomic_int grown;
};

static void *resize_often(void *arg)
{
    struct resizer *resizer = arg;
    struct vu_random random = {5};
    while (!atomic_load(&resizer->stop)) {
        int cqe = 64 + (int)vu_random_below(&random, 2000);
        int rc = ibv_resize_cq(resizer->cq, cqe);
        if (rc)
            VU_EQ(rc, EINVAL);
        else
            resizer->grown++;
        (void)ibv_resize_cq(resizer->cq, 1); /* at times too few for what is queued */
    }
    return NULL;
}

/* While requests complete and are polled, another thread resizes the CQ. */
static void resize_busy_a(int sock, int param)
{
    struct rig rig;
    struct rig_attr attr = {.ep = {.cqe = 64, .send_wr = 16}};
    rig_open(&rig, sock, &attr);
    VU_EQ(ibv_resize_cq(rig.ep.scq, 0), EINVAL);
    VU_EQ(ibv_resize_cq(rig.ep.scq, rig.dev.attr.max_cqe + 1), EINVAL);
    struct resizer resizer = {.cq = rig.ep.scq};
    pthread_t thread;
    VU_EQ(pthread_create(&thread, NULL, resize_often, &resizer), 0);
    uint64_t posted = 0, polled = 0;
    while (polled < (uint64_t)param || !resizer.grown) {
        while (posted - polled < 16) {
            struct vu_send send = rig_send(&rig, IBV_WR_RDMA_WRITE, posted++, 0, 8);
            rig_post(&rig, &send);
        }
        struct ibv_wc wc[5];
        int n = vu_poll(rig.ep.scq, wc, 5, EVENT_MS);
        VU_EQ(n, 5);
        for (int i = 0; i < n; i++, polled++) {
            VU_EQ(wc[i].wr_id, polled);
            VU_EQ(wc[i].status, IBV_WC_SUCCESS);
        }
    }
    atomic_store(&resizer.stop, true);
    pthread_join(thread, NULL);
    for (; polled < posted; polled++)
        vu_expect(rig.ep.scq, polled, IBV_WC_SUCCESS);
    VU_TRUE(resizer.grown > 0);
    vu_barrier(sock);
    rig_close(&rig);
}

static void idle_b(int sock, int param)
{
    (void)param;
    struct rig rig;
    rig_open(&rig, sock, NULL);
    vu_barrier(sock);
    rig_close(&rig);
}

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

    struct ibv_cq_init_attr_ex cq_attr = {.cqe = 32,
                                          .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
                                          .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
                                          .parent_domain = parent};
    struct ibv_cq_ex *ex = ibv_create_cq_ex(dev.ctx, &cq_attr);
    VU_CHECK(ex, "ibv_create_cq_ex: %s", strerror(errno));
    struct ibv_cq *cq = ibv_cq_ex_to_cq(ex);
    VU_EQ(ibv_dealloc_pd(parent), EBUSY);
    int given = arena.given;
    VU_TRUE(given > 0);
    VU_EQ(ibv_resize_cq(cq, 300), 0);
    VU_TRUE(arena.given > given && arena.live == given);
    given = arena.given;
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
    for (unsigned int i = 0; i < 8; i++) {
        struct vu_send send = {.opcode = IBV_WR_SEND,
                               .wr_id = 100 + i,
                               .flags = IBV_SEND_SIGNALED | (i % 2 ? IBV_SEND_INLINE : 0),
                               .addr = buf + 1024,
                               .len_bytes = 32,
                               .lkey = mr->lkey};
        VU_EQ(vu_post_send(ep.qp, &send), 0);
    }
    unsigned int sends = 0, receives = 0;
    while (sends + receives < 16) {
        struct ibv_wc wc;
        VU_EQ(vu_poll(cq, &wc, 1, 5000), 1);
        VU_EQ(wc.status, IBV_WC_SUCCESS);
        VU_EQ(wc.wr_id, wc.opcode & IBV_WC_RECV ? receives++ : 100 + sends++);
    }
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

static unsigned long long counter(const struct ibv_context *ctx, const char *name)
{
    char path[512], text[32] = {0};
    snprintf(path, sizeof(path), "%s/ports/1/%s", ctx->device->ibdev_path, name);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(text, sizeof(text), file))
        VU_FAIL("%s: %s", path, strerror(errno));
    fclose(file);
    return strtoull(text, NULL, 10);
}

#define COUNTED_BYTES 10000u

/* What the two sides of a connection have moved, in words of four bytes and in packets of the
 * path's MTU, as both sides count it; also when the connection is over. */
static void counters(int sock, bool sends)
{
    static const char *const names[4] = {"counters/port_xmit_data", "counters/port_xmit_packets",
                                         "counters/port_rcv_data", "counters/port_rcv_packets"};
    struct rig rig;
    unsigned long long before[4];
    rig_open(&rig, sock, NULL);
    for (int i = 0; i < 4; i++)
        before[i] = counter(rig.dev.ctx, names[i]);
    unsigned long long failed = counter(rig.dev.ctx, "hw_counters/req_cqe_flush_error");
    rig_recv(&rig, 0, 0, COUNTED_BYTES);
    vu_barrier(sock);
    struct vu_send requests[3] = {rig_send(&rig, IBV_WR_RDMA_WRITE, 1, 20000, COUNTED_BYTES),
                                  rig_send(&rig, IBV_WR_SEND, 2, 20000, COUNTED_BYTES),
                                  rig_send(&rig, IBV_WR_RDMA_READ, 3, 20000, COUNTED_BYTES)};
    for (int i = 0; i < 3 && sends; i++) {
        rig_post(&rig, &requests[i]);
        vu_expect(rig.ep.scq, (uint64_t)i + 1, IBV_WC_SUCCESS);
    }
    vu_barrier(sock);
    if (!sends)
        vu_expect(rig.ep.rcq, 0, IBV_WC_SUCCESS);
    const unsigned int mtu = 128u << rig.dev.mtu, packets = (COUNTED_BYTES + mtu - 1) / mtu;
    const unsigned int data = COUNTED_BYTES / 4;
    const unsigned int there[4] = {2 * data, 2 * packets, data, packets};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 4; i++)
            VU_EQ(counter(rig.dev.ctx, names[i]) - before[i], there[sends ? i : i ^ 2]);
        vu_barrier(sock);
        vu_ep_to(&rig.ep, IBV_QPS_ERR);
    }
    VU_EQ(vu_post_send(rig.ep.qp, &requests[0]), 0);
    vu_expect(rig.ep.scq, 1, IBV_WC_WR_FLUSH_ERR);
    VU_EQ(counter(rig.dev.ctx, "hw_counters/req_cqe_flush_error") - failed, 1);
    vu_barrier(sock);
    rig_close(&rig);
}

static void counters_a(int sock, int param)
{
    (void)param;
    counters(sock, true);
}

static void counters_b(int sock, int param)
{
    (void)param;
    counters(sock, false);
}

const struct sem_case sem_cqs[] = {
    {"cq_ex__timestamps", times_a, ex_idle_b, 0},
    {"cq_ex__ignored_overrun", overrun_a, ex_idle_b, 0},
    {"modify_cq__moderation", moderate_a, moderate_b, 0},
    {"parent_domain__memory_of_queues", parent_a, parent_b, 0},
    {"parent_domain__refusals", parent_refusals_a, nothing, 0},
    {"port_counters__both_sides", counters_a, counters_b, SEM_PROCESSES},
    {"resize_cq__while_busy", resize_busy_a, idle_b, 20000},
    {0},
};
