/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Serves regions: takes connections, says who may use what, and hands out keys. One thread, that
 * of its loop. Data never passes through it.
 */
#ifndef SW_MOVERS_PMEM_SERVER_H
#define SW_MOVERS_PMEM_SERVER_H

#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/serve/acceptor.h"
#include "common/serve/client.h"
#include "pmem/server/memory.h"
#include "pmem/server/rules.h"
#include "pmem/wire/control.h"

enum {
    PMS_REGIONS_MAX = PMF_LIST_MAX,
    PMS_CLIENTS_MAX = 256,
    PMS_READERS_MAX = 192, /* clients without any right to write: they leave some to the others */
    PMS_UNPROVED_MAX = 64, /* that have not asked anything yet */
    PMS_GRANTS_MAX = 64,
    PMS_RECEIVES = 2
};

struct pms_region {
    char name[PMF_NAME_BYTES];
    struct pms_memory memory;
    uint64_t opens;
};

/* What one set of rules gives on one region. */
struct pms_share {
    bool is_made;
    struct ibv_mr *mrs[PMS_RULES_MAX];
    struct pmf_range ranges[PMS_RULES_MAX];
    uint32_t count;
    uint8_t flags; /* enum pmf_flags */
};

/* What one set of rules gives on one device: a domain of its own, so that keys of others are
 * nothing in it. It stays as long as the server. */
struct pms_grant {
    struct ibv_context *verbs;
    struct ibv_pd *pd;
    uint64_t mask;            /* of rules */
    struct pms_share *shares; /* one for each region, made when it is opened first */
};

/* As those of struct mover_places (common/serve/places.h). */
struct pms_limits {
    uint32_t of_one, unproved_of_one;
    uint64_t young_ns, prove_ns, answer_ns, probe_ns;
};

struct pms_client {
    struct mover_client base;
    struct in6_addr origin;
    uint64_t since_ns, probed_ns;
    bool is_proved, may_write;
    /* Its connection is over, and its process is stopped amid a store: it stays until that has gone
     * on or ended, since the regions that it could write to are given to nobody alone before. */
    bool is_stopped;
    struct pms_grant *grant;
    uint32_t slot;
    uint32_t opened;     /* regions, a bit for each */
    uint8_t flush_flags; /* that its queue pair has been given: enum pmf_flags */
    char label[PMF_NAME_BYTES], where[INET6_ADDRSTRLEN];
};

struct pms_server {
    struct pms_region *regions; /* of the caller */
    uint32_t regions_count;
    struct pms_rules rules;
    uint8_t instance[16];
    struct mover_acceptor acceptor;
    struct mover_loop *loop;  /* of the caller */
    struct mover_watch sweep; /* a time, while there are clients */
    struct pms_grant grants[PMS_GRANTS_MAX];
    uint32_t grants_count;
    struct pms_client *clients[PMS_CLIENTS_MAX];
    uint64_t started_ns;
    /* Connections; of these refused, and ended for another one's wish; messages. */
    uint64_t connections, refused, ended, malformed;
    uint64_t let_go; /* for their silence, or for another one that is unproved, too */
    uint64_t probes;
    struct pms_limits limits; /* of the caller; what is 0 becomes the usual */
    bool is_shared;           /* others serve the regions, too: nobody is alone here */
};

/* Serves by that loop from here on. 0, or a negative errno and what is wrong: then there is nothing
 * to end. The rules fit the regions. */
int pms_server_start(struct pms_server *server, struct mover_loop *loop,
                     const struct sockaddr *listen, char *error, size_t error_bytes);
/* Tells of disks that have failed since the last time. */
void pms_server_look_at_disks(struct pms_server *server);
void pms_server_end(struct pms_server *server);

/* ---- grant.c ---- */

/* NULL where the device has no room. */
struct pms_grant *pms_grant_of(struct pms_server *server, struct ibv_context *verbs, uint64_t mask);
/* Registers on first need. NULL where the device has no room. */
struct pms_share *pms_share_of(struct pms_server *server, struct pms_grant *grant, uint32_t region);
void pms_grants_free(struct pms_server *server);

/* ---- places.c ---- */

void pms_limits_init(struct pms_limits *limits);
/* Ends one that has proved nothing for a while where that makes room. False: there is no place for
 * a client of this origin, yet or at all. */
bool pms_places_make_room(struct pms_server *server, const struct in6_addr *origin, bool may_write);
/* From now on those that are silent for too long are ended, as long as there are clients. */
void pms_places_watch(struct pms_server *server);

/* ---- client.c ---- */

/* Takes or rejects a request for a connection. */
void pms_client_request(struct pms_server *server, const struct mover_arrival *request);
/* Ends its connection. One that is stopped amid a store stays in its place. */
void pms_client_end(struct pms_server *server, struct pms_client *client);
/* Clients that were stopped amid a store leave once nothing of them is to come any more. True: some
 * are stopped still. */
bool pms_clients_sweep(struct pms_server *server);
void pms_clients_end(struct pms_server *server);

/* ---- answer.c ---- */

/* A message of `bytes` bytes, and what is said to it. */
void pms_answer(struct pms_server *server, struct pms_client *client, const uint8_t *message,
                size_t bytes, struct pmf_answer *answer);
void pms_counts_of(const struct pms_server *server, struct pmf_counts *counts);
void pms_region_counts_of(const struct pms_server *server, uint32_t region,
                          struct pmf_region_counts *counts);

#endif
