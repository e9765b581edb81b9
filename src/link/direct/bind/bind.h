/* SPDX-License-Identifier: BSD-2-Clause */
/* Binding: QP to QP. Access sections, in which the owner of the memory does not let go of it. */
#ifndef SW_LINK_DIRECT_BIND_BIND_H
#define SW_LINK_DIRECT_BIND_BIND_H

#include <stdbool.h>
#include <stdint.h>

struct sw_direct_qp;
struct sw_peer;
struct sw_qp;

/* Our side of a connection to a QP of that slot (0: of nobody), for whom a block is taken. */
int sw_bind_open(struct sw_qp *qp, uint32_t slot, struct sw_direct_qp **out);
void sw_bind_close(struct sw_direct_qp *d);
/* It is the QP's connection from here on. */
void sw_bind_begin(struct sw_qp *qp, struct sw_direct_qp *d);
int sw_bind_connect(struct sw_qp *qp);
/* For an unreliable connection: a new one to the same peer, which has ended its own. Posted
 * receives stay; what is under way is lost. Frees *d; false: nothing was done. */
bool sw_bind_renew(struct sw_qp *qp, struct sw_direct_qp *d);
/* Whether the life of the peer that has sent what waits here has ended: it wants no answer. Only an
 * unreliable one may be asked for it. */
bool sw_bind_is_over(const struct sw_qp *qp, const struct sw_direct_qp *d);
/* Whether the peer is about to be connected to us, or still to an earlier life of ours, which it
 * will learn is over. */
bool sw_bind_is_awaited(const struct sw_qp *qp, const struct sw_direct_qp *d);
void sw_bind_disconnect(struct sw_qp *qp);
bool sw_bind_is_inside(struct sw_qp *qp);
/* The peer's process is there and has been spoken to, but its engine has not had its turn yet (or
 * ours has not). Hardware would have answered, so this is not time without an answer. */
bool sw_bind_is_being_attached(const struct sw_peer *peer);
/* Opens an access section if the QP is bound to its peer; false: not now (and nothing is open). */
bool sw_bind_enter(struct sw_qp *qp, struct sw_direct_qp *d);
void sw_bind_leave(struct sw_direct_qp *d);
/* The same, and what was written is visible before anything is read afterwards. */
void sw_bind_leave_fenced(struct sw_direct_qp *d);
/* No QP uses mappings of the peer's segments after this. */
void sw_bind_forget_keys(struct sw_peer *peer);
/* For an XRC initiator: takes PD and CQ of the SRQ that a request names. false: the target has none
 * of that number in its domain. Inside an access section. */
bool sw_bind_name_srq(struct sw_direct_qp *d, uint32_t srq_num);

#endif
