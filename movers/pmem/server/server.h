/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Serves one region: takes connections, says who may use what, and hands out keys. One thread,
 * that of pms_server_run(). Data never passes through it.
 */
#ifndef SW_MOVERS_PMEM_SERVER_H
#define SW_MOVERS_PMEM_SERVER_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "pmem/server/memory.h"
#include "pmem/server/rules.h"
#include "pmem/wire/control.h"

enum { PMS_CLIENTS_MAX = 256, PMS_GRANTS_MAX = 64 };

/* What one set of rules gives on one device: a domain of its own, so that keys of others are
 * nothing in it. It stays as long as the server. */
struct pms_grant {
    struct ibv_context *verbs;
    struct ibv_pd *pd;
    uint64_t mask; /* of rules */
    struct ibv_mr *mrs[PMS_RULES_MAX];
    struct pmf_range ranges[PMS_RULES_MAX];
    uint32_t count;
    uint8_t flags; /* enum pmf_flags */
};

struct pms_client;

struct pms_server {
    const struct pms_memory *memory;
    struct pms_rules rules;
    char name[PMF_NAME_BYTES];
    uint8_t instance[16];
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
    int epoll_fd;
    struct pms_grant grants[PMS_GRANTS_MAX];
    uint32_t grants_count;
    struct pms_client *clients[PMS_CLIENTS_MAX];
    uint64_t malformed, refused; /* messages; connections */
    bool is_verbose;
};

/* 0, or a negative errno and what is wrong. The rules fit the memory. */
int pms_server_start(struct pms_server *server, const struct sockaddr *listen, char *error,
                     size_t error_bytes);
/* Until `stop_fd` is readable. */
void pms_server_run(struct pms_server *server, int stop_fd);
void pms_server_end(struct pms_server *server);

/* ---- grant.c ---- */

/* Registers on first need. NULL where the device has no room. */
struct pms_grant *pms_grant_of(struct pms_server *server, struct ibv_context *verbs, uint64_t mask);
void pms_grants_free(struct pms_server *server);

/* ---- client.c ---- */

/* Takes or rejects a request for a connection. */
void pms_client_request(struct pms_server *server, const struct rdma_cm_event *event);
void pms_client_ready(struct pms_server *server, struct pms_client *client);
void pms_client_end(struct pms_server *server, struct pms_client *client);

#endif
