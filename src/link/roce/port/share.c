/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One UDP port for several processes. The kernel spreads the packets of the port over their
 * sockets, by flow, and does not know whose they are. So processes hand packets on:
 *
 *     process A gets a packet for B
 *     A --PACKETS--> B    by the Unix socket "@sidewire.<slot>.roce", many packets in one message
 *     B opens a UDP socket connected to the sender; the kernel prefers it for that flow
 *     B --ASK--> A        "I hear this flow from now on"
 *     A --DONE--> B       "you have all that I had of it"; now B reads the connected socket
 *
 * A keeps for a while what B's Unix socket has no room for, then drops it, as a network would. A
 * connected socket is closed when nothing has come for long.
 *
 * Packets of a flow keep their order when it moves. B does not read the connected socket before
 * DONE. It takes what was handed on only when the port's own sockets are empty (rx.c).
 *
 * Processes that share the port need not trust each other; one may be in another container
 * (direct/process/proof.h). Each gets its packets all the same. So packets that were handed on are
 * believed no more than those from the network, whose source anybody can forge. The kernel tells
 * which process sent a message, by the name of its socket. Descriptors are not accepted.
 *
 * A process that gets nearly all its packets by one flow opens a connected socket for it, too,
 * though no other process had it: the kernel looks up a connected socket faster, and its route. It
 * closes the socket with the first packet that is for another process.
 *
 * A stopped process hands on nothing. A peer that gets no answers tells the process that it wants
 * from which source port it sends (lifeline.c), and that process opens a connected socket at once.
 * Nobody could say DONE, so it does not wait for it.
 *
 * A process that ends turns its sockets away from the flows, and hands on what it still has.
 */
#include "link/roce/port/share.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "device/rules/pub.h"
#include "link/names/names.h"
#include "link/names/registry.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/rx.h"
#include "link/roce/port/rx_batch.h"
#include "link/roce/port/rx_socket.h"
#include "link/roce/port/socket.h"

#define HANDED_MAGIC 0x65636f7277530002ull
#define CONNECTED_IDLE_NS (10 * SW_NS_PER_S)
#define HOLD_NS (100 * SW_NS_PER_MS) /* no longer is a DONE waited for */
#define KEEP_NS (50 * SW_NS_PER_MS)  /* packets for a process that takes none */
#define RETRY_NS (200 * SW_NS_PER_US)
#define STAGES 4u
#define FOUND_NS (100 * SW_NS_PER_MS)
#define TURNED_NS (SW_NS_PER_S / 2) /* by then all that was on its way to a socket has come */
#define DISCARD_PORT 9              /* RFC 863 */
#define HOT_MESSAGES 1024u          /* of one flow, in a row, */
#define HOT_NS SW_NS_PER_S          /* in this time */
#define BARRED_NS (10 * SW_NS_PER_S)
#define CLAIMED_MAX 16u /* flows that peers asked for; others need sockets, too */

/* Stands in front of the packets in a message. */
struct handed {
    uint64_t magic;
    uint8_t source[16], dest[16];
    uint32_t kind; /* enum sw_handed_kind */
    uint32_t slot; /* the sender's */
    uint32_t ifindex;
    uint32_t len_bytes;
    uint32_t segment_bytes;
    uint16_t source_port;
    uint8_t traffic_class;
    uint8_t hop_limit;
};

/* Packets that wait to be sent to one other process. */
struct stage {
    uint32_t slot; /* of that process; 0: the stage is free */
    uint32_t packets;
    uint32_t len_bytes;
    uint64_t stuck_ns;   /* since when it takes nothing; 0: it does */
    uint32_t found_slot; /* the slot whose address `to` is */
    uint64_t found_ns;
    struct sockaddr_un to;
    socklen_t to_len;
    uint8_t bytes[SW_HANDED_BYTES];
};

struct sw_share {
    struct stage stages[STAGES];
};

int sw_share_open(struct sw_port *port)
{
    char own[SW_NAME_BYTES];
    sw_registry_name(port->slot, "roce", own);
    port->share = calloc(1, sizeof(*port->share));
    if (!port->share)
        return -ENOMEM;
    int fd = sw_name_bind(SOCK_DGRAM, own);
    if (fd == -EADDRINUSE) { /* the name is taken; the UDP port was free */
        sw_error("another process of this user has bound @%s, by which packets are brought here",
                 own);
        return -EEXIST;
    }
    if (fd < 0)
        return fd;
    sw_socket_set(fd, SOL_SOCKET, SO_SNDBUF, 4 << 20);
    if (!sw_socket_set(fd, SOL_SOCKET, SO_PASSCRED, 1) ||
        !sw_port_add_rx_socket(port, fd, SW_RX_SOCKET_HANDED)) {
        int err = errno;
        close(fd);
        return -err;
    }
    port->hands = fd;
    return 0;
}

void sw_share_close(struct sw_port *port)
{
    free(port->share);
    port->share = NULL;
}

static uint32_t packets_of(const struct sw_rx_batch *batch)
{
    uint32_t step = batch->segment_bytes ? batch->segment_bytes : batch->len_bytes;
    return step ? (batch->len_bytes + step - 1) / step : 0;
}

/* Plans another receive by then. */
static void be_back(struct sw_port *port, uint64_t due_ns)
{
    if (due_ns < port->due_ns)
        port->due_ns = due_ns;
}

/* Sending a datagram does not tell who gets it. So the kernel is asked from time to time who has
 * bound the name. */
static ssize_t send_to(struct sw_port *port, struct stage *stage)
{
    const uint64_t now_ns = sw_clock_ns();
    if (stage->found_slot != stage->slot || now_ns - stage->found_ns >= FOUND_NS) {
        char name[SW_NAME_BYTES];
        sw_registry_name(stage->slot, "roce", name);
        stage->found_slot = sw_name_find(name, &stage->to, &stage->to_len) ? stage->slot : 0;
        stage->found_ns = now_ns;
    }
    if (!stage->found_slot) {
        errno = ECONNREFUSED;
        return -1;
    }
    return sendto(port->hands, stage->bytes, stage->len_bytes, MSG_DONTWAIT | MSG_NOSIGNAL,
                  (struct sockaddr *)&stage->to, stage->to_len);
}

/* Returns false if the process has no room: its packets stay in the stage. */
static bool flush_stage(struct sw_port *port, struct stage *stage)
{
    if (!stage->len_bytes)
        return true;
    ssize_t done = send_to(port, stage);
    if (done < 0 && (errno == EAGAIN || errno == ENOBUFS)) {
        uint64_t now_ns = sw_clock_ns();
        stage->stuck_ns = stage->stuck_ns ? stage->stuck_ns : now_ns;
        if (now_ns - stage->stuck_ns < KEEP_NS)
            return false;
        errno = EAGAIN;
    } else {
        stage->stuck_ns = 0;
    }
    if (done < 0 && errno == ECONNREFUSED) {
        sw_port_take_mads(port, stage->bytes, stage->len_bytes);
        errno = ECONNREFUSED;
    }
    sw_port_count(port,
                  done >= 0               ? SW_PORT_RX_HANDED_ON
                  : errno == ECONNREFUSED ? SW_PORT_RX_NO_PROCESS
                                          : SW_PORT_HAND_DROPPED,
                  stage->packets);
    stage->packets = stage->len_bytes = 0;
    return true;
}

void sw_share_flush(struct sw_port *port)
{
    for (uint32_t i = 0; i < STAGES; i++)
        if (!flush_stage(port, &port->share->stages[i]))
            be_back(port, sw_clock_ns() + RETRY_NS);
}

/* Returns NULL if all stages hold packets for processes that take none. */
static struct stage *stage_of(struct sw_port *port, uint32_t slot)
{
    struct stage *stages = port->share->stages, *found = NULL;
    for (uint32_t i = 0; i < STAGES; i++)
        if (stages[i].slot == slot)
            return &stages[i];
    for (uint32_t i = 0; i < STAGES && !found; i++)
        if (!stages[i].len_bytes)
            found = &stages[i];
    for (uint32_t i = 0; i < STAGES && !found; i++)
        if (flush_stage(port, &stages[i]))
            found = &stages[i];
    if (found) {
        found->slot = slot;
        found->stuck_ns = 0;
    }
    return found;
}

static struct handed head_of(const struct sw_port *port, enum sw_handed_kind kind,
                             const struct sw_rx_batch *batch)
{
    const struct sw_arrival *arrival = &batch->arrival;
    struct handed head = {
        .magic = HANDED_MAGIC,
        .kind = kind,
        .slot = port->slot,
        .ifindex = arrival->ifindex,
        .len_bytes = batch->len_bytes,
        .segment_bytes = batch->segment_bytes,
        .source_port = arrival->source_port,
        .traffic_class = arrival->traffic_class,
        .hop_limit = arrival->hop_limit,
    };
    memcpy(head.source, &arrival->source, 16);
    memcpy(head.dest, &arrival->dest, 16);
    return head;
}

static void stage_word(struct sw_port *port, uint32_t slot, enum sw_handed_kind kind,
                       const struct sw_rx_batch *batch)
{
    sw_lock_assert_held(&port->rx_lock);
    const struct handed head = head_of(port, kind, batch);
    struct stage *stage = stage_of(port, slot);
    const uint32_t need = (uint32_t)sizeof(head) + batch->len_bytes;
    if (!stage || (stage->len_bytes + need > sizeof(stage->bytes) && !flush_stage(port, stage))) {
        sw_port_count(port, SW_PORT_HAND_DROPPED, packets_of(batch));
        return;
    }
    stage->packets += packets_of(batch);
    memcpy(stage->bytes + stage->len_bytes, &head, sizeof(head));
    if (batch->len_bytes)
        memcpy(stage->bytes + stage->len_bytes + sizeof(head), batch->bytes, batch->len_bytes);
    stage->len_bytes += need;
}

void sw_share_hand_on(struct sw_port *port, uint32_t slot, const struct sw_rx_batch *batch)
{
    if (!batch->arrival.was_handed_on) /* else two processes could hand it to and fro */
        stage_word(port, slot, SW_HANDED_PACKETS, batch);
}

/* The kernel keeps some ten messages for a process. One that takes none (SIGSTOP) is not waited for
 * again before it does: it would hold up all that is for others. */
static bool awaits_room(uint32_t slot, bool is_full)
{
    static _Atomic uint64_t full_ns[SW_SLOT_MAX + 1]; /* since when it has no room; 0: it has */
    uint64_t since_ns = atomic_load_explicit(&full_ns[slot], memory_order_relaxed);
    if (!is_full && !since_ns)
        return false;
    const uint64_t now_ns = sw_clock_ns();
    if (!is_full || !since_ns) {
        since_ns = is_full ? now_ns : 0;
        atomic_store_explicit(&full_ns[slot], since_ns, memory_order_relaxed);
    }
    return is_full && now_ns - since_ns < KEEP_NS;
}

bool sw_share_give(struct sw_port *port, uint32_t slot, const struct sw_rx_batch *packet)
{
    struct handed head = head_of(port, SW_HANDED_PACKETS, packet);
    struct sockaddr_un to;
    char name[SW_NAME_BYTES];
    struct iovec pieces[] = {{&head, sizeof(head)}, {(void *)packet->bytes, packet->len_bytes}};
    struct msghdr message = {.msg_name = &to, .msg_iov = pieces, .msg_iovlen = 2};
    sw_registry_name(slot, "roce", name);
    const bool is_there = sw_name_find(name, &to, &message.msg_namelen);
    const bool is_sent =
        is_there && sendmsg(port->hands, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    const bool is_full = is_there && !is_sent && errno == EAGAIN;
    if (awaits_room(slot, is_full))
        return false;
    sw_port_count(port, is_sent ? SW_PORT_TX_PACKETS : SW_PORT_TX_DROPPED, 1);
    return true;
}

uint32_t sw_share_parse(const uint8_t *message, uint32_t len_bytes, struct sw_handed *out)
{
    struct handed head;
    if (len_bytes < sizeof(head))
        return 0;
    memcpy(&head, message, sizeof(head));
    if (head.magic != HANDED_MAGIC || head.len_bytes > len_bytes - sizeof(head) ||
        head.kind > SW_HANDED_DONE || head.slot < 1 || head.slot > SW_SLOT_MAX)
        return 0;
    *out = (struct sw_handed){
        .kind = (enum sw_handed_kind)head.kind,
        .slot = head.slot,
        .batch = {.bytes = message + sizeof(head),
                  .len_bytes = head.len_bytes,
                  .segment_bytes = head.segment_bytes,
                  .arrival = {.ifindex = head.ifindex,
                              .source_port = head.source_port,
                              .traffic_class = head.traffic_class,
                              .hop_limit = head.hop_limit,
                              .was_handed_on = true}},
    };
    memcpy(&out->batch.arrival.source, head.source, 16);
    memcpy(&out->batch.arrival.dest, head.dest, 16);
    return (uint32_t)sizeof(head) + head.len_bytes;
}

bool sw_share_is_of(const struct msghdr *message, uint32_t slot)
{
    const struct sockaddr_un *from = message->msg_name;
    struct sockaddr_un plain, found;
    const socklen_t len = message->msg_namelen;
    socklen_t found_len;
    char name[SW_NAME_BYTES];
    sw_registry_name(slot, "roce", name);
    const socklen_t plain_len = sw_name_address(name, &plain);
    const size_t path_at = offsetof(struct sockaddr_un, sun_path);
    if (len > sizeof(*from) || len < plain_len ||
        memcmp(from->sun_path, plain.sun_path, plain_len - path_at) != 0)
        return false;
    /* Anybody can bind a name that begins like ours. If ours has a suffix, the kernel is asked. */
    return len == plain_len || (sw_name_find(name, &found, &found_len) && found_len == len &&
                                !memcmp(found.sun_path, from->sun_path, len - path_at));
}

static struct sw_rx_socket *find_connected(struct sw_port *port, const struct sw_arrival *arrival)
{
    for (uint32_t i = 0; i < port->rx_socket_count; i++) {
        struct sw_rx_socket *rx = &port->rx_sockets[i];
        if (rx->kind == SW_RX_SOCKET_CONNECTED && !rx->turned_ns &&
            rx->remote_port == arrival->source_port &&
            !memcmp(&rx->remote, &arrival->source, sizeof(rx->remote)))
            return rx;
    }
    return NULL;
}

/* Opens a connected socket for a sender's packets. It is not read for now. */
static struct sw_rx_socket *connect_rx_socket(struct sw_port *port,
                                              const struct sw_arrival *arrival, uint32_t slot,
                                              uint64_t now_ns)
{
    sw_lock_assert_held(&port->rx_lock);
    bool is_ipv4 = sw_roce_is_ipv4(&arrival->source);
    uint32_t scope = IN6_IS_ADDR_LINKLOCAL(&arrival->source) ? arrival->ifindex : 0;
    int fd = sw_socket_receiving(is_ipv4, &arrival->dest, port->udp_port, scope);
    struct sockaddr_in6 remote;
    unsigned int len = sw_roce_sockaddr(&arrival->source, arrival->source_port, scope, &remote);
    if (fd < 0)
        return NULL;
    struct sw_rx_socket *rx = NULL;
    if (connect(fd, (struct sockaddr *)&remote, len) == 0)
        rx = sw_port_add_rx_socket(port, fd, SW_RX_SOCKET_CONNECTED);
    if (!rx) {
        sw_debug("cannot ask for a sender's packets: %s", strerror(errno));
        close(fd);
        return NULL;
    }
    sw_socket_tell_class_only(fd, is_ipv4);
    rx->remote = arrival->source;
    rx->remote_port = arrival->source_port;
    rx->local = arrival->dest;
    rx->hop_limit = arrival->hop_limit;
    rx->ifindex = arrival->ifindex;
    rx->heard_ns = now_ns;
    rx->asked_slot = slot;
    rx->held_until_ns = now_ns + HOLD_NS;
    be_back(port, rx->held_until_ns);
    return rx;
}

void sw_share_connect(struct sw_port *port, const struct sw_arrival *arrival, uint32_t slot,
                      uint64_t now_ns)
{
    if (port->rx_socket_count < SW_RX_SOCKETS_MAX && !find_connected(port, arrival) &&
        connect_rx_socket(port, arrival, slot, now_ns))
        stage_word(port, slot, SW_HANDED_ASK, &(struct sw_rx_batch){.arrival = *arrival});
}

void sw_share_answer(struct sw_port *port, const struct sw_handed *ask)
{
    stage_word(port, ask->slot, SW_HANDED_DONE,
               &(struct sw_rx_batch){.arrival = ask->batch.arrival});
}

static void begin_reading(struct sw_port *port, struct sw_rx_socket *rx, uint64_t now_ns)
{
    rx->held_until_ns = 0;
    rx->heard_ns = now_ns;
    if (!sw_port_listen(port, rx->fd))
        sw_debug("cannot listen to a sender: %s", strerror(errno));
}

void sw_share_settle(struct sw_port *port, const struct sw_handed *done, uint64_t now_ns)
{
    struct sw_rx_socket *rx = find_connected(port, &done->batch.arrival);
    if (rx && rx->held_until_ns && rx->asked_slot == done->slot)
        begin_reading(port, rx, now_ns);
}

bool sw_share_is_settled(struct sw_port *port, struct sw_rx_socket *rx, uint64_t now_ns)
{
    if (rx->held_until_ns && now_ns >= rx->held_until_ns)
        begin_reading(port, rx, now_ns);
    if (rx->held_until_ns)
        be_back(port, rx->held_until_ns);
    return !rx->held_until_ns;
}

/* Turns a socket away: connects it to a port of its own address, or of the loopback, where nobody
 * is. The kernel brings it nothing more then. Packets that are in it already can still be read. */
static void share_turn_away(int fd)
{
    struct sockaddr_in6 nowhere = {0};
    socklen_t len = sizeof(nowhere);
    if (getsockname(fd, (struct sockaddr *)&nowhere, &len))
        return;
    nowhere.sin6_port = htons(DISCARD_PORT); /* the port lies at the same place in both families */
    if (connect(fd, (struct sockaddr *)&nowhere, len))
        sw_debug("packets to a closed socket are lost: %s", strerror(errno));
}

bool sw_port_has_flow(struct sw_port *port, const struct sw_arrival *arrival)
{
    sw_lock_assert_held(&port->rx_lock);
    return find_connected(port, arrival);
}

bool sw_port_claim_flow(struct sw_port *port, const struct sw_arrival *arrival, uint64_t now_ns)
{
    sw_lock_assert_held(&port->rx_lock);
    uint32_t claimed = 0;
    for (uint32_t i = 0; i < port->rx_socket_count; i++)
        claimed +=
            port->rx_sockets[i].kind == SW_RX_SOCKET_CONNECTED && !port->rx_sockets[i].asked_slot;
    if (claimed >= CLAIMED_MAX || port->rx_socket_count == SW_RX_SOCKETS_MAX ||
        find_connected(port, arrival))
        return false;
    struct sw_rx_socket *rx = connect_rx_socket(port, arrival, 0, now_ns);
    if (rx)
        begin_reading(port, rx, now_ns);
    return rx;
}

static void turn_rx_socket(struct sw_rx_socket *rx, uint64_t now_ns)
{
    share_turn_away(rx->fd);
    rx->turned_ns = rx->heard_ns = now_ns;
}

static bool has_connected(const struct sw_port *port)
{
    bool has = false;
    for (uint32_t i = 0; i < port->rx_socket_count; i++)
        has |= port->rx_sockets[i].kind == SW_RX_SOCKET_CONNECTED;
    return has;
}

void sw_share_note(struct sw_port *port, const struct sw_arrival *arrival, uint64_t now_ns)
{
    struct sw_hot_flow *hot = &port->hot;
    if (hot->source_port != arrival->source_port ||
        memcmp(&hot->source, &arrival->source, sizeof(hot->source)) != 0 ||
        now_ns >= hot->since_ns + HOT_NS) {
        hot->source = arrival->source;
        hot->source_port = arrival->source_port;
        hot->since_ns = now_ns;
        hot->messages = 0;
    }
    /* One such socket only: each poll has to look at it. */
    if (++hot->messages != HOT_MESSAGES || now_ns < hot->barred_until_ns || has_connected(port))
        return;
    hot->opens = connect_rx_socket(port, arrival, port->slot, now_ns);
    if (hot->opens)
        sw_debug("nearly all comes from one sender: by a connected socket");
}

void sw_share_note_other(struct sw_port *port, const struct sw_arrival *arrival, uint64_t now_ns)
{
    struct sw_rx_socket *rx = find_connected(port, arrival);
    port->hot.messages = 0;
    port->hot.barred_until_ns = now_ns + BARRED_NS;
    if (rx && rx->asked_slot == port->slot) {
        if (rx->held_until_ns)
            begin_reading(port, rx, now_ns);
        turn_rx_socket(rx, now_ns);
    }
}

void sw_share_note_empty(struct sw_port *port, const struct sw_rx_socket *rx, uint64_t now_ns)
{
    for (uint32_t i = 0; port->hot.opens && i < port->rx_socket_count; i++) {
        struct sw_rx_socket *connected = &port->rx_sockets[i];
        const bool waits = connected->held_until_ns && connected->asked_slot == port->slot;
        if (!waits || now_ns <= connected->heard_ns || /* seen empty since it was opened */
            port->common_rx_fds[sw_roce_is_ipv4(&connected->remote)] != rx->fd)
            continue;
        begin_reading(port, connected, now_ns);
        port->hot.opens = false;
    }
}

/* A socket to which nothing came for long is closed in two steps. First it is turned away; what was
 * on its way to it is received before it is closed. The time of the last packet may be later than
 * `now_ns`. */
static bool is_done_with(struct sw_rx_socket *rx, uint64_t now_ns)
{
    if (rx->kind != SW_RX_SOCKET_CONNECTED || rx->held_until_ns)
        return false;
    if (rx->turned_ns)
        return now_ns >= rx->turned_ns + TURNED_NS &&
               recv(rx->fd, NULL, 0, MSG_PEEK | MSG_DONTWAIT) < 0;
    if (now_ns >= rx->heard_ns + CONNECTED_IDLE_NS)
        turn_rx_socket(rx, now_ns);
    return false;
}

bool sw_port_tidy(struct sw_port *port, uint64_t now_ns)
{
    sw_lock_assert_held(&port->rx_lock);
    for (uint32_t i = 0; i < port->rx_socket_count;) {
        struct sw_rx_socket *rx = &port->rx_sockets[i];
        if (!is_done_with(rx, now_ns)) {
            i++;
            continue;
        }
        /* close() alone leaves it in the epoll if a child that was just forked has it, too. */
        epoll_ctl(port->epoll, EPOLL_CTL_DEL, rx->fd, NULL);
        close(rx->fd);
        *rx = port->rx_sockets[--port->rx_socket_count];
    }
    return has_connected(port);
}

void sw_port_leave(struct sw_port *port)
{
    sw_lock_assert_held(&port->rx_lock);
    for (uint32_t i = 0; i < port->rx_socket_count; i++) {
        struct sw_rx_socket *rx = &port->rx_sockets[i];
        rx->held_until_ns = 0; /* this process ends: it waits for no DONE */
        if (rx->kind != SW_RX_SOCKET_HANDED)
            share_turn_away(rx->fd);
    }
}
