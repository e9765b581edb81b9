/* SPDX-License-Identifier: BSD-2-Clause */
#include "xrc_member.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ORDER_MS 40000 /* longer than any request is waited for: what failed is told first */
#define CLIENTS_MS 20000

enum what {
    TARGET,
    TARGET_STATE,
    RECV,
    EXPECT,
    NONE,
    BYTES,
    EVENT,
    DROP_SRQ,
    REOPEN_SRQ,
    REOPEN_DOMAIN,
    OPEN_QP,
    OPENED_STATE,
    MODIFY_OPENED,
    CLOSE_OPENED,
    CLOSE_TARGET,
    END,
};

struct order {
    enum what what;
    uint64_t a;
    uint32_t b, c;
};

struct names {
    uint32_t srq_num, rkey;
    uint64_t addr;
};

/* ---- the member ---- */

struct self {
    int fd, sock;
    struct vu_dev dev;
    struct ibv_xrcd *xrcd;
    struct ibv_qp *target, *opened;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    uint8_t *buf;
    struct ibv_mr *mr;
};

struct ibv_xrcd *member_open_domain(struct ibv_context *ctx, int fd, int oflags)
{
    struct ibv_xrcd_init_attr init = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags};
    return ibv_open_xrcd(ctx, &init);
}

static void make_srq(struct self *self)
{
    struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = 64, .max_sge = 1},
                                        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                        .srq_type = IBV_SRQT_XRC,
                                        .pd = self->dev.pd,
                                        .xrcd = self->xrcd,
                                        .cq = self->cq};
    self->srq = ibv_create_srq_ex(self->dev.ctx, &init);
    VU_CHECK(self->srq, "an XRC SRQ: %s", strerror(errno));
}

static void put_names(struct self *self)
{
    struct names names = {.rkey = self->mr->rkey, .addr = (uintptr_t)self->buf};
    VU_EQ(ibv_get_srq_num(self->srq, &names.srq_num), 0);
    vu_put(self->sock, &names, sizeof(names));
}

static void open_self(struct self *self)
{
    vu_dev_open(&self->dev);
    self->xrcd = member_open_domain(self->dev.ctx, self->fd, O_CREAT);
    VU_CHECK(self->xrcd, "ibv_open_xrcd: %s", strerror(errno));
    self->cq = ibv_create_cq(self->dev.ctx, 256, NULL, NULL, 0);
    self->buf = aligned_alloc(4096, MEMBER_BYTES);
    VU_TRUE(self->cq && self->buf);
    memset(self->buf, 0, MEMBER_BYTES);
    self->mr = vu_reg(&self->dev, self->buf, MEMBER_BYTES, VU_ACCESS_ALL);
    make_srq(self);
    put_names(self);
}

static void make_target(struct self *self)
{
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = self->xrcd};
    self->target = ibv_create_qp_ex(self->dev.ctx, &init);
    VU_CHECK(self->target, "creating a target: %s", strerror(errno));
    struct vu_ep ep = {.dev = &self->dev, .qp = self->target};
    uint32_t qpn = self->target->qp_num;
    vu_put(self->sock, &qpn, sizeof(qpn));
    vu_connect(&ep, self->sock, NULL);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
    const struct vu_ep ep = {.qp = qp};
    return vu_ep_state(&ep);
}

static int open_qp(struct self *self, uint32_t qpn)
{
    struct ibv_qp_open_attr attr = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
                                                 IBV_QP_OPEN_ATTR_TYPE,
                                    .qp_num = qpn,
                                    .xrcd = self->xrcd,
                                    .qp_type = IBV_QPT_XRC_RECV};
    errno = 0;
    self->opened = ibv_open_qp(self->dev.ctx, &attr);
    VU_TRUE(!self->opened || self->opened->qp_num == qpn);
    return self->opened ? 0 : errno;
}

static void drop(struct self *self, bool domain)
{
    VU_EQ(ibv_destroy_srq(self->srq), 0);
    self->srq = NULL;
    if (domain)
        VU_EQ(ibv_close_xrcd(self->xrcd), 0);
}

static void reopen(struct self *self, bool domain)
{
    drop(self, domain);
    if (domain)
        self->xrcd = member_open_domain(self->dev.ctx, self->fd, 0);
    VU_TRUE(self->xrcd);
    make_srq(self);
    put_names(self);
}

static void end_self(struct self *self)
{
    if (self->opened)
        VU_EQ(ibv_destroy_qp(self->opened), 0);
    if (self->target)
        VU_EQ(ibv_destroy_qp(self->target), 0);
    if (self->srq)
        VU_EQ(ibv_destroy_srq(self->srq), 0);
    VU_EQ(ibv_close_xrcd(self->xrcd), 0);
    VU_EQ(ibv_dereg_mr(self->mr), 0);
    VU_EQ(ibv_destroy_cq(self->cq), 0);
    vu_dev_close(&self->dev);
    free(self->buf);
}

/* What it is told, and a number in answer. */
static uint32_t obey(struct self *self, const struct order *order)
{
    struct ibv_qp_attr attr = {.qp_state = (enum ibv_qp_state)order->b};
    struct ibv_wc wc;
    switch (order->what) {
    case TARGET:
        make_target(self);
        break;
    case TARGET_STATE:
        return (uint32_t)state_of(self->target);
    case RECV:
        VU_EQ(vu_post_srq(self->srq, order->a, self->buf + order->b, order->c, self->mr->lkey), 0);
        break;
    case EXPECT:
        wc = vu_expect(self->cq, order->a, (enum ibv_wc_status)order->b);
        vu_put(self->sock, &wc, sizeof(wc));
        break;
    case NONE:
        vu_expect_none(self->cq, order->b);
        break;
    case BYTES:
        for (uint32_t i = order->b; i < order->b + order->c; i++)
            VU_CHECK(self->buf[i] == (uint8_t)order->a, "byte %u is 0x%02x, not 0x%02x", i,
                     self->buf[i], (uint8_t)order->a);
        break;
    case EVENT:
        VU_TRUE(vu_async_event(self->dev.ctx, (enum ibv_event_type)order->b, 20000));
        break;
    case DROP_SRQ:
        drop(self, false);
        break;
    case REOPEN_SRQ:
    case REOPEN_DOMAIN:
        reopen(self, order->what == REOPEN_DOMAIN);
        break;
    case OPEN_QP:
        return (uint32_t)open_qp(self, order->b);
    case OPENED_STATE:
        return (uint32_t)state_of(self->opened);
    case MODIFY_OPENED:
        return (uint32_t)ibv_modify_qp(self->opened, &attr, IBV_QP_STATE);
    case CLOSE_OPENED:
        VU_EQ(ibv_destroy_qp(self->opened), 0);
        self->opened = NULL;
        break;
    case CLOSE_TARGET:
        VU_EQ(ibv_destroy_qp(self->target), 0);
        self->target = NULL;
        break;
    case END:
        end_self(self);
        break;
    }
    return 0;
}

static void run(int sock, void *arg)
{
    struct self self = {.fd = *(int *)arg, .sock = sock};
    struct order order;
    vu_set_side("member");
    open_self(&self);
    do {
        if (!vu_try_get(sock, &order, sizeof(order), ORDER_MS))
            _exit(0); /* the test has failed elsewhere */
        uint32_t answer = obey(&self, &order);
        vu_put(sock, &answer, sizeof(answer));
    } while (order.what != END);
}

/* ---- who tells it ---- */

static void get_names(struct member *member)
{
    struct names names;
    vu_get(member->sock, &names, sizeof(names));
    member->srq_num = names.srq_num;
    member->rkey = names.rkey;
    member->addr = names.addr;
}

void member_start(struct member *member, int fd)
{
    int pair[2];
    vu_socketpair(pair);
    *member = (struct member){.sock = pair[0]};
    member->pid = vu_spawn(run, pair[1], &fd);
    close(pair[1]);
    get_names(member);
}

static void send_order(struct member *member, enum what what, uint64_t a, uint32_t b, uint32_t c)
{
    const struct order order = {what, a, b, c};
    vu_put(member->sock, &order, sizeof(order));
}

static uint32_t get_answer(struct member *member)
{
    uint32_t answer;
    vu_get(member->sock, &answer, sizeof(answer));
    return answer;
}

static uint32_t tell(struct member *member, enum what what, uint64_t a, uint32_t b, uint32_t c)
{
    send_order(member, what, a, b, c);
    return get_answer(member);
}

void member_target(struct member *member, struct vu_ep *ep)
{
    send_order(member, TARGET, 0, 0, 0);
    vu_get(member->sock, &member->target_qpn, sizeof(member->target_qpn));
    vu_connect(ep, member->sock, NULL);
    get_answer(member);
}

enum ibv_qp_state member_target_state(struct member *member)
{
    return (enum ibv_qp_state)tell(member, TARGET_STATE, 0, 0, 0);
}

void member_recv(struct member *member, uint64_t wr_id, uint32_t offset, uint32_t len_bytes)
{
    tell(member, RECV, wr_id, offset, len_bytes);
}

struct ibv_wc member_expect(struct member *member, uint64_t wr_id, enum ibv_wc_status status)
{
    struct ibv_wc wc;
    send_order(member, EXPECT, wr_id, (uint32_t)status, 0);
    vu_get(member->sock, &wc, sizeof(wc));
    get_answer(member);
    return wc;
}

void member_expect_none(struct member *member, unsigned int ms)
{
    tell(member, NONE, 0, ms, 0);
}

void member_bytes(struct member *member, uint32_t offset, uint32_t len_bytes, uint8_t value)
{
    tell(member, BYTES, value, offset, len_bytes);
}

void member_expect_event(struct member *member, enum ibv_event_type type)
{
    tell(member, EVENT, 0, (uint32_t)type, 0);
}

void member_drop_srq(struct member *member)
{
    tell(member, DROP_SRQ, 0, 0, 0);
}

void member_reopen(struct member *member, bool domain)
{
    send_order(member, domain ? REOPEN_DOMAIN : REOPEN_SRQ, 0, 0, 0);
    get_names(member);
    get_answer(member);
}

int member_open_qp(struct member *member, uint32_t qpn)
{
    return (int)tell(member, OPEN_QP, 0, qpn, 0);
}

enum ibv_qp_state member_opened_state(struct member *member)
{
    return (enum ibv_qp_state)tell(member, OPENED_STATE, 0, 0, 0);
}

int member_modify_opened(struct member *member, enum ibv_qp_state state)
{
    return (int)tell(member, MODIFY_OPENED, 0, (uint32_t)state, 0);
}

void member_close_opened(struct member *member)
{
    tell(member, CLOSE_OPENED, 0, 0, 0);
}

void member_close_target(struct member *member)
{
    tell(member, CLOSE_TARGET, 0, 0, 0);
}

void member_end(struct member *member)
{
    tell(member, END, 0, 0, 0);
    VU_EQ(vu_reap(member->pid, 10), 0);
    close(member->sock);
}

void member_kill(struct member *member)
{
    kill(member->pid, SIGKILL);
    VU_EQ(vu_reap(member->pid, 10), 128 + SIGKILL);
    close(member->sock);
}

/* Each client of a process has an inbox there, a memfd. */
static int count_clients(const struct member *member)
{
    char path[64], link[128];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)member->pid);
    DIR *dir = opendir(path);
    VU_CHECK(dir, "%s: %s", path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir));) {
        const ssize_t len = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);
        link[len > 0 ? len : 0] = 0;
        count += strstr(link, "memfd:sidewire-inbox") != NULL;
    }
    closedir(dir);
    return count;
}

void member_await_clients(const struct member *member, int count)
{
    for (uint64_t end = vu_now_ms() + CLIENTS_MS; count_clients(member) != count;) {
        VU_CHECK(vu_now_ms() < end, "%d clients, not %d", count_clients(member), count);
        vu_sleep_ms(5);
    }
}

int xrc_post(struct ibv_qp *qp, struct rig *rig, enum ibv_wr_opcode opcode, uint64_t wr_id,
             const struct xrc_to *to, uint32_t offset, uint32_t len_bytes)
{
    struct ibv_sge sge = {(uintptr_t)rig->buf + offset, len_bytes, rig->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .imm_data = htobe32((uint32_t)wr_id),
                             .qp_type.xrc.remote_srqn = to->srq_num};
    struct ibv_send_wr *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = to->addr + offset;
        wr.wr.atomic.rkey = to->rkey;
        wr.wr.atomic.compare_add = 5;
    } else {
        wr.wr.rdma.remote_addr = to->addr + offset;
        wr.wr.rdma.rkey = to->rkey;
    }
    return ibv_post_send(qp, &wr, &bad);
}
