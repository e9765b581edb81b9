/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sem.h: XRC domains that several processes have open (IBTA Vol1 annex A14). Side a has the
 * initiator, at a target of member 0; each member has an SRQ.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "xrc_member.h"

/* A file without a name, so that nothing is left of it. */
static int make_file(void)
{
    char path[] = "/tmp/sidewire-xrcd-XXXXXX";
    int fd = mkstemp(path);
    VU_TRUE(fd >= 0);
    unlink(path);
    return fd;
}

static void refused(struct ibv_context *ctx, int fd, int oflags, int error)
{
    errno = 0;
    VU_TRUE(!member_open_domain(ctx, fd, oflags));
    VU_EQ(errno, error);
}

/* ibv_open_xrcd(3): a domain is there as long as any process has it open. */
static void opened_a(int sock, int param)
{
    (void)param;
    struct vu_dev dev;
    vu_dev_open(&dev);
    int fd = make_file();
    vu_put_fd(sock, fd);
    vu_barrier(sock); /* the other side has found none */
    struct ibv_xrcd *xrcd = member_open_domain(dev.ctx, fd, O_CREAT | O_EXCL);
    VU_TRUE(xrcd);
    vu_barrier(sock);
    vu_barrier(sock); /* the other side has it open, too */
    VU_EQ(ibv_close_xrcd(xrcd), 0);
    refused(dev.ctx, fd, O_CREAT | O_EXCL, EINVAL);
    xrcd = member_open_domain(dev.ctx, fd, 0);
    VU_TRUE(xrcd);
    VU_EQ(ibv_close_xrcd(xrcd), 0);
    vu_barrier(sock);
    vu_barrier(sock); /* the other side has closed it, which was the last one */
    refused(dev.ctx, fd, 0, EAGAIN);
    close(fd);
    vu_dev_close(&dev);
}

static void opened_b(int sock, int param)
{
    (void)param;
    struct vu_dev dev;
    vu_dev_open(&dev);
    int fd = vu_get_fd(sock);
    refused(dev.ctx, fd, 0, EAGAIN);
    vu_barrier(sock);
    vu_barrier(sock);
    refused(dev.ctx, fd, O_CREAT | O_EXCL, EINVAL);
    struct ibv_xrcd *xrcd = member_open_domain(dev.ctx, fd, O_CREAT);
    VU_TRUE(xrcd);
    vu_barrier(sock);
    vu_barrier(sock);
    VU_EQ(ibv_close_xrcd(xrcd), 0);
    vu_barrier(sock);
    close(fd);
    vu_dev_close(&dev);
}

/* ---- messages ---- */

#define MEMBERS 3
#define LONG 100000u

struct net {
    int fd;
    struct rig rig; /* its QP is the initiator */
    struct member members[MEMBERS];
};

static const struct rig_attr plain;

static struct ibv_qp *make_initiator(struct rig *rig)
{
    struct ibv_qp_init_attr_ex init = {.send_cq = rig->ep.scq,
                                       .cap = {.max_send_wr = 64, .max_send_sge = 1},
                                       .qp_type = IBV_QPT_XRC_SEND,
                                       .comp_mask = IBV_QP_INIT_ATTR_PD,
                                       .pd = rig->dev.pd};
    struct ibv_qp *qp = ibv_create_qp_ex(rig->dev.ctx, &init);
    VU_CHECK(qp, "creating an initiator: %s", strerror(errno));
    return qp;
}

static void use_initiator(struct rig *rig, struct member *target)
{
    VU_EQ(ibv_destroy_qp(rig->ep.qp), 0);
    rig->ep.qp = make_initiator(rig);
    member_target(target, &rig->ep);
}

/* Members first: they are forked off. */
static void open_net(struct net *net)
{
    memset(net, 0, sizeof(*net));
    net->fd = make_file();
    for (int i = 0; i < MEMBERS; i++)
        member_start(&net->members[i], net->fd);
    rig_prepare(&net->rig, -1, &plain);
    use_initiator(&net->rig, &net->members[0]);
}

static void close_net(struct net *net)
{
    VU_EQ(ibv_destroy_qp(net->rig.ep.qp), 0);
    net->rig.ep.qp = NULL;
    for (int i = 0; i < MEMBERS; i++)
        if (net->members[i].pid)
            member_end(&net->members[i]);
    close(net->fd);
}

/* A request to a member's SRQ and memory. */
static void post(struct net *net, enum ibv_wr_opcode opcode, uint64_t wr_id, int to,
                 uint32_t offset, uint32_t len_bytes)
{
    const struct member *member = &net->members[to];
    const struct xrc_to there = {member->srq_num, member->rkey, member->addr};
    VU_EQ(xrc_post(net->rig.ep.qp, &net->rig, opcode, wr_id, &there, offset, len_bytes), 0);
}

static void done(struct net *net, uint64_t wr_id, enum ibv_wc_status status)
{
    vu_expect(net->rig.ep.scq, wr_id, status);
}

static void nothing(int sock, int param)
{
    (void)sock;
    (void)param;
}

/* A message arrives in the process that has the SRQ, and completes there under the target's number.
 */
static void messages(int sock, int param)
{
    static const uint32_t lengths[] = {0, 16, 3000, LONG};
    (void)sock;
    struct net net;
    open_net(&net);
    for (unsigned int i = 0; i < 12; i++) {
        const uint32_t len = lengths[i / MEMBERS];
        struct member *to = &net.members[(i + 1) % MEMBERS];
        memset(net.rig.buf, (int)(0x10 + i), LONG);
        member_recv(to, 100 + i, 0, LONG);
        post(&net, (enum ibv_wr_opcode)param, i, (i + 1) % MEMBERS, 0, len);
        struct ibv_wc wc = member_expect(to, 100 + i, IBV_WC_SUCCESS);
        done(&net, i, IBV_WC_SUCCESS);
        VU_EQ(wc.opcode, param == IBV_WR_SEND_WITH_IMM ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
        VU_EQ(wc.byte_len, len);
        VU_EQ(wc.qp_num, net.members[0].target_qpn);
        VU_EQ(wc.src_qp, net.rig.ep.qp->qp_num);
        VU_EQ(be32toh(wc.imm_data), i);
        member_bytes(to, 0, len, (uint8_t)(0x10 + i));
        member_expect_none(&net.members[(i + 2) % MEMBERS], 2);
    }
    close_net(&net);
}

/* Many at once, to all by turns: each process gets its own in order, and so does the sender. */
static void stream(int sock, int param)
{
    (void)sock;
    (void)param;
    struct net net;
    open_net(&net);
    for (unsigned int round = 0; round < 8; round++) {
        for (unsigned int i = 0; i < 48; i++)
            member_recv(&net.members[i % MEMBERS], i, (i / MEMBERS) * 4096, 4096);
        for (unsigned int i = 0; i < 48; i++) {
            memset(net.rig.buf + i * 4096, (int)(round * 16 + i), 4096);
            post(&net, IBV_WR_SEND, i, (int)(i % MEMBERS), i * 4096, i % 2 ? 4096 : 40);
        }
        for (unsigned int i = 0; i < 48; i++)
            done(&net, i, IBV_WC_SUCCESS);
        for (unsigned int i = 0; i < 48; i++) {
            member_expect(&net.members[i % MEMBERS], i, IBV_WC_SUCCESS);
            member_bytes(&net.members[i % MEMBERS], (i / MEMBERS) * 4096, i % 2 ? 4096 : 40,
                         (uint8_t)(round * 16 + i));
        }
    }
    close_net(&net);
}

/* Nothing overtakes a message that waits for a receive, whoever it is for. */
static void order(int sock, int param)
{
    (void)sock;
    (void)param;
    struct net net;
    open_net(&net);
    memset(net.rig.buf, 0xa1, 4096);
    post(&net, IBV_WR_SEND, 1, 1, 0, 64);
    post(&net, IBV_WR_RDMA_WRITE, 2, 0, 0, 64);
    post(&net, IBV_WR_RDMA_WRITE, 3, 2, 0, 64);
    vu_expect_none(net.rig.ep.scq, 100);
    member_bytes(&net.members[0], 0, 64, 0);
    member_bytes(&net.members[2], 0, 64, 0);
    member_recv(&net.members[1], 10, 0, 64);
    for (uint64_t i = 1; i <= 3; i++)
        done(&net, i, IBV_WC_SUCCESS);
    member_expect(&net.members[1], 10, IBV_WC_SUCCESS);
    for (int i = 0; i < MEMBERS; i++)
        member_bytes(&net.members[i], 0, 64, 0xa1);
    close_net(&net);
}

/* ---- remote accesses: to the memory of the process that has the SRQ, by its PD ---- */

static void accesses(int sock, int param)
{
    (void)sock;
    (void)param;
    struct net net;
    open_net(&net);
    for (int i = 0; i < 6; i++) {
        memset(net.rig.buf, 0xa0 + i, LONG);
        post(&net, IBV_WR_RDMA_WRITE, 1, i % MEMBERS, 0, i < 3 ? 50 : LONG);
        done(&net, 1, IBV_WC_SUCCESS);
        member_bytes(&net.members[i % MEMBERS], 0, i < 3 ? 50 : LONG, (uint8_t)(0xa0 + i));
    }
    memset(net.rig.buf, 0, LONG);
    post(&net, IBV_WR_RDMA_READ, 2, 1, 0, LONG);
    done(&net, 2, IBV_WC_SUCCESS);
    rig_bytes(&net.rig, 0, LONG, 0xa4);
    post(&net, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 2, 0x20000, 8);
    done(&net, 3, IBV_WC_SUCCESS);
    member_bytes(&net.members[2], 0x20000, 1, 5);
    close_net(&net);
}

enum fault { KEY_OF_ANOTHER, KEY_OF_ANOTHER_LONG, NO_SUCH_SRQ, SRQ_GONE, SRQ_GONE_WRITE };

/* A refusal by the SRQ's process is the target's affair, too. */
static void refusals(int sock, int param)
{
    (void)sock;
    const bool key = param == KEY_OF_ANOTHER || param == KEY_OF_ANOTHER_LONG;
    struct net net;
    open_net(&net);
    post(&net, IBV_WR_RDMA_WRITE, 1, 1, 0, 64);
    done(&net, 1, IBV_WC_SUCCESS);
    if (key)
        net.members[1].rkey ^= 0x5500;
    else if (param == NO_SUCH_SRQ)
        net.members[1].srq_num ^= 0x155;
    else
        member_drop_srq(&net.members[1]);
    post(&net, param == NO_SUCH_SRQ || param == SRQ_GONE ? IBV_WR_SEND : IBV_WR_RDMA_WRITE, 2, 1, 0,
         param == KEY_OF_ANOTHER_LONG ? LONG : 64);
    done(&net, 2, key ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR);
    VU_EQ(vu_ep_state(&net.rig.ep), IBV_QPS_ERR);
    member_expect_event(&net.members[0], key ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
    VU_EQ(member_target_state(&net.members[0]), IBV_QPS_ERR);
    close_net(&net);
}

/* An error is not reported before what is still unanswered, whatever the number names. */
static void refused_in_order(int sock, int param)
{
    (void)sock;
    struct net net;
    open_net(&net);
    post(&net, IBV_WR_SEND, 1, 1, 0, 64);
    net.members[2].srq_num = param ? net.members[1].srq_num ^ 0x155 : 5; /* nobody's */
    post(&net, IBV_WR_RDMA_WRITE, 2, 2, 0, 64);
    vu_expect_none(net.rig.ep.scq, 50);
    member_recv(&net.members[1], 10, 0, 64);
    done(&net, 1, IBV_WC_SUCCESS);
    done(&net, 2, IBV_WC_REM_INV_REQ_ERR);
    member_expect(&net.members[1], 10, IBV_WC_SUCCESS);
    close_net(&net);
}

/* An SRQ of a domain on another file. */
static void other_domain(int sock, int param)
{
    (void)sock;
    int fd = make_file();
    struct member stranger;
    struct net net;
    member_start(&stranger, fd);
    open_net(&net);
    struct member mine = net.members[1];
    net.members[1] = stranger;
    post(&net, (enum ibv_wr_opcode)param, 1, 1, 0, 64);
    done(&net, 1, IBV_WC_REM_INV_REQ_ERR);
    net.members[1] = mine;
    member_bytes(&stranger, 0, 64, 0);
    member_end(&stranger);
    close_net(&net);
}

/* The connection goes on when a process replaces its SRQ, or leaves the domain and comes back. */
static void reopened(int sock, int param)
{
    (void)sock;
    struct net net;
    open_net(&net);
    for (unsigned int i = 0; i < 4; i++) {
        member_recv(&net.members[1], 10, 0, 64);
        post(&net, IBV_WR_SEND, i, 1, 0, 64);
        done(&net, i, IBV_WC_SUCCESS);
        member_expect(&net.members[1], 10, IBV_WC_SUCCESS);
        member_reopen(&net.members[1], param);
    }
    close_net(&net);
}

/* ---- deaths ---- */

enum death { WAITS, IDLE, NEVER_USED };

/* With a process its SRQs are gone: what names them is an invalid request. */
static void owner_dies(int sock, int param)
{
    (void)sock;
    struct net net;
    open_net(&net);
    if (param != NEVER_USED) {
        post(&net, IBV_WR_RDMA_WRITE, 1, 1, 0, 64);
        done(&net, 1, IBV_WC_SUCCESS);
    }
    if (param == WAITS) {
        post(&net, IBV_WR_SEND, 2, 1, 0, 64);
        post(&net, IBV_WR_RDMA_WRITE, 3, 0, 0, 64);
        vu_expect_none(net.rig.ep.scq, 20);
    }
    member_kill(&net.members[1]);
    if (param != WAITS) {
        vu_sleep_ms(50);
        post(&net, IBV_WR_RDMA_WRITE, 4, 2, 0, 64); /* others are not concerned */
        done(&net, 4, IBV_WC_SUCCESS);
        post(&net, IBV_WR_SEND, 2, 1, 0, 64);
        post(&net, IBV_WR_RDMA_WRITE, 3, 0, 0, 64);
    }
    done(&net, 2, IBV_WC_REM_INV_REQ_ERR);
    done(&net, 3, IBV_WC_WR_FLUSH_ERR);
    net.members[1].pid = 0;
    member_expect_event(&net.members[0], IBV_EVENT_QP_REQ_ERR);
    VU_EQ(member_target_state(&net.members[0]), IBV_QPS_ERR);
    close_net(&net);
}

/* Messages sent to the SRQ of a process stay sent when that has ended: sem_counters.c. */
static void death_is_counted_out(int sock, int param)
{
    (void)sock;
    (void)param;
    struct net net;
    char port[512];
    open_net(&net);
    snprintf(port, sizeof(port), "%s/ports/1", net.rig.dev.ctx->device->ibdev_path);
    for (uint64_t to = 2; to-- > 0;) {
        post(&net, IBV_WR_RDMA_WRITE, to, (int)to, 0, 64);
        done(&net, to, IBV_WC_SUCCESS);
    }
    sem_expect_counter(port, "counters/port_xmit_data", 2 * 64 / 4);
    sem_expect_counter(port, "counters/port_rcv_data", 2 * 64 / 4);
    member_kill(&net.members[1]);
    net.members[1].pid = 0;
    uint64_t start_ms = vu_now_ms(); /* until its part is gone */
    while (sem_read_counter(port, "counters/port_rcv_data") != 64 / 4 &&
           vu_now_ms() - start_ms < 5000)
        vu_sleep_ms(10);
    vu_sleep_ms(200);
    sem_expect_counter(port, "counters/port_rcv_data", 64 / 4);
    sem_expect_counter(port, "counters/port_xmit_data", 2 * 64 / 4);
    close_net(&net);
}

/* An idle QP fails by itself 100 ms after its peer's death: who posts later is flushed. */
static void done_after_death(struct net *net, uint64_t wr_id, bool late)
{
    struct ibv_wc wc;
    VU_EQ(vu_poll(net->rig.ep.scq, &wc, 1, 20000), 1);
    VU_EQ(wc.wr_id, wr_id);
    VU_TRUE(wc.status == IBV_WC_RETRY_EXC_ERR || (late && wc.status == IBV_WC_WR_FLUSH_ERR));
}

/* The target goes with its process, whoever the messages were for. */
static void target_dies(int sock, int param)
{
    (void)sock;
    struct net net;
    open_net(&net);
    post(&net, IBV_WR_RDMA_WRITE, 1, 1, 0, 64);
    done(&net, 1, IBV_WC_SUCCESS);
    if (param == WAITS)
        post(&net, IBV_WR_SEND, 2, 1, 0, 64);
    const uint64_t killed_ms = vu_now_ms();
    member_kill(&net.members[0]);
    net.members[0].pid = 0;
    vu_sleep_ms(50);
    if (param != WAITS)
        post(&net, IBV_WR_RDMA_WRITE, 2, 1, 0, 64);
    done_after_death(&net, 2, param != WAITS && vu_now_ms() - killed_ms >= 100);
    member_bytes(&net.members[1], 0, 64, 0);
    use_initiator(&net.rig, &net.members[2]); /* the SRQ serves others on */
    member_recv(&net.members[1], 10, 0, 64);
    post(&net, IBV_WR_SEND, 3, 1, 0, 64);
    done(&net, 3, IBV_WC_SUCCESS);
    member_expect(&net.members[1], 10, IBV_WC_SUCCESS);
    close_net(&net);
}

#define NEVER_MET_MS 4500 /* 5 s are waited for a process that cannot be met */
#define DOOMED_RECVS 8    /* for every other of its requests */

static void doomed_initiator(int sock, void *arg)
{
    struct net *net = arg;
    rig_prepare(&net->rig, -1, &plain);
    use_initiator(&net->rig, &net->members[0]);
    vu_put(sock, &net->members[0].target_qpn, sizeof(net->members[0].target_qpn));
    memset(net->rig.buf, 0xa1, LONG);
    for (uint64_t i = 0;; i++) {
        post(net, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, i, 1 + (int)(i / 2 % 2), 0, LONG);
        done(net, i, IBV_WC_SUCCESS);
        if (i == 2 * (DOOMED_RECVS - 1))
            vu_put(sock, &i, sizeof(i));
    }
}

/* The message that it was in the middle of is flushed or nothing; its members go on. */
static void initiator_dies(int sock, int param)
{
    (void)sock;
    (void)param;
    int pair[2];
    uint64_t used_up;
    struct net net = {.fd = make_file()};
    for (int i = 0; i < MEMBERS; i++)
        member_start(&net.members[i], net.fd);
    for (uint64_t i = 0; i < DOOMED_RECVS; i++)
        member_recv(&net.members[1 + i % 2], 10, 0, LONG);
    vu_socketpair(pair);
    pid_t pid = vu_spawn(doomed_initiator, pair[1], &net);
    vu_get(pair[0], &net.members[0].target_qpn, sizeof(net.members[0].target_qpn));
    vu_get(pair[0], &used_up, sizeof(used_up));
    vu_sleep_ms(50); /* a SEND waits */
    kill(pid, SIGKILL);
    vu_reap(pid, 5);
    rig_prepare(&net.rig, -1, &plain);
    /* The target's engine sees the death while its program connects: both go on. */
    const uint64_t start_ms = vu_now_ms();
    use_initiator(&net.rig, &net.members[2]);
    VU_TRUE(vu_now_ms() - start_ms < NEVER_MET_MS);
    for (uint64_t i = 0; i < DOOMED_RECVS; i++)
        member_expect(&net.members[1 + i % 2], 10, IBV_WC_SUCCESS);
    member_await_clients(&net.members[1], 0); /* else the SEND that waits there takes the receive */
    for (int i = 0; i < 2; i++) {
        member_recv(&net.members[1], 20, 0, 64);
        post(&net, IBV_WR_SEND, 1, 1, 0, 64);
        done(&net, 1, IBV_WC_SUCCESS);
        member_expect(&net.members[1], 20, IBV_WC_SUCCESS);
    }
    close_net(&net);
}

/* ---- ibv_open_qp(3): other processes' handles on the target ---- */

static void send_to(struct net *net, int to, enum ibv_wc_status status)
{
    member_recv(&net->members[to], 10, 0, 64);
    post(net, IBV_WR_SEND, 1, to, 0, 64);
    done(net, 1, status);
    if (status == IBV_WC_SUCCESS)
        member_expect(&net->members[to], 10, IBV_WC_SUCCESS);
}

static void not_to_be_opened(int sock, int param)
{
    (void)sock;
    (void)param;
    struct member stranger;
    int fd = make_file();
    struct net net;
    member_start(&stranger, fd);
    open_net(&net);
    const uint32_t qpn = net.members[0].target_qpn;
    VU_EQ(member_open_qp(&stranger, qpn), EINVAL); /* of another domain */
    VU_EQ(member_open_qp(&net.members[1], qpn ^ 0x11), EINVAL);
    VU_EQ(member_open_qp(&net.members[1], net.rig.ep.qp->qp_num), EINVAL); /* no target */
    member_end(&stranger);
    close(fd);
    close_net(&net);
}

/* The QP lives as long as any process has a handle on it; and its domain with it. */
static void outlives_its_maker(int sock, int param)
{
    (void)sock;
    struct net net;
    open_net(&net);
    const uint32_t qpn = net.members[0].target_qpn;
    VU_EQ(member_open_qp(&net.members[1], qpn), 0);
    VU_EQ(member_opened_state(&net.members[1]), IBV_QPS_RTS);
    send_to(&net, 1, IBV_WC_SUCCESS);
    member_close_target(&net.members[0]);
    for (int i = 0; i < MEMBERS; i++)
        send_to(&net, i, IBV_WC_SUCCESS);
    VU_EQ(member_open_qp(&net.members[2], qpn), 0);
    member_close_opened(&net.members[1]);
    member_drop_srq(&net.members[0]);
    send_to(&net, 1, IBV_WC_SUCCESS);
    if (param) {
        member_kill(&net.members[2]);
        net.members[2].pid = 0;
        vu_sleep_ms(100);
    } else {
        member_close_opened(&net.members[2]);
        vu_sleep_ms(20);
    }
    send_to(&net, 1, IBV_WC_RETRY_EXC_ERR);
    close_net(&net);
}

static void modified_from_elsewhere(int sock, int param)
{
    (void)sock;
    (void)param;
    struct net net;
    open_net(&net);
    VU_EQ(member_open_qp(&net.members[1], net.members[0].target_qpn), 0);
    VU_EQ(member_modify_opened(&net.members[1], IBV_QPS_RTR), EINVAL);
    VU_EQ(member_modify_opened(&net.members[1], IBV_QPS_ERR), 0);
    VU_EQ(member_target_state(&net.members[0]), IBV_QPS_ERR);
    VU_EQ(member_opened_state(&net.members[1]), IBV_QPS_ERR);
    send_to(&net, 2, IBV_WC_RETRY_EXC_ERR);
    close_net(&net);
}

static void handle_without_its_process(int sock, int param)
{
    (void)sock;
    (void)param;
    struct net net;
    open_net(&net);
    VU_EQ(member_open_qp(&net.members[1], net.members[0].target_qpn), 0);
    member_kill(&net.members[0]);
    net.members[0].pid = 0;
    VU_EQ(member_opened_state(&net.members[1]), IBV_QPS_ERR);
    VU_EQ(member_modify_opened(&net.members[1], IBV_QPS_ERR), EIO);
    member_close_opened(&net.members[1]);
    close_net(&net);
}

const struct sem_case sem_xrc_shared[] = {
    {"xrc__domain_of_several_processes", opened_a, opened_b, 0},
    {"xrc_shared__counters_outlive_a_lane", death_is_counted_out, nothing, SEM_ALONE},
    {"xrc_shared__sends", messages, nothing, IBV_WR_SEND_WITH_IMM | SEM_PROCESSES},
    {"xrc_shared__immediates", messages, nothing, IBV_WR_RDMA_WRITE_WITH_IMM | SEM_PROCESSES},
    {"xrc_shared__stream", stream, nothing, SEM_PROCESSES},
    {"xrc_shared__order", order, nothing, SEM_PROCESSES},
    {"xrc_shared__remote_accesses", accesses, nothing, SEM_PROCESSES},
    {"xrc_shared__bad_key", refusals, nothing, KEY_OF_ANOTHER | SEM_PROCESSES},
    {"xrc_shared__bad_key_long", refusals, nothing, KEY_OF_ANOTHER_LONG | SEM_PROCESSES},
    {"xrc_shared__no_such_srq", refusals, nothing, NO_SUCH_SRQ | SEM_PROCESSES},
    {"xrc_shared__srq_gone_send", refusals, nothing, SRQ_GONE | SEM_PROCESSES},
    {"xrc_shared__srq_gone_write", refusals, nothing, SRQ_GONE_WRITE | SEM_PROCESSES},
    {"xrc_shared__refused_in_order", refused_in_order, nothing, 0 | SEM_PROCESSES},
    {"xrc_shared__refused_in_order_there", refused_in_order, nothing, 1 | SEM_PROCESSES},
    {"xrc_shared__other_domain_send", other_domain, nothing, IBV_WR_SEND | SEM_PROCESSES},
    {"xrc_shared__other_domain_write", other_domain, nothing, IBV_WR_RDMA_WRITE | SEM_PROCESSES},
    {"xrc_shared__srq_replaced", reopened, nothing, 0 | SEM_PROCESSES},
    {"xrc_shared__domain_left_and_back", reopened, nothing, 1 | SEM_PROCESSES},
    {"xrc_shared__owner_dies", owner_dies, nothing, IDLE | SEM_PROCESSES},
    {"xrc_shared__owner_dies_waited_for", owner_dies, nothing, WAITS | SEM_PROCESSES},
    {"xrc_shared__owner_dies_unknown", owner_dies, nothing, NEVER_USED | SEM_PROCESSES},
    {"xrc_shared__target_dies", target_dies, nothing, IDLE | SEM_PROCESSES},
    {"xrc_shared__target_dies_waited_for", target_dies, nothing, WAITS | SEM_PROCESSES},
    {"xrc_shared__initiator_dies", initiator_dies, nothing, SEM_PROCESSES},
    {"xrc_shared__open_qp_refused", not_to_be_opened, nothing, SEM_PROCESSES},
    {"xrc_shared__open_qp_keeps_it", outlives_its_maker, nothing, 0 | SEM_PROCESSES},
    {"xrc_shared__open_qp_and_die", outlives_its_maker, nothing, 1 | SEM_PROCESSES},
    {"xrc_shared__open_qp_modify", modified_from_elsewhere, nothing, SEM_PROCESSES},
    {"xrc_shared__open_qp_maker_dies", handle_without_its_process, nothing, SEM_PROCESSES},
    {0},
};
