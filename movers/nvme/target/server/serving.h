/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes a server serve what a configuration says, and goes from one configuration to the next
 * while hosts are connected: what stays the same keeps its connections.
 */
#ifndef SW_MOVERS_NVME_SERVING_H
#define SW_MOVERS_NVME_SERVING_H

#include <stdio.h>

#include "nvme/target/config/config.h"
#include "nvme/target/server/server.h"

struct nvr_member;

struct nvr_serving {
    struct nvr_server *server;
    struct nvr_member *member; /* of a group, in which all namespaces are; NULL: in none */
    struct nvt_config *config; /* what it serves; never NULL */
    /* Tells the operator, a line at a time. */
    void (*say)(void *context, bool is_bad, const char *line);
    void *context;
    FILE *held; /* lines for when all of it can be served; NULL: they are told at once */
};

/* Returns 0 or -ENOMEM: the server serves nothing yet. */
int nvr_serving_open(struct nvr_serving *serving, struct nvr_server *server);
void nvr_serving_close(struct nvr_serving *serving);

/*
 * Owns `config` from then on. A part that cannot be served is told and left out, and is tried again
 * with the next configuration. Returns how many of them there are.
 */
int nvr_serving_apply(struct nvr_serving *serving, struct nvt_config *config);

#endif
