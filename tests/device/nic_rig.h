/* SPDX-License-Identifier: BSD-2-Clause */
/* What the tests of the device's queues share: cmocka, a started NIC on the loopback device, and a
 * link that goes nowhere but writes down what it was asked. */
#ifndef SW_TESTS_DEVICE_NIC_RIG_H
#define SW_TESTS_DEVICE_NIC_RIG_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/memory/mr_impl.h"
#include "device/nic/context_impl.h"
#include "device/nic/nic.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"

#define RIG_RIGHTS                                                               \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
     IBV_ACCESS_REMOTE_ATOMIC)

/* What happened since the test began. */
struct rig_log {
    int starts, connects, disconnects, sends, progresses, quiesces, gones, forks, fork_prepares,
        fork_parents, kicks;
    int receives, forgets, joins, leaves;
    int polls, minds;          /* of the link between hosts */
    int events;                /* asynchronous ones */
    enum ibv_event_type event; /* the last */
    void *element;             /* it was about */
    int notified;              /* completion events */
    struct sw_qp *order[16];   /* QPs driven, in order */
    int connect_rc;            /* what qp_connect shall answer */
    int join_rc;               /* what group_join shall answer */
    bool datagrams_wait;       /* what has_datagrams shall answer */
    void (*on_progress)(struct sw_qp *qp);
};
extern struct rig_log rig_log;

/* The next index that is drawn is this one. */
void rig_draw_next(struct sw_draw *draw, uint32_t index);

struct rig {
    struct sw_context *ctx;
    struct sw_pd *pd;
    struct sw_cq *cq;
};

/* Setup and teardown of a cmocka test; *state is the struct rig. */
int rig_up(void **state);
int rig_down(void **state);

struct sw_cq *rig_cq(struct rig *rig, int entries);
struct sw_qp *rig_qp(struct rig *rig, uint32_t send_wr, uint32_t recv_wr, struct sw_srq *srq);
/* Takes it from RESET as far as `state`, which is INIT, RTR or RTS. */
void rig_take_to(struct sw_qp *qp, enum ibv_qp_state state);
struct sw_mr *rig_mr(struct rig *rig, void *addr, uint64_t len_bytes, unsigned int access);
struct ibv_sge rig_sge(const struct sw_mr *mr, void *addr, uint32_t len_bytes);

/* A call of a function whose callers have the lock. */
#define rig_locked(lock, call) \
    do {                       \
        sw_lock_acquire(lock); \
        call;                  \
        sw_lock_release(lock); \
    } while (0)

#define rig_test(function) cmocka_unit_test_setup_teardown(function, rig_up, rig_down)

#endif
