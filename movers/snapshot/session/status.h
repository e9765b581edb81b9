/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_SNAPSHOT_STATUS_H
#define SW_SNAPSHOT_STATUS_H

#include "sidewire/snapshot.h"

/* Fills `error` in, unless that is NULL; returns `status`. */
enum sw_snap_status snap_error_set(struct sw_snap_error *error, enum sw_snap_status status,
                                   const char *format, ...) __attribute__((format(printf, 3, 4)));
/* "WHERE: WHY", where `why` does not begin with that. */
enum sw_snap_status snap_error_at(struct sw_snap_error *error, enum sw_snap_status status,
                                  const char *where, const char *why);
/* The text of the status. */
enum sw_snap_status snap_error_plain(struct sw_snap_error *error, enum sw_snap_status status);
/* What a negative errno of a medium or a store means. */
enum sw_snap_status snap_status_of(int result);

#endif
