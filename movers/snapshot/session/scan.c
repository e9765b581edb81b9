/* SPDX-License-Identifier: BSD-2-Clause */
/* All copies are read and compared; snapshots are forgotten. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "snapshot/session/reader.h"
#include "snapshot/session/status.h"

/* One rank's volumes under scan. */
struct scanning {
    const struct sw_snap_scan *scan;
    const struct snap_volume *volumes[SW_SNAP_SINKS_MAX];
    struct snap_store *stores[SW_SNAP_SINKS_MAX];
    uint32_t count;
    uint64_t done_bytes; /* of the ranks before */
    uint32_t ranks, rank_at;
};

static void scan_say_where(const struct snap_scrub_finding *found, char *where, size_t bytes)
{
    static const char *const objects[] = {
        [SNAP_SCRUB_SUPERBLOCK] = "a superblock", [SNAP_SCRUB_ROOT] = "the root",
        [SNAP_SCRUB_INDEX] = "the index",         [SNAP_SCRUB_SMALL] = "the small state",
        [SNAP_SCRUB_LEAF] = "the sums of unit",   [SNAP_SCRUB_DATA] = "data of unit",
    };
    if (found->object == SNAP_SCRUB_DATA && found->range)
        snprintf(where, bytes, "bytes from %" PRIu64 " of %.255s", found->offset, found->range);
    else if (found->object == SNAP_SCRUB_LEAF || found->object == SNAP_SCRUB_DATA)
        snprintf(where, bytes, "%s %u", objects[found->object], found->unit);
    else
        snprintf(where, bytes, "%s", objects[found->object]);
}

static void tell_finding(void *context, const struct snap_scrub_finding *found)
{
    const struct scanning *scanning = context;
    const struct snap_volume *volume = scanning->volumes[found->volume];
    struct sw_snap_finding finding = {.rank = volume->rank,
                                      .step = found->step,
                                      .block = found->block,
                                      .is_repaired = found->is_repaired};
    snprintf(finding.sink, sizeof(finding.sink), "%.127s", volume->text);
    scan_say_where(found, finding.where, sizeof(finding.where));
    if (scanning->scan->finding)
        scanning->scan->finding(scanning->scan->context, &finding);
}

/* How many bytes other ranks have is known when their turn comes: until then, as many. */
static void tell_progress(void *context, uint64_t done_bytes, uint64_t all_bytes)
{
    const struct scanning *scanning = context;
    if (scanning->scan->progress)
        scanning->scan->progress(scanning->scan->context, scanning->done_bytes + done_bytes,
                                 scanning->done_bytes +
                                     all_bytes * (scanning->ranks - scanning->rank_at));
}

static enum sw_snap_status scan_rank(struct sw_snap_reader *reader, uint32_t rank,
                                     struct scanning *scanning, struct sw_snap_scan_result *result,
                                     struct sw_snap_error *error)
{
    const struct snap_scrub_options how = {.repairs = scanning->scan->repair,
                                           .step = scanning->scan->step,
                                           .found = tell_finding,
                                           .progress = tell_progress,
                                           .context = scanning};
    struct snap_scrub_report report = {0};
    scanning->count = 0;
    scanning->rank_at = rank;
    for (uint32_t i = 0; i < reader->volumes_count; i++) {
        struct snap_volume *volume = &reader->volumes[i];
        if (volume->rank != rank)
            continue;
        scanning->volumes[scanning->count] = volume;
        scanning->stores[scanning->count++] = volume->store;
    }
    if (!scanning->count)
        return SW_SNAP_OK;
    const enum sw_snap_status status =
        snap_scrub(scanning->stores, scanning->count, &how, &report, error);
    scanning->done_bytes += report.read_bytes;
    result->bytes += report.read_bytes;
    result->damaged += report.damaged;
    result->repaired += report.repaired;
    result->volumes += scanning->count;
    return status;
}

static bool has_step(const struct sw_snap_reader *reader, const uint64_t *step)
{
    bool has_it = !step;
    for (uint32_t i = 0; i < reader->sets_count && !has_it; i++)
        has_it = reader->sets[i].entry.step == *step;
    return has_it;
}

enum sw_snap_status sw_snap_scan(struct sw_snap_reader *reader, const struct sw_snap_scan *scan,
                                 struct sw_snap_scan_result *result, struct sw_snap_error *error)
{
    struct scanning scanning = {.scan = scan, .ranks = reader->world};
    enum sw_snap_status worst = SW_SNAP_OK;
    memset(result, 0, sizeof(*result));
    if (error)
        *error = (struct sw_snap_error){0};
    if (mover_is_forked(&reader->guard))
        return snap_error_plain(error, SW_SNAP_FORKED);
    if (scan->repair && snap_reader_may_write(reader, error))
        return SW_SNAP_INVALID;
    if (!has_step(reader, scan->step))
        return snap_error_set(error, SW_SNAP_NOT_FOUND, "there is no snapshot of step %" PRIu64,
                              *scan->step);
    snap_reader_leave(reader);
    for (uint32_t rank = 0; rank < reader->world; rank++) {
        struct sw_snap_error why = {0};
        const enum sw_snap_status status = scan_rank(reader, rank, &scanning, result, &why);
        if (status && !worst)
            worst = snap_error_set(error, status, "%s", why.text);
    }
    for (uint32_t i = 0; i < reader->volumes_count; i++)
        snap_store_info_of(reader->volumes[i].store, &reader->volumes[i].info);
    if (!worst && reader->left_out.status)
        worst =
            snap_error_set(error, reader->left_out.status, "left out: %s", reader->left_out.text);
    return snap_reader_sort(reader) ? worst : snap_error_plain(error, SW_SNAP_NO_MEMORY);
}

/* ---- forgetting ---- */

struct forgetting {
    bool is_over;
    struct sw_snap_error error;
};

static void forget_ended(void *context, enum sw_snap_status status,
                         const struct sw_snap_error *error)
{
    struct forgetting *forgetting = context;
    forgetting->is_over = true;
    if (status)
        snap_error_set(&forgetting->error, status, "%s",
                       error ? error->text : sw_snap_status_text(status));
}

static void wait_medium(struct snap_medium *medium)
{
    if (!medium->ops->arm(medium))
        return;
    struct pollfd fd = {.fd = medium->fd, .events = POLLIN};
    poll(&fd, medium->fd >= 0, medium->fd >= 0 ? 100 : 1);
}

static enum sw_snap_status forget_step(struct snap_volume *volume, uint64_t step,
                                       uint32_t *forgotten, struct sw_snap_error *error)
{
    struct forgetting forgetting = {0};
    uint32_t which = 0;
    for (uint32_t i = 0; i < volume->info.entries_count; i++)
        if (volume->info.entries[i].step == step)
            which |= 1u << i;
    if (!which)
        return SW_SNAP_OK;
    snap_store_forget(volume->store, which, forget_ended, &forgetting);
    for (snap_store_poll(volume->store); !forgetting.is_over; snap_store_poll(volume->store))
        wait_medium(snap_store_medium(volume->store));
    snap_store_info_of(volume->store, &volume->info);
    if (forgetting.error.status)
        return snap_error_at(error, forgetting.error.status, volume->text, forgetting.error.text);
    ++*forgotten;
    return SW_SNAP_OK;
}

enum sw_snap_status sw_snap_forget(struct sw_snap_reader *reader, uint64_t step,
                                   struct sw_snap_error *error)
{
    uint32_t forgotten = 0;
    if (error)
        *error = (struct sw_snap_error){0};
    enum sw_snap_status status = snap_reader_may_write(reader, error);
    if (status)
        return status;
    snap_reader_leave(reader);
    for (uint32_t i = 0; i < reader->volumes_count; i++) {
        struct sw_snap_error why = {0};
        const enum sw_snap_status code = forget_step(&reader->volumes[i], step, &forgotten, &why);
        if (code && !status)
            status = snap_error_set(error, code, "%s", why.text);
    }
    if (!snap_reader_sort(reader))
        return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    if (!status && !forgotten)
        status =
            snap_error_set(error, SW_SNAP_NOT_FOUND, "there is no snapshot of step %" PRIu64, step);
    return status;
}
