/* SPDX-License-Identifier: BSD-2-Clause */
/* The port's sockets, from open to close. */

#include "link/roce/port/port.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "base/minmax.h"
#include "link/roce/port/connected_sender.h"
#include "link/roce/port/holder.h"
#include "link/roce/port/path.h"
#include "link/roce/port/rx.h"
#include "link/roce/port/rx_socket.h"
#include "link/roce/port/share.h"
#include "link/roce/port/socket.h"
#include "link/roce/port/stream.h"

/* Range of source ports that no service has and hardware uses: IBTA annex A17.4.4 asks for entropy
 * in them, the dynamic range has it. */
#define SOURCE_PORT_FIRST 0xc000u
#define SOURCE_PORTS 0x4000u
#define SOURCE_PORT_TRIES 32

static const struct in6_addr any_v4 = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

static int open_sender(bool is_ipv4, uint16_t *source_port)
{
    int fd = sw_socket_udp(is_ipv4);
    if (fd < 0)
        return fd;
    /* DF and an IPv4 ID of 0; oversized packets are refused, not fragmented. */
    if (is_ipv4)
        sw_socket_set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
    else
        sw_socket_set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
    sw_socket_set(fd, SOL_SOCKET, SO_RCVBUF, 0); /* nobody is asked to answer here */
    uint16_t start = 0;
    if (getrandom(&start, sizeof(start), GRND_NONBLOCK) != sizeof(start))
        start = (uint16_t)getpid();
    for (unsigned int tried = 0; tried < SOURCE_PORT_TRIES; tried++) {
        struct sockaddr_in6 own;
        uint16_t source = (uint16_t)(SOURCE_PORT_FIRST + (start + tried * 61u) % SOURCE_PORTS);
        unsigned int len = sw_roce_sockaddr(is_ipv4 ? &any_v4 : &in6addr_any, source, 0, &own);
        if (bind(fd, (struct sockaddr *)&own, len) == 0) {
            sw_socket_set(fd, SOL_SOCKET, SO_REUSEPORT, 1); /* for connected senders */
            *source_port = source;
            return fd;
        }
    }
    int err = errno;
    close(fd);
    return -err;
}

static int open_family(struct sw_port *port, bool is_ipv4)
{
    int rx = sw_socket_receiving(is_ipv4, is_ipv4 ? &any_v4 : &in6addr_any, port->udp_port, 0);
    if (rx < 0)
        return rx;
    for (uint32_t i = 0; i < SW_PORT_SENDERS; i++) {
        int fd = open_sender(is_ipv4, &port->source_ports[is_ipv4][i]);
        if (fd < 0) {
            close(rx); /* sw_port_close() closes the senders */
            return fd;
        }
        port->senders[is_ipv4][i] = fd;
    }
    if (!sw_port_add_rx_socket(port, rx, SW_RX_SOCKET_UDP)) {
        close(rx);
        return -ENOSPC;
    }
    port->common_rx_fds[is_ipv4] = rx;
    return 0;
}

bool sw_port_is_kept_out(const struct sw_port *port, const struct in6_addr *address)
{
    return port->family_error[sw_roce_is_ipv4(address)] == -EADDRINUSE;
}

void sw_port_tell_holder(uint16_t udp_port, bool is_ipv4)
{
    static _Atomic uint64_t told_ns[2];
    const uint64_t now_ns = sw_clock_ns();
    struct sw_holder holder;
    char text[160];
    if (now_ns < atomic_load(&told_ns[is_ipv4]) + SW_NS_PER_S)
        return;
    atomic_store(&told_ns[is_ipv4], now_ns);
    sw_holder_find(udp_port, is_ipv4, &holder);
    sw_holder_describe(&holder, text, sizeof(text));
    sw_error("UDP port %u of IPv%c, which RoCE needs, is held by %s: end it (`rmmod rdma_rxe`, if "
             "it is the kernel's), run as the same user, or do without other hosts "
             "(SIDEWIRE_LINK=direct)",
             udp_port, is_ipv4 ? '4' : '6', text);
}

bool sw_port_listen(struct sw_port *port, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(port->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

struct sw_rx_socket *sw_port_add_rx_socket(struct sw_port *port, int fd,
                                           enum sw_rx_socket_kind kind)
{
    if (port->rx_socket_count == SW_RX_SOCKETS_MAX ||
        (kind != SW_RX_SOCKET_CONNECTED && !sw_port_listen(port, fd)))
        return NULL;
    struct sw_rx_socket *rx = &port->rx_sockets[port->rx_socket_count++];
    *rx = (struct sw_rx_socket){.fd = fd, .kind = kind};
    return rx;
}

/* The least time of some tries. */
static uint64_t crc_ns(const uint8_t *bytes, size_t len)
{
    uint64_t least_ns = UINT64_MAX;
    for (int i = 0; i < 4; i++) {
        uint64_t start_ns = sw_clock_ns();
        sw_icrc_add(0, bytes, len);
        uint64_t ns = sw_clock_ns() - start_ns;
        least_ns = sw_min_u64(ns, least_ns);
    }
    return least_ns;
}

/* QEMU without a hypervisor multiplies without carry bit by bit. */
static void choose_crc(void)
{
    static atomic_bool is_chosen;
    uint8_t bytes[1024] = {0};
    if (atomic_exchange(&is_chosen, true))
        return;
    sw_icrc_use_tables(true);
    uint64_t tables_ns = crc_ns(bytes, sizeof(bytes));
    sw_icrc_use_tables(false);
    uint64_t ns = crc_ns(bytes, sizeof(bytes));
    sw_icrc_use_tables(tables_ns < ns);
    sw_debug("CRC of 1 KiB: %" PRIu64 " ns, by tables %" PRIu64 " ns", ns, tables_ns);
}

int sw_port_open(struct sw_port *port, uint16_t udp_port, uint32_t slot, sw_port_deliver_fn deliver,
                 void *arg)
{
    memset(port, 0, sizeof(*port));
    memset(port->senders, -1, sizeof(port->senders));
    port->common_rx_fds[0] = port->common_rx_fds[1] = -1;
    port->udp_port = udp_port;
    port->slot = slot;
    port->deliver = deliver;
    port->arg = arg;
    port->due_ns = UINT64_MAX;
    port->epoll = sw_fd_own(epoll_create1(EPOLL_CLOEXEC));
    if (port->epoll < 0)
        return -errno;
    choose_crc();
    int rc = sw_port_open_intake(port);
    if (!rc) {
        port->family_error[true] = open_family(port, true);
        port->family_error[false] = open_family(port, false);
        if (port->family_error[true] && port->family_error[false])
            rc = port->family_error[true];
    }
    if (!rc)
        rc = sw_share_open(port);
    if (rc)
        sw_port_close(port);
    return rc;
}

void sw_port_close(struct sw_port *port)
{
    sw_connected_sender_close_all(port);
    for (uint32_t i = 0; i < port->rx_socket_count; i++)
        close(port->rx_sockets[i].fd);
    port->rx_socket_count = 0;
    for (uint32_t i = 0; i < 2 * SW_PORT_SENDERS; i++)
        if (port->senders[i / SW_PORT_SENDERS][i % SW_PORT_SENDERS] >= 0)
            close(port->senders[i / SW_PORT_SENDERS][i % SW_PORT_SENDERS]);
    memset(port->senders, -1, sizeof(port->senders));
    if (port->epoll >= 0)
        close(port->epoll);
    port->epoll = -1;
    sw_port_close_intake(port);
    sw_streams_close(port);
    sw_share_close(port);
}

int sw_port_aim(struct sw_port *port, struct sw_roce_path *path)
{
    int rc = port->family_error[path->is_ipv4];
    if (rc == -EADDRINUSE)
        sw_port_tell_holder(port->udp_port, path->is_ipv4);
    if (rc)
        return rc;
    path->dest_port = port->udp_port;
    path->sender %= SW_PORT_SENDERS;
    sw_roce_icrc(&path->source, &path->dest, sw_port_source(port, path), path->dest_port,
                 &path->icrc);
    return 0;
}

static const struct sw_port_carrier *carrier_in_use;

void sw_port_set_carrier(const struct sw_port_carrier *carrier)
{
    carrier_in_use = carrier;
}

const struct sw_port_carrier *sw_port_carrier(void)
{
    return carrier_in_use;
}

int sw_port_aim_datagrams(struct sw_port *port, struct sw_roce_path *path, bool is_message)
{
    const int rc = sw_port_aim(port, path);
    path->is_carried = !rc && carrier_in_use && !sw_roce_is_multicast(&path->dest) &&
                       carrier_in_use->wants(path, is_message);
    return rc;
}

uint64_t sw_port_counter(const struct sw_port *port, enum sw_port_counter counter)
{
    return atomic_load_explicit(&port->counters[counter], memory_order_relaxed);
}
