/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/scrub.h"

#include <stdio.h>

/* To be written: nothing is read yet, and it says so. */
enum sw_snap_status snap_scrub(struct snap_store *const *stores, uint32_t stores_count,
                               const struct snap_scrub_options *options,
                               struct snap_scrub_report *report, struct sw_snap_error *error)
{
    (void)stores;
    (void)stores_count;
    (void)options;
    *report = (struct snap_scrub_report){0};
    error->status = SW_SNAP_NOT_SUPPORTED;
    snprintf(error->text, sizeof(error->text), "volumes cannot be scrubbed yet");
    return error->status;
}
