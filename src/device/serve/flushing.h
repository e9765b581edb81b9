/* SPDX-License-Identifier: BSD-2-Clause */
/* A FLUSH at the process it comes to, whichever link brought it: device/serve/execute.h has the
 * other requests. */
#ifndef SW_DEVICE_SERVE_FLUSHING_H
#define SW_DEVICE_SERVE_FLUSHING_H

#include "device/serve/execute.h"

struct sw_sync_job;

/* How far the one at the head of a QP's requests has come. All zero: not begun. */
struct sw_flushing {
    struct sw_sync_job *job;
    bool has_no_job; /* yet: there are too many */
    uint64_t done_bytes;
};

/* A step of it. False while it goes on: then it is called again, when the engine was kicked or a
 * little later. */
bool sw_execute_flush(struct sw_qp *qp, const struct sw_inbound *message,
                      struct sw_target_flush flush, struct sw_flushing *state,
                      enum sw_verdict *verdict);
static inline bool sw_flushing_goes_on(const struct sw_flushing *state)
{
    return state->job || state->has_no_job || state->done_bytes;
}
/* Forgets one that will not go on. */
void sw_flushing_drop(struct sw_flushing *state);

#endif
