/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of sidewire-pmem. Each gets its arguments from its own name on, and returns the
 * status of the process: 0 done, 1 failed, 2 wrong usage. */
#ifndef SW_MOVERS_PMEM_COMMAND_H
#define SW_MOVERS_PMEM_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "common/command/command.h"
#include "sidewire/pmem.h"

enum { PM_STATUS_OK = 0, PM_STATUS_FAILED = 1, PM_STATUS_USAGE = 2 };

int pm_serve(int argc, char **argv);
int pm_ls(int argc, char **argv);
int pm_info(int argc, char **argv);
int pm_status(int argc, char **argv);
int pm_get(int argc, char **argv);
int pm_put(int argc, char **argv);
int pm_bench(int argc, char **argv);
int pm_log(int argc, char **argv);

/* What commands of a client share: the options of a connection, and output. */
struct pm_remote {
    const char *command; /* for messages */
    struct sw_pmem_options options;
    struct sw_pmem *pmem;
    bool is_json;
};

/* A child for argp; its input is a struct pm_remote. */
extern const struct argp pm_remote_argp;

/* `argp` has pm_remote_argp as its first child, and `input` begins with a struct pm_remote, which
 * this fills with defaults. */
void pm_remote_parse(const char *command, const struct argp *argp, int argc, char **argv,
                     struct pm_remote *input);
/* Says what went wrong, and returns the exit status. */
int pm_remote_open(struct pm_remote *remote);
int pm_fail(const struct pm_remote *remote, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Why a request failed: the error of the connection where it is lost. */
int pm_fail_status(const struct pm_remote *remote, const char *what, enum sw_pmem_status status);

const char *pm_kind_text(enum sw_pmem_kind kind);
/* A line on a terminal that says how far it is; nothing elsewhere. */
void pm_progress(const struct pm_remote *remote, uint64_t done, uint64_t total);

#endif
