/* SPDX-License-Identifier: BSD-2-Clause */
/* The link of iWARP devices: RDMA over TCP (docs/iwarp.md). */
#ifndef SW_LINK_IWARP_IWARP_H
#define SW_LINK_IWARP_IWARP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/nic/nic.h"
#include "link/iwarp/notes.h"
#include "transport/iwarp/start.h"

/* Queue pairs of iWARP devices have these from the beginning. */
extern const struct sw_qp_ops sw_iwarp_qp_ops;

void sw_iwarp_start(void);
/* Whether the user asks for CRCs (SIDEWIRE_IWARP_CRC). */
bool sw_iwarp_wants_crc(void);
void sw_iwarp_fork_child(void);

/* What queue pairs of RoCE devices share with these, that are carried by TCP (link/paired/). With
 * the QP locked; link_state is the connection, or NULL. */
struct sw_iwarp_begin;
/* Gives it a connection that is past its start. 0 or -ENOMEM; the socket is taken over if it is 0.
 */
int sw_iwarp_begin_paired(struct sw_qp *qp, const struct sw_iwarp_begin *begin);
void sw_iwarp_drive(struct sw_qp *qp);
void sw_iwarp_start_sends(struct sw_qp *qp);
/* SQD, RTS, or attributes have changed. */
void sw_iwarp_change_paired(struct sw_qp *qp);
void sw_iwarp_disconnect(struct sw_qp *qp);
/* In a forked child. */
void sw_iwarp_close_fd(const struct sw_qp *qp);
/* At the end of the process: says what was taken. */
void sw_iwarp_tell_at_exit(struct sw_qp *qp);
enum { SW_IWARP_TAG_SHIFT = 3 }; /* what SW_WATCH_PAIRED tells: the index, so far up */

/* Sets the callback that is told what becomes of connections: by the engine, without locks. */
void sw_iwarp_set_user(void (*told)(uint64_t cookie, enum sw_iwarp_news news, int status));

/* What becomes of a paired connection; of the queue pair, whose lock guards it. */
struct sw_iwarp_outcome {
    bool has_begun; /* something has come */
    bool is_dead;   /* the peer ended without a word, and the queue pair is still to end */
    bool is_told;   /* the program, by rdma_cm, of that */
};

/* A connection that is past its start. */
struct sw_iwarp_begin {
    int fd;
    struct sw_iwarp_terms terms;
    bool is_initiator;
    bool is_paired; /* of sw_iwarp_begin_paired() */
    struct sw_iwarp_outcome *outcome;
    uint16_t peer_skills; /* paired: enum sw_pairing_skills */
    bool awaits_first;    /* responder: FIRST_CAME is wanted */
    uint64_t cookie;      /* for news */
    const uint8_t *bytes; /* that came behind the start */
    size_t len;
};
/* Gives it to a queue pair of this process, which is in RTS then. -EINVAL: there is no such queue
 * pair, or not in INIT or RTR; -ENOMEM. The socket is taken over if it is 0. */
int sw_iwarp_begin(uint32_t qpn, const struct sw_iwarp_begin *begin);
/* Whether sw_iwarp_begin() would find the queue pair as it wants it. */
bool sw_iwarp_can_begin(uint32_t qpn);
/* Takes in what has come for the connection, whoever is to read it; its end, too. */
void sw_iwarp_look(uint32_t qpn);
/* Ends the connection with this cookie, if the queue pair still has it. */
void sw_iwarp_hang_up(uint32_t qpn, uint64_t cookie);

#endif
