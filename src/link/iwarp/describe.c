/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/iwarp/describe.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "link/connections.h"
#include "link/iwarp/connection.h"

#define SILENCE_NS (100 * SW_NS_PER_MS) /* of a peer, that is no pause any more */

static uint32_t ask_queue(int fd, unsigned long what)
{
    int bytes = 0;
    return syscall(SYS_ioctl, fd, what, &bytes) ? 0 : (uint32_t)bytes;
}

void sw_iwarp_describe_socket(int fd, struct sw_connection *out)
{
    struct tcp_info info = {0};
    socklen_t own_len = sizeof(out->own), peer_len = sizeof(out->peer), len = sizeof(info);
    syscall(SYS_getsockname, fd, &out->own, &own_len);
    syscall(SYS_getpeername, fd, &out->peer, &peer_len);
    out->tcp.queued = ask_queue(fd, SIOCOUTQ);
    out->tcp.unsent = ask_queue(fd, SIOCOUTQNSD);
    out->tcp.unread = ask_queue(fd, SIOCINQ);
    if (syscall(SYS_getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &len))
        return;
    out->tcp.retransmits = info.tcpi_total_retrans;
    out->tcp.tries = info.tcpi_retransmits;
    out->tcp.rtt_us = info.tcpi_rtt;
    out->tcp.window = info.tcpi_snd_wnd;
}

/* The wait of a RoCE device's queue pair, for which TCP has room. */
static enum sw_connection_wait wait_of_paired(const struct sw_iwarp_connection *c)
{
    const struct sw_iwarp *machine = &c->machine;
    const struct sw_request *next = &machine->ring[machine->sent & machine->mask];
    const bool has_next = machine->sent != machine->tail;
    if (machine->paired.waits)
        return SW_CONNECTION_WAITS_RECEIVE;
    if (c->qp->sq.is_paced && has_next)
        return SW_CONNECTION_WAITS_RATE;
    if (has_next && (next->flags & SW_REQUEST_FENCE) && machine->read_count)
        return SW_CONNECTION_WAITS_FENCE;
    if (has_next && sw_request_is_answered(next) && machine->read_count >= machine->config.ord)
        return SW_CONNECTION_WAITS_DEPTH;
    return SW_CONNECTION_WAITS_PROCESS;
}

void sw_iwarp_describe_paired(const struct sw_qp *qp, struct sw_connection *out)
{
    const struct sw_iwarp_connection *c = qp->link_state;
    const uint64_t now_ns = sw_clock_ns();
    if (!sw_iwarp_describe(qp, out) || qp->sq.head == qp->sq.tail)
        return;
    const uint64_t still_ns = now_ns > c->moved_ns ? now_ns - c->moved_ns : 0;
    out->wait = (uint8_t)wait_of_paired(c);
    if (out->wait == SW_CONNECTION_WAITS_RECEIVE) {
        out->tries = (uint8_t)sw_min_u32(c->machine.paired.rnr_tries, UINT8_MAX);
        out->tries_most = c->machine.config.rnr_retry;
    } else if (out->wait == SW_CONNECTION_WAITS_PROCESS && still_ns < SILENCE_NS) {
        out->wait = SW_CONNECTION_WAITS_NOT;
    } else {
        out->waited_ms = (uint32_t)(still_ns / SW_NS_PER_MS);
    }
}

bool sw_iwarp_describe(const struct sw_qp *qp, struct sw_connection *out)
{
    sw_lock_assert_held(&qp->lock);
    const struct sw_iwarp_connection *c = qp->link_state;
    if (!c)
        return false;
    out->flags |= (uint8_t)((c->has_crc ? SW_CONNECTION_HAS_CRC : 0) |
                            (c->is_blocked ? SW_CONNECTION_IS_BLOCKED : 0) |
                            (c->machine.is_held ? SW_CONNECTION_IS_HELD : 0) |
                            (c->is_watched ? SW_CONNECTION_IS_WATCHED : 0));
    out->reads = c->machine.read_count;
    sw_iwarp_describe_socket(c->fd, out);
    return true;
}
