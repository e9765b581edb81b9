/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets out. Those of one flow and one size that follow each other (the last may be shorter)
 * leave in one message, cut up by the kernel or the interface (UDP_SEGMENT, udp(7)); messages from
 * one source leave in one call. The payload is gathered by the kernel from where it lies, but for
 * short ones and those that the program may write to meanwhile: their ICRC would be wrong. What is
 * made here lies in one arena in the order in which it is sent, so that the kernel gets few pieces.
 *
 * No room in a socket is waited for, briefly: what holds it up is the interface's queue, which
 * drains by itself.
 */
#include <errno.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/payload.h"
#include "link/roce/socket.h"

#define BATCHES 4u
#define BATCH_PACKETS 64u
#define GROUP_SEGMENTS 64u /* UDP_MAX_SEGMENTS of kernels before 6.9 */
#define GROUP_BYTES 65000u /* a message's UDP length has 16 bits */
#define COPY_BYTES 1100u   /* shorter payloads are cheaper to copy than to point to */
#define PIECES_MAX 8u      /* of one packet that is not copied */
#define ROOM_WAIT_MS 2

#define STORE_BYTES (SW_HEADERS_MAX + SW_PACKET_PAYLOAD_MAX + 8u)

struct slot { /* one packet */
    const struct sw_roce_path *path;
    uint32_t len_bytes; /* with pad and ICRC */
    uint32_t header_bytes, payload_bytes;
    uint16_t piece_first, piece_count; /* of the payload; none: it is copied */
    uint32_t damage;                   /* as in struct sw_outgoing; it has no other in its group */
    uint8_t *store;                    /* header, copied payload or none, pad and ICRC */
};

struct group { /* slots [first, first + count) in one message */
    uint32_t first, count;
    struct iovec *iov;
    _Alignas(8) uint8_t control[CMSG_SPACE(sizeof(struct in6_pktinfo)) + 3 * CMSG_SPACE(4)];
};

struct sw_batch {
    struct sw_lock lock;
    struct sw_port *port;
    uint32_t count, piece_count, arena_bytes;
    bool dropped;
    struct slot slots[BATCH_PACKETS];
    struct group groups[BATCH_PACKETS];
    struct mmsghdr messages[BATCH_PACKETS];
    struct sockaddr_in6 to[BATCH_PACKETS];
    struct iovec pieces[BATCH_PACKETS * PIECES_MAX];
    struct iovec iov[BATCH_PACKETS * (PIECES_MAX + 2)];
    uint8_t arena[BATCH_PACKETS * STORE_BYTES];
};

static struct sw_batch batches[BATCHES];

struct sw_batch *sw_batch_open(struct sw_port *port)
{
    static _Thread_local uint32_t turn;
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
    sw_batch_flush(batch);
    sw_lock_release(&batch->lock);
}

void sw_batch_fork_child(void)
{
    for (uint32_t i = 0; i < BATCHES; i++) {
        batches[i].lock = (struct sw_lock){0};
        batches[i].count = batches[i].piece_count = batches[i].arena_bytes = 0;
    }
}

void sw_batch_add(struct sw_batch *batch, const struct sw_outgoing *packet)
{
    if (batch->count == BATCH_PACKETS)
        sw_batch_flush(batch);
    const uint32_t trailer_bytes = sw_packet_pad(packet->payload_bytes) + SW_ICRC_BYTES;
    struct slot *slot = &batch->slots[batch->count++];
    *slot = (struct slot){
        .path = packet->path,
        .len_bytes = packet->header_bytes + packet->payload_bytes + trailer_bytes,
        .header_bytes = packet->header_bytes,
        .payload_bytes = packet->payload_bytes,
        .piece_first = (uint16_t)batch->piece_count,
        .damage = packet->damage,
        .store = batch->arena + batch->arena_bytes,
    };
    uint8_t *end = slot->store;
    memcpy(end, packet->header, packet->header_bytes);
    end += packet->header_bytes;
    if (packet->payload_bytes <= COPY_BYTES || packet->may_change ||
        packet->piece_count > PIECES_MAX || packet->damage) {
        for (uint32_t i = 0; i < packet->piece_count; i++) {
            sw_payload_copy(end, packet->pieces[i].iov_base, packet->pieces[i].iov_len);
            end += packet->pieces[i].iov_len;
        }
    } else {
        slot->piece_count = (uint16_t)packet->piece_count;
        memcpy(batch->pieces + batch->piece_count, packet->pieces,
               packet->piece_count * sizeof(struct iovec));
        batch->piece_count += packet->piece_count;
    }
    batch->arena_bytes = (uint32_t)(end + trailer_bytes - batch->arena);
}

/* The ICRC goes behind the payload. `ip_id` is what the kernel will give the packet. */
static void seal(struct sw_batch *batch, struct slot *slot, uint16_t ip_id)
{
    uint32_t crc =
        sw_icrc_begin(&slot->path->icrc, ip_id, slot->store, slot->header_bytes, slot->len_bytes);
    uint8_t *trailer = slot->store + slot->header_bytes;
    if (slot->piece_count == 0) {
        crc = sw_icrc_add(crc, trailer, slot->payload_bytes);
        trailer += slot->payload_bytes;
    } else {
        for (uint32_t i = 0; i < slot->piece_count; i++) {
            const struct iovec *piece = &batch->pieces[slot->piece_first + i];
            crc = sw_icrc_add(crc, piece->iov_base, piece->iov_len);
        }
    }
    sw_icrc_finish(crc, slot->payload_bytes, trailer);
    if (__builtin_expect(slot->damage, 0))
        slot->store[(slot->damage - 1) / 8] ^= (uint8_t)(1u << (slot->damage - 1) % 8);
}

/* Appends bytes to a list of pieces, to the last of them if they follow it in memory. */
static struct iovec *put(struct iovec *first, struct iovec *end, uint8_t *bytes, size_t len)
{
    if (end > first && (uint8_t *)end[-1].iov_base + end[-1].iov_len == bytes) {
        end[-1].iov_len += len;
        return end;
    }
    *end = (struct iovec){bytes, len};
    return end + 1;
}

/* Lists the bytes of a group. Returns where the list ends. */
static struct iovec *list_pieces(const struct sw_batch *batch, const struct group *group)
{
    struct iovec *end = group->iov;
    for (uint32_t i = 0; i < group->count; i++) {
        const struct slot *slot = &batch->slots[group->first + i];
        if (slot->piece_count == 0) {
            end = put(group->iov, end, slot->store, slot->len_bytes);
            continue;
        }
        end = put(group->iov, end, slot->store, slot->header_bytes);
        for (uint32_t piece = 0; piece < slot->piece_count; piece++) {
            const struct iovec *from = &batch->pieces[slot->piece_first + piece];
            end = put(group->iov, end, from->iov_base, from->iov_len);
        }
        end = put(group->iov, end, slot->store + slot->header_bytes,
                  slot->len_bytes - slot->header_bytes - slot->payload_bytes);
    }
    return end;
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

/* The message of a group; segments are cut at `segment_bytes`, 0: it is one packet. */
static void address_message(struct sw_batch *batch, uint32_t index, uint16_t segment_bytes)
{
    struct group *group = &batch->groups[index];
    const struct sw_roce_path *path = batch->slots[group->first].path;
    struct msghdr *message = &batch->messages[index].msg_hdr;
    int traffic_class = path->traffic_class, hop_limit = path->hop_limit;
    *message = (struct msghdr){
        .msg_name = &batch->to[index],
        .msg_iov = group->iov,
        .msg_iovlen = (size_t)(list_pieces(batch, group) - group->iov),
        .msg_control = group->control,
    };
    message->msg_namelen =
        sw_roce_sockaddr(&path->dest, path->dest_port, path->ifindex, &batch->to[index]);
    struct cmsghdr *at = add_source(message, path);
    int level = path->is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
    at = add_control(message, at, level, path->is_ipv4 ? IP_TOS : IPV6_TCLASS, &traffic_class,
                     sizeof(int));
    if (hop_limit)
        at = add_control(message, at, level, path->is_ipv4 ? IP_TTL : IPV6_HOPLIMIT, &hop_limit,
                         sizeof(int));
    if (segment_bytes)
        add_control(message, at, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes, sizeof(segment_bytes));
}

/* How many slots from `first` on may leave in one message. */
static uint32_t run_of(const struct sw_batch *batch, uint32_t first)
{
    const struct slot *head = &batch->slots[first];
    uint32_t count = 1, bytes = head->len_bytes;
    if (atomic_load_explicit(&batch->port->no_gso, memory_order_relaxed) || head->damage)
        return 1;
    while (first + count < batch->count && count < GROUP_SEGMENTS) {
        const struct slot *next = &batch->slots[first + count];
        if (next->path != head->path || next->len_bytes > head->len_bytes || next->damage ||
            bytes + next->len_bytes > GROUP_BYTES)
            break;
        bytes += next->len_bytes;
        count++;
        if (next->len_bytes < head->len_bytes)
            break; /* only the last may be shorter */
    }
    return count;
}

static int sender_of(const struct sw_batch *batch, uint32_t group)
{
    const struct sw_roce_path *path = batch->slots[batch->groups[group].first].path;
    return batch->port->senders[path->is_ipv4][path->sender];
}

static void tell_too_long(struct sw_batch *batch, const struct slot *slot)
{
    char text[SW_ROCE_ADDRESS_TEXT];
    sw_port_count(batch->port, SW_PORT_TX_TOO_LONG, 1);
    if (atomic_exchange(&batch->port->told_too_long, true))
        return;
    sw_error(
        "a packet of %u bytes does not fit the way to %s: the queue pair's path MTU is larger "
        "than what the interface or a router on the way takes (with headers of up to 88 bytes)",
        slot->len_bytes, sw_roce_address_text(&slot->path->dest, text));
}

/* Each packet of a group by itself: where segmentation is refused. */
static void send_single(struct sw_batch *batch, uint32_t index)
{
    struct group group = batch->groups[index];
    for (uint32_t i = 0; i < group.count; i++) {
        struct slot *slot = &batch->slots[group.first + i];
        batch->groups[index].first = group.first + i;
        batch->groups[index].count = 1;
        if (i > 0)
            seal(batch, slot, 0);
        address_message(batch, index, 0);
        if (sendmsg(sender_of(batch, index), &batch->messages[index].msg_hdr, MSG_DONTWAIT) >= 0)
            continue;
        if (errno == EMSGSIZE)
            tell_too_long(batch, slot);
        else
            sw_port_count(batch->port, SW_PORT_TX_DROPPED, 1);
    }
}

/* What to do about a message that the kernel refused; true: try it again. */
static bool is_worth_waiting(struct sw_batch *batch, uint32_t index, int fd, int err)
{
    struct sw_port *port = batch->port;
    const struct group *group = &batch->groups[index];
    if (err == EAGAIN || err == ENOBUFS) {
        struct pollfd room = {.fd = fd, .events = POLLOUT};
        sw_port_count(port, SW_PORT_TX_WAITS, 1);
        if (poll(&room, 1, ROOM_WAIT_MS) > 0)
            return true;
        batch->dropped = true;
    } else if (err == EMSGSIZE && group->count == 1) {
        tell_too_long(batch, &batch->slots[group->first]);
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
static int send_now(int fd, struct mmsghdr *messages, uint32_t count)
{
    if (count == 1)
        return syscall(SYS_sendmsg, fd, &messages->msg_hdr, MSG_DONTWAIT) < 0 ? -1 : 1;
    return (int)syscall(SYS_sendmmsg, fd, messages, count, MSG_DONTWAIT);
}

/* Messages [from, to) all leave by one socket. */
static void send_messages(struct sw_batch *batch, uint32_t from, uint32_t to)
{
    int fd = sender_of(batch, from), waits = 0;
    while (from < to) {
        int done = fd < 0 ? -1 : send_now(fd, &batch->messages[from], to - from);
        int err = fd < 0 ? EAFNOSUPPORT : errno;
        if (done > 0) {
            from += (uint32_t)done;
        } else if (!is_worth_waiting(batch, from, fd, waits > 4 ? ENETDOWN : err)) {
            from++;
            waits = 0;
        } else {
            waits++;
        }
    }
}

bool sw_batch_flush(struct sw_batch *batch)
{
    uint32_t groups = 0;
    uint64_t bytes = 0;
    for (uint32_t at = 0; at < batch->count; groups++) {
        struct group *group = &batch->groups[groups];
        group->first = at;
        group->iov =
            at ? group[-1].iov + batch->messages[groups - 1].msg_hdr.msg_iovlen : batch->iov;
        group->count = run_of(batch, at);
        for (uint32_t i = 0; i < group->count; i++) {
            seal(batch, &batch->slots[at + i], (uint16_t)i);
            bytes += batch->slots[at + i].len_bytes;
        }
        address_message(batch, groups, group->count > 1 ? (uint16_t)batch->slots[at].len_bytes : 0);
        at += group->count;
    }
    for (uint32_t from = 0, to; from < groups; from = to) {
        for (to = from + 1; to < groups && sender_of(batch, to) == sender_of(batch, from); to++)
            ;
        send_messages(batch, from, to);
    }
    if (batch->count) {
        sw_port_count(batch->port, SW_PORT_TX_PACKETS, batch->count);
        sw_port_count(batch->port, SW_PORT_TX_BYTES, bytes);
        sw_port_count(batch->port, SW_PORT_TX_BATCHES, groups);
    }
    bool all = !batch->dropped;
    batch->count = batch->piece_count = batch->arena_bytes = 0;
    batch->dropped = false;
    return all;
}
