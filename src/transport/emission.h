/* SPDX-License-Identifier: BSD-2-Clause */
/* One packet that a machine wants sent: headers, and where its payload comes from. The link adds
 * the path (addresses, ports, TOS) and the ICRC. */
#ifndef SW_TRANSPORT_EMISSION_H
#define SW_TRANSPORT_EMISSION_H

#include "wire/packet.h"

/* As far as a machine keeps count of single packets: PSNs on their way at the requester, and
 * packets after a gap at the responder. A NAK can speak of all of them. */
#define SW_FLIGHT_PACKETS 2048u
#define SW_EMISSION_BYTES (SW_FLIGHT_PACKETS / 8)

/* In the seven reserved bits of the BTH that the ICRC covers: whoever sends this understands
 * selective repeat. Others send zeros there and do not look. */
#define SW_SELECTIVE_MARK 0x53

enum sw_payload_source {
    SW_PAYLOAD_NONE,
    SW_PAYLOAD_REQUEST, /* bytes [offset, offset+payload_len) of the data of request `position` */
    SW_PAYLOAD_MEMORY,  /* bytes [addr, addr+payload_len) of the responder's memory by `rkey` */
    SW_PAYLOAD_BYTES,   /* in `bytes` */
};

struct sw_emission {
    struct sw_packet packet; /* all headers and payload_len; payload is NULL */
    enum sw_payload_source source;
    uint32_t position; /* of the request it belongs to, if a requester made it */
    uint32_t rkey;
    uint64_t offset;
    uint64_t addr;
    uint8_t bytes[SW_EMISSION_BYTES];
};

#endif
