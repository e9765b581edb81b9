/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ports of the RDMA port spaces, shared by the processes of a network namespace, whoever's they
 * are. A claim is a bound abstract socket, so it is gone with its process. Conflicts follow the
 * kernel's rules for RDMA (which are TCP's but for the error of a wildcard).
 */
#ifndef SW_RDMACM_MADS_PORTS_H
#define SW_RDMACM_MADS_PORTS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "link/names/names.h"

/* What an ID is bound to. */
struct sw_cm_port_name {
    uint32_t space;          /* enum rdma_ucm_port_space: RDMA_PS_TCP and so on */
    uint16_t port;           /* host byte order; 0: any that is free */
    struct in6_addr address; /* IPv4 is mapped (::ffff:a.b.c.d); :: or ::ffff:0.0.0.0: any */
    bool afonly; /* only this address family (RDMA_OPTION_ID_AFONLY); else a wildcard is of both */
    bool reuse;  /* RDMA_OPTION_ID_REUSEADDR */
};

struct sw_cm_port; /* one ID's hold on a port */

/* Takes a port; name->port is set if it was 0. sw_rdmacm_lock held; may wait for another process
 * that is taking one, some microseconds.
 * -EADDRINUSE: another ID has this address and port; -EADDRNOTAVAIL: one of the two is a wildcard,
 * or no port is free; -EACCES: below 1024 without CAP_NET_BIND_SERVICE; -ENOMEM, -EMFILE. */
int sw_cm_port_claim(struct sw_cm_port_name *name, struct sw_cm_port **out);
/* Lets go of it; ends listening. NULL does nothing. sw_rdmacm_lock held. */
void sw_cm_port_release(struct sw_cm_port *claim);

/* REQs and SIDR_REQs for the service ID to the claim's address come to this process from here on;
 * opens the UDP port, so that other hosts' do. `service_id` in host byte order: for IP
 * (space << 16 | port). -EADDRINUSE, -EADDRNOTAVAIL: shared with another ID by REUSEADDR. */
int sw_cm_port_listen(struct sw_cm_port *claim, uint64_t service_id);

/* Whether this process listens to the service at the address. */
bool sw_cm_port_serves(uint64_t service_id, const struct in6_addr *address);

/* The names under which a service may be listened to, those of more exact ones first. */
enum sw_cm_port_key {
    SW_CM_PORT_EXACT,  /* at the address */
    SW_CM_PORT_FAMILY, /* at any address of its family */
    SW_CM_PORT_ANY,
};
/* The name of its socket (link/names/names.h). */
void sw_cm_port_service(uint64_t service_id, const struct in6_addr *address,
                        enum sw_cm_port_key key, char out[SW_NAME_BYTES]);

/* In a forked child: its parent's claims are forgotten, with the memory they are in. */
void sw_cm_port_fork_child(void);

#endif
