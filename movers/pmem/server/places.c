/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rules of the server's places: who may have one, and for how long. A client has proved itself when
 * it has asked something that is valid. Nobody takes places from those that have. The oldest of
 * those that have not is let go first: of the origin that has most of them, or of the newcomer's if
 * that has its share already. It has had time to ask, since clients that start together are as
 * honest as one. But an origin that has many keeps out none that has few. The share is no more than
 * three times what is free, to clients that may only read three times what is free to these: so
 * origins that come one by one get less each, and the next one gets something still.
 */
#include <string.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "pmem/server/server.h"

enum { TIMES_FREE = 3 };

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

static bool is_of(const struct pms_client *client, const struct in6_addr *origin)
{
    return IN6_ARE_ADDR_EQUAL(&client->origin, origin);
}

struct places_taken {
    uint32_t all, readers, unproved;
    uint32_t of_origin, unproved_of_origin;
};

static struct places_taken count_places(const struct pms_server *server,
                                        const struct in6_addr *origin)
{
    struct places_taken taken = {0};
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++) {
        const struct pms_client *client = server->clients[i];
        if (!client)
            continue;
        taken.all++;
        taken.readers += !client->may_write;
        taken.unproved += !client->is_proved;
        taken.of_origin += is_of(client, origin);
        taken.unproved_of_origin += !client->is_proved && is_of(client, origin);
    }
    return taken;
}

static uint32_t count_unproved_of(const struct pms_server *server, const struct in6_addr *origin)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++) {
        const struct pms_client *client = server->clients[i];
        count += client && !client->is_proved && is_of(client, origin);
    }
    return count;
}

static struct pms_client *find_oldest_unproved(const struct pms_server *server,
                                               const struct in6_addr *origin)
{
    struct pms_client *oldest = NULL;
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++) {
        struct pms_client *client = server->clients[i];
        if (client && !client->is_proved && is_of(client, origin) &&
            (!oldest || client->since_ns < oldest->since_ns))
            oldest = client;
    }
    return oldest;
}

/* The oldest unproved one of the origin that has most of these, and how many it has; where several
 * origins have as many, the oldest of all. `is_reader`: one that may only read. */
static struct pms_client *find_oldest_of_crowd(const struct pms_server *server, bool is_reader,
                                               uint32_t *crowd)
{
    struct pms_client *oldest = NULL;
    *crowd = 0;
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++) {
        struct pms_client *client = server->clients[i];
        if (!client || client->is_proved || (is_reader && client->may_write))
            continue;
        const uint32_t count = count_unproved_of(server, &client->origin);
        if (count > *crowd || (count == *crowd && client->since_ns < oldest->since_ns)) {
            *crowd = count;
            oldest = client;
        }
    }
    return oldest;
}

/* The client that is to leave for one of an origin that has `own` unproved ones. It may be a young
 * one if its origin still has as many then. */
static struct pms_client *places_in_the_way(const struct pms_server *server, uint32_t own,
                                            bool is_reader, bool *may_be_young)
{
    uint32_t crowd;
    struct pms_client *oldest = find_oldest_of_crowd(server, is_reader, &crowd);
    *may_be_young = own == 0 || crowd > own + 1;
    return oldest;
}

/* The client's requests are looked at first. False: it is too young to be let go. */
static bool places_end_oldest(struct pms_server *server, struct pms_client *oldest,
                              bool may_be_young)
{
    const uint32_t slot = oldest->slot;
    const bool is_young = mover_now_ns() - oldest->since_ns < server->limits.young_ns;
    pms_client_ready(server, oldest);
    if (server->clients[slot] != oldest || oldest->is_proved)
        return true;
    if (is_young && !may_be_young)
        return false;
    server->let_go++;
    pms_client_end(server, oldest);
    return true;
}

/* For such a client. */
static uint32_t places_left(const struct places_taken *taken, bool may_write)
{
    const uint32_t left = PMS_CLIENTS_MAX - taken->all;
    return may_write ? left : mover_min_u32(left, PMS_READERS_MAX - taken->readers);
}

/* Whether one more is more than what its origin may have. */
static bool has_its_share(const struct pms_limits *limits, const struct places_taken *taken,
                          bool may_write)
{
    const uint32_t most = may_write ? limits->of_one : limits->of_one / 2;
    const uint32_t left = places_left(taken, may_write), free_then = left ? left - 1 : 0;
    return taken->of_origin >= most || taken->unproved_of_origin >= limits->unproved_of_one ||
           (taken->of_origin && taken->of_origin + 1 > TIMES_FREE * free_then);
}

bool pms_places_make_room(struct pms_server *server, const struct in6_addr *origin, bool may_write)
{
    const struct pms_limits *limits = &server->limits;
    for (;;) { /* each time one more has proved itself, or is gone */
        const struct places_taken taken = count_places(server, origin);
        const uint32_t own = taken.unproved_of_origin;
        const bool has_share = has_its_share(limits, &taken, may_write);
        const bool is_reader = !may_write && taken.readers >= PMS_READERS_MAX;
        if (!has_share && places_left(&taken, may_write) && taken.unproved < PMS_UNPROVED_MAX)
            return true;
        bool may_be_young = false;
        struct pms_client *oldest = has_share
                                        ? find_oldest_unproved(server, origin)
                                        : places_in_the_way(server, own, is_reader, &may_be_young);
        if (!oldest || !places_end_oldest(server, oldest, may_be_young))
            return false;
    }
}

static bool is_too_slow(const struct pms_server *server, const struct pms_client *client,
                        uint64_t now_ns)
{
    const struct pms_limits *limits = &server->limits;
    if (!client->is_proved)
        return now_ns - client->since_ns >= limits->prove_ns;
    return client->answered_ns && now_ns - client->answered_ns >= limits->answer_ns;
}

static void end_silent(struct pms_server *server)
{
    const uint64_t now_ns = mover_now_ns();
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++) {
        struct pms_client *client = server->clients[i];
        if (!client)
            continue;
        if (is_too_slow(server, client, now_ns)) {
            server->let_go++;
            pms_client_end(server, client);
        } else if (client->is_proved && now_ns - client->probed_ns >= server->limits.probe_ns) {
            client->probed_ns = now_ns;
            pms_client_probe(server, client);
        }
    }
}

static void sweep_places(struct mover_watch *watch)
{
    struct pms_server *server = watch->context;
    end_silent(server);
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++)
        if (server->clients[i])
            return pms_places_watch(server);
}

void pms_places_watch(struct pms_server *server)
{
    const uint64_t step_ns = server->limits.prove_ns / 4;
    if (server->sweep.due_ns)
        return;
    server->sweep = (struct mover_watch){.fd = -1, .ready = sweep_places, .context = server};
    mover_loop_call_at(server->loop, &server->sweep, mover_now_ns() + step_ns + NS_PER_MS);
}
