/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MADs between the processes of a network namespace, of one user. Each process listens at the
 * abstract socket "@sidewire.<slot>.cm", and at one for each service it listens to (ports.h). There
 * are three kinds of connections (local_connection.h):
 *  - Two processes that have to do with each other keep one. By its end either sees that the other
 *    is gone.
 * - A process that asks for a service has one to the service's socket (local_service.h). - One only
 * stays open: by its end the successor of a process sees that it is to act
 *    (local_successor.h).
 * Connected sockets hold some hundred MADs, and more wait in memory.
 *
 * sw_rdmacm_lock held in all calls but sw_local_wants_step().
 */
#ifndef SW_RDMACM_MADS_LOCAL_H
#define SW_RDMACM_MADS_LOCAL_H

#include <stdint.h>

#include "cm/cm.h"

/* What comes; engine's thread. `path` leads back. */
struct sw_local_user {
    void (*receive)(const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES]);
    /* The same from a stranger (link/direct/process/proof.h): as if it had come by a packet. */
    void (*packet)(const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES]);
    void (*gone)(uint32_t slot);
    /* A process has ended that had handed over `fd` to this one. */
    void (*inherit)(uint32_t slot, int fd);
    /* A request will not be answered: the process that was asked is gone. */
    void (*unanswered)(uint32_t local_comm_id, const uint8_t peer_gid[16]);
};

/* At the start of the program. */
void sw_local_init(const struct sw_local_user *user);
/* Listens as sw_nic.slot. 0 or a negative errno. */
int sw_local_open(void);
void sw_local_fork_child(void);

/* Sends to a process. `path` is seen from there. -ECONNREFUSED: there is no such process; -EAGAIN:
 * lost. */
int sw_local_send(uint32_t slot, const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES]);

/* Closes what has ended, tells of it. Engine's thread. */
void sw_local_step(void);

#endif
