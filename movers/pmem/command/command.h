/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of sidewire-pmem. */
#ifndef SW_MOVERS_PMEM_COMMAND_H
#define SW_MOVERS_PMEM_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "common/command/front.h"
#include "common/command/json.h"
#include "common/command/option.h"
#include "common/command/patience.h"
#include "sidewire/pmem.h"

int pm_serve(int argc, char **argv);
int pm_ls(int argc, char **argv);
int pm_info(int argc, char **argv);
int pm_status(int argc, char **argv);
int pm_stop(int argc, char **argv);
int pm_metrics(int argc, char **argv);
int pm_get(int argc, char **argv);
int pm_put(int argc, char **argv);
int pm_bench(int argc, char **argv);
int pm_log(int argc, char **argv);

/* What commands of a client share: the options of a connection, and output. */
struct pm_remote {
    struct sw_pmem_options options;
    struct sw_pmem *pmem;
    bool is_json;
    bool may_be_here; /* of the command: without an address it asks a server of this host */
};

/* Options for arguments that begin with a struct pm_remote. */
extern const struct mover_options pm_remote_options;

/* Parses by `usage`, which shares pm_remote_options; `arguments` begins with a struct pm_remote,
 * which this fills with defaults. */
void pm_remote_parse(const struct mover_usage *usage, int argc, char **argv, void *arguments);
/* Whether to try again, since the server may just be starting. */
bool pm_remote_lasts(struct mover_patience *patience, const struct sw_pmem_error *error);
/* Says what went wrong, and returns the exit status. */
int pm_remote_open(struct pm_remote *remote);
/* Why a request failed: the error of the connection where it is lost. */
int pm_fail_status(const struct pm_remote *remote, const char *what, enum sw_pmem_status status);

const char *pm_kind_text(enum sw_pmem_kind kind);

#endif
