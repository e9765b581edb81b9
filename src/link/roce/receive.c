/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets in: from the sockets, through the ICRC, to this process or to the one they are for. */
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
#include "device/nic/netdev.h"
#include "device/queue/counters.h"
#include "device/rules/pub.h"
#include "link/roce/mad.h"
#include "link/roce/mailbag.h"
#include "link/roce/socket.h"
#include "wire/bytes.h"
#include "wire/run.h"

#define INTAKE_BYTES \
    (512u << 10) /* about what one call should bring: it is read again from cache */
#define HOT_NS (20 * SW_NS_PER_MS) /* a socket silent for longer is looked at less often */
#define COLD_POLLS 64u

#define ROUNDS 16u /* of emptying a socket */

static_assert(SW_MAILBAG_ROOM >= SW_HANDED_BYTES, "one message of another process");

struct sw_port_intake {
    struct sw_mailbag udp, handed;
    uint32_t handed_count; /* messages that wait until the port's own sockets are empty */
};

int sw_port_open_intake(struct sw_port *port)
{
    port->intake = calloc(1, sizeof(*port->intake));
    if (!port->intake)
        return -ENOMEM;
    if (!sw_mailbag_open(&port->intake->udp) || !sw_mailbag_open(&port->intake->handed)) {
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
    sw_mailbag_close(&port->intake->udp);
    sw_mailbag_close(&port->intake->handed);
    free(port->intake);
    port->intake = NULL;
}

/* The process that a packet is for. Some are nobody's: a MAD that asks for a connection, the
 * multicast QP's. Who gets such a packet keeps it. */
static uint32_t slot_of(const struct sw_port *port, const uint8_t *packet, uint32_t len_bytes)
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

/* On the way from a haul to its receivers: what is the same for all its packets, and those that
 * were found good and are not delivered yet. */
struct sieve {
    struct sw_port *port;
    struct sw_icrc_flow flow; /* len 0: not known yet */
    struct sw_icrc_stem stem;
    struct sw_arrival run; /* count 0: none */
    uint16_t first_id;     /* as it seems: of the haul's first packet */
    uint16_t *next_id;     /* of the flow's next haul */
    uint32_t delivered;
    bool is_known; /* some were from a sender that is */
};

/* Where the guess is kept. Flows that share a place only guess wrong. */
static uint16_t *id_of_flow(struct sw_port *port, const struct sw_arrival *arrival)
{
    return &port->next_ids[(arrival->source.s6_addr[15] ^ arrival->source_port) % SW_PORT_GUESSES];
}

static void sieve_open(struct sieve *sieve, struct sw_port *port, const struct sw_haul *haul)
{
    sieve->port = port;
    sieve->flow.len = 0;
    sieve->next_id = id_of_flow(port, &haul->arrival);
    sieve->first_id = *sieve->next_id;
    sieve->run = haul->arrival;
    sieve->run.count = sieve->delivered = 0;
    sieve->is_known = false;
}

static void sieve_empty(struct sieve *sieve)
{
    if (!sieve->run.count)
        return;
    sieve->is_known |= sieve->port->deliver(sieve->port->arg, &sieve->run);
    sieve->delivered += sieve->run.count;
    sieve->run.count = 0;
}

/* The kernel gives IDs in the order of segments, ours at least; any other is as good. */
static bool is_intact(struct sieve *sieve, const uint8_t *bytes, uint32_t len_bytes, uint32_t index)
{
    const struct sw_arrival *run = &sieve->run;
    struct sw_port *port = sieve->port;
    struct sw_ip_id ip_id = {.id = (uint16_t)(sieve->first_id + index), .dont_fragment = true};
    if (!sieve->flow.len) {
        sw_roce_icrc(&run->source, &run->dest, run->source_port, port->udp_port, &sieve->flow);
        memset(&sieve->stem, 0, sizeof(sieve->stem));
    }
    if (!sw_icrc_check(&sieve->flow, &sieve->stem, bytes, len_bytes, &port->rewind, &ip_id))
        return false;
    sieve->first_id = (uint16_t)(ip_id.id - index);
    /* A connected socket counts messages (outlet.h); others begin each at 0. */
    *sieve->next_id = sieve->first_id ? (uint16_t)(sieve->first_id + 1) : 0;
    return true;
}

/* Whether the next packet, of the same length, continues the run. */
static bool sieve_goes_on(const struct sieve *sieve, const uint8_t *bytes)
{
    const struct sw_arrival *run = &sieve->run;
    return run->count && sw_packet_follows(bytes - run->len_bytes, bytes, run->len_bytes);
}

/* The packet with this index in its haul. `goes_on`: it continues the run. */
static void sift(struct sieve *sieve, const uint8_t *bytes, uint32_t len_bytes, uint32_t index,
                 bool goes_on)
{
    if (!goes_on)
        sieve_empty(sieve);
    if (len_bytes < SW_BTH_BYTES + SW_ICRC_BYTES || len_bytes % 4) {
        sw_port_count(sieve->port, SW_PORT_RX_MALFORMED, 1);
        return;
    }
    if (!is_intact(sieve, bytes, len_bytes, index)) {
        sieve_empty(sieve);
        sw_port_refuse_damaged(sieve->port, &sieve->run);
        return;
    }
    if (!goes_on) {
        sieve->run.bytes = bytes;
        sieve->run.len_bytes = len_bytes;
    }
    sieve->run.count++;
}

/* Packets [from, to) of a haul, which are for one process, if it is another. */
static void hand_on(struct sw_port *port, const struct sw_haul *haul, uint32_t slot, uint32_t from,
                    uint32_t to)
{
    struct sw_haul run = *haul;
    run.bytes += from;
    run.len_bytes = to - from;
    if (slot == port->slot || to == from)
        return;
    sw_share_hand_on(port, slot, &run);
    sw_share_note_other(port, &haul->arrival, sw_clock_ns());
}

/* Whether a packet is a request for the same queue pair as another, which is long enough. */
static bool is_request_beside(const uint8_t *packet, const uint8_t *other)
{
    const struct sw_opcode *opcode = sw_opcode_of(packet[0]);
    return opcode && opcode->is_request && memcmp(packet + 5, other + 5, 3) == 0;
}

/* Where the ACK begins that ends a haul of requests, all of the same queue pair's; 0: there is
 * none. It was ready before they were, and stands behind them only because it is shorter
 * (unsaid.c). */
static uint32_t find_ack(const struct sw_port *port, const struct sw_haul *haul, uint32_t step)
{
    if (haul->len_bytes <= step || step < SW_BTH_BYTES)
        return 0;
    const uint32_t at = (haul->len_bytes - 1) / step * step, len = haul->len_bytes - at;
    const struct sw_opcode *last = sw_opcode_of(haul->bytes[at]);
    if (len < SW_BTH_BYTES || !last || last->kind != SW_PACKET_ACK ||
        slot_of(port, haul->bytes + at, len) != port->slot)
        return 0;
    for (uint32_t before = 0; before < at; before += step)
        if (!is_request_beside(haul->bytes + before, haul->bytes + at))
            return 0;
    return at;
}

/* Checks, and delivers or hands on, the packets of a haul. Returns how many were delivered;
 * *is_known: from a sender that is. */
static uint32_t take(struct sw_port *port, const struct sw_haul *haul, bool *is_known)
{
    const uint32_t step = haul->segment_bytes ? haul->segment_bytes : haul->len_bytes;
    const uint32_t ack_at = find_ack(port, haul, step), end = ack_at ? ack_at : haul->len_bytes;
    uint32_t from = 0, from_slot = port->slot; /* those that are for the same process */
    struct sieve sieve;
    sieve_open(&sieve, port, haul);
    sw_port_count(port, SW_PORT_RX_MALFORMED, haul->len_bytes == 0);
    if (ack_at)
        sift(&sieve, haul->bytes + ack_at, haul->len_bytes - ack_at, ack_at / step, false);
    sieve_empty(&sieve);
    for (uint32_t index = 0, at = 0; at < end; index++, at += step) {
        const uint8_t *bytes = haul->bytes + at;
        const uint32_t len = end - at < step ? end - at : step;
        if (len == step && sieve_goes_on(&sieve, bytes)) { /* and has the same receiver */
            sift(&sieve, bytes, len, index, true);
            continue;
        }
        uint32_t slot = slot_of(port, bytes, len);
        if (slot != from_slot) {
            hand_on(port, haul, from_slot, from, at);
            from = at;
            from_slot = slot;
        }
        if (slot == port->slot)
            sift(&sieve, bytes, len, index, false);
        else
            sieve_empty(&sieve);
    }
    sieve_empty(&sieve);
    hand_on(port, haul, from_slot, from, end);
    sw_port_count(port, SW_PORT_RX_PACKETS, sieve.delivered);
    sw_port_count(port, SW_PORT_RX_BYTES, haul->len_bytes);
    sw_port_count(port, SW_PORT_RX_BATCHES, 1);
    *is_known = sieve.is_known;
    return sieve.delivered;
}

void sw_port_take_mads(struct sw_port *port, const uint8_t *message, uint32_t len_bytes)
{
    struct sw_handed handed;
    for (uint32_t at = 0, used; at < len_bytes; at += used) {
        used = sw_share_parse(message + at, len_bytes - at, &handed);
        if (!used)
            break;
        const struct sw_haul *haul = &handed.haul;
        const uint32_t step = haul->segment_bytes ? haul->segment_bytes : haul->len_bytes;
        if (handed.kind != SW_HANDED_PACKETS || !sw_roce_is_mad(haul->bytes, haul->len_bytes))
            continue;
        struct sieve sieve;
        sieve_open(&sieve, port, haul);
        for (uint32_t from = 0, index = 0; from < haul->len_bytes; from += step, index++)
            sift(&sieve, haul->bytes + from,
                 haul->len_bytes - from < step ? haul->len_bytes - from : step, index, false);
        sieve_empty(&sieve);
    }
}

static void read_control(struct msghdr *message, struct sw_haul *haul)
{
    struct sw_arrival *arrival = &haul->arrival;
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
            haul->segment_bytes = (uint32_t)value;
        }
    }
}

/* How many messages one call should ask for at most. */
static uint32_t appetite(const struct sw_ear *ear)
{
    uint32_t mean = ear->bytes_mean ? ear->bytes_mean : 1;
    uint32_t count = INTAKE_BYTES / mean;
    return count < 2 ? 2 : count > SW_MAILBAG_MESSAGES ? SW_MAILBAG_MESSAGES : count;
}

/* To find that there is no second one takes as long as to find that there is none at all: so a call
 * asks for one until they come faster than they are taken. */
static uint32_t next_want(const struct sw_ear *ear, uint32_t want, int count)
{
    const uint32_t most = appetite(ear);
    if (count <= 0)
        return 1;
    want = (uint32_t)count == want ? 2 * want : want;
    return want < most ? want : most;
}

/* Whether a message handed on is from a process of this user. */
static bool is_ours(struct msghdr *message)
{
    struct cmsghdr *at = CMSG_FIRSTHDR(message);
    struct ucred from;
    if (!at || at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_CREDENTIALS)
        return false;
    memcpy(&from, CMSG_DATA(at), sizeof(from));
    return from.uid == geteuid();
}

static uint32_t take_message(struct sw_port *port, struct msghdr *message, uint32_t len_bytes,
                             uint64_t now_ns)
{
    const uint8_t *bytes = message->msg_iov->iov_base;
    uint32_t delivered = 0;
    struct sw_handed handed;
    for (uint32_t at = 0, used; is_ours(message) && at < len_bytes; at += used) {
        used = sw_share_parse(bytes + at, len_bytes - at, &handed);
        if (!used || !sw_share_is_of(message, handed.slot))
            break;
        uint32_t taken = 0;
        bool is_known = false;
        switch (handed.kind) {
        case SW_HANDED_PACKETS:
            taken = take(port, &handed.haul, &is_known);
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
        if (is_known && !sw_roce_is_mad(handed.haul.bytes, handed.haul.len_bytes))
            sw_share_tune(port, &handed.haul.arrival, handed.slot, now_ns);
        delivered += taken;
    }
    sw_port_count(port, SW_PORT_RX_TAKEN_OVER, delivered);
    return delivered;
}

/* What other processes had to say. */
static uint32_t take_handed(struct sw_port *port, uint64_t now_ns)
{
    struct sw_mailbag *bag = &port->intake->handed;
    uint32_t delivered = 0;
    for (uint32_t i = 0; i < port->intake->handed_count; i++)
        delivered +=
            take_message(port, &bag->messages[i].msg_hdr, bag->messages[i].msg_len, now_ns);
    port->intake->handed_count = 0;
    return delivered;
}

/* Reads from a UDP socket once. *more: there may be more. */
static uint32_t hear(struct sw_port *port, struct sw_ear *ear, uint64_t now_ns, bool *more)
{
    uint32_t delivered = 0, want = ear->want ? ear->want : 1;
    struct sw_mailbag *bag = &port->intake->udp;
    int count = sw_mailbag_fill(bag, ear->fd, want);
    ear->want = next_want(ear, want, count);
    *more = count > 0 && (uint32_t)count == want;
    if (count <= 0)
        return 0;
    ear->heard_ns = now_ns;
    uint64_t bytes = 0;
    bool is_known;
    for (uint32_t i = 0; i < (uint32_t)count; i++) {
        struct sw_haul haul = {.bytes = sw_mailbag_bytes(bag, i),
                               .len_bytes = sw_mailbag_len(bag, i),
                               .arrival = {.hold = sw_mailbag_hold(bag, i)}};
        bytes += haul.len_bytes;
        sw_roce_address(&bag->from[i].ip, &haul.arrival.source, &haul.arrival.source_port);
        read_control(&bag->messages[i].msg_hdr, &haul);
        delivered += take(port, &haul, &is_known);
        if (ear->kind == SW_EAR_UDP && is_known)
            sw_share_note(port, &haul.arrival, now_ns);
        sw_mailbag_pass(bag, i);
    }
    ear->bytes_mean = (ear->bytes_mean + (uint32_t)(bytes / (uint32_t)count)) / 2;
    return delivered;
}

/* Packets that were handed on came to the port after those that wait in its own sockets by now, as
 * far as both are of one flow: so first it is seen what was handed on, then the sockets are
 * emptied, and then it is taken. */
static void hear_others(struct sw_port *port, struct sw_ear *ear, uint64_t now_ns)
{
    struct sw_port_intake *intake = port->intake;
    if (intake->handed_count)
        return;
    int count = sw_mailbag_fill(&intake->handed, ear->fd, SW_MAILBAG_MESSAGES);
    if (count <= 0)
        return;
    intake->handed_count = (uint32_t)count;
    ear->heard_ns = now_ns;
}

static bool is_hot(const struct sw_ear *ear, uint64_t now_ns)
{
    return now_ns < ear->heard_ns + HOT_NS; /* which may be later than now */
}

uint32_t sw_port_receive(struct sw_port *port, uint64_t now_ns, bool all)
{
    uint32_t delivered = 0;
    bool left = false;
    all |= port->polls++ % COLD_POLLS == 0;
    port->due_ns = UINT64_MAX;
    for (uint32_t i = 0; i < port->ear_count; i++)
        if (port->ears[i].kind == SW_EAR_HANDED && (all || is_hot(&port->ears[i], now_ns)))
            hear_others(port, &port->ears[i], now_ns);
    const bool waits = port->intake->handed_count;
    for (uint32_t i = 0; i < port->ear_count; i++) {
        struct sw_ear *ear = &port->ears[i];
        const bool empties = waits && ear->kind != SW_EAR_HANDED;
        if (ear->kind == SW_EAR_HANDED || !(all || empties || is_hot(ear, now_ns)) ||
            !sw_share_is_settled(port, ear, now_ns))
            continue;
        bool more = true;
        for (uint32_t round = 0; more && round < ROUNDS; round++) {
            delivered += hear(port, ear, now_ns, &more);
            if (!empties && !(all && ear->want < appetite(ear)))
                break;
        }
        left |= more;
        if (!more && ear->kind == SW_EAR_UDP)
            sw_share_note_empty(port, ear, now_ns);
    }
    if (waits)
        delivered += take_handed(port, now_ns);
    port->full_rounds = left ? port->full_rounds + 1 : 0;
    sw_share_flush(port);
    return delivered;
}

bool sw_port_is_drained(const struct sw_port *port)
{
    return port->full_rounds == 0 || port->full_rounds > ROUNDS;
}
