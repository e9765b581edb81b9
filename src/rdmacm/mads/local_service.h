/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests to a service of another process, and the sockets at which this process is asked. A
 * process that asks for a service keeps a connection to the service's socket (ports.h). It closes
 * when nobody listens there any more. Answers may take it, too, since it is proven already.
 *
 * sw_rdmacm_lock held in all calls.
 */
#ifndef SW_RDMACM_MADS_LOCAL_SERVICE_H
#define SW_RDMACM_MADS_LOCAL_SERVICE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "cm/cm.h"

struct sw_local_connection;

/* Sends a request to the listener of the service at `address`. `path` is seen from there;
 * `is_packet`: it came to us by packets, and the receiver is to answer by packets. -ECONNREFUSED:
 * nobody listens, nobody of this user at least. */
int sw_local_ask(uint64_t service_id, const struct in6_addr *address, const struct sw_cm_path *path,
                 bool is_packet, const uint8_t mad[SW_MAD_BYTES]);
/* A connection to a service is about to be freed. */
void sw_local_service_forget(const struct sw_local_connection *connection);

/* Accepts connections at a service's socket from here on. */
void sw_local_serve(int listener);
/* Accepts connections that concern no service but the process itself. */
void sw_local_serve_process(int listener);
/* Closes the socket. Processes that came by it are to look for the service again. */
void sw_local_unserve(int listener);
/* Engine: somebody connects to a listener. */
void sw_local_accept(int listener);

void sw_local_service_fork_child(void);

#endif
