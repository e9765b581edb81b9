/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/comm/failure.h"
#include "collectives/comm/meet.h"
#include "collectives/comm/send.h"
#include "common/base/minmax.h"
#include "common/time/clock.h"

enum {
    RETRY_MS = 100,
    PROBE_MS = 1000,  /* so long the higher one waits for the lower one to ask */
    REFUSALS_MAX = 3, /* where nobody listens: then nobody comes back */
};

void coll_peer_init(struct coll_peer *peer, struct sw_coll *coll, uint32_t rank)
{
    *peer = (struct coll_peer){.coll = coll, .rank = rank};
    peer->connection.epoll_fd = -1;
    peer->last = &peer->first;
    peer->inbox = coll->mailbox + (size_t)rank * coll->layout.slice_bytes;
    peer->outbox = coll->outbox + (size_t)rank * coll->layout.slice_bytes;
}

/* ---- the queue pair ---- */

static bool make_peer_queue_pair(struct coll_peer *peer)
{
    struct sw_coll *coll = peer->coll;
    struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = COLL_SENDS,
                                            .max_recv_wr = COLL_RECEIVES,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = coll->inline_bytes}};
    if (!mover_queue_make_qp(&coll->queue, peer->connection.id, coll->pd, &attr)) {
        attr.cap.max_inline_data = 0;
        if (!mover_queue_make_qp(&coll->queue, peer->connection.id, coll->pd, &attr))
            return false;
        coll->inline_bytes = 0;
    }
    for (int i = 0; i < COLL_RECEIVES; i++)
        if (!coll_send_expect_bell(peer))
            return false;
    return true;
}

static struct rdma_conn_param peer_param(const struct sw_coll *coll, const uint8_t *said,
                                         uint8_t bytes)
{
    return (struct rdma_conn_param){.private_data = said,
                                    .private_data_len = bytes,
                                    .responder_resources = (uint8_t)coll->reads_max,
                                    .initiator_depth = (uint8_t)coll->reads_max,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7};
}

/* The device is not asked for WRITEs in order (ibv_query_qp_data_in_order()), so marks are WRITEs
 * of their own. Sidewire gives that order to all that comes to the queue pair once it was asked,
 * long blocks too, and 8 bytes are no quicker by it: 0.41 us, and 0.42 without. */
static void go_up(struct coll_peer *peer)
{
    peer->state = COLL_PEER_UP;
    peer->refusals = 0;
    coll_send_deferred(peer);
}

void coll_peer_note_bell(struct coll_peer *peer)
{
    if (peer->state == COLL_PEER_ASKED)
        go_up(peer);
}

/* ---- the rank that asks ---- */

static void await_later_dial(struct coll_peer *peer, uint32_t ms)
{
    peer->state = COLL_PEER_ABSENT;
    peer->retry_ns = mover_now_ns() + ms * NS_PER_MS;
}

static void dial_again_later(struct coll_peer *peer)
{
    mover_connection_destroy(&peer->connection);
    await_later_dial(peer, RETRY_MS);
}

/* The lower one dials. It may have died before it has: then nobody else would know. */
static bool is_dialer(const struct coll_peer *peer)
{
    return peer->rank > peer->coll->site.rank;
}

static void say_no_connection(struct coll_peer *peer, enum mover_event event,
                              enum sw_coll_status status)
{
    char where[32], text[MOVER_CONNECTION_SAID];
    snprintf(where, sizeof(where), "rank %u", peer->rank);
    mover_connection_say(&peer->connection, event, where, text);
    coll_fail_here(peer->coll, status, "%s", text);
}

static void dial_peer(struct coll_peer *peer)
{
    struct sw_coll *coll = peer->coll;
    struct sockaddr_storage source = coll->listener.address;
    coll_meet_clear_port(&source);
    peer->retry_ns = 0;
    peer->state = is_dialer(peer) ? COLL_PEER_DIALING : COLL_PEER_PROBING;
    const enum mover_event event =
        mover_connection_start(&peer->connection, coll->epoll_fd, peer, (struct sockaddr *)&source,
                               (struct sockaddr *)&peer->card.address);
    if (event != MOVER_NOTHING)
        say_no_connection(peer, event, event == MOVER_FAULT ? SW_COLL_SYSTEM : SW_COLL_ADDRESS);
}

void coll_peer_want(struct coll_peer *peer)
{
    if (peer->state != COLL_PEER_ABSENT || peer->retry_ns || peer->rank == peer->coll->site.rank)
        return;
    if (is_dialer(peer))
        dial_peer(peer);
    else
        await_later_dial(peer, PROBE_MS);
}

uint64_t coll_peer_tick(struct coll_peer *peer, uint64_t now_ns)
{
    if (!peer->retry_ns)
        return UINT64_MAX;
    if (now_ns < peer->retry_ns)
        return peer->retry_ns;
    dial_peer(peer);
    return UINT64_MAX;
}

static void ask_peer_for_connection(struct coll_peer *peer)
{
    struct sw_coll *coll = peer->coll;
    struct rdma_cm_id *id = peer->connection.id;
    struct coll_hello hello = {.instance = coll->card.instance, .rank = coll->site.rank};
    uint8_t said[COLL_HELLO_BYTES];
    memcpy(hello.token, coll->token, COLL_TOKEN_BYTES);
    coll_hello_put(said, &hello);
    struct rdma_conn_param param = peer_param(coll, said, sizeof(said));
    if (id->verbs != coll->verbs)
        coll_fail_here(coll, SW_COLL_ADDRESS, "rank %u is behind another RDMA device", peer->rank);
    else if (!make_peer_queue_pair(peer))
        coll_fail_here(coll, SW_COLL_NO_MEMORY, "the RDMA device has no room: %s", strerror(errno));
    else if (rdma_connect(id, &param))
        dial_again_later(peer);
}

/* An answer of the peer's own. */
static bool get_peer_answer(const struct coll_peer *peer, enum coll_answer *answer)
{
    const struct mover_connection *connection = &peer->connection;
    uint64_t instance;
    uint32_t rank;
    return coll_answer_get(connection->private_data, connection->private_bytes, answer, &instance,
                           &rank) &&
           instance == peer->card.instance && rank == peer->rank;
}

static void take_acceptance(struct coll_peer *peer)
{
    enum coll_answer answer;
    if (peer->state == COLL_PEER_ASKED ||
        (get_peer_answer(peer, &answer) && answer == COLL_ACCEPTED))
        go_up(peer);
    else
        coll_fail_here(peer->coll, SW_COLL_PROTOCOL, "something else answers for rank %u",
                       peer->rank);
}

static void peer_take_refusal(struct coll_peer *peer)
{
    enum coll_answer answer;
    if (get_peer_answer(peer, &answer) && peer->state == COLL_PEER_PROBING) {
        mover_connection_destroy(&peer->connection); /* it is there, and will dial */
        await_later_dial(peer, PROBE_MS);
    } else if (get_peer_answer(peer, &answer) && answer == COLL_NO_ROOM) {
        coll_fail_here(peer->coll, SW_COLL_NO_MEMORY, "rank %u has no room for a connection",
                       peer->rank);
    } else if (get_peer_answer(peer, &answer)) {
        coll_fail_here(peer->coll, SW_COLL_PROTOCOL, "rank %u takes this rank for a stranger",
                       peer->rank);
    } else if (++peer->refusals < REFUSALS_MAX) {
        dial_again_later(peer);
    } else {
        mover_connection_destroy(&peer->connection);
        coll_peer_lose(peer);
    }
}

/* ---- the rank that is asked ---- */

/* Its last word did not come, or it gave the call up: it asks anew. */
static void await_next_call(struct coll_peer *peer)
{
    mover_connection_destroy(&peer->connection);
    await_later_dial(peer, PROBE_MS);
}

/* A call that was given up takes no queue pair. */
static void peer_take_no_room(struct coll_peer *peer, int why)
{
    if (why == EINVAL)
        await_next_call(peer);
    else
        coll_fail_here(peer->coll, SW_COLL_NO_MEMORY, "the RDMA device has no room: %s",
                       strerror(why));
}

bool coll_peer_accept(struct coll_peer *peer, struct rdma_cm_id *id)
{
    struct sw_coll *coll = peer->coll;
    uint8_t said[COLL_ANSWER_BYTES];
    if (peer->state != COLL_PEER_ABSENT) /* it gave that call up, and asks anew; or it was probed */
        mover_connection_destroy(&peer->connection);
    peer->state = COLL_PEER_ABSENT;
    peer->retry_ns = 0;
    const int code = mover_connection_take(&peer->connection, coll->epoll_fd, peer, id);
    if (code) {
        coll_fail_here(coll, SW_COLL_NO_MEMORY, "there is no room for a connection: %s",
                       strerror(-code));
        return false;
    }
    coll_answer_put(said, COLL_ACCEPTED, coll->card.instance, coll->site.rank);
    struct rdma_conn_param param = peer_param(coll, said, sizeof(said));
    peer->state = COLL_PEER_ASKED;
    if (!make_peer_queue_pair(peer))
        peer_take_no_room(peer, errno);
    else if (rdma_accept(peer->connection.id, &param))
        coll_peer_lose(peer);
    return true;
}

/* ---- both ---- */

static void take_peer_event(struct coll_peer *peer, enum mover_event event)
{
    const bool is_dialing = peer->state == COLL_PEER_DIALING || peer->state == COLL_PEER_PROBING;
    if (peer->state == COLL_PEER_ENDED) /* a completion has told it before */
        return;
    if (peer->state == COLL_PEER_UP && (event == MOVER_UP || event == MOVER_NO_ANSWER))
        return; /* a doorbell has */
    switch (event) {
    case MOVER_NOTHING:
        break;
    case MOVER_ROUTED:
        ask_peer_for_connection(peer);
        break;
    case MOVER_UP:
        take_acceptance(peer);
        break;
    case MOVER_REJECTED:
        peer_take_refusal(peer);
        break;
    case MOVER_NO_RDMA:
    case MOVER_NO_DEVICE:
        say_no_connection(peer, event, SW_COLL_ADDRESS);
        break;
    case MOVER_FAULT:
        say_no_connection(peer, event, SW_COLL_SYSTEM);
        break;
    case MOVER_NO_ANSWER:
    case MOVER_ENDED:
    case MOVER_DEVICE_GONE:
        if (is_dialing && event == MOVER_NO_ANSWER)
            dial_again_later(peer);
        else if (peer->state == COLL_PEER_ASKED && event == MOVER_NO_ANSWER)
            await_next_call(peer);
        else
            coll_peer_lose(peer);
        break;
    }
}

void coll_peer_events(struct coll_peer *peer)
{
    enum mover_event event;
    while (peer->connection.id &&
           (event = mover_connection_next(&peer->connection)) != MOVER_NOTHING)
        take_peer_event(peer, event);
}

void coll_peer_lose(struct coll_peer *peer)
{
    peer->state = COLL_PEER_ENDED;
    peer->retry_ns = 0;
    coll_send_forget(peer);
}

bool coll_peer_has_left(const struct coll_peer *peer, uint64_t number)
{
    return coll_word_read(peer->inbox + COLL_AT_LEFT) > number;
}

bool coll_peer_has_quit(const struct coll_peer *peer, uint64_t number)
{
    const uint64_t left = coll_word_read(peer->inbox + COLL_AT_LEFT);
    return left && left <= number;
}

bool coll_peer_has_closed(const struct coll_peer *peer)
{
    return peer->state == COLL_PEER_ENDED || coll_word_read(peer->inbox + COLL_AT_LEFT);
}

void coll_peer_tear_down(struct coll_peer *peer)
{
    if (peer->connection.id || peer->connection.events)
        mover_connection_destroy(&peer->connection);
    peer->state = COLL_PEER_ENDED;
    peer->retry_ns = 0;
    coll_send_forget(peer);
}
