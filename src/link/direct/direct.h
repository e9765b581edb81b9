/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The direct link: queue pairs between processes of one user on one host. Its operations stand
 * here. The rest is in rooms, each of which uses those above it:
 *
 *     process/   state.h     what this process has; its slot is in names/registry.h
 *                proof.h, attach.h                how two processes meet
 *                peer.h      whose memory we use  inbox.h            who writes ours
 *                control.h   what they say        survey.h           what all have counted
 *                block.h     what one client writes of one queue pair: rings of records
 *     bind/      connection.h, bind.h, death.h    a queue pair and its peer
 *                record.h, record_payload.h       the rings; account.h counts what they moved
 *                step.h      how a step of a request ends
 *                lane.h      XRC among processes, with process/domain.h and process/hold.h
 *     send/      requester.h, ahead.h; by kind: onesided.h, twosided.h, bounce.h, pull.h, flush.h;
 *                by reach.h (memory) and peer_receive.h
 *     serve/     responder.h, answer.h; by kind: serve.h, serve_send.h, serve_key.h
 *     datagram/  send.h, receive.h, multicast.h
 */
#ifndef SW_LINK_DIRECT_DIRECT_H
#define SW_LINK_DIRECT_DIRECT_H

#include <stdbool.h>

struct sw_direct_qp;
struct sw_qp;
struct sw_qp_ops;

int sw_direct_start(void);
void sw_direct_fork_child(void);
extern const struct sw_qp_ops sw_direct_qp_ops;
extern const struct sw_qp_ops sw_direct_gated_ops; /* with faults: send/fault_gate.h */
/* This link's part of a QP; NULL: it is not connected, or by another link. With the QP locked. */
struct sw_direct_qp *sw_direct_of(const struct sw_qp *qp);
/* Sends and receives of one QP, a bounded step; returns whether anything was received. */
bool sw_direct_drive(struct sw_qp *qp);

#endif
