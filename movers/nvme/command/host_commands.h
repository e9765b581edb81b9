/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands of a host, and what they share: the options of a connection (names as `nvme
 * connect` has them), output, and errors that say what mends them.
 */
#ifndef SW_MOVERS_NVME_HOST_COMMANDS_H
#define SW_MOVERS_NVME_HOST_COMMANDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "common/command/front.h"
#include "common/command/json.h"
#include "common/command/option.h"
#include "nvme/command/paths.h"
#include "nvme/command/secret.h"
#include "sidewire/nvme.h"

int nv_discover(int argc, char **argv);
int nv_connect_test(int argc, char **argv);
int nv_id_ctrl(int argc, char **argv);
int nv_id_ns(int argc, char **argv);
int nv_list(int argc, char **argv);
int nv_read(int argc, char **argv);
int nv_write(int argc, char **argv);
int nv_bench(int argc, char **argv);
int nv_resv_report(int argc, char **argv);
int nv_resv_register(int argc, char **argv);
int nv_resv_acquire(int argc, char **argv);
int nv_resv_release(int argc, char **argv);

enum nv_format { NV_NORMAL, NV_JSON, NV_BINARY };

struct nv_host {
    struct sw_nvme_options options;
    enum nv_format format;
    uint32_t nsid;
    bool has_nsid;
    bool is_discovery; /* NQN may be left out */
    struct sw_nvme_controller *controller;
    bool is_away;                                        /* said that it is */
    struct sw_nvme_address addresses[SW_NVME_PATHS_MAX]; /* as they are given */
    uint32_t addresses_count;
    bool discovers;                                  /* other paths are asked for */
    struct sw_nvme_address *found;                   /* those that were found so */
    enum sw_nvme_path_state told[SW_NVME_PATHS_MAX]; /* what was said of each path */
    char secret[NVF_SECRET_TEXT_MAX], ctrl_secret[NVF_SECRET_TEXT_MAX];
};

/* Options for arguments that begin with a struct nv_host: among the command's own in --help, or
 * under a header. */
extern const struct mover_options nv_host_options, nv_host_options_below;

/* Parses by `usage`, which shares one of these; `arguments` begins with a struct nv_host, which
 * this fills with defaults. */
void nv_host_parse(const struct mover_usage *usage, int argc, char **argv, void *arguments);
/* Parses for a command that has these options alone. */
void nv_host_parse_alone(const char *about, int argc, char **argv, struct nv_host *host);
/* Both say what went wrong, and return the exit status: 0 where all is well. */
int nv_host_connect(struct nv_host *host);
int nv_host_namespace(struct nv_host *host, struct sw_nvme_namespace *ns);
void nv_host_close(struct nv_host *host);
/* Says when the controller goes away, and when it is back. */
void nv_host_watch(struct nv_host *host);

/* Say what failed, and below it what mends it. Return MOVER_FAILED. */
int nv_fail_error(const struct sw_nvme_error *error);
int nv_fail_result(const char *what, const struct sw_nvme_result *result);

/* A number with K, M, G or T. False: it is none, or more than `max`. */
bool nv_parse_size(const char *text, uint64_t max, uint64_t *out);
/* A string that came from a peer, without its padding and without what a terminal would obey. */
void nv_clean_string(const char *text, size_t bytes, char *out, size_t out_bytes);

#endif
