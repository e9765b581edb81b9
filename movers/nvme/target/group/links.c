/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/group/links.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bytes.h"
#include "common/rdma/busy.h"
#include "common/rdma/resolve.h"
#include "common/serve/origin.h"
#include "common/serve/places.h"
#include "common/text/endpoint.h"
#include "common/time/clock.h"

enum {
    PLACES = 32, /* half to receive into, half to send from */
    SENDS = 16,
    RETRIES = 6,
    QUEUE_MAX = 4 << 20, /* twice the largest state */
    END_MS = 1000,
    TURN = 64, /* completions */
};

static void destroy_wire(struct nvg_wire *wire)
{
    struct nvg_links *links = wire->links;
    if (wire->number < NVG_LINKS)
        links->by_number[wire->number] = NULL;
    if (wire->connection.was_up)
        rdma_disconnect(wire->connection.id);
    wire->connection.was_up = false;
    if (wire->connection.id && wire->connection.id->qp)
        rdma_destroy_qp(wire->connection.id);
    mover_loop_unwatch(links->loop, &wire->watch);
    mover_messages_close(&wire->messages);
    mover_connection_destroy(&wire->connection);
    free(wire->queue);
    memset(wire, 0, sizeof(*wire));
    wire->links = links;
}

/* The connection is over: the machine hears of it, unless it has ended it. */
static void lose_wire(struct nvg_wire *wire)
{
    struct nvg_links *links = wire->links;
    const uint32_t number = wire->number;
    destroy_wire(wire);
    if (number < NVG_LINKS)
        nvg_machine_link_lost(links->machine, number);
}

static bool is_said(const struct nvg_wire *wire)
{
    return !wire->sending && wire->queue_at == wire->queue_end;
}

/* ---- sending ---- */

static bool send_queued(struct nvg_wire *wire)
{
    for (uint32_t i = 0; i < SENDS && wire->queue_at < wire->queue_end; i++) {
        const uint64_t place = SENDS + i;
        if (wire->sending >> i & 1)
            continue;
        const uint16_t bytes = get_le16(wire->queue + wire->queue_at);
        memcpy(mover_message_at(&wire->messages, place), wire->queue + wire->queue_at + 2, bytes);
        if (!mover_message_send(&wire->messages, place, bytes))
            return false;
        wire->sending |= 1u << i;
        wire->queue_at += 2u + bytes;
    }
    if (wire->queue_at == wire->queue_end)
        wire->queue_at = wire->queue_end = 0;
    return true;
}

static bool wire_has_room(struct nvg_wire *wire, size_t bytes)
{
    if (wire->queue_at) {
        memmove(wire->queue, wire->queue + wire->queue_at, wire->queue_end - wire->queue_at);
        wire->queue_end -= wire->queue_at;
        wire->queue_at = 0;
    }
    if (wire->queue_end + bytes <= wire->queue_size)
        return true;
    const size_t size = 2 * (wire->queue_size + bytes);
    uint8_t *queue = size <= QUEUE_MAX ? realloc(wire->queue, size) : NULL;
    if (!queue)
        return false;
    wire->queue = queue;
    wire->queue_size = size;
    return true;
}

void nvg_links_send(struct nvg_links *links, uint32_t number, const uint8_t *message, size_t bytes)
{
    struct nvg_wire *wire = links->by_number[number];
    if (!wire || !wire->is_up)
        return;
    /* One that cannot be sent to is lost: its completions, or its silence, will say so. */
    if (wire->queue_end + 2 + bytes > wire->queue_size && !wire_has_room(wire, 2 + bytes)) {
        rdma_disconnect(wire->connection.id);
        wire->is_up = false;
        return;
    }
    put_le16(wire->queue + wire->queue_end, (uint16_t)bytes);
    memcpy(wire->queue + wire->queue_end + 2, message, bytes);
    wire->queue_end += 2 + bytes;
    if (!send_queued(wire)) {
        rdma_disconnect(wire->connection.id);
        wire->is_up = false;
    }
}

void nvg_links_hang_up(struct nvg_links *links, uint32_t number)
{
    struct nvg_wire *wire = links->by_number[number];
    if (!wire)
        return;
    links->by_number[number] = NULL;
    wire->number = NVG_LINKS;
    wire->end_ns = mover_now_ns() + (uint64_t)END_MS * NS_PER_MS;
    if (!wire->is_up)
        wire->end_ns = 1;
    /* It ends in its own time: the caller may be in one of its events. */
}

/* ---- receiving ---- */

/* False: the connection is over. */
static bool wire_take_completion(struct nvg_wire *wire, const struct ibv_wc *wc)
{
    if (wc->status)
        return false;
    if (wc->opcode == IBV_WC_SEND) {
        wire->sending &= ~(1u << (wc->wr_id - SENDS));
        return send_queued(wire);
    }
    if (wc->opcode != IBV_WC_RECV)
        return false; /* a WRITE with immediate data is no message */
    if (wire->number < NVG_LINKS && wire->is_up)
        nvg_machine_message(wire->links->machine, wire->number,
                            mover_message_at(&wire->messages, wc->wr_id), wc->byte_len);
    return mover_message_receive(&wire->messages, wc->wr_id);
}

/* False: the connection is over. */
static bool wire_take_completions(struct nvg_wire *wire)
{
    struct ibv_wc wc;
    int taken = 0;
    if (!wire->connection.queue.cq)
        return true;
    if (!mover_queue_rearm(&wire->connection.queue))
        return false;
    for (; taken < TURN && mover_queue_poll(&wire->connection.queue, 1, &wc) > 0; taken++)
        if (!wire_take_completion(wire, &wc))
            return false;
    if (taken == TURN)
        mover_loop_call_at(wire->links->loop, &wire->watch, mover_now_ns());
    return true;
}

static bool wire_open_queue(struct nvg_wire *wire)
{
    struct mover_connection *c = &wire->connection;
    bool is_fine =
        mover_connection_queue(c, 2 * PLACES) &&
        mover_messages_open(&wire->messages, &c->queue, c->id, c->id->pd, PLACES, NVG_MESSAGE_MAX);
    for (uint64_t i = 0; is_fine && i < SENDS; i++)
        is_fine = mover_message_receive(&wire->messages, i);
    return is_fine;
}

/* False: the connection is over. */
static bool wire_take_event(struct nvg_wire *wire, enum mover_event event)
{
    struct rdma_conn_param param = {.retry_count = RETRIES, .rnr_retry_count = 7};
    if (event == MOVER_ROUTED)
        return wire_open_queue(wire) && !rdma_connect(wire->connection.id, &param);
    /* Where no way leads there now, the member is not gone: to the machine it is silent. One whose
     * process has ended refuses the call. */
    if ((event == MOVER_NO_ANSWER || event == MOVER_NO_DEVICE) && !wire->is_caller && !wire->is_up)
        return true;
    if (event != MOVER_UP)
        return false;
    if (!wire->is_caller) {
        wire->is_up = true;
        if (wire->number < NVG_LINKS)
            nvg_machine_link_up(wire->links->machine, wire->number);
    }
    return true;
}

static void wire_ready(struct mover_watch *watch)
{
    struct nvg_wire *wire = watch->context;
    enum mover_event event;
    /* What it had said before it ended comes first. */
    bool is_fine = wire_take_completions(wire);
    while (is_fine && (event = mover_connection_next(&wire->connection)) != MOVER_NOTHING) {
        is_fine = wire_take_event(wire, event);
        is_fine = wire_take_completions(wire) && is_fine;
    }
    if (!is_fine)
        lose_wire(wire);
    else if (wire->number == NVG_LINKS && is_said(wire))
        destroy_wire(wire);
}

/* ---- connections ---- */

static struct nvg_wire *new_wire(struct nvg_links *links, uint32_t number)
{
    for (uint32_t i = 0; i < NVG_WIRES; i++) {
        struct nvg_wire *wire = &links->wires[i];
        if (wire->is_open)
            continue;
        *wire = (struct nvg_wire){.links = links, .number = number, .is_open = true};
        wire->watch = (struct mover_watch){.fd = -1, .ready = wire_ready, .context = wire};
        links->by_number[number] = wire;
        return wire;
    }
    return NULL;
}

void nvg_links_dial(struct nvg_links *links, uint32_t number, const char *where)
{
    char text[NVG_ADDRESS_BYTES];
    const char *address, *port = NULL;
    struct sockaddr_storage to;
    struct nvg_wire *wire = new_wire(links, number);
    if (!wire)
        return; /* the machine ends it by its silence */
    strncpy(text, where, sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    /* Lost at the next tick where it is not an address: the machine is not to be called now. */
    if (!mover_split_endpoint(text, &address, &port) ||
        mover_resolve(address, port, AI_NUMERICHOST, &to))
        wire->end_ns = 1;
    else /* one that fails at once is silent, too */
        mover_connection_start(&wire->connection, links->loop->epoll_fd, &wire->watch, NULL,
                               (struct sockaddr *)&to);
}

static uint32_t free_number(const struct nvg_links *links)
{
    for (uint32_t i = NVG_LINKS_IN; i < NVG_LINKS; i++)
        if (!links->by_number[i] && !links->machine->links[i].is_open)
            return i;
    return NVG_LINKS;
}

/* ---- who may call ---- */

/* A caller has proved itself when the leader knows its name. */
static struct mover_guest links_at(void *context, uint32_t place)
{
    const struct nvg_links *links = context;
    const struct nvg_link *link = &links->machine->links[NVG_LINKS_IN + place];
    struct nvg_wire *wire = links->by_number[NVG_LINKS_IN + place];
    if (!wire)
        return (struct mover_guest){0};
    return (struct mover_guest){.client = wire,
                                .origin = wire->origin,
                                .since_ns = wire->since_ns,
                                .is_proved = link->is_member || link->is_joining};
}

static void links_look(void *context, void *client)
{
    (void)context;
    if (!wire_take_completions(client))
        lose_wire(client);
}

static void links_let_go(void *context, void *client)
{
    const struct nvg_wire *wire = client;
    struct nvg_links *links = context;
    const uint32_t number = wire->number;
    nvg_links_hang_up(links, number);
    nvg_machine_link_lost(links->machine, number);
}

static bool links_make_room(struct nvg_links *links, const struct in6_addr *origin)
{
    const struct mover_places places = {.count = NVG_LINKS - NVG_LINKS_IN,
                                        .readers_max = NVG_LINKS - NVG_LINKS_IN,
                                        .unproved_max = NVG_STRANGERS_MAX,
                                        .of_one = NVG_LINKS - NVG_LINKS_IN,
                                        .unproved_of_one = NVG_STRANGERS_MAX / 2,
                                        .young_ns = NS_PER_S,
                                        .context = links,
                                        .at = links_at,
                                        .look = links_look,
                                        .let_go = links_let_go};
    return mover_places_make_room(&places, origin, false, mover_now_ns());
}

static void take_caller(void *context, const struct mover_arrival *request)
{
    struct nvg_links *links = context;
    const struct rdma_conn_param param = {.retry_count = RETRIES, .rnr_retry_count = 7};
    const struct in6_addr origin = mover_origin_of_peer(rdma_get_peer_addr(request->id));
    const uint32_t number = links_make_room(links, &origin) ? free_number(links) : NVG_LINKS;
    struct nvg_wire *wire = number < NVG_LINKS ? new_wire(links, number) : NULL;
    request->id->context = NULL;
    if (wire && mover_connection_take(&wire->connection, links->loop->epoll_fd, &wire->watch,
                                      request->id)) {
        destroy_wire(wire);
        wire = NULL;
    }
    if (!wire) {
        mover_acceptor_refuse(&links->acceptor, request->id, "too many callers of the group",
                              mover_busy, sizeof(mover_busy));
        return;
    }
    wire->is_caller = wire->is_up = true;
    wire->origin = origin;
    wire->since_ns = mover_now_ns();
    if (!wire_open_queue(wire) ||
        rdma_accept(wire->connection.id, (struct rdma_conn_param *)(uintptr_t)&param)) {
        destroy_wire(wire);
        return;
    }
    nvg_machine_link_in(links->machine, number);
}

/* Ids have events of their own as soon as they are taken. */
static void caller_ended(void *context, void *client)
{
    (void)context;
    (void)client;
}

int nvg_links_open(struct nvg_links *links, struct nvg_machine *machine, struct mover_loop *loop,
                   const char *address, const char *port, char *error, size_t error_bytes)
{
    memset(links, 0, sizeof(*links));
    links->machine = machine;
    links->loop = loop;
    for (uint32_t i = 0; i < NVG_WIRES; i++)
        links->wires[i].links = links;
    links->acceptor = (struct mover_acceptor){.command = "nvme target --group-listen",
                                              .backlog = NVG_STRANGERS_MAX,
                                              .context = links,
                                              .request = take_caller,
                                              .ended = caller_ended};
    return mover_acceptor_open_at(&links->acceptor, loop, address, port, error, error_bytes);
}

void nvg_links_tick(struct nvg_links *links, uint64_t now_ns)
{
    for (uint32_t i = 0; i < NVG_WIRES; i++) {
        struct nvg_wire *wire = &links->wires[i];
        if (!wire->is_open || !wire->end_ns)
            continue;
        if (now_ns >= wire->end_ns)
            lose_wire(wire);
        else if (is_said(wire))
            destroy_wire(wire);
    }
}

bool nvg_links_are_idle(const struct nvg_links *links)
{
    for (uint32_t i = 0; i < NVG_WIRES; i++)
        if (links->wires[i].is_open && links->wires[i].is_up && !is_said(&links->wires[i]))
            return false;
    return true;
}

void nvg_links_close(struct nvg_links *links)
{
    for (uint32_t i = 0; i < NVG_WIRES; i++)
        if (links->wires[i].is_open)
            destroy_wire(&links->wires[i]);
    mover_acceptor_close(&links->acceptor);
}
