/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The NIC of this process as simulated hosts use it: its link goes nowhere. All hosts share its
 * tables, and each has a protection domain of its own. A host says what chance decides on a NIC:
 * all of a world follows from its seed.
 */
#ifndef SW_LINK_SIM_DEVICE_H
#define SW_LINK_SIM_DEVICE_H

#include "device/memory/mr.h"
#include "device/memory/mw.h"
#include "device/queue/cq.h"
#include "device/queue/qp_impl.h"
#include "device/queue/srq.h"
#include "device/serve/receive.h"

#define SW_SIM_KEYS_MAX 256u /* of a host */
#define SW_SIM_SGES 2u       /* elements of a receive */

/* Keys of a host's regions and windows: so many were given. */
struct sw_sim_keys {
    uint32_t host, count;
};

struct sw_sim_qp_shape {
    enum ibv_qp_type type; /* RC or UC */
    struct sw_pd *pd;
    struct sw_srq *srq; /* or NULL: it has `receives` of its own */
    uint32_t receives, mtu_bytes, access;
    uint32_t shown_qpn, dest_qpn; /* as packets have them */
    struct sw_receive *receive;   /* of the message that is coming in: flushed when the QP fails */
};

/* All of these end the process where there is no memory. */
struct sw_pd *sw_sim_pd_open(void);
struct sw_srq *sw_sim_srq_open(struct sw_pd *pd, uint32_t receives);
/* `iova` is the address in the world. */
struct sw_mr *sw_sim_mr_open(struct sw_pd *pd, struct sw_sim_keys *keys, void *at,
                             uint64_t len_bytes, uint64_t iova, uint32_t access);
/* Opens a window of type 2, not bound to anything. */
struct sw_mw *sw_sim_mw_open(struct sw_pd *pd, struct sw_sim_keys *keys);
/* Connected, with a completion queue of its own for receives. */
struct sw_qp *sw_sim_qp_open(const struct sw_sim_qp_shape *shape);
void sw_sim_qp_close(struct sw_qp *qp);

#endif
