/* SPDX-License-Identifier: BSD-2-Clause */
/* How one step of a request ends. */
#ifndef SW_LINK_DIRECT_BIND_STEP_H
#define SW_LINK_DIRECT_BIND_STEP_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "device/rules/target.h"

struct sw_direct_qp;
struct sw_qp;

enum sw_step {
    SW_STEP_DONE,    /* completed successfully */
    SW_STEP_LOST,    /* likewise, though the target never sees it: an unreliable message */
    SW_STEP_SENT,    /* the target will answer */
    SW_STEP_BLOCKED, /* try again later */
    SW_STEP_FAILED,  /* d->send.fail_status, d->send.fail_verdict */
};
enum sw_step sw_step_local_error(struct sw_direct_qp *d, enum ibv_wc_status status);
/* FAILED, or LOST where the QP's type refuses nothing. */
enum sw_step sw_step_refused(struct sw_direct_qp *d, enum sw_verdict verdict);
/* Whether the next request in line can read what it is to send: SENDs and WRITEs read their memory
 * before anything of them can reach the target, so a bad key of theirs comes before any refusal
 * (IBTA Vol1 9.9.2.2). A READ or atomic touches local memory only with the answer. */
bool sw_step_is_sound(struct sw_qp *qp);
/* The target refuses that request, or it has failed at home. */
enum sw_step sw_step_refused_next(struct sw_qp *qp, struct sw_direct_qp *d,
                                  enum sw_verdict verdict);

#endif
