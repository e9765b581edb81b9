/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One UDP port for several processes. The kernel spreads what comes to the port over their sockets
 * without knowing whose it is. A process that gets packets of another's gives them to the socket
 * "@sidewire.<slot>.roce" of that one, as they came, many in one message (such a socket queues
 * few); never waiting: what does not fit is lost, as on the way. A process that is given packets
 * asks the kernel for all that come from that sender, by a socket that is connected to it, which
 * the kernel prefers (socket lookup scores the remote address). Such sockets are closed when
 * nothing came for a while.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "link/roce/socket.h"

#define HANDED_MAGIC 0x65636f7277530001ull
#define TUNED_IDLE_NS (10 * SW_NS_PER_S)

/* In front of the packets. */
struct handed {
    uint64_t magic;
    uint8_t source[16], dest[16];
    uint32_t ifindex;
    uint32_t len_bytes;
    uint32_t segment_bytes;
    uint16_t source_port;
    uint8_t traffic_class;
    uint8_t hop_limit;
};

static unsigned int address_of(uint32_t slot, struct sockaddr_un *out)
{
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    int len = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "sidewire.%u.roce", slot);
    return (unsigned int)(offsetof(struct sockaddr_un, sun_path) + 1 + (unsigned int)len);
}

int sw_share_open(struct sw_port *port)
{
    struct sockaddr_un own;
    unsigned int len = address_of(port->slot, &own);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    sw_socket_set(fd, SOL_SOCKET, SO_SNDBUF, 4 << 20);
    if (!sw_socket_set(fd, SOL_SOCKET, SO_PASSCRED, 1) || bind(fd, (struct sockaddr *)&own, len) ||
        !sw_port_add_ear(port, fd, SW_EAR_HANDED)) {
        int err = errno;
        close(fd);
        return -err;
    }
    port->hands = fd;
    return 0;
}

static uint32_t packets_of(const struct sw_haul *haul)
{
    uint32_t step = haul->segment_bytes ? haul->segment_bytes : haul->len_bytes;
    return (haul->len_bytes + step - 1) / step;
}

void sw_share_flush(struct sw_port *port, struct sw_stage *stage)
{
    struct sockaddr_un to;
    if (!stage->packets)
        return;
    unsigned int len = address_of(stage->slot, &to);
    ssize_t done = sendto(port->hands, stage->bytes, stage->len_bytes, MSG_DONTWAIT | MSG_NOSIGNAL,
                          (struct sockaddr *)&to, len);
    sw_port_count(port,
                  done >= 0               ? SW_PORT_RX_HANDED_ON
                  : errno == ECONNREFUSED ? SW_PORT_RX_NO_PROCESS
                                          : SW_PORT_HAND_DROPPED,
                  stage->packets);
    stage->packets = stage->len_bytes = 0;
}

void sw_share_hand_on(struct sw_port *port, struct sw_stage *stage, uint32_t slot,
                      const struct sw_haul *haul)
{
    const struct sw_arrival *arrival = &haul->arrival;
    struct handed head = {
        .magic = HANDED_MAGIC,
        .ifindex = arrival->ifindex,
        .len_bytes = haul->len_bytes,
        .segment_bytes = haul->segment_bytes,
        .source_port = arrival->source_port,
        .traffic_class = arrival->traffic_class,
        .hop_limit = arrival->hop_limit,
    };
    if (arrival->was_handed_on)
        return; /* it does not go round in circles */
    memcpy(head.source, &arrival->source, 16);
    memcpy(head.dest, &arrival->dest, 16);
    if (stage->slot != slot ||
        stage->len_bytes + sizeof(head) + haul->len_bytes > sizeof(stage->bytes))
        sw_share_flush(port, stage);
    stage->slot = slot;
    stage->packets += packets_of(haul);
    memcpy(stage->bytes + stage->len_bytes, &head, sizeof(head));
    memcpy(stage->bytes + stage->len_bytes + sizeof(head), haul->bytes, haul->len_bytes);
    stage->len_bytes += (uint32_t)sizeof(head) + haul->len_bytes;
}

uint32_t sw_share_parse(const uint8_t *message, uint32_t len_bytes, struct sw_haul *out)
{
    struct handed head;
    if (len_bytes <= sizeof(head))
        return 0;
    memcpy(&head, message, sizeof(head));
    if (head.magic != HANDED_MAGIC || head.len_bytes > len_bytes - sizeof(head))
        return 0;
    *out = (struct sw_haul){
        .bytes = message + sizeof(head),
        .len_bytes = head.len_bytes,
        .segment_bytes = head.segment_bytes,
        .arrival = {.ifindex = head.ifindex,
                    .source_port = head.source_port,
                    .traffic_class = head.traffic_class,
                    .hop_limit = head.hop_limit,
                    .was_handed_on = true},
    };
    memcpy(&out->arrival.source, head.source, 16);
    memcpy(&out->arrival.dest, head.dest, 16);
    return (uint32_t)sizeof(head) + head.len_bytes;
}

static bool is_tuned(const struct sw_port *port, const struct sw_arrival *arrival)
{
    for (uint32_t i = 0; i < port->ear_count; i++) {
        const struct sw_ear *ear = &port->ears[i];
        if (ear->kind == SW_EAR_TUNED && ear->remote_port == arrival->source_port &&
            !memcmp(&ear->remote, &arrival->source, sizeof(ear->remote)))
            return true;
    }
    return false;
}

void sw_share_tune(struct sw_port *port, const struct sw_arrival *arrival, uint64_t now_ns)
{
    if (port->ear_count == SW_EARS_MAX || is_tuned(port, arrival))
        return;
    bool is_ipv4 = sw_roce_is_ipv4(&arrival->source);
    uint32_t scope = IN6_IS_ADDR_LINKLOCAL(&arrival->source) ? arrival->ifindex : 0;
    int fd = sw_socket_ear(is_ipv4, &arrival->dest, port->udp_port, scope);
    struct sockaddr_in6 remote;
    unsigned int len = sw_roce_sockaddr(&arrival->source, arrival->source_port, scope, &remote);
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&remote, len) || !sw_port_add_ear(port, fd, SW_EAR_TUNED)) {
        sw_debug("cannot ask for a sender's packets: %s", strerror(errno));
        close(fd);
        return;
    }
    struct sw_ear *ear = &port->ears[port->ear_count - 1];
    ear->remote = arrival->source;
    ear->remote_port = arrival->source_port;
    ear->heard_ns = now_ns;
}

void sw_port_tidy(struct sw_port *port, uint64_t now_ns)
{
    for (uint32_t i = 0; i < port->ear_count;) {
        struct sw_ear *ear = &port->ears[i];
        if (ear->kind != SW_EAR_TUNED || now_ns - ear->heard_ns < TUNED_IDLE_NS) {
            i++;
            continue;
        }
        close(ear->fd); /* leaves the epoll set by that */
        *ear = port->ears[--port->ear_count];
    }
}
