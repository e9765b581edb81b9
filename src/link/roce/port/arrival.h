/* SPDX-License-Identifier: BSD-2-Clause */
/* A packet that the port has received, or a run of them. */
#ifndef SW_LINK_ROCE_PORT_ARRIVAL_H
#define SW_LINK_ROCE_PORT_ARRIVAL_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

struct sw_hold;

/* A packet whose ICRC is right, or a run of them (wire/run.h). */
struct sw_arrival {
    const uint8_t *bytes; /* from the BTH to the ICRC; of the first */
    uint32_t len_bytes;   /* of each; they lie next to each other */
    uint32_t count;
    uint32_t ifindex;
    struct in6_addr source, dest;
    uint16_t source_port;
    uint8_t traffic_class; /* ECN in its low two bits */
    uint8_t hop_limit;     /* 0: not known */
    bool was_handed_on;    /* by another process */
    bool is_carried;       /* by TCP */
    struct sw_hold *hold;  /* of the bytes; NULL: they are there during the call only */
};

/* Whether a router has marked it as congested (RFC 3168). */
static inline bool sw_arrival_is_marked(const struct sw_arrival *arrival)
{
    return (arrival->traffic_class & 3) == 3;
}

#endif
