/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of sidewire-snapshot. */
#ifndef SW_MOVERS_SNAPSHOT_COMMAND_H
#define SW_MOVERS_SNAPSHOT_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/command/front.h"
#include "common/command/json.h"
#include "common/command/option.h"
#include "sidewire/snapshot.h"

int snap_serve(int argc, char **argv);
int snap_status(int argc, char **argv);
int snap_stop(int argc, char **argv);
int snap_metrics(int argc, char **argv);
int snap_remove(int argc, char **argv);
int snap_save(int argc, char **argv);
int snap_ls(int argc, char **argv);
int snap_verify(int argc, char **argv);
int snap_scrub_command(int argc, char **argv);
int snap_restore(int argc, char **argv);
int snap_export(int argc, char **argv);
int snap_prune(int argc, char **argv);

/* What all of them share: the sinks, and output. */
struct snap_remote {
    const char *sinks[SW_SNAP_SINKS_MAX];
    struct sw_snap_options options;
    bool is_json, leaves_out; /* leaves_out: a sink could not be opened */
    struct sw_snap_reader *reader;
};

/* Options for arguments that begin with a struct snap_remote. */
extern const struct mover_options snap_remote_options;

/* Parses by `usage`, which shares snap_remote_options; `arguments` begins with a struct
 * snap_remote, which this fills with defaults. */
void snap_remote_parse(const struct mover_usage *usage, int argc, char **argv, void *arguments);
/* A step for JSON, whose integers end at 2^63-1 here: a text where it is larger. */
json_t *snap_json_step(uint64_t step);
/* Opens the reader; sinks that cannot be read are told on standard error. Each says what went
 * wrong, and returns the exit status. */
int snap_remote_open(struct snap_remote *remote, bool may_write);
/* And chooses a step, MOVER_NOT_GIVEN: the newest. */
int snap_remote_choose(struct snap_remote *remote, uint64_t step, bool may_write,
                       struct sw_snap_entry *entry);

/* Files of ranges: "NAME=FILE", as often as one likes. */
enum { SNAP_RAWS_MAX = 256 };
struct snap_raws {
    struct snap_raw {
        char *name;
        const char *file;
    } list[SNAP_RAWS_MAX];
    uint32_t count;
};
mover_take snap_take_raw; /* the place is a struct snap_raws */

#endif
