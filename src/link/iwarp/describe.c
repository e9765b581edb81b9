/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/iwarp/describe.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "link/connections.h"
#include "link/iwarp/connection.h"

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
