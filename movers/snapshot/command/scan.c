/* SPDX-License-Identifier: BSD-2-Clause */
/* verify and scrub: all copies are read. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/command/progress.h"
#include "common/text/printable.h"
#include "snapshot/command/command.h"

struct scanned {
    struct snap_remote remote;
    struct mover_progress progress;
    json_t *findings;
    uint64_t step;
};

static void show_progress(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct scanned *scanned = context;
    scanned->progress.total_bytes = total_bytes;
    mover_progress_at(&scanned->progress, done_bytes);
}

static void show_finding(void *context, const struct sw_snap_finding *finding)
{
    struct scanned *scanned = context;
    if (scanned->remote.is_json)
        json_array_append_new(scanned->findings,
                              json_pack("{ss si so sI ss sb}", "sink", finding->sink, "rank",
                                        (int)finding->rank, "step", snap_json_step(finding->step),
                                        "block", (json_int_t)finding->block, "where",
                                        finding->where, "is_repaired", finding->is_repaired));
    else {
        char where[sizeof(finding->where)]; /* it has names that a stranger gave */
        snprintf(where, sizeof(where), "%s", finding->where);
        mover_make_printable(where);
        printf("%s: step %" PRIu64 ", block %" PRIu64 ": %s: %s\n", finding->sink, finding->step,
               finding->block, where, finding->is_repaired ? "repaired" : "damaged");
    }
}

static int show_scanned(struct scanned *scanned, const struct sw_snap_scan_result *result,
                        const struct sw_snap_error *error)
{
    int code = MOVER_DONE;
    if (scanned->remote.is_json)
        code = mover_print_json(
            json_pack("{sI sI sI si ss so}", "bytes", (json_int_t)result->bytes, "damaged",
                      (json_int_t)result->damaged, "repaired", (json_int_t)result->repaired,
                      "volumes", (int)result->volumes, "error", error->status ? error->text : "",
                      "findings", scanned->findings));
    else
        printf("%" PRIu64 " bytes in %u volume%s: %" PRIu64 " damaged, %" PRIu64 " repaired\n",
               result->bytes, result->volumes, result->volumes == 1 ? "" : "s", result->damaged,
               result->repaired);
    if (error->status)
        return mover_fail("%s", error->text);
    return code ? code : mover_finish_output();
}

static const struct mover_option scan_options[] = {
    {"step", 0, "N", 0, "The snapshot of this step alone (all)", 1, MOVER_TO(struct scanned, step)},
    {0},
};

static int scan_all(const struct mover_usage *usage, int argc, char **argv, bool repairs)
{
    static struct scanned scanned = {.step = MOVER_NOT_GIVEN};
    struct sw_snap_scan scan = {
        .repair = repairs, .progress = show_progress, .finding = show_finding, .context = &scanned};
    struct sw_snap_scan_result result;
    struct sw_snap_error error = {0}, left_out = {0};
    snap_remote_parse(usage, argc, argv, &scanned);
    scan.step = scanned.step == MOVER_NOT_GIVEN ? NULL : &scanned.step;
    scanned.remote.options.may_write = repairs;
    if (sw_snap_reader_open(&scanned.remote.options, &left_out, &scanned.remote.reader))
        return mover_fail("%s", left_out.text);
    scanned.findings = json_array();
    mover_progress_begin(&scanned.progress, 0, !scanned.remote.is_json && isatty(STDERR_FILENO));
    sw_snap_scan(scanned.remote.reader, &scan, &result, &error);
    mover_progress_end(&scanned.progress);
    sw_snap_reader_close(scanned.remote.reader);
    /* A sink that could not be opened is a copy that is not there. */
    return show_scanned(&scanned, &result, error.status ? &error : &left_out);
}

int snap_verify(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Reads all copies of all snapshots and compares their sums. The exit status is 1 "
                 "if something is damaged, or a sink could not be read.",
        .own = {.rows = scan_options},
        .shared = &snap_remote_options};
    return scan_all(&usage, argc, argv, false);
}

int snap_scrub_command(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Reads all copies of all snapshots, compares their sums, and repairs what is "
                 "damaged from a good copy on another sink. No program may be saving there.",
        .own = {.rows = scan_options},
        .shared = &snap_remote_options};
    return scan_all(&usage, argc, argv, true);
}
