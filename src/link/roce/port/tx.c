/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets out. Those of one flow and one size that follow each other (the last may be shorter)
 * leave in one message, cut up by the kernel or the interface (UDP_SEGMENT, udp(7)); messages from
 * one source leave in one call. A message costs some microseconds on either side, however few
 * packets share it: so each is filled before the next one is begun, and what a thread that receives
 * has to answer, for whichever queue pairs, waits until there is more (sw_batch_gather).
 *
 * No room in a socket is waited for, briefly: what holds it up is the interface's queue, which
 * drains by itself.
 */
#include "link/roce/port/tx.h"

#include <errno.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/payload.h"
#include "link/roce/port/connected_sender.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "wire/joint.h"

#define BATCHES 4u
#define GROUPS 8u          /* of as many flows as there are senders */
#define GROUP_SEGMENTS 64u /* UDP_MAX_SEGMENTS of kernels before 6.9 */
#define GROUP_BYTES \
    65472u /* with all headers, Ethernet's too, less than 64 KiB: not cut up early */
#define HEADROOM_BYTES 64u /* before a message: the head of a joint packet that begins with it */
#define ROOM_WAIT_MS 2
#define LONG_PACKET_BYTES 1000u /* a message of such may be long, */
#define LONG_BYTES 32768u       /* which means this */
#define SHORT_WEIGHT 16u        /* so many shorter ones count as much as a long one */

struct group { /* packets that leave in one message */
    struct sw_roce_path path;
    struct sw_connected_sender *sender; /* by which it leaves; NULL: by one of the port's senders */
    uint8_t *bytes;                     /* in the arena, or in a room of the sender's ring */
    bool has_room;                      /* which is this */
    uint16_t ip_id;                     /* of the first packet */
    uint32_t count, len_bytes;
    uint32_t segment_bytes;  /* of each, but the last */
    uint32_t unsealed_bytes; /* the length of the last one while its ICRC is missing, or 0 */
    uint32_t joint_left;     /* what the last one still takes, if it is a joint one */
    uint32_t damage;         /* as in struct sw_outgoing; it has no other in its group */
    bool is_closed;          /* nothing may follow */
    bool is_pair;            /* a joint packet that is longer than the path MTU asks for */
    struct sw_icrc_stem stem;
    struct iovec iov;
    _Alignas(8) uint8_t control[CMSG_SPACE(sizeof(struct in6_pktinfo)) + 3 * CMSG_SPACE(4)];
};

struct sw_batch {
    struct sw_lock lock;
    struct sw_port *port;
    uint32_t count; /* of groups; the last one of each flow may grow */
    bool dropped;
    uint32_t unconnected;               /* short messages that left by one of the port's senders */
    struct sw_connected_sender *sender; /* claimed until it is flushed */
    struct group groups[GROUPS];
    struct mmsghdr messages[GROUPS];
    struct sockaddr_in6 to[GROUPS];
    _Alignas(64) uint8_t arena[GROUPS][HEADROOM_BYTES + GROUP_BYTES];
};

static struct sw_batch batches[BATCHES];
static struct sw_batch gathered; /* under the port's rx_lock, not its own */
/* `gathered` is this thread's. Each poll looks, so without a call to the dynamic linker. */
static _Thread_local bool gathers __attribute__((tls_model("initial-exec")));
static _Atomic uint64_t gather_turn = 1;

void sw_batch_gather(struct sw_port *port)
{
    sw_lock_assert_held(&port->rx_lock);
    gathered.port = port;
    gathers = true;
}

void sw_batch_gather_flush(void)
{
    sw_batch_flush(&gathered);
}

void sw_batch_gather_end(void)
{
    sw_batch_flush(&gathered);
    gathers = false;
}

uint64_t sw_batch_gather_turn(void)
{
    return atomic_load(&gather_turn);
}

bool sw_batch_gathers(const struct sw_batch *batch)
{
    return batch == &gathered;
}

struct sw_batch *sw_batch_open(struct sw_port *port)
{
    static _Thread_local uint32_t turn __attribute__((tls_model("initial-exec")));
    if (gathers)
        return &gathered;
    for (uint32_t tried = 0; tried < BATCHES; tried++, turn++) {
        struct sw_batch *batch = &batches[turn % BATCHES];
        if (sw_lock_try(&batch->lock)) {
            batch->port = port;
            return batch;
        }
    }
    struct sw_batch *batch = &batches[turn % BATCHES];
    sw_lock_acquire(&batch->lock);
    batch->port = port;
    return batch;
}

void sw_batch_close(struct sw_batch *batch)
{
    if (batch == &gathered)
        return;
    sw_batch_flush(batch);
    sw_lock_release(&batch->lock);
}

void sw_batch_fork_child(void)
{
    for (uint32_t i = 0; i < BATCHES; i++) {
        batches[i].lock = (struct sw_lock){0};
        batches[i].count = 0;
        batches[i].sender = NULL;
    }
    gathered.count = 0;
    gathered.sender = NULL;
    gathers = false;
    sw_connected_sender_fork_child();
}

/* Gives the last packet of a group its ICRC. The kernel numbers the packets of a message. */
static void seal_last(struct group *group)
{
    if (!group->unsealed_bytes)
        return;
    uint8_t *packet = group->bytes + group->len_bytes - group->unsealed_bytes;
    sw_icrc_seal(&group->path.icrc, &group->stem, (uint16_t)(group->ip_id + group->count - 1),
                 packet, group->unsealed_bytes);
    group->unsealed_bytes = 0;
    if (__builtin_expect(group->damage, 0))
        packet[(group->damage - 1) / 8] ^= (uint8_t)(1u << (group->damage - 1) % 8);
}

/* The last group of a flow, if it takes another packet. */
static struct group *open_group(struct sw_batch *batch, const struct sw_roce_path *path,
                                uint32_t len_bytes)
{
    struct group *group = batch->groups + batch->count;
    do {
        if (group-- == batch->groups)
            return NULL;
    } while (!sw_roce_path_is_same(&group->path, path));
    const bool fits = !group->is_closed && len_bytes <= group->segment_bytes &&
                      group->len_bytes + len_bytes <= GROUP_BYTES;
    return fits ? group : NULL;
}

/* How a group leaves: by its path's sender, if there is one. And where it gathers its bytes: in the
 * sender's ring, if it may become long. */
static void choose_way(struct sw_batch *batch, struct group *group)
{
    uint8_t *room = NULL;
    group->bytes = batch->arena[group - batch->groups] + HEADROOM_BYTES;
    group->sender = NULL;
    group->ip_id = 0;
    group->has_room = false;
    if (group->is_closed || group->path.is_carried)
        return;
    if (!batch->sender)
        batch->sender = sw_connected_sender_claim(batch->port, &group->path);
    if (!batch->sender || !sw_connected_sender_is_of(batch->sender, &group->path))
        return;
    group->sender = batch->sender;
    if (group->segment_bytes >= LONG_PACKET_BYTES)
        room = sw_connected_sender_room(batch->sender, &group->ip_id);
    if (room) {
        group->bytes = room;
        group->has_room = true;
    } else {
        group->ip_id = sw_connected_sender_take_id(batch->sender);
    }
}

/* The group that a packet leaves with. A damaged one is alone. */
static struct group *group_for(struct sw_batch *batch, const struct sw_outgoing *packet,
                               uint32_t len_bytes)
{
    const struct sw_roce_path *path = packet->path;
    const uint32_t damage = packet->damage;
    struct group *group =
        damage || packet->begins_message ? NULL : open_group(batch, path, len_bytes);
    if (group)
        return group;
    if (batch->count == GROUPS)
        sw_batch_flush(batch);
    group = &batch->groups[batch->count++];
    group->path = *path;
    group->count = group->len_bytes = group->unsealed_bytes = group->joint_left = 0;
    group->segment_bytes = len_bytes;
    group->damage = damage;
    group->is_pair = false;
    group->is_closed = damage || atomic_load_explicit(&batch->port->no_gso, memory_order_relaxed);
    group->stem.datagram_len = 0;
    choose_way(batch, group);
    return group;
}

/* Headers, payload and pad. */
static void copy_packet(uint8_t *to, const struct sw_outgoing *packet)
{
    memcpy(to, packet->header, packet->header_bytes);
    to += packet->header_bytes;
    for (uint32_t i = 0; i < packet->piece_count; i++) {
        sw_payload_copy(to, packet->pieces[i].iov_base, packet->pieces[i].iov_len);
        to += packet->pieces[i].iov_len;
    }
    memset(to, 0, sw_packet_pad(packet->payload_bytes));
}

/* Begins a joint packet, the last one of its message, if there is room for what is to come. */
static struct group *begin_joint(struct sw_batch *batch, const struct sw_outgoing *packet)
{
    const uint32_t need_bytes = SW_JOINT_BYTES + packet->joint_bytes;
    struct group *group = packet->joint_bytes ? open_group(batch, packet->path, need_bytes) : NULL;
    if (!group || group != &batch->groups[batch->count - 1])
        return NULL;
    const uint32_t room_bytes = GROUP_BYTES - group->len_bytes;
    const uint32_t most_bytes = sw_min_u32(room_bytes, group->segment_bytes);
    seal_last(group);
    sw_joint_begin(group->bytes + group->len_bytes, packet->header);
    group->len_bytes += SW_JOINT_BYTES;
    group->unsealed_bytes = SW_JOINT_BYTES;
    group->joint_left = most_bytes - SW_JOINT_BYTES;
    group->count++;
    group->is_closed = true;
    return group;
}

/* Makes a joint packet of the only one in its message and shorter ones, if the interface takes it:
 * a message without segments costs the kernels of both sides less. Packets that are alike stay
 * segments: with lists of requests joined, an exchange of 32 was slower. */
static struct group *begin_pair(struct sw_batch *batch, const struct sw_outgoing *packet,
                                uint32_t each_bytes)
{
    const uint32_t head_bytes = SW_BTH_BYTES + SW_JOINT_EACH_BYTES;
    const uint32_t more_bytes = packet->joint_bytes ? packet->joint_bytes : each_bytes;
    struct group *group = &batch->groups[batch->count - 1];
    const uint32_t most_bytes = sw_min_u32(packet->path->datagram_max, GROUP_BYTES);
    if (group->count != 1 || group->unsealed_bytes != group->len_bytes || group->has_room ||
        each_bytes - SW_JOINT_EACH_BYTES + SW_ICRC_BYTES >= group->segment_bytes || group->damage ||
        !sw_roce_path_is_same(&group->path, packet->path) ||
        group->len_bytes + head_bytes + more_bytes > most_bytes ||
        atomic_load_explicit(&batch->port->no_pairs, memory_order_relaxed) ||
        !sw_joint_is_for(group->bytes, packet->header))
        return NULL;
    sw_joint_begin(group->bytes - head_bytes, group->bytes);
    sw_joint_announce(group->bytes - SW_JOINT_EACH_BYTES, group->len_bytes - SW_ICRC_BYTES);
    group->bytes -= head_bytes;
    group->len_bytes += head_bytes;
    group->unsealed_bytes = group->len_bytes;
    group->joint_left = most_bytes - group->len_bytes;
    group->is_closed = group->is_pair = true;
    return group;
}

/* Whether the packet has become part of a joint one: one that is there, or is begun with it. */
static bool join_packet(struct sw_batch *batch, const struct sw_outgoing *packet,
                        uint32_t len_bytes)
{
    const uint32_t each_bytes = SW_JOINT_EACH_BYTES + len_bytes;
    struct group *group = batch->count ? &batch->groups[batch->count - 1] : NULL;
    if (!group || packet->damage || !(group->joint_left | packet->joint_bytes | packet->pairs))
        return false;
    if (!group->joint_left || !sw_roce_path_is_same(&group->path, packet->path)) {
        group = packet->pairs ? begin_pair(batch, packet, each_bytes) : NULL;
        group = !group && packet->joint_bytes ? begin_joint(batch, packet) : group;
    }
    if (!group || group->joint_left < each_bytes)
        return false;
    uint8_t *joint = group->bytes + group->len_bytes - group->unsealed_bytes;
    if (!sw_joint_is_for(joint, packet->header))
        return false;
    uint8_t *end = group->bytes + group->len_bytes - SW_ICRC_BYTES;
    sw_joint_announce(end, len_bytes);
    copy_packet(end + SW_JOINT_EACH_BYTES, packet);
    group->len_bytes += each_bytes;
    group->unsealed_bytes += each_bytes;
    group->joint_left -= each_bytes;
    return true;
}

/*
 * All is copied, the payload too, although the kernel may copy it once more: a piece more to be
 * gathered costs the kernel as much as the copy of 4 KiB that is still in the cache, and the ICRC
 * needs bytes that the program does not write to meanwhile. It is computed one packet later: bytes
 * that are just being written are slow to read.
 */
void sw_batch_add(struct sw_batch *batch, const struct sw_outgoing *packet)
{
    const uint32_t pad = sw_packet_pad(packet->payload_bytes);
    const uint32_t len_bytes = packet->header_bytes + packet->payload_bytes + pad + SW_ICRC_BYTES;
    if (packet->joins && join_packet(batch, packet, len_bytes - SW_ICRC_BYTES))
        return;
    struct group *group = group_for(batch, packet, len_bytes);
    copy_packet(group->bytes + group->len_bytes, packet);
    seal_last(group);
    group->len_bytes += len_bytes;
    group->unsealed_bytes = len_bytes;
    group->count++;
    group->is_closed |= len_bytes < group->segment_bytes || group->count == GROUP_SEGMENTS;
}

static struct cmsghdr *add_control(struct msghdr *message, struct cmsghdr *at, int level, int type,
                                   const void *value, size_t len)
{
    at = at ? (struct cmsghdr *)((uint8_t *)at + CMSG_ALIGN(at->cmsg_len))
            : (struct cmsghdr *)message->msg_control;
    at->cmsg_level = level;
    at->cmsg_type = type;
    at->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(at), value, len);
    message->msg_controllen =
        (size_t)((uint8_t *)at - (uint8_t *)message->msg_control) + CMSG_SPACE(len);
    return at;
}

static struct cmsghdr *add_source(struct msghdr *message, const struct sw_roce_path *path)
{
    if (path->is_ipv4) {
        struct in_pktinfo info = {.ipi_ifindex = (int)path->ifindex};
        memcpy(&info.ipi_spec_dst, path->source.s6_addr + 12, 4);
        return add_control(message, NULL, IPPROTO_IP, IP_PKTINFO, &info, sizeof(info));
    }
    struct in6_pktinfo info = {.ipi6_addr = path->source, .ipi6_ifindex = path->ifindex};
    return add_control(message, NULL, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof(info));
}

/* The message of a group, or of some of its bytes; segments are cut at `segment_bytes`, 0: it is
 * one packet. */
static void address_message(struct sw_batch *batch, uint32_t index, struct iovec bytes,
                            uint16_t segment_bytes)
{
    struct group *group = &batch->groups[index];
    const struct sw_roce_path *path = &group->path;
    struct msghdr *message = &batch->messages[index].msg_hdr;
    int traffic_class = path->traffic_class, hop_limit = path->hop_limit;
    struct cmsghdr *at = NULL;
    group->iov = bytes;
    *message =
        (struct msghdr){.msg_iov = &group->iov, .msg_iovlen = 1, .msg_control = group->control};
    if (group->sender) { /* connected, and with this class */
        if (segment_bytes != sw_connected_sender_segment(group->sender))
            add_control(message, NULL, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes,
                        sizeof(segment_bytes));
        return;
    }
    message->msg_name = &batch->to[index];
    message->msg_namelen =
        sw_roce_sockaddr(&path->dest, path->dest_port, path->ifindex, &batch->to[index]);
    at = add_source(message, path);
    int level = path->is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
    at = add_control(message, at, level, path->is_ipv4 ? IP_TOS : IPV6_TCLASS, &traffic_class,
                     sizeof(int));
    if (hop_limit)
        at = add_control(message, at, level, path->is_ipv4 ? IP_TTL : IPV6_HOPLIMIT, &hop_limit,
                         sizeof(int));
    if (segment_bytes)
        add_control(message, at, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes, sizeof(segment_bytes));
}

static int socket_of(const struct sw_batch *batch, uint32_t index)
{
    const struct group *group = &batch->groups[index];
    return group->sender ? sw_connected_sender_fd(group->sender)
                         : batch->port->senders[group->path.is_ipv4][group->path.sender];
}

static void tell_too_long(struct sw_batch *batch, const struct group *group)
{
    char text[SW_ROCE_ADDRESS_TEXT];
    sw_port_count(batch->port, SW_PORT_TX_TOO_LONG, 1);
    if (atomic_exchange(&batch->port->told_too_long, true))
        return;
    sw_error(
        "a packet of %u bytes does not fit the way to %s: the queue pair's path MTU is larger "
        "than what the interface or a router on the way takes (with headers of up to 88 bytes)",
        group->segment_bytes, sw_roce_address_text(&group->path.dest, text));
}

/* Each packet of a group by itself, where segmentation is refused: the kernel numbers all 0. */
static void send_single(struct sw_batch *batch, uint32_t index)
{
    struct group *group = &batch->groups[index];
    uint8_t *const arena = group->bytes;
    for (uint32_t at = 0, len; at < group->len_bytes; at += len) {
        const uint32_t left = group->len_bytes - at;
        len = sw_min_u32(left, group->segment_bytes);
        if (at)
            sw_icrc_seal(&group->path.icrc, &group->stem, 0, arena + at, len);
        address_message(batch, index, (struct iovec){arena + at, len}, 0);
        if (sendmsg(socket_of(batch, index), &batch->messages[index].msg_hdr, MSG_DONTWAIT) >= 0)
            continue;
        if (errno == EMSGSIZE)
            tell_too_long(batch, group);
        else
            sw_port_count(batch->port, SW_PORT_TX_DROPPED, 1);
    }
}

/* What to do about a message that the kernel refused; true: try it again. */
static bool tx_is_worth_waiting(struct sw_batch *batch, uint32_t index, int fd, int err)
{
    struct sw_port *port = batch->port;
    const struct group *group = &batch->groups[index];
    if (err == EAGAIN || err == ENOBUFS) {
        struct pollfd room = {.fd = fd, .events = POLLOUT};
        sw_port_count(port, SW_PORT_TX_WAITS, 1);
        if (poll(&room, 1, ROOM_WAIT_MS) > 0)
            return true;
        batch->dropped = true;
    } else if (err == EMSGSIZE && group->count == 1 && !group->is_pair) {
        tell_too_long(batch, group);
        return false;
    } else if ((err == EIO || err == EINVAL || err == EMSGSIZE) && group->count > 1) {
        if (err == EIO)
            atomic_store(&port->no_gso, true); /* the interface cannot do checksums */
        send_single(batch, index);
        return false;
    } else if (err == EINTR) {
        return true;
    }
    sw_port_count(port, SW_PORT_TX_DROPPED, group->count);
    return false;
}

/* By the bare system call: libc's is a cancellation point, and locks are held. */
static int tx_send_now(int fd, struct mmsghdr *messages, uint32_t count)
{
    const struct msghdr *first = &messages->msg_hdr;
    if (count == 1 && !first->msg_name && !first->msg_controllen) /* the same for less */
        return syscall(SYS_sendto, fd, first->msg_iov->iov_base, first->msg_iov->iov_len,
                       MSG_DONTWAIT, NULL, 0) < 0
                   ? -1
                   : 1;
    if (count == 1)
        return syscall(SYS_sendmsg, fd, &messages->msg_hdr, MSG_DONTWAIT) < 0 ? -1 : 1;
    return (int)syscall(SYS_sendmmsg, fd, messages, count, MSG_DONTWAIT);
}

/* What is to be done about an error of a connected sender's socket. Whoever has claimed it counts
 * the messages that leave by it, so the sender is lost where one message is. */
static int judge_send_error(struct sw_connected_sender *sender, int err)
{
    if (err == EAGAIN || err == ENOBUFS)
        return err;
    if (sw_connected_sender_is_old_news(err))
        return EINTR;
    sw_connected_sender_give_up(sender, err);
    return EPIPE;
}

/* Messages [from, to) all leave by one socket. */
static void send_messages(struct sw_batch *batch, uint32_t from, uint32_t to)
{
    struct sw_connected_sender *sender = batch->groups[from].sender;
    int waits = 0;
    while (from < to) {
        const bool is_gone = sender && sw_connected_sender_is_spoilt(sender);
        const int fd = is_gone ? -1 : socket_of(batch, from);
        const int done = fd < 0 ? -1 : tx_send_now(fd, &batch->messages[from], to - from);
        int err = fd < 0 ? EAFNOSUPPORT : errno;
        err = waits > 4 ? ENETDOWN : err;
        if (err == EMSGSIZE && batch->groups[from].is_pair)
            atomic_store(&batch->port->no_pairs, true);
        if (done < 0 && sender && !is_gone)
            err = judge_send_error(sender, err);
        if (done > 0) {
            from += (uint32_t)done;
        } else if (!tx_is_worth_waiting(batch, from, fd, err)) {
            if (sender)
                sw_connected_sender_give_up(sender, err);
            from++;
            waits = 0;
        } else {
            waits++;
        }
    }
}

static void send_spliced(struct sw_batch *batch, uint32_t index)
{
    const struct group *group = &batch->groups[index];
    struct sw_connected_sender *sender = group->sender;
    for (int waits = 0;; waits++) {
        const int rc =
            sw_connected_sender_send(sender, group->bytes, group->len_bytes, group->segment_bytes);
        if (!rc)
            return;
        const int err = rc == -EAGAIN && waits <= 4 ? EAGAIN : EPIPE;
        if (!tx_is_worth_waiting(batch, index, sw_connected_sender_fd(sender), err)) {
            sw_connected_sender_give_up(sender, EPIPE);
            return;
        }
    }
}

/* A group without a room has left. Notes whether its path wants a connected sender, or a ring. */
static void note_sent(struct sw_batch *batch, const struct group *group)
{
    const bool is_long = group->len_bytes >= LONG_BYTES && group->count > 1;
    if (group->sender && is_long)
        sw_connected_sender_want_ring(group->sender);
    else if (!group->sender && (is_long || ++batch->unconnected % SHORT_WEIGHT == 0))
        sw_connected_sender_want(batch->port, &group->path, sw_clock_ns());
}

/* By TCP: packet by packet. */
static void send_carried(const struct sw_batch *batch, const struct group *group)
{
    const uint16_t source_port = sw_port_source(batch->port, &group->path);
    for (uint32_t at = 0, len; at < group->len_bytes; at += len) {
        len = sw_min_u32(group->len_bytes - at, group->segment_bytes);
        sw_port_carrier()->send(&group->path, source_port, group->bytes + at, len);
    }
}

/* The groups of a batch in their order; those that follow each other by one sender in one call. */
static void send_groups(struct sw_batch *batch)
{
    const struct group *groups = batch->groups;
    for (uint32_t from = 0, to; from < batch->count; from = to) {
        to = from + 1;
        if (groups[from].path.is_carried) {
            send_carried(batch, &groups[from]);
            continue;
        }
        if (groups[from].has_room) {
            send_spliced(batch, from);
            continue;
        }
        while (to < batch->count && !groups[to].has_room && !groups[to].path.is_carried &&
               socket_of(batch, to) == socket_of(batch, from))
            to++;
        send_messages(batch, from, to);
        note_sent(batch, &groups[from]);
    }
    if (batch->sender)
        sw_connected_sender_release(batch->sender);
    batch->sender = NULL;
}

bool sw_batch_flush(struct sw_batch *batch)
{
    const uint32_t groups = batch->count;
    uint64_t packets = 0, bytes = 0;
    for (uint32_t i = 0; i < groups; i++) {
        struct group *group = &batch->groups[i];
        seal_last(group);
        packets += group->count;
        bytes += group->len_bytes;
        if (!group->has_room)
            address_message(batch, i, (struct iovec){group->bytes, group->len_bytes},
                            group->count > 1 ? (uint16_t)group->segment_bytes : 0);
    }
    send_groups(batch);
    if (groups) {
        sw_port_count(batch->port, SW_PORT_TX_PACKETS, packets);
        sw_port_count(batch->port, SW_PORT_TX_BYTES, bytes);
        sw_port_count(batch->port, SW_PORT_TX_BATCHES, groups);
    }
    if (groups && batch == &gathered)
        atomic_fetch_add(&gather_turn, 1);
    bool all = !batch->dropped;
    batch->count = 0;
    batch->dropped = false;
    return all;
}
