/* SPDX-License-Identifier: BSD-2-Clause */
/* The sinks, and what is read from them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/command/remote.h"
#include "snapshot/command/command.h"

static void take_sink(struct argp_state *state, void *place, char *text)
{
    struct snap_remote *remote = place;
    if (remote->options.sinks_count == SW_SNAP_SINKS_MAX)
        argp_error(state, "there are more than %d sinks", SW_SNAP_SINKS_MAX);
    remote->sinks[remote->options.sinks_count++] = text;
}

void snap_take_raw(struct argp_state *state, void *place, char *text)
{
    struct snap_raws *raws = place;
    char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        argp_error(state, "%s is not NAME=FILE", text);
    if (raws->count == SNAP_RAWS_MAX)
        argp_error(state, "there are more than %d files", SNAP_RAWS_MAX);
    *equals = 0;
    raws->list[raws->count++] = (struct snap_raw){text, equals + 1};
}

#define REMOTE(member) offsetof(struct snap_remote, member)

static const struct mover_option options[] = {
    {"sink", 0, "SINK", 0,
     "Where snapshots are: file:PATH, peer:ADDR[:PORT]/NAME, pmem:ADDR[:PORT]/REGION or "
     "nvme:ADDR[:PORT]/NQN[/NSID]; {rank} in it is the rank; up to three",
     1, take_sink, 0},
    MOVER_OPTION_LOCAL(REMOTE(options.local)),
    MOVER_OPTION_CONNECT_TIMEOUT(REMOTE(options.connect_timeout_ms), "5000"),
    MOVER_OPTION_FORMAT(REMOTE(is_json)),
    {0},
};

static void check_sinks_given(struct argp_state *state, void *arguments)
{
    const struct snap_remote *remote = arguments;
    if (!remote->options.sinks_count)
        argp_error(state, "a sink is missing (--sink SINK)");
}

const struct mover_options snap_remote_options = {.rows = options, .check = check_sinks_given};

void snap_remote_parse(const struct mover_usage *usage, int argc, char **argv, void *arguments)
{
    struct snap_remote *remote = arguments;
    sw_snap_options_init(&remote->options);
    remote->options.sinks = remote->sinks;
    mover_parse(usage, argc, argv, arguments);
}

json_t *snap_json_step(uint64_t step)
{
    return step <= INT64_MAX ? json_integer((json_int_t)step) : json_sprintf("%" PRIu64, step);
}

int snap_remote_open(struct snap_remote *remote, bool may_write)
{
    struct sw_snap_error error;
    remote->options.may_write = may_write;
    if (sw_snap_reader_open(&remote->options, &error, &remote->reader))
        return mover_fail("%s", error.text);
    remote->leaves_out = error.status;
    if (remote->leaves_out)
        mover_fail("left out: %s", error.text);
    return MOVER_DONE;
}

int snap_remote_choose(struct snap_remote *remote, uint64_t step, bool may_write,
                       struct sw_snap_entry *entry)
{
    struct sw_snap_error error;
    const int code = snap_remote_open(remote, may_write);
    if (code)
        return code;
    if (sw_snap_choose(remote->reader, step == MOVER_NOT_GIVEN ? NULL : &step, entry, &error))
        return mover_fail("%s", error.text);
    return MOVER_DONE;
}
