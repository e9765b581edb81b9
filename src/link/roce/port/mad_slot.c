/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/port/mad_slot.h"

#include "cm/cm.h"
#include "device/rules/pub.h"
#include "wire/bytes.h"
#include "wire/icrc.h"
#include "wire/liveness.h"
#include "wire/packet.h"

enum { DETH_BYTES = 8 };

/* 0: it is not about the liveness of processes. */
static uint32_t liveness_slot(const uint8_t mad[SW_MAD_BYTES])
{
    struct sw_liveness_mad message;
    return sw_liveness_mad_decode(mad, &message) && message.to <= SW_SLOT_MAX ? message.to : 0;
}

uint32_t sw_roce_mad_slot(const uint8_t mad[SW_MAD_BYTES])
{
    uint32_t slot = liveness_slot(mad);
    if (!slot)
        slot = sw_cm_addressee(mad, SW_MAD_BYTES);
    return slot <= SW_SLOT_MAX ? slot : 0;
}

bool sw_roce_is_mad(const uint8_t *packet, uint32_t len_bytes)
{
    return len_bytes >= SW_BTH_BYTES && sw_be24_load(packet + 5) == SW_MAD_QPN;
}

uint32_t sw_roce_mad_packet_slot(const uint8_t *packet, uint32_t len_bytes)
{
    const uint32_t before = SW_BTH_BYTES + DETH_BYTES;
    if (!sw_roce_is_mad(packet, len_bytes) || len_bytes != before + SW_MAD_BYTES + SW_ICRC_BYTES)
        return 0;
    return sw_roce_mad_slot(packet + before);
}
