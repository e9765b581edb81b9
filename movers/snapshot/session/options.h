/* SPDX-License-Identifier: BSD-2-Clause */
/* The options of a handle, checked and copied, since those of the program may go. */
#ifndef SW_SNAPSHOT_OPTIONS_H
#define SW_SNAPSHOT_OPTIONS_H

#include "sidewire/snapshot.h"

/* Copies and checks; texts are owned by `options` then. */
enum sw_snap_status snap_options_take(struct sw_snap_options *options,
                                      const struct sw_snap_options *given,
                                      struct sw_snap_error *error);
void snap_options_free(struct sw_snap_options *options);
/* The sink of a rank: "{rank}" is replaced. To be freed; NULL: no memory. */
char *snap_sink_text(const char *sink, uint32_t rank);

#endif
