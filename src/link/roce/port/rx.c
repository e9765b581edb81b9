/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets in: from the sockets, through the ICRC, to this process or to the one they are for. */
#include "link/roce/port/rx.h"

#include <assert.h>
#include <errno.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "device/nic/netdev.h"
#include "device/queue/counters.h"
#include "device/rules/pub.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/mad_slot.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/rx_batch.h"
#include "link/roce/port/rx_buffers.h"
#include "link/roce/port/rx_lone.h"
#include "link/roce/port/rx_socket.h"
#include "link/roce/port/share.h"
#include "link/roce/port/socket.h"
#include "link/roce/port/stream.h"
#include "wire/bytes.h"
#include "wire/joint.h"
#include "wire/opcode.h"
#include "wire/run.h"

#define INTAKE_BYTES \
    (512u << 10) /* about what one call should bring: it is read again from cache */
#define HOT_NS (20 * SW_NS_PER_MS) /* a socket silent for longer is looked at less often */
#define COLD_POLLS 64u

#define STREAM_CALLS 3u /* in a row that got all they asked for: the next asks for more */

#define ROUNDS 16u /* of emptying a socket */

static_assert(SW_RX_BUFFERS_ROOM >= SW_HANDED_BYTES, "one message of another process");

struct sw_port_intake {
    struct sw_rx_buffers udp, handed;
    uint32_t handed_count; /* messages that wait until the port's own sockets are empty */
};

int sw_port_open_intake(struct sw_port *port)
{
    port->intake = calloc(1, sizeof(*port->intake));
    if (!port->intake)
        return -ENOMEM;
    if (!sw_rx_buffers_open(&port->intake->udp) || !sw_rx_buffers_open(&port->intake->handed)) {
        sw_port_close_intake(port);
        return -ENOMEM;
    }
    port->intake->handed.control_bytes = CMSG_SPACE(sizeof(struct ucred)); /* and nothing more */
    return 0;
}

void sw_port_close_intake(struct sw_port *port)
{
    if (!port->intake)
        return;
    sw_rx_buffers_close(&port->intake->udp);
    sw_rx_buffers_close(&port->intake->handed);
    free(port->intake);
    port->intake = NULL;
}

/* The process that a packet is for. Some are nobody's: a MAD that asks for a connection, the
 * multicast QP's. The process that gets such a packet keeps it. */
static uint32_t rx_slot_of(const struct sw_port *port, const uint8_t *packet, uint32_t len_bytes)
{
    if (len_bytes < SW_BTH_BYTES)
        return port->slot; /* malformed: counted below */
    uint32_t slot = sw_qpn_slot(sw_be24_load(packet + 5));
    if (slot < 1)
        slot = sw_roce_mad_packet_slot(packet, len_bytes);
    return slot < 1 || slot > SW_SLOT_MAX ? port->slot : slot;
}

void sw_port_refuse_damaged(struct sw_port *port, const struct sw_arrival *arrival)
{
    sw_port_count(port, SW_PORT_RX_BAD_ICRC, 1);
    sw_counter_add(sw_roce_device_at(&arrival->dest), SW_ICRC_ERROR);
}

/* Counts what only who receives counts. Without an atomic instruction, each of which would wait for
 * all stores before it. */
static void count_received(struct sw_port *port, enum sw_port_counter counter, uint64_t more)
{
    sw_lock_assert_held(&port->rx_lock);
    _Atomic uint64_t *count = &port->counters[counter];
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

/* Splits a batch into runs for its receivers: what is the same for all its packets, and those that
 * were found good and are not delivered yet. */
struct splitter {
    struct sw_port *port;
    struct sw_icrc_flow flow; /* len 0: not known yet */
    struct sw_icrc_prefix prefix;
    struct sw_arrival run; /* count 0: none */
    uint16_t first_id;     /* as it seems: of the batch's first packet */
    uint16_t *next_id;     /* of the flow's next batch */
    uint32_t delivered;
    bool is_known; /* some were from a sender that is */
};

/* Where the guess is kept. Flows that share a place only guess wrong. */
static uint16_t *id_of_flow(struct sw_port *port, const struct sw_arrival *arrival)
{
    return &port->next_ids[(arrival->source.s6_addr[15] ^ arrival->source_port) % SW_PORT_GUESSES];
}

static void open_splitter(struct splitter *split, struct sw_port *port,
                          const struct sw_rx_batch *batch)
{
    split->port = port;
    split->flow.len = 0;
    split->next_id = id_of_flow(port, &batch->arrival);
    split->first_id = *split->next_id;
    split->run = batch->arrival;
    split->run.count = split->delivered = 0;
    split->is_known = false;
}

/* The packets that came in one. */
static bool deliver_joint(const struct splitter *split)
{
    const struct sw_arrival *joint = &split->run;
    struct sw_arrival each = *joint;
    bool is_known = false;
    if (!sw_joint_is_sound(joint->bytes, joint->len_bytes)) {
        sw_port_count(split->port, SW_PORT_RX_MALFORMED, 1);
        return false;
    }
    for (uint32_t at = 0;
         sw_joint_next(joint->bytes, joint->len_bytes, &at, &each.bytes, &each.len_bytes);)
        is_known |= split->port->deliver(split->port->arg, &each);
    return is_known;
}

static void rx_deliver_run(struct splitter *split)
{
    if (!split->run.count)
        return;
    split->is_known |= sw_joint_is(split->run.bytes)
                           ? deliver_joint(split)
                           : split->port->deliver(split->port->arg, &split->run);
    split->delivered += split->run.count;
    split->run.count = 0;
}

/* The kernel gives IDs in the order of segments, ours at least; any other is as good. */
static bool rx_is_intact(struct splitter *split, const uint8_t *bytes, uint32_t len_bytes,
                         uint32_t index)
{
    const struct sw_arrival *run = &split->run;
    struct sw_port *port = split->port;
    struct sw_ip_id ip_id = {.id = (uint16_t)(split->first_id + index), .dont_fragment = true};
    if (!split->flow.len) {
        sw_roce_icrc(&run->source, &run->dest, run->source_port, port->udp_port, &split->flow);
        memset(&split->prefix, 0, sizeof(split->prefix));
    }
    if (!sw_icrc_check(&split->flow, &split->prefix, bytes, len_bytes, &port->rewind, &ip_id))
        return false;
    split->first_id = (uint16_t)(ip_id.id - index);
    /* A connected socket counts messages (connected_sender.h); others begin each at 0. */
    *split->next_id = split->first_id ? (uint16_t)(split->first_id + 1) : 0;
    return true;
}

/* Whether the next packet, of the same length, continues the run. */
static bool run_goes_on(const struct splitter *split, const uint8_t *bytes)
{
    const struct sw_arrival *run = &split->run;
    return run->count && sw_packet_follows(bytes - run->len_bytes, bytes, run->len_bytes);
}

/* The packet with this index in its batch. `goes_on`: it continues the run. */
static void rx_take_packet(struct splitter *split, const uint8_t *bytes, uint32_t len_bytes,
                           uint32_t index, bool goes_on)
{
    if (!goes_on)
        rx_deliver_run(split);
    if (len_bytes < SW_BTH_BYTES + SW_ICRC_BYTES || len_bytes % 4) {
        sw_port_count(split->port, SW_PORT_RX_MALFORMED, 1);
        return;
    }
    if (!rx_is_intact(split, bytes, len_bytes, index)) {
        rx_deliver_run(split);
        sw_port_refuse_damaged(split->port, &split->run);
        return;
    }
    if (!goes_on) {
        split->run.bytes = bytes;
        split->run.len_bytes = len_bytes;
    }
    split->run.count++;
}

/* Packets [from, to) of a batch, which are for one process, if it is another. */
static void rx_hand_on(struct sw_port *port, const struct sw_rx_batch *batch, uint32_t slot,
                       uint32_t from, uint32_t to)
{
    struct sw_rx_batch run = *batch;
    run.bytes += from;
    run.len_bytes = to - from;
    if (slot == port->slot || to == from)
        return;
    sw_share_hand_on(port, slot, &run);
    sw_share_note_other(port, &batch->arrival, sw_clock_ns());
}

/* Whether a packet is a request for the same queue pair as another, which is long enough. */
static bool is_request_beside(const uint8_t *packet, const uint8_t *other)
{
    const struct sw_opcode *opcode = sw_opcode_of(packet[0]);
    return opcode && opcode->is_request && memcmp(packet + 5, other + 5, 3) == 0;
}

/* Where the ACK begins that ends a batch of requests, all of the same queue pair's; 0: there is
 * none. It was ready before they were, and stands behind them only because it is shorter
 * (delayed_ack.c). */
static uint32_t find_ack(const struct sw_port *port, const struct sw_rx_batch *batch, uint32_t step)
{
    if (batch->len_bytes <= step || step < SW_BTH_BYTES)
        return 0;
    const uint32_t at = (batch->len_bytes - 1) / step * step, len = batch->len_bytes - at;
    const struct sw_opcode *last = sw_opcode_of(batch->bytes[at]);
    if (len < SW_BTH_BYTES || !last || last->kind != SW_PACKET_ACK ||
        rx_slot_of(port, batch->bytes + at, len) != port->slot)
        return 0;
    for (uint32_t before = 0; before < at; before += step)
        if (!is_request_beside(batch->bytes + before, batch->bytes + at))
            return 0;
    return at;
}

uint32_t sw_port_take_batch(struct sw_port *port, const struct sw_rx_batch *batch, bool *is_known)
{
    const uint32_t step = batch->segment_bytes ? batch->segment_bytes : batch->len_bytes;
    const uint32_t ack_at = find_ack(port, batch, step), end = ack_at ? ack_at : batch->len_bytes;
    uint32_t from = 0, from_slot = port->slot; /* those that are for the same process */
    struct splitter split;
    open_splitter(&split, port, batch);
    if (!batch->len_bytes)
        sw_port_count(port, SW_PORT_RX_MALFORMED, 1);
    if (ack_at)
        rx_take_packet(&split, batch->bytes + ack_at, batch->len_bytes - ack_at, ack_at / step,
                       false);
    rx_deliver_run(&split);
    for (uint32_t index = 0, at = 0; at < end; index++, at += step) {
        const uint8_t *bytes = batch->bytes + at;
        const uint32_t len = sw_min_u32(end - at, step);
        if (len == step && run_goes_on(&split, bytes)) { /* and has the same receiver */
            rx_take_packet(&split, bytes, len, index, true);
            continue;
        }
        uint32_t slot = rx_slot_of(port, bytes, len);
        if (slot != from_slot) {
            rx_hand_on(port, batch, from_slot, from, at);
            from = at;
            from_slot = slot;
        }
        if (slot == port->slot)
            rx_take_packet(&split, bytes, len, index, false);
        else
            rx_deliver_run(&split);
    }
    rx_deliver_run(&split);
    rx_hand_on(port, batch, from_slot, from, end);
    count_received(port, SW_PORT_RX_PACKETS, split.delivered);
    count_received(port, SW_PORT_RX_BYTES, batch->len_bytes);
    count_received(port, SW_PORT_RX_BATCHES, 1);
    *is_known = split.is_known;
    return split.delivered;
}

void sw_port_take_mads(struct sw_port *port, const uint8_t *message, uint32_t len_bytes)
{
    struct sw_handed handed;
    for (uint32_t at = 0, used; at < len_bytes; at += used) {
        used = sw_share_parse(message + at, len_bytes - at, &handed);
        if (!used)
            break;
        const struct sw_rx_batch *batch = &handed.batch;
        const uint32_t step = batch->segment_bytes ? batch->segment_bytes : batch->len_bytes;
        if (handed.kind != SW_HANDED_PACKETS || !sw_roce_is_mad(batch->bytes, batch->len_bytes))
            continue;
        struct splitter split;
        open_splitter(&split, port, batch);
        for (uint32_t from = 0, index = 0; from < batch->len_bytes; from += step, index++)
            rx_take_packet(&split, batch->bytes + from, sw_min_u32(batch->len_bytes - from, step),
                           index, false);
        rx_deliver_run(&split);
    }
}

static void rx_read_control(struct msghdr *message, struct sw_rx_batch *batch)
{
    struct sw_arrival *arrival = &batch->arrival;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        int value = 0;
        memcpy(&value, CMSG_DATA(at),
               at->cmsg_len < CMSG_LEN(sizeof(int)) ? at->cmsg_len - CMSG_LEN(0) : sizeof(int));
        if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(at), sizeof(info));
            memset(&arrival->dest, 0, 10);
            arrival->dest.s6_addr[10] = arrival->dest.s6_addr[11] = 0xff;
            memcpy(arrival->dest.s6_addr + 12, &info.ipi_addr, 4);
            arrival->ifindex = (uint32_t)info.ipi_ifindex;
        } else if (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(at), sizeof(info));
            arrival->dest = info.ipi6_addr;
            arrival->ifindex = info.ipi6_ifindex;
        } else if ((at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TOS) ||
                   (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_TCLASS)) {
            arrival->traffic_class = (uint8_t)value;
        } else if ((at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TTL) ||
                   (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_HOPLIMIT)) {
            arrival->hop_limit = (uint8_t)value;
        } else if (at->cmsg_level == IPPROTO_UDP && at->cmsg_type == UDP_GRO) {
            batch->segment_bytes = (uint32_t)value;
        }
    }
}

/* How many messages one call should ask for at most. */
static uint32_t messages_max(const struct sw_rx_socket *rx)
{
    uint32_t mean = rx->bytes_mean ? rx->bytes_mean : 1;
    uint32_t count = INTAKE_BYTES / mean;
    return count < 2 ? 2 : count > SW_RX_BUFFERS_MESSAGES ? SW_RX_BUFFERS_MESSAGES : count;
}

/* A call that finds no second message costs as much as one that finds none at all. So it asks for
 * one message, until they come faster than they are taken. An answer and an ACK that follow each
 * other are not yet a stream. */
static uint32_t next_want(struct sw_rx_socket *rx, uint32_t want, int count)
{
    const uint32_t most = messages_max(rx);
    rx->full = count > 0 && (uint32_t)count == want ? rx->full + 1 : 0;
    if (count <= 0)
        return 1;
    want = rx->full >= STREAM_CALLS ? 2 * want : want;
    return sw_min_u32(want, most);
}

/* Whether a message handed on is from a process of this user. */
static bool rx_is_ours(struct msghdr *message)
{
    struct cmsghdr *at = CMSG_FIRSTHDR(message);
    struct ucred from;
    if (!at || at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_CREDENTIALS)
        return false;
    memcpy(&from, CMSG_DATA(at), sizeof(from));
    return from.uid == geteuid();
}

static uint32_t rx_take_message(struct sw_port *port, struct msghdr *message, uint32_t len_bytes,
                                uint64_t now_ns)
{
    const uint8_t *bytes = message->msg_iov->iov_base;
    uint32_t delivered = 0;
    struct sw_handed handed;
    for (uint32_t at = 0, used; rx_is_ours(message) && at < len_bytes; at += used) {
        used = sw_share_parse(bytes + at, len_bytes - at, &handed);
        if (!used || !sw_share_is_of(message, handed.slot))
            break;
        uint32_t taken = 0;
        bool is_known = false;
        switch (handed.kind) {
        case SW_HANDED_PACKETS:
            taken = sw_port_take_batch(port, &handed.batch, &is_known);
            break;
        case SW_HANDED_ASK:
            sw_share_answer(port, &handed);
            break;
        case SW_HANDED_DONE:
            sw_share_settle(port, &handed, now_ns);
            break;
        }
        /* MADs are few, and those of one flow may be for several processes. A stranger's packets
         * cost no socket. */
        if (is_known && !sw_roce_is_mad(handed.batch.bytes, handed.batch.len_bytes))
            sw_share_connect(port, &handed.batch.arrival, handed.slot, now_ns);
        delivered += taken;
    }
    sw_port_count(port, SW_PORT_RX_TAKEN_OVER, delivered);
    return delivered;
}

/* What other processes had to say. */
static uint32_t rx_take_handed(struct sw_port *port, uint64_t now_ns)
{
    struct sw_rx_buffers *buffers = &port->intake->handed;
    uint32_t delivered = 0;
    for (uint32_t i = 0; i < port->intake->handed_count; i++)
        delivered += rx_take_message(port, &buffers->messages[i].msg_hdr,
                                     buffers->messages[i].msg_len, now_ns);
    port->intake->handed_count = 0;
    return delivered;
}

/* Whether all that comes is of the flow: a socket is bound before it is connected, and may have got
 * something of others meanwhile. */
static bool is_of_flow(const struct sw_rx_socket *rx)
{
    return rx->kind == SW_RX_SOCKET_CONNECTED && rx->is_pure;
}

/* What is the same for all packets of a flow. */
static void take_flow(const struct sw_rx_socket *rx, struct sw_arrival *arrival)
{
    arrival->dest = rx->local;
    arrival->ifindex = rx->ifindex;
    arrival->hop_limit = rx->hop_limit;
    arrival->traffic_class = rx->traffic_class;
}

/* The program is told the class of a datagram. */
static bool rx_is_datagram(const struct sw_rx_batch *batch)
{
    const struct sw_opcode *opcode = batch->len_bytes ? sw_opcode_of(batch->bytes[0]) : NULL;
    return opcode && opcode->service == SW_SERVICE_UD;
}

static bool is_alone(const struct sw_rx_socket *rx, const struct sw_rx_batch *batch)
{
    return rx->want == 1 && !batch->segment_bytes && !rx_is_datagram(batch) &&
           !sw_arrival_is_marked(&batch->arrival);
}

/* A message has come from a socket of one flow: whether its packets come alone. */
static void note_lone(struct sw_rx_socket *rx, const struct sw_rx_batch *batch, uint64_t now_ns)
{
    const bool alone = is_alone(rx, batch);
    rx->traffic_class = batch->arrival.traffic_class;
    if (!rx->lone.is_on)
        sw_rx_lone_note(&rx->lone, alone, now_ns);
    else if (sw_rx_lone_ends(&rx->lone, alone, now_ns))
        sw_socket_tell_runs(rx->fd, sw_roce_is_ipv4(&rx->remote));
}

static void try_lone(struct sw_rx_socket *rx, uint64_t now_ns)
{
    if (!rx->lone.is_on && is_of_flow(rx) && sw_rx_lone_may_begin(&rx->lone, now_ns))
        sw_rx_lone_tried(&rx->lone, sw_socket_tell_bytes_only(rx->fd, sw_roce_is_ipv4(&rx->remote)),
                         now_ns);
}

/* `from`: as the kernel has told it; NULL: it was not asked. */
static void take_source(const struct sw_rx_socket *rx, const struct sockaddr_in6 *from,
                        struct sw_arrival *arrival)
{
    if (from) {
        sw_roce_address(from, &arrival->source, &arrival->source_port);
    } else {
        arrival->source = rx->remote;
        arrival->source_port = rx->remote_port;
    }
}

/* Reads from a UDP socket once. *more: there may be more. */
static uint32_t read_socket(struct sw_port *port, struct sw_rx_socket *rx, uint64_t now_ns,
                            bool *more)
{
    uint32_t delivered = 0, want = rx->want ? rx->want : 1;
    struct sw_rx_buffers *buffers = &port->intake->udp;
    const bool names = !is_of_flow(rx);
    int count = rx->lone.is_on ? sw_rx_buffers_fill_bytes(buffers, rx->fd)
                               : sw_rx_buffers_fill(buffers, rx->fd, want, names);
    rx->want = next_want(rx, want, count);
    *more = count > 0 && (uint32_t)count == want;
    if (count <= 0) {
        rx->is_pure |= names && errno == EAGAIN;
        try_lone(rx, now_ns);
        return 0;
    }
    rx->heard_ns = now_ns;
    uint64_t bytes = 0;
    bool is_known;
    for (uint32_t i = 0; i < (uint32_t)count; i++) {
        struct sw_rx_batch batch = {.bytes = sw_rx_buffers_bytes(buffers, i),
                                    .len_bytes = sw_rx_buffers_len(buffers, i),
                                    .arrival = {.hold = sw_rx_buffers_hold(buffers, i)}};
        bytes += batch.len_bytes;
        take_source(rx, names ? &buffers->from[i].ip : NULL, &batch.arrival);
        if (rx->kind == SW_RX_SOCKET_CONNECTED)
            take_flow(rx, &batch.arrival);
        rx_read_control(&buffers->messages[i].msg_hdr, &batch);
        delivered += sw_port_take_batch(port, &batch, &is_known);
        if (rx->kind == SW_RX_SOCKET_CONNECTED)
            note_lone(rx, &batch, now_ns);
        if (rx->kind == SW_RX_SOCKET_UDP && is_known)
            sw_share_note(port, &batch.arrival, now_ns);
        sw_rx_buffers_pass(buffers, i);
    }
    rx->bytes_mean = (rx->bytes_mean + (uint32_t)(bytes / (uint32_t)count)) / 2;
    return delivered;
}

/* Packets of one flow that were handed on are younger than those that wait in the port's own
 * sockets by now. So what was handed on is read first, then the sockets are emptied, and only then
 * it is delivered. */
static void rx_read_handed(struct sw_port *port, struct sw_rx_socket *rx, uint64_t now_ns)
{
    struct sw_port_intake *intake = port->intake;
    if (intake->handed_count)
        return;
    int count = sw_rx_buffers_fill(&intake->handed, rx->fd, SW_RX_BUFFERS_MESSAGES, true);
    if (count <= 0)
        return;
    intake->handed_count = (uint32_t)count;
    rx->heard_ns = now_ns;
}

static bool is_hot(const struct sw_rx_socket *rx, uint64_t now_ns)
{
    return now_ns < rx->heard_ns + HOT_NS; /* which may be later than now */
}

uint32_t sw_port_receive(struct sw_port *port, uint64_t now_ns, bool all)
{
    sw_lock_assert_held(&port->rx_lock);
    uint32_t delivered = 0;
    bool left = false;
    all |= port->polls++ % COLD_POLLS == 0;
    port->due_ns = UINT64_MAX;
    for (uint32_t i = 0; i < port->rx_socket_count; i++)
        if (port->rx_sockets[i].kind == SW_RX_SOCKET_HANDED &&
            (all || is_hot(&port->rx_sockets[i], now_ns)))
            rx_read_handed(port, &port->rx_sockets[i], now_ns);
    const bool waits = port->intake->handed_count;
    for (uint32_t i = 0; i < port->rx_socket_count; i++) {
        struct sw_rx_socket *rx = &port->rx_sockets[i];
        const bool empties = waits && rx->kind != SW_RX_SOCKET_HANDED;
        if (rx->kind == SW_RX_SOCKET_HANDED || !(all || empties || is_hot(rx, now_ns)) ||
            !sw_share_is_settled(port, rx, now_ns))
            continue;
        bool more = true;
        for (uint32_t round = 0; more && round < ROUNDS; round++) {
            delivered += read_socket(port, rx, now_ns, &more);
            if (!empties && !(all && rx->want < messages_max(rx)))
                break;
        }
        left |= more;
        if (!more && rx->kind == SW_RX_SOCKET_UDP)
            sw_share_note_empty(port, rx, now_ns);
    }
    if (waits)
        delivered += rx_take_handed(port, now_ns);
    if (__builtin_expect(port->streams != NULL, 0))
        delivered += sw_streams_receive(port, now_ns, &left);
    port->full_rounds = left ? port->full_rounds + 1 : 0;
    sw_share_flush(port);
    return delivered;
}

bool sw_port_is_drained(const struct sw_port *port)
{
    return port->full_rounds == 0 || port->full_rounds > ROUNDS;
}
