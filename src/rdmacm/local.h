/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * MADs between the processes of a network namespace, of one user. Each process listens at the
 * abstract socket "@sidewire.<slot>.cm", and at one for each service it listens to (ports.h). Two
 * processes that have to do with each other keep one connection, by whose end either sees that the
 * other is gone; who asks for a service has one to the service's socket, a *door*, which closes
 * when nobody listens there any more. Answers take the door, which is proven, where there is no
 * other connection yet. A third kind only stays open: by its end a process
 * that was entrusted with something sees that it is to act. Connected sockets hold some hundred
 * MADs, and more wait in memory.
 *
 * sw_rdmacm_lock held in all calls.
 */
#ifndef SW_RDMACM_LOCAL_H
#define SW_RDMACM_LOCAL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "cm/cm.h"

/* What comes; engine's thread. `path` leads back. */
struct sw_local_user {
    void (*receive)(const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES]);
    /* The same from a stranger (link/direct/proof.h): as if it had come by a packet. */
    void (*packet)(const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES]);
    void (*gone)(uint32_t slot);
    /* A process that had entrusted `fd` to this one has ended. */
    void (*inherit)(uint32_t slot, int fd);
    /* A request will not be answered: who was asked is gone. */
    void (*unanswered)(uint32_t local_comm_id, const uint8_t peer_gid[16]);
};

/* At the start of the program. */
void sw_local_init(const struct sw_local_user *user);
/* Listens as sw_nic.slot. 0 or a negative errno. */
int sw_local_open(void);
void sw_local_fork_child(void);

/* Sends to a process. `path` as seen from here; `is_packet`: it came to us by packets, and the
 * receiver is to answer by packets. -ECONNREFUSED: there is no such process; -EAGAIN: lost. */
int sw_local_send(uint32_t slot, const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES]);
/* Sends a request to whoever listens to the service at `address`. `path` is seen from there.
 * -ECONNREFUSED: nobody listens, nobody of this user at least. */
int sw_local_ask(uint64_t service_id, const struct in6_addr *address, const struct sw_cm_path *path,
                 bool is_packet, const uint8_t mad[SW_MAD_BYTES]);

/* Another process is to get the descriptor when this one ends. */
void sw_local_entrust(int fd);

/* Accepts at a service's socket from here on; and: those who came by it are to look for the service
 * again. */
void sw_local_serve(int listener);
void sw_local_unserve(int listener); /* closes it */

/* Closes what has ended, tells of it. Engine's thread. */
void sw_local_step(void);
bool sw_local_has_ended(void);

#endif
