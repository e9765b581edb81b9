/* SPDX-License-Identifier: BSD-2-Clause */
/* What the cases about memory windows share. */
#ifndef SW_TESTS_INTEGRITY_SEM_WINDOW_H
#define SW_TESTS_INTEGRITY_SEM_WINDOW_H

#include "sem.h"

#define START 8192u
#define LEN 16384u
#define TOO_LATE 200000u /* where a request that must have no effect takes its bytes from */

/* The owner's side of a window on [START, START + LEN) of its region. */
struct window {
    struct ibv_mw *mw;
    struct vu_key key;
};

/* What a case is about, by its parameter: the type of window, and whether the connection is
 * unreliable. There what is refused vanishes, and its sender is told nothing. */
enum { TYPE_BIT = 1 << 8, UC_BIT = 1 << 9 };
#define TYPE1(use) (use)
#define TYPE2(use) ((use) | TYPE_BIT)
#define UC(param) ((param) | UC_BIT)
enum ibv_qp_type window_qp_type(int param);
enum ibv_wc_status window_refusal(int param);

/* A second QP of the owner's, connected to itself: the windows bound through it are not for the
 * peer. */
void window_second_qp(struct rig *rig, struct vu_ep *ep);
void window_alloc(struct rig *rig, struct window *window, enum ibv_mw_type type);
/* By a request on the endpoint, which must end; its status. */
enum ibv_wc_status bind_through(struct rig *rig, struct vu_ep *ep, struct window *window,
                                int access);

#endif
