/* SPDX-License-Identifier: BSD-2-Clause */
/* Several paths of a host's command: how they are given, and what is told of them. */
#ifndef SW_MOVERS_NVME_PATHS_H
#define SW_MOVERS_NVME_PATHS_H

#include <argp.h>

#include <jansson.h>

struct nv_host;

/* For rows of options, whose place is the struct nv_host. */
void nv_take_address(struct argp_state *state, void *place, char *text);
void nv_take_policy(struct argp_state *state, void *place, char *text);
/* All options are there: fills in those of the library. */
void nv_addresses_own(struct nv_host *host);
/* Asks the discovery subsystem at the first address. Says what went wrong: not 0. */
int nv_addresses_discover(struct nv_host *host);

json_t *nv_paths_json(const struct nv_host *host);
/* A table, where there are several. */
void nv_paths_print(const struct nv_host *host);
/* Says what has changed since the last look; nv_paths_told() begins. */
void nv_paths_watch(struct nv_host *host);
void nv_paths_told(struct nv_host *host);

#endif
