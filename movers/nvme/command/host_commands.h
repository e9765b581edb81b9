/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The commands of a host, and what they share: the options of a connection (names as `nvme
 * connect` has them), output, and errors that say what mends them.
 */
#ifndef SW_MOVERS_NVME_HOST_COMMANDS_H
#define SW_MOVERS_NVME_HOST_COMMANDS_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "common/command/command.h"
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
    const char *command; /* for messages */
    struct sw_nvme_options options;
    enum nv_format format;
    uint32_t nsid;
    bool has_nsid;
    bool is_discovery; /* NQN may be left out */
    struct sw_nvme_controller *controller;
    bool is_away; /* said that it is */
    char secret[NVF_SECRET_TEXT_MAX], ctrl_secret[NVF_SECRET_TEXT_MAX];
};

/* A child for argp; its input is a struct nv_host. */
extern const struct argp nv_host_argp;

/* Parses the arguments; `argp` has nv_host_argp as its first child and `input` begins with
 * a struct nv_host, which this fills with defaults. */
void nv_host_parse(const char *command, const struct argp *argp, int argc, char **argv,
                   struct nv_host *input);
/* Both say what went wrong, and return the exit status: 0 where all is well. */
int nv_host_connect(struct nv_host *host);
int nv_host_namespace(struct nv_host *host, struct sw_nvme_namespace *ns);
void nv_host_close(struct nv_host *host);
/* Says when the controller goes away, and when it is back. */
void nv_host_watch(struct nv_host *host);

/* "sidewire nvme read: ...", and below it what mends it. Returns 1. */
int nv_fail(const struct nv_host *host, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int nv_fail_error(const struct nv_host *host, const struct sw_nvme_error *error);
int nv_fail_result(const struct nv_host *host, const char *what,
                   const struct sw_nvme_result *result);

/* A number with K, M, G or T. False: it is none, or more than `max`. */
bool nv_parse_size(const char *text, uint64_t max, uint64_t *out);
/* A string that came from a peer, without its padding and without what a terminal would obey. */
void nv_clean_string(const char *text, size_t bytes, char *out, size_t out_bytes);

#endif
