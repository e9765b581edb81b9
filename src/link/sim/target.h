/* SPDX-License-Identifier: BSD-2-Clause */
/* The target side of a simulated QP: carries out what its responder asks for, by device/serve/ as
 * the links do. */
#ifndef SW_LINK_SIM_TARGET_H
#define SW_LINK_SIM_TARGET_H

#include "link/sim/host.h"

struct sw_outcome sw_sim_execute(struct sw_sim_qp *qp, const struct sw_demand *demand);
/* Whether the bytes may still be read, and where they are: asked again for each response. */
enum sw_verdict sw_sim_may_read(struct sw_sim_qp *qp, uint64_t addr, uint64_t len_bytes,
                                uint32_t rkey, uint8_t **at);
/* Why they may not. */
enum sw_access_fault sw_sim_read_fault(const struct sw_sim_qp *qp, uint64_t addr,
                                       uint64_t len_bytes, uint32_t rkey);
/* The QP is in error: what is queued is flushed. */
void sw_sim_qp_die(struct sw_sim_qp *qp);

#endif
