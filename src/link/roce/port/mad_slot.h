/* SPDX-License-Identifier: BSD-2-Clause */
/* Which process a MAD is for, as far as the MAD says: by a remote communication ID, or as a message
 * about liveness. IBTA Vol1 9.8.3, 12.6, 13.4. */
#ifndef SW_LINK_ROCE_PORT_MAD_SLOT_H
#define SW_LINK_ROCE_PORT_MAD_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/mad.h"

bool sw_roce_is_mad(const uint8_t *packet, uint32_t len_bytes);
/* The slot of the process that a MAD is for; 0: it does not say (a REQ, a SIDR_REQ, or no MAD of
 * connection management). */
uint32_t sw_roce_mad_slot(const uint8_t mad[SW_MAD_BYTES]);
/* The same of a packet, not checked yet. */
uint32_t sw_roce_mad_packet_slot(const uint8_t *packet, uint32_t len_bytes);

#endif
