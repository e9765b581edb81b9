/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/ud.h"

#include "wire/psn.h"

bool sw_ud_emit(struct sw_ud *ud, const struct sw_ud_send *send, uint32_t position,
                struct sw_emission *out)
{
    if (send->len_bytes > ud->mtu_bytes)
        return false;
    const struct sw_opcode *opcode =
        sw_opcode_find(SW_SERVICE_UD, SW_PACKET_SEND, SW_ONLY, send->has_imm ? SW_HEADER_IMM : 0);
    out->packet = (struct sw_packet){
        .opcode = opcode,
        .bth = {.opcode = opcode->number,
                .solicited = send->solicited,
                .mig_req = true,
                .pkey = ud->pkey,
                .dest_qpn = send->dest_qpn,
                .psn = ud->psn},
        .deth = {.qkey = send->qkey, .src_qpn = ud->qpn},
        .imm_be = send->imm_be,
        .payload_len = send->len_bytes,
    };
    out->source = send->len_bytes ? SW_PAYLOAD_REQUEST : SW_PAYLOAD_NONE;
    out->count = 1;
    out->position = position;
    out->rkey = 0;
    out->offset = out->addr = 0;
    ud->psn = sw_psn_add(ud->psn, 1);
    return true;
}

bool sw_ud_admits(const struct sw_ud *ud, const struct sw_packet *packet)
{
    return packet->opcode->service == SW_SERVICE_UD && packet->payload_len <= ud->mtu_bytes;
}
