/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/door.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comm/peer.h"
#include "common/rdma/watch.h"
#include "common/time/clock.h"
#include "common/time/deadline.h"

enum { WAY_BACK_MS = 5000 };

int coll_door_open(struct sw_coll *coll, const struct sockaddr *address)
{
    coll->events = mover_listener_events();
    if (!coll->events)
        return -ENODEV;
    coll->timer_fd = mover_listener_timer();
    if (coll->timer_fd < 0 || !mover_watch(coll->epoll_fd, coll->events->fd, &coll->events) ||
        !mover_watch(coll->epoll_fd, coll->timer_fd, &coll->timer_fd))
        return -errno;
    coll->listener = (struct mover_listener){
        .events = coll->events, .timer_fd = coll->timer_fd, .backlog = SW_COLL_RANKS_MAX};
    return mover_listener_open(&coll->listener, address);
}

/* A listener at the loopback belongs to no device. A way to itself does. */
static struct ibv_context *find_way_back(struct sw_coll *coll)
{
    const struct sockaddr *self = (const struct sockaddr *)&coll->listener.address;
    const uint64_t until_ns = mover_now_ns() + WAY_BACK_MS * NS_PER_MS;
    struct ibv_context *verbs = NULL;
    struct mover_connection way;
    struct pollfd ready;
    enum mover_event event = mover_connection_start(&way, coll->epoll_fd, NULL, NULL, self);
    while (event == MOVER_NOTHING && mover_now_ns() < until_ns) {
        ready = (struct pollfd){.fd = way.events->fd, .events = POLLIN};
        poll(&ready, 1, mover_ms_until(until_ns, mover_now_ns(), WAY_BACK_MS));
        event = mover_connection_next(&way);
    }
    if (event == MOVER_ROUTED)
        verbs = way.id->verbs;
    mover_connection_destroy(&way);
    return verbs;
}

struct ibv_context *coll_door_device(struct sw_coll *coll)
{
    struct ibv_context *verbs = coll->listener.id->verbs;
    return verbs ? verbs : find_way_back(coll);
}

/* The rank that calls, or NULL: a stranger, or one that has called before. */
static struct coll_peer *caller_of(struct sw_coll *coll, const struct mover_arrival *arrival)
{
    struct coll_hello hello;
    if (!coll_hello_get(arrival->private_data, arrival->param.private_data_len, &hello) ||
        hello.rank >= coll->site.rank || !coll->peers || arrival->id->verbs != coll->verbs ||
        memcmp(hello.token, coll->token, COLL_TOKEN_BYTES) != 0)
        return NULL;
    struct coll_peer *peer = &coll->peers[hello.rank];
    const bool is_awaited = peer->state == COLL_PEER_ABSENT || peer->state == COLL_PEER_PROBING ||
                            peer->state == COLL_PEER_ASKED;
    return is_awaited && hello.instance == peer->card.instance ? peer : NULL;
}

/* As one that is gone. */
static void turn_away(struct rdma_cm_id *id)
{
    rdma_reject(id, NULL, 0);
    rdma_destroy_id(id);
}

static void take_request(struct sw_coll *coll, const struct mover_arrival *arrival)
{
    const struct coll_failure *failure = &coll->failure;
    const bool is_agreed = failure->is_done && !failure->is_over;
    if (failure->is_set && !failure->is_agreeing && !is_agreed) {
        turn_away(arrival->id);
        return;
    }
    struct coll_peer *peer = caller_of(coll, arrival);
    if (peer && coll_peer_accept(peer, arrival->id))
        return;
    uint8_t answer[COLL_ANSWER_BYTES];
    coll_answer_put(answer, peer ? COLL_NO_ROOM : COLL_STRANGER, coll->card.instance,
                    coll->site.rank);
    rdma_reject(arrival->id, answer, sizeof(answer));
    rdma_destroy_id(arrival->id);
    coll->strangers += !peer;
}

void coll_door_events(struct sw_coll *coll)
{
    struct mover_arrival arrival;
    while (mover_listener_next(coll->events, &arrival)) {
        if (arrival.type == RDMA_CM_EVENT_CONNECT_REQUEST)
            take_request(coll, &arrival);
        else
            mover_listener_take(&coll->listener, &arrival);
    }
}

void coll_door_tick(struct sw_coll *coll)
{
    if (mover_listener_is_due(coll->timer_fd))
        mover_listener_tick(&coll->listener);
}

void coll_door_close(struct sw_coll *coll)
{
    mover_listener_close(&coll->listener);
    if (coll->events)
        rdma_destroy_event_channel(coll->events);
    if (coll->timer_fd >= 0)
        close(coll->timer_fd);
    coll->events = NULL;
    coll->timer_fd = -1;
}
