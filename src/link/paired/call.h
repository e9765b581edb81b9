/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A call: the TCP connection that a queue pair makes to its peer's host, up to MPA's reply.
 *
 * An inquiry is a call that connects nothing: it says no PSN of its own, so nobody takes it. A
 * queue pair in RTR says by it, once, that it can be called: its peer may have been refused before,
 * and would wait for its next try. One whose peer has let go asks by it whether that process lives,
 * as rdma_cm's word of the end may be lost.
 */
#ifndef SW_LINK_PAIRED_CALL_H
#define SW_LINK_PAIRED_CALL_H

#include <stdint.h>

struct sw_paired;

void sw_paired_call(struct sw_paired *p, uint64_t now_ns);
void sw_paired_call_ready(struct sw_paired *p, uint64_t now_ns);
void sw_paired_drop_call(struct sw_paired *p);
/* It was not answered in time. */
void sw_paired_miss_call(struct sw_paired *p, uint64_t now_ns);
/* The next call is an inquiry: in RTR, or when the peer has let go. */
void sw_paired_plan_inquiry(struct sw_paired *p, uint64_t now_ns);
/* The queue pair may connect by its next call, which is due. */
void sw_paired_end_inquiry(struct sw_paired *p);

#endif
