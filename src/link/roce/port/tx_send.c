/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the messages of a batch leave. No room in a socket is waited for, briefly: what holds it up
 * is the interface's queue, which drains by itself.
 */
#include "link/roce/port/tx_group.h"

#include <errno.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "link/roce/port/connected_sender.h"
#include "link/roce/port/port.h"

#define ROOM_WAIT_MS 2
#define SHORT_WEIGHT 16u /* so many shorter messages count as much as a long one */

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
    struct sw_tx_group *group = &batch->groups[index];
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
    const struct sw_tx_group *group = &batch->groups[index];
    return group->sender ? sw_connected_sender_fd(group->sender)
                         : batch->port->senders[group->path.is_ipv4][group->path.sender];
}

static void tell_too_long(struct sw_batch *batch, const struct sw_tx_group *group)
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
    struct sw_tx_group *group = &batch->groups[index];
    uint8_t *const arena = group->bytes;
    for (uint32_t at = 0, len; at < group->len_bytes; at += len) {
        const uint32_t left = group->len_bytes - at;
        len = sw_min_u32(left, group->segment_bytes);
        if (at)
            sw_icrc_seal(&group->path.icrc, &group->prefix, 0, arena + at, len);
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
    const struct sw_tx_group *group = &batch->groups[index];
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

/* What is to be done about an error of a connected sender's socket. Its claimant counts the
 * messages that leave by it, so the sender is lost where one message is. */
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
    const struct sw_tx_group *group = &batch->groups[index];
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
static void note_sent(struct sw_batch *batch, const struct sw_tx_group *group)
{
    const bool is_long = group->len_bytes >= SW_TX_LONG_BYTES && group->count > 1;
    if (group->sender && is_long)
        sw_connected_sender_want_ring(group->sender);
    else if (!group->sender && (is_long || ++batch->unconnected % SHORT_WEIGHT == 0))
        sw_connected_sender_want(batch->port, &group->path, sw_clock_ns());
}

/* By TCP: packet by packet. */
static void send_carried(const struct sw_batch *batch, const struct sw_tx_group *group)
{
    const uint16_t source_port = sw_port_source(batch->port, &group->path);
    for (uint32_t at = 0, len; at < group->len_bytes; at += len) {
        len = sw_min_u32(group->len_bytes - at, group->segment_bytes);
        sw_port_carrier()->send(&group->path, source_port, group->bytes + at, len);
    }
}

/* Messages that follow each other by one sender leave in one call. */
void sw_tx_send_groups(struct sw_batch *batch)
{
    const struct sw_tx_group *groups = batch->groups;
    for (uint32_t i = 0; i < batch->count; i++)
        if (!groups[i].has_room)
            address_message(batch, i, (struct iovec){groups[i].bytes, groups[i].len_bytes},
                            groups[i].count > 1 ? (uint16_t)groups[i].segment_bytes : 0);
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
}
