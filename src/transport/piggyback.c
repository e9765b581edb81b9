/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/piggyback.h"

#include "transport/responder_impl.h"
#include "wire/aeth.h"

bool sw_piggyback_load(struct sw_responder *responder, struct sw_packet *request)
{
    struct sw_emission ack;
    const uint16_t extra = request->opcode->headers & (SW_HEADER_IMM | SW_HEADER_IETH);
    if (!responder->peer_piggybacks || responder->dead || !sw_responder_only_acks(responder) ||
        request->payload_len + SW_PIGGYBACK_BYTES > responder->config.mtu_bytes)
        return false;
    const struct sw_opcode *opcode = sw_opcode_find(
        (enum sw_service)request->opcode->service, (enum sw_packet_kind)request->opcode->kind,
        (enum sw_position)request->opcode->position, extra | SW_HEADER_PIGGYBACK);
    if (!opcode)
        return false;
    sw_responder_ack(responder, &ack);
    responder->remark = SW_REMARK_NONE;
    request->opcode = opcode;
    request->bth.opcode = opcode->number;
    request->aeth = ack.packet.aeth;
    request->acked_psn = ack.packet.bth.psn;
    return true;
}

bool sw_piggyback_unload(const struct sw_packet *request, struct sw_packet *ack)
{
    if (!(request->opcode->headers & SW_HEADER_PIGGYBACK) ||
        sw_aeth_class_of(request->aeth.syndrome) != SW_AETH_ACK)
        return false;
    const struct sw_opcode *opcode =
        sw_opcode_find((enum sw_service)request->opcode->service, SW_PACKET_ACK, SW_ONLY, 0);
    *ack = (struct sw_packet){.opcode = opcode, .bth = request->bth, .aeth = request->aeth};
    ack->bth.opcode = opcode->number;
    ack->bth.psn = request->acked_psn;
    return true;
}
