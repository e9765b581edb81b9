/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/roce/port/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "device/queue/counters.h"
#include "link/callers.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/rx.h"
#include "link/roce/port/rx_batch.h"
#include "link/roce/port/share.h"
#include "link/roce/port/socket.h"
#include "transport/iwarp/stream.h"
#include "wire/iwarp/carried.h"

#define READY_MAX 16
#define READ_BYTES (64u << 10) /* of one connection in one go */
#define LAST_READS 64          /* of one that goes: as much as TCP keeps */

struct connection {
    struct sw_caller place; /* the first member; since it was heard last */
    struct sw_port_streams *streams;
    int fd;
    uint32_t index;
    uint32_t msn; /* of the last message */
    struct sw_stream_origin origin;
    struct sw_iwarp_stream stream;
    uint8_t buffer[SW_CARRIED_MAX];
};

struct sw_port_streams {
    struct sw_port *port;
    int epoll; /* which the port's own looks at */
    struct sw_callers places;
    struct connection *all[SW_STREAMS_MAX]; /* NULL: the place is free */
    uint8_t bytes[READ_BYTES];
};

static void drop_connection(struct connection *c)
{
    struct sw_port_streams *streams = c->streams;
    epoll_ctl(streams->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    close(c->fd);
    streams->all[c->index] = NULL;
    sw_callers_remove(&streams->places, &c->place);
    free(c);
}

/* It calls again when it has something to say. */
static void push_out_connection(struct sw_caller *place)
{
    drop_connection((struct connection *)place);
}

static bool hear_connection(struct sw_caller *place);
static const struct sw_callers_rule places_rule = {
    .places_max = SW_STREAMS_MAX,
    .fds_parts = SW_STREAMS_FDS_PARTS,
    .address_parts = SW_STREAMS_ADDRESS_PARTS,
    .hear = hear_connection,
    .turn_away = push_out_connection,
};

static int open_streams(struct sw_port *port)
{
    struct sw_port_streams *streams = calloc(1, sizeof(*streams));
    if (!streams)
        return -ENOMEM;
    streams->epoll = sw_fd_own(epoll_create1(EPOLL_CLOEXEC));
    if (streams->epoll < 0 || !sw_port_listen(port, streams->epoll)) {
        const int err = errno;
        if (streams->epoll >= 0)
            close(streams->epoll);
        free(streams);
        return -err;
    }
    streams->port = port;
    streams->places.rule = &places_rule;
    port->streams = streams;
    return 0;
}

void sw_streams_close(struct sw_port *port)
{
    struct sw_port_streams *streams = port->streams;
    if (!streams)
        return;
    /* A forked child shares the epoll with its parent: nothing is taken out of it. */
    for (uint32_t i = 0; i < SW_STREAMS_MAX; i++) {
        if (streams->all[i])
            close(streams->all[i]->fd);
        free(streams->all[i]);
    }
    close(streams->epoll);
    free(streams);
    port->streams = NULL;
}

/* ---- beginning ---- */

static uint32_t free_index(const struct sw_port_streams *streams)
{
    uint32_t index = 0;
    while (streams->all[index])
        index++;
    return index;
}

int sw_streams_add(struct sw_port *port, int fd, const struct sw_stream_origin *origin,
                   uint64_t now_ns)
{
    sw_lock_assert_held(&port->rx_lock);
    struct connection *c = malloc(sizeof(*c));
    const int rc = !c ? -ENOMEM : port->streams ? 0 : open_streams(port);
    if (rc) {
        free(c);
        return rc;
    }
    struct sw_port_streams *streams = port->streams;
    sw_callers_make_room(&streams->places, &origin->source, now_ns);
    c->streams = streams;
    c->fd = fd;
    c->index = free_index(streams);
    c->msn = 0;
    c->origin = *origin;
    sw_iwarp_stream_init(&c->stream, c->buffer, sizeof(c->buffer), origin->has_crc);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = c->index};
    if (epoll_ctl(streams->epoll, EPOLL_CTL_ADD, fd, &event)) {
        const int err = errno;
        free(c);
        return -err;
    }
    streams->all[c->index] = c;
    sw_callers_add(&streams->places, &c->place, &origin->source, now_ns);
    return 0;
}

/* ---- receiving ---- */

static uint32_t deliver_packet(struct sw_port *port, const struct connection *c,
                               const struct sw_carried *carried)
{
    const struct sw_rx_batch batch = {
        .bytes = carried->packet,
        .len_bytes = carried->len_bytes,
        .arrival = {.source = c->origin.source,
                    .dest = c->origin.dest,
                    .ifindex = c->origin.ifindex,
                    .source_port = carried->source_port,
                    .traffic_class = carried->traffic_class,
                    .hop_limit = carried->hop_limit,
                    .is_carried = true},
    };
    bool is_known;
    return sw_port_take_batch(port, &batch, &is_known);
}

/* False: the peer does not speak this, and the connection ends. */
static bool stream_take_bytes(struct sw_port *port, struct connection *c, const uint8_t *bytes,
                              size_t len, uint32_t *delivered)
{
    struct sw_iwarp_fpdu fpdu;
    struct sw_carried carried;
    enum sw_iwarp_found found;
    size_t used;
    while ((found = sw_iwarp_stream_take(&c->stream, bytes, len, &used, &fpdu)) == SW_IWARP_FPDU) {
        if (!sw_carried_decode(fpdu.ulpdu, fpdu.len, &carried) || carried.msn != c->msn + 1)
            return false;
        c->msn = carried.msn;
        *delivered += deliver_packet(port, c, &carried);
        bytes += used;
        len -= used;
    }
    return found == SW_IWARP_MORE;
}

static uint32_t read_connection(struct sw_port *port, uint32_t index, uint64_t now_ns, bool *more)
{
    struct sw_port_streams *streams = port->streams;
    struct connection *c = streams->all[index];
    char text[SW_ROCE_ADDRESS_TEXT];
    uint32_t delivered = 0;
    const long got =
        syscall(SYS_recvfrom, c->fd, streams->bytes, READ_BYTES, MSG_DONTWAIT, NULL, NULL);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0) {
        drop_connection(c);
        return 0;
    }
    c->place.since_ns = now_ns;
    *more |= got == READ_BYTES;
    if (!stream_take_bytes(port, c, streams->bytes, (size_t)got, &delivered)) {
        sw_counter_add(sw_roce_device_at(&c->origin.dest), SW_RX_DROP_MALFORMED);
        sw_debug("TCP from %s brings no datagrams", sw_roce_address_text(&c->origin.source, text));
        drop_connection(c);
    }
    return delivered;
}

/* Datagrams that it has brought are not lost with it. */
static bool hear_connection(struct sw_caller *place)
{
    const struct connection *c = (const struct connection *)place;
    struct sw_port_streams *streams = c->streams;
    const uint32_t index = c->index;
    bool more = true;
    for (int i = 0; i < LAST_READS && more && streams->all[index]; i++) {
        more = false;
        read_connection(streams->port, index, sw_clock_ns(), &more);
    }
    sw_share_flush(streams->port);
    return streams->all[index];
}

uint32_t sw_streams_receive(struct sw_port *port, uint64_t now_ns, bool *more)
{
    sw_lock_assert_held(&port->rx_lock);
    struct sw_port_streams *streams = port->streams;
    struct epoll_event ready[READY_MAX];
    uint32_t delivered = 0;
    if (!streams->places.count)
        return 0;
    const long count =
        syscall(SYS_epoll_pwait, streams->epoll, ready, READY_MAX, 0, NULL, (size_t)0);
    for (long i = 0; i < count; i++)
        if (streams->all[ready[i].data.u32])
            delivered += read_connection(port, ready[i].data.u32, now_ns, more);
    *more |= count == READY_MAX;
    return delivered;
}
