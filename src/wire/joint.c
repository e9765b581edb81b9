/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/joint.h"

#include <string.h>

#include "wire/bytes.h"

enum { FLAGS = 1, MIG_REQ = 0x40, DEST_QPN = 5, QPN_BYTES = 3, ACK_REQ_AT = 8, ACK_REQ = 0x80 };

void sw_joint_begin(uint8_t *to, const uint8_t *headers)
{
    memcpy(to, headers, SW_BTH_BYTES);
    to[0] = SW_JOINT_OPCODE;
    to[FLAGS] &= MIG_REQ;
    to[ACK_REQ_AT] &= (uint8_t)~ACK_REQ;
}

bool sw_joint_is_for(const uint8_t *joint, const uint8_t *headers)
{
    return memcmp(joint + DEST_QPN, headers + DEST_QPN, QPN_BYTES) == 0;
}

void sw_joint_announce(uint8_t *to, uint32_t len_bytes)
{
    sw_be16_store(to, (uint16_t)len_bytes);
    sw_be16_store(to + 2, 0);
}

bool sw_joint_next(const uint8_t *joint, uint32_t len_bytes, uint32_t *at, const uint8_t **packet,
                   uint32_t *packet_bytes)
{
    const uint32_t end = len_bytes - SW_ICRC_BYTES, from = *at ? *at : SW_BTH_BYTES;
    if (end - from < SW_JOINT_EACH_BYTES)
        return false;
    const uint32_t bytes = sw_be16_load(joint + from);
    *packet = joint + from + SW_JOINT_EACH_BYTES;
    *packet_bytes = bytes + SW_ICRC_BYTES;
    *at = from + SW_JOINT_EACH_BYTES + bytes;
    return true;
}

bool sw_joint_is_sound(const uint8_t *joint, uint32_t len_bytes)
{
    const uint32_t end = len_bytes - SW_ICRC_BYTES;
    uint32_t at = SW_BTH_BYTES;
    while (at != end) {
        if (end - at < SW_JOINT_EACH_BYTES + SW_BTH_BYTES)
            return false;
        const uint8_t *packet = joint + at + SW_JOINT_EACH_BYTES;
        const uint32_t bytes = sw_be16_load(joint + at);
        if (bytes < SW_BTH_BYTES || bytes % 4 || bytes > end - at - SW_JOINT_EACH_BYTES ||
            sw_joint_is(packet) || !sw_joint_is_for(joint, packet))
            return false;
        at += SW_JOINT_EACH_BYTES + bytes;
    }
    return true;
}
