/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/carried.h"

#include <assert.h>

#include "wire/bytes.h"
#include "wire/packet.h"

enum {
    SERVICE_SHIFT = 5, /* of an opcode; UD is 3: IBTA Vol1 table 38 */
    SERVICE_UD = 3,
    DETH_BYTES = 8,
};

void sw_carried_encode(const struct sw_carried *carried, uint8_t head[SW_CARRIED_HEAD_BYTES])
{
    assert(carried->len_bytes <= SW_CARRIED_PACKET_MAX);
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_SEND), .last = true, .msn = carried->msn};
    sw_be16_store(head, (uint16_t)sw_carried_ulpdu_len(carried));
    uint8_t *to = head + SW_FPDU_LENGTH_BYTES;
    to += sw_ddp_encode(&segment, to);
    to[0] = carried->traffic_class;
    to[1] = carried->hop_limit;
    sw_be16_store(to + 2, carried->source_port);
}

bool sw_carried_decode(const uint8_t *ulpdu, uint32_t len, struct sw_carried *out)
{
    struct sw_ddp_segment segment;
    if (sw_ddp_check(ulpdu, len) != SW_DDP_FAULT_NONE)
        return false;
    sw_ddp_decode(ulpdu, len, &segment);
    if (segment.opcode->number != SW_RDMAP_SEND || !segment.last || segment.mo ||
        segment.payload_len < SW_CARRIED_BYTES + SW_BTH_BYTES + DETH_BYTES + SW_ICRC_BYTES ||
        segment.payload_len > SW_CARRIED_BYTES + SW_CARRIED_PACKET_MAX ||
        segment.payload[SW_CARRIED_BYTES] >> SERVICE_SHIFT != SERVICE_UD)
        return false;
    *out = (struct sw_carried){
        .msn = segment.msn,
        .traffic_class = segment.payload[0],
        .hop_limit = segment.payload[1],
        .source_port = sw_be16_load(segment.payload + 2),
        .len_bytes = segment.payload_len - SW_CARRIED_BYTES,
        .packet = segment.payload + SW_CARRIED_BYTES,
    };
    return true;
}
