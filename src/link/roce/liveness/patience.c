/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of a process that does not answer, and what it is asked. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "link/roce/liveness/lifeline.h"
#include "link/roce/liveness/lifeline_impl.h"
#include "link/roce/liveness/liveness.h"
#include "link/roce/liveness/tcp.h"
#include "link/roce/port/path.h"
#include "wire/liveness.h"

#define HOST_ANSWERS_NS (300 * SW_NS_PER_MS) /* a host's kernel does, also after a loss */

/* ---- probing ----
 * Before there is a line, a datagram goes to the UDP port that the peer sends from. It reads
 * nothing there, so while it lives its kernel drops that without a word. When it has died the port
 * is closed, and the kernel says so (ICMP). */

void sw_lifeline_stop_probing(struct sw_lifeline *line)
{
    if (line->probe.fd >= 0 && sw_tcp_cookie(line->probe.fd) == line->probe.cookie)
        close(line->probe.fd);
    line->probe.fd = -1;
}

static void open_probe(struct sw_lifeline *line, uint16_t port)
{
    struct sockaddr_in6 own, peer;
    const bool is_ipv4 = sw_roce_is_ipv4(&line->dest);
    const int kind = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    const int fd = sw_fd_own((int)syscall(SYS_socket, is_ipv4 ? AF_INET : AF_INET6, kind, 0));
    if (fd < 0)
        return;
    const socklen_t own_len = sw_roce_sockaddr(&line->source, 0, line->ifindex, &own);
    const socklen_t peer_len = sw_roce_sockaddr(&line->dest, port, line->ifindex, &peer);
    if (syscall(SYS_bind, fd, &own, own_len) || syscall(SYS_connect, fd, &peer, peer_len)) {
        close(fd);
        return;
    }
    line->probe.fd = fd;
    line->probe.cookie = sw_tcp_cookie(fd);
    line->probe.port = port;
}

/* Returns whether the peer's host has said that the port is closed, to this or an earlier probe. */
static bool patience_is_gone(struct sw_lifeline *line, uint16_t port)
{
    if (line->probe.fd >= 0 &&
        (line->probe.port != port || sw_tcp_cookie(line->probe.fd) != line->probe.cookie))
        sw_lifeline_stop_probing(line);
    if (line->probe.fd < 0 && port)
        open_probe(line, port);
    return line->probe.fd >= 0 && sw_tcp_send(line->probe.fd, "", 0) == -ECONNREFUSED;
}

/* ---- asking ---- */

/* Whether the other host may be up: no PING to it has gone unacknowledged for too long. */
static bool has_host(const struct sw_lifeline *line, uint64_t now_ns)
{
    const uint64_t pinged_ns = line->liveness.pinged_ns;
    return !pinged_ns || now_ns < pinged_ns + HOST_ANSWERS_NS || sw_tcp_is_acknowledged(line->fd);
}

static bool is_meeting(struct sw_lifeline *line, const struct sw_lifeline_miss *miss,
                       uint64_t now_ns)
{
    const struct sw_liveness *l = &line->liveness;
    if (sw_liveness_is_meeting(l, now_ns) && patience_is_gone(line, miss->peer_port))
        sw_lifeline_take(line, SW_LIVENESS_GONE, now_ns);
    return sw_liveness_is_meeting(l, now_ns);
}

enum sw_lifeline_says sw_lifeline_ask(struct sw_lifeline *line, const struct sw_lifeline_miss *miss)
{
    sw_lock_acquire(&sw_lifelines.lock);
    const struct sw_liveness *l = &line->liveness;
    enum sw_lifeline_says says = SW_LIFELINE_NOTHING;
    const uint64_t now_ns = sw_clock_ns();
    if (line->is_buried)
        says = SW_LIFELINE_DEAD;
    else if (line->bury_ns || (sw_liveness_is_excused(l, miss->since_ns) && has_host(line, now_ns)))
        says = SW_LIFELINE_WAIT;
    else if (is_meeting(line, miss, now_ns))
        says = SW_LIFELINE_MEETS;
    else if (l->state == SW_LIVENESS_UP && has_host(line, now_ns))
        says = SW_LIFELINE_RUNS;
    sw_lock_release(&sw_lifelines.lock);
    return says;
}

void sw_lifeline_ping(struct sw_lifeline *line, const struct sw_lifeline_flow *flow)
{
    sw_lock_acquire(&sw_lifelines.lock);
    const uint64_t now_ns = sw_clock_ns();
    const struct sw_liveness_word ping = {.kind = SW_LIVENESS_PING,
                                          .token = now_ns,
                                          .port = flow->source_port,
                                          .from = flow->qpn,
                                          .to = flow->dest_qpn};
    if (sw_liveness_ping(&line->liveness, now_ns) && !sw_lifeline_say(line, &ping))
        line->liveness.pinged_ns = 0;
    sw_lock_release(&sw_lifelines.lock);
}
