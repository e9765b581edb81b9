/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/clients.h"

#include "common/base/minmax.h"
#include "common/rdma/busy.h"
#include "common/serve/origin.h"
#include "common/time/clock.h"

/* While one message is answered, the next one comes. */
enum { MESSAGES = 2, RETRY_FOREVER = 7 };

/* ---- who has a place ---- */

static struct mover_guest clients_at(void *context, uint32_t place)
{
    const struct mover_clients *clients = context;
    struct mover_guest guest = clients->places[place].guest;
    guest.answered_ns = clients->places[place].client.answered_ns;
    return guest;
}

static void clients_look(void *context, void *client)
{
    (void)context;
    mover_client_ready(client);
}

static void clients_end(void *context, void *client)
{
    struct mover_clients *clients = context;
    struct mover_clients_place *place = LIST_MEMBER(client, struct mover_clients_place, client);
    place->guest.client = NULL;
    mover_client_end(client);
    if (clients->left)
        clients->left(clients->context, place);
}

static void clients_let_go(void *context, void *client)
{
    struct mover_clients *clients = context;
    clients->ended++;
    clients_end(context, client);
}

static void clients_probe(void *context, void *client)
{
    (void)context;
    LIST_MEMBER(client, struct mover_clients_place, client)->guest.probed_ns = mover_now_ns();
    mover_client_probe(client);
}

static const struct mover_places clients_rules = {
    .count = MOVER_CLIENTS_MAX,
    .readers_max = MOVER_CLIENTS_MAX,
    .unproved_max = MOVER_CLIENTS_MAX / 2,
    .of_one = MOVER_CLIENTS_MAX / 2,
    .unproved_of_one = MOVER_CLIENTS_MAX / 8,
    .young_ns = NS_PER_S,
    .prove_ns = 5 * NS_PER_S,
    .answer_ns = 30 * NS_PER_S,
    .probe_ns = 30 * NS_PER_S,
    .at = clients_at,
    .look = clients_look,
    .let_go = clients_let_go,
    .probe = clients_probe,
};

static void clients_sweep(struct mover_watch *watch)
{
    struct mover_clients *clients = watch->context;
    mover_loop_call_at(clients->loop, watch, mover_places_sweep(&clients->rules, mover_now_ns()));
}

/* NULL: there is none for it, yet or at all. */
static struct mover_clients_place *clients_find_place(struct mover_clients *clients,
                                                      const struct in6_addr *origin)
{
    struct mover_clients_place *place = clients->places;
    if (!mover_places_make_room(&clients->rules, origin, false, mover_now_ns()))
        return NULL;
    while (place->guest.client)
        place++;
    assert(place < clients->places + MOVER_CLIENTS_MAX);
    return place;
}

/* ---- a client ---- */

static bool clients_answer(struct mover_client *client, uint8_t *message, uint32_t *bytes)
{
    struct mover_clients *clients = client->context;
    struct mover_clients_place *place = LIST_MEMBER(client, struct mover_clients_place, client);
    clients->asking = place;
    const bool is_fine = clients->answer(clients->context, message, bytes);
    clients->asking = NULL;
    if (!is_fine)
        return false;
    place->guest.is_proved = true;
    clients->messages++;
    return true;
}

static void clients_client_ended(struct mover_client *client)
{
    clients_end(client->context, client);
}

static bool clients_accept(struct mover_clients *clients, struct mover_clients_place *place,
                           const struct mover_arrival *request)
{
    struct rdma_cm_id *id = request->id;
    struct mover_client *client = &place->client;
    struct rdma_conn_param param = {.rnr_retry_count = RETRY_FOREVER};
    struct ibv_pd *pd = clients->came ? clients->came(clients->context, place, id) : id->pd;
    param.responder_resources =
        (uint8_t)mover_min_u32(clients->reads, request->param.responder_resources);
    if (!pd)
        return false;
    id->context = client;
    *client = (struct mover_client){
        .context = clients, .answer = clients_answer, .ended = clients_client_ended};
    if (mover_client_open(client, clients->loop, id, pd, MESSAGES, clients->message_bytes) &&
        !rdma_accept(id, &param))
        return true;
    mover_client_close(client);
    if (clients->left)
        clients->left(clients->context, place);
    return false;
}

static void clients_take_request(void *context, const struct mover_arrival *request)
{
    struct mover_clients *clients = context;
    struct rdma_cm_id *id = request->id;
    const struct in6_addr origin = mover_origin_of_peer(rdma_get_peer_addr(id));
    id->context = NULL;
    clients->connected++;
    if (clients->admits && !clients->admits(clients->context, rdma_get_peer_addr(id))) {
        clients->refused++;
        mover_acceptor_refuse(&clients->acceptor, id, "its rules let nobody in from there",
                              mover_denied, sizeof(mover_denied));
        return;
    }
    struct mover_clients_place *place = clients_find_place(clients, &origin);
    if (place)
        place->number = clients->connected;
    if (!place || !clients_accept(clients, place, request)) {
        clients->refused++;
        mover_acceptor_refuse(&clients->acceptor, id,
                              place ? "the RDMA device has no room" : "there is no place left",
                              mover_busy, sizeof(mover_busy));
        return;
    }
    const uint64_t now_ns = mover_now_ns();
    place->guest = (struct mover_guest){
        .client = &place->client, .origin = origin, .since_ns = now_ns, .probed_ns = now_ns};
    if (!clients->sweep.due_ns)
        clients_sweep(&clients->sweep);
}

/* ---- all of them ---- */

int mover_clients_open(struct mover_clients *clients, struct mover_loop *loop, const char *address,
                       const char *port, char *error, size_t error_bytes)
{
    clients->loop = loop;
    clients->rules = clients_rules;
    clients->rules.context = clients;
    clients->sweep = (struct mover_watch){.fd = -1, .ready = clients_sweep, .context = clients};
    clients->acceptor = (struct mover_acceptor){.command = clients->command,
                                                .backlog = MOVER_CLIENTS_MAX,
                                                .context = clients,
                                                .request = clients_take_request,
                                                .ended = clients_end};
    return mover_acceptor_open_at(&clients->acceptor, loop, address, port, error, error_bytes);
}

void mover_clients_end(struct mover_clients *clients, uint64_t number)
{
    for (uint32_t i = 0; i < MOVER_CLIENTS_MAX; i++) {
        struct mover_clients_place *place = &clients->places[i];
        if (!place->guest.client || place->number != number || place == clients->asking)
            continue;
        clients->ended++;
        clients_end(clients, &place->client);
        return;
    }
}

json_t *mover_clients_status(const struct mover_clients *clients)
{
    json_int_t count = 0;
    for (uint32_t i = 0; i < MOVER_CLIENTS_MAX; i++)
        count += clients->places[i].guest.client != NULL;
    return json_pack("{sI si sI sI sI sI}", "clients", count, "clients_max", MOVER_CLIENTS_MAX,
                     "connected", (json_int_t)clients->connected, "refused",
                     (json_int_t)clients->refused, "ended", (json_int_t)clients->ended, "messages",
                     (json_int_t)clients->messages);
}

void mover_clients_close(struct mover_clients *clients)
{
    for (uint32_t i = 0; i < MOVER_CLIENTS_MAX; i++)
        if (clients->places[i].guest.client)
            clients_end(clients, clients->places[i].guest.client);
    if (clients->sweep.due_ns)
        mover_loop_call_at(clients->loop, &clients->sweep, 0);
    mover_acceptor_close(&clients->acceptor);
}
