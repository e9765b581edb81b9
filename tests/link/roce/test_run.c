/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs of packets at a queue pair over RoCE, as its port delivers them; in a network namespace of
 * their own. The peer is the test, which has the same address: what the queue pair says comes back
 * to the port. */
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "../preload/namespace.h"
#include "base/clock.h"
#include "device/memory/mr.h"
#include "device/nic/context_impl.h"
#include "device/queue/cq_impl.h"
#include "link/link.h"
#include "link/roce/deliver.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/tx.h"
#include "link/roce/qp/qp.h"
#include "link/roce/roce.h"

enum { MTU = 1024, PACKETS = 8, REGION = 16 * MTU, PSN = 0xfffffd, NAK_INVALID = 0x61 };
enum { SEND_FIRST = 0, SEND_MIDDLE = 1, SEND_LAST = 2, WRITE_MIDDLE = 7, WRITE_ONLY = 0x0a };
enum { WRITE_FIRST = 6, ACKNOWLEDGE = 0x11, NAK_ACCESS = 0x62 };
enum { PEER_PORT = 0xc123, OTHER_PORT = 0xd456 };
enum { PACKET_MAX = SW_HEADERS_MAX + MTU + SW_TRAILER_MAX };

static struct {
    struct sw_context *ctx;
    struct sw_pd *pd;
    struct sw_cq *cq;
    struct sw_mr *mr;
    struct sw_qp *qp;
    uint8_t bytes[2 * REGION]; /* the region, and behind it */
    uint8_t batch[PACKETS * PACKET_MAX];
    uint32_t psn;           /* of the next packet */
    struct sw_packet heard; /* the last ACK or NAK; opcode NULL: none. Under rx_lock */
} rig;

static void on_event(void *owner, enum ibv_event_type type, void *element)
{
    (void)owner;
    (void)type;
    (void)element;
}

static struct sw_netdev *loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
    assert_int_equal(sw_netdev_refresh(NULL, NULL), 0);
    assert_true(sw_netdev_count() > 0); /* there is no other one here */
    return sw_netdev_get(0);
}

static int open_nic(void **state)
{
    (void)state;
    setenv("SIDEWIRE_LINK", "roce", 1);
    struct sw_netdev *lo = loopback();
    sw_link_init();
    assert_int_equal(sw_context_open(lo, on_event, NULL, &rig.ctx), 0);
    assert_int_equal(sw_pd_alloc(rig.ctx, &rig.pd), 0);
    assert_int_equal(sw_cq_create(rig.ctx, 64, NULL, NULL, &rig.cq), 0);
    assert_int_equal(sw_mr_reg(rig.pd, rig.bytes, REGION, (uintptr_t)rig.bytes,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &rig.mr),
                     0);
    return 0;
}

static int close_nic(void **state)
{
    (void)state;
    assert_int_equal(sw_mr_dereg(rig.mr), 0);
    assert_int_equal(sw_cq_destroy(rig.cq), 0);
    assert_int_equal(sw_pd_dealloc(rig.pd), 0);
    sw_context_close(rig.ctx);
    return 0;
}

static bool hear(void *arg, const struct sw_arrival *arrival)
{
    struct sw_packet packet;
    (void)arg;
    if (sw_packet_decode(arrival->bytes, arrival->len_bytes, &packet) == SW_PACKET_FAULT_NONE &&
        packet.opcode->number == ACKNOWLEDGE)
        rig.heard = packet;
    return true;
}

static void modify(struct ibv_qp_attr *attr, enum ibv_qp_state to, int mask)
{
    attr->qp_state = to;
    assert_int_equal(sw_qp_modify(rig.qp, attr, mask | IBV_QP_STATE), 0);
}

/* A QP that has heard of its peer before. */
static int connect_qp(void **state)
{
    (void)state;
    struct sw_qp_init init = {
        .type = IBV_QPT_RC,
        .pd = rig.pd,
        .send_cq = rig.cq,
        .recv_cq = rig.cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 4, .max_recv_sge = 4},
    };
    struct sw_gid gid;
    assert_true(sw_netdev_gid(sw_context_netdev(rig.ctx), 1, &gid));
    struct ibv_qp_attr attr = {
        .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = sw_qpn_make(sw_nic.slot, 4000),
        .rq_psn = PSN,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid.gid, .sgid_index = 1}},
    };
    assert_int_equal(sw_qp_create(rig.ctx, &init, &rig.qp), 0);
    modify(&attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    modify(&attr, IBV_QPS_RTR,
           IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    memset(rig.bytes, 0, sizeof(rig.bytes));
    rig.psn = PSN;
    sw_lock_acquire(&sw_roce.port.rx_lock);
    sw_roce.port.deliver = hear;
    rig.heard.opcode = NULL;
    sw_lock_release(&sw_roce.port.rx_lock);
    return 0;
}

static int drop_qp(void **state)
{
    (void)state;
    struct ibv_wc wc[8];
    assert_int_equal(sw_qp_destroy(rig.qp), 0);
    while (sw_cq_poll(rig.cq, 8, wc) > 0) {
    }
    return 0;
}

static uint16_t source_port = PEER_PORT;

static struct sw_roce_qp *link_of(const struct sw_qp *qp)
{
    assert_ptr_equal(qp->link, &sw_roce_qp_ops);
    return qp->link_state;
}

static uint8_t byte_of(uint32_t psn, uint32_t i)
{
    return (uint8_t)(1 + (psn - PSN) * 37 + i);
}

static bool asks; /* the last packet of an arrival, for an ACK */

/* Packets with the next PSNs come, as one arrival; WRITEs to `addr` and on. */
static void arrive(uint8_t opcode, uint32_t count, uint64_t addr, uint32_t len)
{
    const struct sw_roce_path *path = &link_of(rig.qp)->path;
    const uint32_t step = (uint32_t)sw_packet_len(sw_opcode_of(opcode), len);
    for (uint32_t n = 0; n < count; n++, rig.psn++) {
        uint8_t *at = rig.batch + (size_t)n * step;
        const struct sw_packet packet = {
            .bth = {.opcode = opcode,
                    .pkey = SW_PKEY_DEFAULT,
                    .dest_qpn = rig.qp->qpn,
                    .ack_req = asks && n + 1 == count,
                    .psn = sw_seq_psn(rig.psn)},
            .reth = {.addr = addr + n * len,
                     .rkey = sw_mr_key(rig.mr),
                     .len_bytes = opcode == WRITE_FIRST ? (PACKETS + 1) * MTU : len},
            .payload_len = len,
        };
        uint8_t *payload = at + sw_packet_encode_headers(&packet, at, PACKET_MAX);
        for (uint32_t i = 0; i < len; i++)
            payload[i] = byte_of(rig.psn, i);
        if (n)
            assert_true(sw_packet_follows(at - step, at, step));
    }
    const struct sw_arrival arrival = {.bytes = rig.batch,
                                       .len_bytes = step,
                                       .count = count,
                                       .source = path->dest,
                                       .dest = path->source,
                                       .source_port = source_port,
                                       .traffic_class = 3}; /* CE */
    sw_lock_acquire(&sw_roce.port.rx_lock);
    sw_roce_deliver(NULL, &arrival);
    sw_roce_deliver_end(false);
    sw_lock_release(&sw_roce.port.rx_lock);
}

/* Bytes [from, from + len) are those of the packets from `psn` on. */
static void are_there(const uint8_t *from, uint32_t psn, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++)
        for (uint32_t i = 0; i < MTU; i++)
            assert_int_equal(from[n * MTU + i], byte_of(psn + n, i));
}

static void is_untouched(uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        assert_int_equal(rig.bytes[i], 0);
}

/* And has said so: of which packet, and how many messages came before it. */
static void has_failed_at(uint32_t psn, uint8_t syndrome, uint32_t msn)
{
    const uint64_t limit_ns = sw_clock_ns() + 5 * SW_NS_PER_S;
    assert_int_equal(rig.qp->state, IBV_QPS_ERR);
    sw_lock_acquire(&sw_roce.port.rx_lock);
    while (!rig.heard.opcode && sw_clock_ns() < limit_ns)
        sw_port_receive(&sw_roce.port, sw_clock_ns(), true);
    sw_lock_release(&sw_roce.port.rx_lock);
    assert_non_null(rig.heard.opcode);
    assert_int_equal(rig.heard.aeth.syndrome, syndrome);
    assert_int_equal(rig.heard.aeth.msn, msn);
    assert_int_equal(rig.heard.bth.psn, sw_seq_psn(psn));
}

static void deliver__writes_of_one_packet_each(void **state)
{
    (void)state;
    const struct sw_roce_qp *r = link_of(rig.qp);
    arrive(WRITE_ONLY, PACKETS, (uintptr_t)rig.bytes + 100, MTU);
    are_there(rig.bytes + 100, PSN, PACKETS);
    is_untouched(0, 100);
    is_untouched(100 + PACKETS * MTU, REGION);
    assert_int_equal(r->responder.msn, PACKETS);
    assert_int_equal(r->responder.counts.packets, PACKETS);
    assert_int_equal(r->counts.marked, PACKETS);
    assert_int_equal(rig.qp->moved.received_packets, PACKETS);
    assert_int_equal(rig.qp->moved.received_bytes, PACKETS * MTU);
    arrive(WRITE_ONLY, PACKETS, (uintptr_t)rig.bytes, 7); /* another batch, lengths with pad */
    for (uint32_t n = 0; n < PACKETS; n++)
        for (uint32_t i = 0; i < 7; i++)
            assert_int_equal(rig.bytes[n * 7 + i], byte_of(PSN + PACKETS + n, i));
    assert_int_equal(r->responder.msn, 2 * PACKETS);
}

static bool is_amid(void)
{
    sw_lock_acquire(&sw_roce.port.rx_lock);
    const bool amid = sw_roce.amid_until_ns;
    sw_lock_release(&sw_roce.port.rx_lock);
    return amid;
}

/* The engine looks on for the rest of a WRITE. */
static void deliver__more_of_a_write_is_expected_until_an_ack_is_asked_for(void **state)
{
    (void)state;
    const uint64_t addr = (uintptr_t)rig.bytes;
    for (int round = 0; round < 2; round++) {
        const uint32_t count = round ? 1 : 4; /* a run, and a packet by itself */
        arrive(WRITE_ONLY, count, addr, MTU);
        assert_true(is_amid());
        asks = true;
        arrive(WRITE_ONLY, count, addr, MTU);
        assert_false(is_amid());
        arrive(WRITE_ONLY, count, addr, MTU);
        asks = false;
        assert_false(is_amid());
    }
}

/* Where WRITEs of 48 KiB come, be it in parts, the engine stays where its program is. */
static void deliver__long_writes_are_known_until_eight_short_ones_came(void **state)
{
    (void)state;
    const uint64_t addr = (uintptr_t)rig.bytes;
    assert_false(atomic_load(&sw_roce.signs.serves_long));
    for (uint32_t parts = 0; parts < 6; parts++) {
        assert_false(atomic_load(&sw_roce.signs.serves_long));
        arrive(WRITE_ONLY, PACKETS, addr, MTU);
    }
    assert_true(atomic_load(&sw_roce.signs.serves_long));
    asks = true;
    arrive(WRITE_ONLY, 1, addr, MTU); /* its end */
    for (uint32_t shorts = 0; shorts < 8; shorts++) {
        assert_true(atomic_load(&sw_roce.signs.serves_long));
        arrive(WRITE_ONLY, 1, addr, MTU);
    }
    asks = false;
    assert_false(atomic_load(&sw_roce.signs.serves_long));
}

/* Another process on the peer's host, which knows all but the PSN that is expected. */
static void deliver__a_strangers_packets_change_nothing(void **state)
{
    (void)state;
    const struct sw_roce_qp *r = link_of(rig.qp);
    rig.psn = PSN + 1;
    source_port = OTHER_PORT;
    arrive(WRITE_ONLY, 1, (uintptr_t)rig.bytes, MTU);
    assert_false(r->greeted);
    source_port = PEER_PORT;
    rig.psn = PSN;
    arrive(WRITE_ONLY, 2, (uintptr_t)rig.bytes, MTU);
    assert_true(r->greeted);
    static struct sw_responder before;
    before = r->responder;
    const uint64_t marked = r->counts.marked;
    source_port = OTHER_PORT;
    for (uint32_t off = 1; off < 1u << 23; off += 99991)
        for (uint32_t i = 0; i < 2; i++) {
            rig.psn = PSN + 2 + (i ? off : -off);
            arrive(WRITE_ONLY, PACKETS, (uintptr_t)rig.bytes + 2 * MTU, MTU);
        }
    source_port = PEER_PORT;
    assert_memory_equal(&r->responder, &before, sizeof(before));
    assert_int_equal(r->counts.marked, marked);
    assert_int_equal(r->counts.astray, 2 * 84 * PACKETS);
    is_untouched(2 * MTU, REGION);
    rig.psn = PSN + 2;
    arrive(WRITE_ONLY, 2, (uintptr_t)rig.bytes + 2 * MTU, MTU);
    are_there(rig.bytes, PSN, 4);
}

static void deliver__a_run_across_arrivals(void **state)
{
    (void)state;
    arrive(WRITE_FIRST, 1, (uintptr_t)rig.bytes, MTU);
    arrive(WRITE_MIDDLE, 3, 0, MTU);
    arrive(WRITE_MIDDLE, PACKETS - 4, 0, MTU);
    are_there(rig.bytes, PSN, PACKETS);
    is_untouched(PACKETS * MTU, REGION);
    assert_int_equal(link_of(rig.qp)->responder.msn, 0);
    assert_int_equal(rig.qp->state, IBV_QPS_RTR);
}

/* The packets within the region are written, the one that is not is refused, the rest lost. */
static void deliver__a_run_that_leaves_the_region(void **state)
{
    (void)state;
    struct sw_netdev *dev = sw_context_netdev(rig.ctx);
    const uint64_t dropped = sw_counter_read(dev, SW_RX_DROP_NO_QP);
    const uint32_t within = 5, at = REGION - within * MTU - MTU / 2;
    arrive(WRITE_ONLY, PACKETS, (uintptr_t)rig.bytes + at, MTU);
    are_there(rig.bytes + at, PSN, within);
    is_untouched(0, at);
    is_untouched(at + within * MTU, sizeof(rig.bytes));
    has_failed_at(PSN + within, NAK_ACCESS, within);
    assert_int_equal(rig.qp->moved.received_packets, within);
    assert_int_equal(sw_counter_read(dev, SW_RX_DROP_NO_QP), dropped + PACKETS - within - 1);
}

static void deliver__a_run_longer_than_its_message(void **state)
{
    (void)state;
    arrive(WRITE_FIRST, 1, (uintptr_t)rig.bytes, MTU);
    arrive(WRITE_MIDDLE, PACKETS, 0, MTU); /* the message is full, one of them was its last */
    assert_int_equal(rig.qp->state, IBV_QPS_RTR);
    arrive(WRITE_MIDDLE, 2, 0, MTU);
    are_there(rig.bytes, PSN, PACKETS + 1);
    is_untouched((PACKETS + 1) * MTU, REGION);
    has_failed_at(PSN + PACKETS + 1, NAK_INVALID, 0);
}

static void post_recv(uint32_t len_bytes)
{
    const uint32_t key = sw_mr_key(rig.mr);
    struct ibv_sge sges[3] = {{(uintptr_t)rig.bytes + 8, 100, key}, /* both in one piece */
                              {(uintptr_t)rig.bytes + 108, 1000, key},
                              {(uintptr_t)rig.bytes + 1108, len_bytes - 1100, key}};
    struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = sges, .num_sge = 3}, *bad;
    assert_int_equal(sw_qp_post_recv(rig.qp, &wr, &bad), 0);
}

static void deliver__the_middle_of_a_send(void **state)
{
    (void)state;
    struct ibv_wc wc;
    post_recv(REGION - 8);
    arrive(SEND_FIRST, 1, 0, MTU);
    arrive(SEND_MIDDLE, PACKETS, 0, MTU);
    assert_int_equal(sw_cq_poll(rig.cq, 1, &wc), 0);
    arrive(SEND_LAST, 1, 0, MTU);
    assert_int_equal(sw_cq_poll(rig.cq, 1, &wc), 1);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.byte_len, (PACKETS + 2) * MTU);
    are_there(rig.bytes + 8, PSN, PACKETS + 2);
    is_untouched(8 + (PACKETS + 2) * MTU, REGION);
}

static void deliver__a_send_longer_than_its_receive(void **state)
{
    (void)state;
    struct ibv_wc wc;
    const uint32_t fits = 4;
    post_recv(fits * MTU + MTU / 2);
    arrive(SEND_FIRST, 1, 0, MTU);
    arrive(SEND_MIDDLE, PACKETS, 0, MTU);
    are_there(rig.bytes + 8, PSN, fits);
    is_untouched(8 + fits * MTU, REGION);
    has_failed_at(PSN + fits, NAK_INVALID, 0);
    assert_int_equal(sw_cq_poll(rig.cq, 1, &wc), 1);
    assert_int_equal(wc.status, IBV_WC_LOC_LEN_ERR);
}

/* A WRITE of one packet to a queue pair, through the port's sockets. */
static void send_write(struct sw_qp *qp, struct sw_batch *batch, uint64_t addr)
{
    enum { LEN = 8 };
    struct iovec piece = {"writable", LEN};
    uint8_t header[SW_HEADERS_MAX];
    const struct sw_packet packet = {
        .bth = {.opcode = WRITE_ONLY,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = qp->qpn,
                .ack_req = true,
                .psn = PSN},
        .reth = {.addr = addr, .rkey = sw_mr_key(rig.mr), .len_bytes = LEN},
        .payload_len = LEN,
    };
    sw_lock_acquire(&qp->lock);
    const struct sw_roce_path path = link_of(qp)->path;
    sw_lock_release(&qp->lock);
    const struct sw_outgoing out = {
        .path = &path,
        .header = header,
        .header_bytes = (uint32_t)sw_packet_encode_headers(&packet, header, sizeof(header)),
        .pieces = &piece,
        .piece_count = 1,
        .payload_bytes = LEN,
    };
    sw_batch_add(batch, &out);
}

static void deliver__acks_of_several_queue_pairs_share_a_message(void **state)
{
    struct sw_port *port = &sw_roce.port;
    struct sw_qp *first = rig.qp;
    assert_int_equal(connect_qp(state), 0);
    struct sw_qp *second = rig.qp;
    rig.qp = first;
    link_of(second)->path = link_of(first)->path; /* they happen to have one source port */
    sw_lock_acquire(&port->rx_lock);
    port->deliver = sw_roce_deliver;
    sw_lock_release(&port->rx_lock);
    const uint64_t messages = sw_port_counter(port, SW_PORT_TX_BATCHES);
    const uint64_t packets = sw_port_counter(port, SW_PORT_TX_PACKETS);
    struct sw_batch *batch = sw_batch_open(port);
    send_write(first, batch, (uintptr_t)rig.bytes);
    send_write(second, batch, (uintptr_t)rig.bytes + 8);
    sw_batch_close(batch);
    const uint64_t limit_ns = sw_clock_ns() + 5 * SW_NS_PER_S;
    while (sw_port_counter(port, SW_PORT_TX_PACKETS) < packets + 4 && sw_clock_ns() < limit_ns)
        sw_roce_poll(true);
    assert_memory_equal(rig.bytes, "writablewritable", 16);
    assert_int_equal(sw_port_counter(port, SW_PORT_TX_PACKETS), packets + 4);
    assert_int_equal(sw_port_counter(port, SW_PORT_TX_BATCHES), messages + 2);
    assert_int_equal(sw_qp_destroy(second), 0);
}

static void make_ready_to_send(uint8_t timeout)
{
    struct ibv_qp_attr attr = {
        .timeout = timeout, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    modify(&attr, IBV_QPS_RTS,
           IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC);
}

static void post_write(void)
{
    struct ibv_sge sge = {(uintptr_t)rig.bytes, 8, sw_mr_key(rig.mr)};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    assert_int_equal(sw_qp_post_send(rig.qp, &wr, &bad), 0);
}

/* Else those of another thread could overtake them. Only answers are gathered. */
static void emit__requests_leave_before_their_queue_pair_is_unlocked(void **state)
{
    (void)state;
    struct sw_port *port = &sw_roce.port;
    make_ready_to_send(14);
    sw_lock_acquire(&port->rx_lock);
    const uint64_t before = sw_port_counter(port, SW_PORT_TX_PACKETS);
    sw_batch_gather(port);
    post_write();
    const uint64_t after = sw_port_counter(port, SW_PORT_TX_PACKETS);
    sw_batch_gather_end();
    sw_lock_release(&port->rx_lock);
    assert_int_equal(after, before + 1);
}

/* A queue pair that waits for its peer is looked at by nobody until its timer runs out. */
static void timers__drive_a_queue_pair_at_rest(void **state)
{
    (void)state;
    const struct sw_requester *requester = &link_of(rig.qp)->requester;
    make_ready_to_send(1);
    post_write();
    uint64_t packets = 0;
    for (int i = 0; i < 5000 && packets < 2; i++) { /* the engine's doing: nobody polls */
        usleep(1000);
        sw_lock_acquire(&rig.qp->lock);
        if (!requester->flight.lost_count)
            assert_true(rig.qp->rests);
        packets = requester->counts.packets;
        sw_lock_release(&rig.qp->lock);
    }
    assert_true(packets >= 2); /* sent again, more than once if this thread had no processor */
    modify(&(struct ibv_qp_attr){0}, IBV_QPS_ERR, 0);
    assert_false(rig.qp->rests);
}

int main(void)
{
    if (namespace_enter(CLONE_NEWNET)) {
        print_message("SKIP: no network namespace of our own\n");
        return 77;
    }
#define WITH_QP(function) cmocka_unit_test_setup_teardown(function, connect_qp, drop_qp)
    const struct CMUnitTest tests[] = {
        WITH_QP(deliver__writes_of_one_packet_each),
        WITH_QP(deliver__more_of_a_write_is_expected_until_an_ack_is_asked_for),
        WITH_QP(deliver__long_writes_are_known_until_eight_short_ones_came),
        WITH_QP(deliver__a_strangers_packets_change_nothing),
        WITH_QP(deliver__a_run_across_arrivals),
        WITH_QP(timers__drive_a_queue_pair_at_rest),
        WITH_QP(emit__requests_leave_before_their_queue_pair_is_unlocked),
        WITH_QP(deliver__acks_of_several_queue_pairs_share_a_message),
        WITH_QP(deliver__a_run_that_leaves_the_region),
        WITH_QP(deliver__a_run_longer_than_its_message),
        WITH_QP(deliver__the_middle_of_a_send),
        WITH_QP(deliver__a_send_longer_than_its_receive),
    };
    return cmocka_run_group_tests(tests, open_nic, close_nic);
}
