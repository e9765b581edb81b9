/* SPDX-License-Identifier: BSD-2-Clause */
/* The places of the server, by the rules of common/serve/places.h. */
#include "common/serve/places.h"
#include "common/time/clock.h"
#include "pmem/server/server.h"

enum { STOPPED_LOOK_NS = 200000000 };

void pms_limits_init(struct pms_limits *limits)
{
    if (!limits->of_one)
        limits->of_one = PMS_CLIENTS_MAX / 2;
    if (!limits->unproved_of_one)
        limits->unproved_of_one = PMS_UNPROVED_MAX / 4;
    if (!limits->young_ns)
        limits->young_ns = NS_PER_S;
    if (!limits->prove_ns)
        limits->prove_ns = 5ull * NS_PER_S;
    if (!limits->answer_ns)
        limits->answer_ns = 30ull * NS_PER_S;
    if (!limits->probe_ns)
        limits->probe_ns = 30ull * NS_PER_S;
}

static struct mover_guest places_at(void *context, uint32_t place)
{
    const struct pms_server *server = context;
    struct pms_client *client = server->clients[place];
    if (!client || client->is_stopped)
        return (struct mover_guest){0};
    return (struct mover_guest){.client = client,
                                .origin = client->origin,
                                .since_ns = client->since_ns,
                                .answered_ns = client->base.answered_ns,
                                .probed_ns = client->probed_ns,
                                .is_proved = client->is_proved,
                                .is_reader = !client->may_write};
}

static void places_look(void *context, void *of)
{
    struct pms_client *client = of;
    (void)context;
    mover_client_ready(&client->base);
}

static void places_let_go(void *context, void *client)
{
    struct pms_server *server = context;
    server->let_go++;
    pms_client_end(server, client);
}

static void places_probe(void *context, void *of)
{
    struct pms_server *server = context;
    struct pms_client *client = of;
    const bool was_probed = client->base.is_probed;
    client->probed_ns = mover_now_ns();
    mover_client_probe(&client->base);
    server->probes += client->base.is_probed && !was_probed;
}

static struct mover_places places_rules(struct pms_server *server)
{
    const struct pms_limits *limits = &server->limits;
    return (struct mover_places){.count = PMS_CLIENTS_MAX,
                                 .readers_max = PMS_READERS_MAX,
                                 .unproved_max = PMS_UNPROVED_MAX,
                                 .of_one = limits->of_one,
                                 .unproved_of_one = limits->unproved_of_one,
                                 .young_ns = limits->young_ns,
                                 .prove_ns = limits->prove_ns,
                                 .answer_ns = limits->answer_ns,
                                 .probe_ns = limits->probe_ns,
                                 .context = server,
                                 .at = places_at,
                                 .look = places_look,
                                 .let_go = places_let_go,
                                 .probe = places_probe};
}

bool pms_places_make_room(struct pms_server *server, const struct in6_addr *origin, bool may_write)
{
    const struct mover_places places = places_rules(server);
    return mover_places_make_room(&places, origin, !may_write, mover_now_ns());
}

static void sweep_places(struct mover_watch *watch)
{
    struct pms_server *server = watch->context;
    const struct mover_places places = places_rules(server);
    const uint64_t due_ns = mover_places_sweep(&places, mover_now_ns());
    const uint64_t again_ns = pms_clients_sweep(server) ? mover_now_ns() + STOPPED_LOOK_NS : 0;
    mover_loop_call_at(server->loop, watch,
                       again_ns && (!due_ns || again_ns < due_ns) ? again_ns : due_ns);
}

void pms_places_watch(struct pms_server *server)
{
    if (server->sweep.due_ns)
        return;
    server->sweep = (struct mover_watch){.fd = -1, .ready = sweep_places, .context = server};
    mover_loop_call_at(server->loop, &server->sweep, mover_now_ns());
}
