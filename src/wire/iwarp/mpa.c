/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/mpa.h"

#include <assert.h>
#include <string.h>

#include "base/minmax.h"
#include "wire/bytes.h"

/* Offsets behind the key. */
enum { FLAGS_AT = 16, REVISION_AT = 17, LENGTH_AT = 18 };
/* In the two words of an enhanced frame, beside IRD and ORD. */
enum { PEER_TO_PEER = 0x8000, RTR_SEND = 0x4000, RTR_WRITE = 0x8000, RTR_READ = 0x4000 };
enum { DEPTH_MASK = 0x3fff };

static const uint8_t *mpa_key_of(bool is_reply)
{
    return (const uint8_t *)(is_reply ? "MPA ID Rep Frame" : "MPA ID Req Frame");
}

enum sw_mpa_fault sw_mpa_check(const uint8_t *bytes, size_t len, bool is_reply)
{
    const size_t key_len = sw_min_size(len, SW_MPA_KEY_BYTES);
    if (memcmp(bytes, mpa_key_of(is_reply), key_len) != 0)
        return SW_MPA_FAULT_KEY;
    if (len > REVISION_AT && (bytes[REVISION_AT] < 1 || bytes[REVISION_AT] > 2))
        return SW_MPA_FAULT_REVISION;
    if (len < SW_MPA_HEADER_BYTES)
        return SW_MPA_FAULT_SHORT;
    const uint16_t private_len = sw_be16_load(bytes + LENGTH_AT);
    const bool is_enhanced = bytes[REVISION_AT] >= 2 && (bytes[FLAGS_AT] & SW_MPA_ENHANCED);
    if (private_len > SW_MPA_PRIVATE_MAX || (is_enhanced && private_len < SW_MPA_NEGOTIATION_BYTES))
        return SW_MPA_FAULT_LENGTH;
    return len < (size_t)SW_MPA_HEADER_BYTES + private_len ? SW_MPA_FAULT_SHORT : SW_MPA_FAULT_NONE;
}

static void read_negotiation(const uint8_t *at, struct sw_mpa_frame *out)
{
    const uint16_t first = sw_be16_load(at), second = sw_be16_load(at + 2);
    out->peer_to_peer = first & PEER_TO_PEER;
    out->rtr = (uint8_t)((first & RTR_SEND ? SW_MPA_RTR_SEND : 0) |
                         (second & RTR_WRITE ? SW_MPA_RTR_WRITE : 0) |
                         (second & RTR_READ ? SW_MPA_RTR_READ : 0));
    out->ird = first & DEPTH_MASK;
    out->ord = second & DEPTH_MASK;
}

size_t sw_mpa_decode(const uint8_t *bytes, struct sw_mpa_frame *out)
{
    const uint16_t private_len = sw_be16_load(bytes + LENGTH_AT);
    *out = (struct sw_mpa_frame){
        .is_reply = memcmp(bytes, mpa_key_of(true), SW_MPA_KEY_BYTES) == 0,
        .flags = bytes[FLAGS_AT],
        .revision = bytes[REVISION_AT],
        .private_len = private_len,
        .private_data = bytes + SW_MPA_HEADER_BYTES,
    };
    if (sw_mpa_is_enhanced(out)) {
        read_negotiation(out->private_data, out);
        out->private_data += SW_MPA_NEGOTIATION_BYTES;
        out->private_len = (uint16_t)(private_len - SW_MPA_NEGOTIATION_BYTES);
    }
    return (size_t)SW_MPA_HEADER_BYTES + private_len;
}

static void write_negotiation(const struct sw_mpa_frame *frame, uint8_t *at)
{
    const uint32_t first = (frame->ird & DEPTH_MASK) | (frame->peer_to_peer ? PEER_TO_PEER : 0) |
                           (frame->rtr & SW_MPA_RTR_SEND ? RTR_SEND : 0);
    const uint32_t second = (frame->ord & DEPTH_MASK) |
                            (frame->rtr & SW_MPA_RTR_WRITE ? RTR_WRITE : 0) |
                            (frame->rtr & SW_MPA_RTR_READ ? RTR_READ : 0);
    sw_be16_store(at, (uint16_t)first);
    sw_be16_store(at + 2, (uint16_t)second);
}

size_t sw_mpa_encode(const struct sw_mpa_frame *frame, uint8_t *to)
{
    uint8_t *at = to + SW_MPA_HEADER_BYTES;
    memcpy(to, mpa_key_of(frame->is_reply), SW_MPA_KEY_BYTES);
    to[FLAGS_AT] = frame->flags;
    to[REVISION_AT] = frame->revision;
    if (sw_mpa_is_enhanced(frame)) {
        write_negotiation(frame, at);
        at += SW_MPA_NEGOTIATION_BYTES;
    }
    const size_t before = (size_t)(at - to);
    assert(frame->private_len <= SW_MPA_FRAME_MAX - before);
    if (frame->private_len)
        memcpy(at, frame->private_data, frame->private_len);
    const size_t len = before + frame->private_len;
    sw_be16_store(to + LENGTH_AT, (uint16_t)(len - SW_MPA_HEADER_BYTES));
    return len;
}
