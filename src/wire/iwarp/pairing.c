/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/pairing.h"

#include <string.h>

#include "wire/bytes.h"

#define VERSION 1
static const uint8_t magic[4] = {'S', 'w', 'Q', 'P'};

void sw_pairing_encode(const struct sw_pairing *pairing, uint8_t to[SW_PAIRING_BYTES])
{
    memcpy(to, magic, sizeof(magic));
    to[4] = VERSION;
    to[5] = pairing->kind;
    sw_be16_store(to + 6, pairing->skills);
    sw_be32_store(to + 8, pairing->own_qpn);
    sw_be32_store(to + 12, pairing->peer_qpn);
    sw_be32_store(to + 16, pairing->own_psn);
    sw_be32_store(to + 20, pairing->peer_psn);
    sw_be64_store(to + 24, pairing->nonce);
}

bool sw_pairing_decode(const uint8_t *from, size_t len, struct sw_pairing *out)
{
    if (len != SW_PAIRING_BYTES || memcmp(from, magic, sizeof(magic)) != 0 || from[4] != VERSION ||
        from[5] >= SW_PAIRING_KINDS)
        return false;
    *out = (struct sw_pairing){
        .kind = from[5],
        .skills = sw_be16_load(from + 6),
        .own_qpn = sw_be32_load(from + 8),
        .peer_qpn = sw_be32_load(from + 12),
        .own_psn = sw_be32_load(from + 16),
        .peer_psn = sw_be32_load(from + 20),
        .nonce = sw_be64_load(from + 24),
    };
    return true;
}

bool sw_pairing_agrees(const struct sw_pairing *request, const struct sw_pairing *reply)
{
    return request->kind == SW_PAIRING_REQUEST && reply->kind == SW_PAIRING_REPLY &&
           reply->nonce == request->nonce && reply->own_qpn == request->peer_qpn &&
           reply->peer_qpn == request->own_qpn && reply->peer_psn == request->own_psn &&
           (reply->own_psn == SW_PAIRING_PSN_OPEN || reply->own_psn == request->peer_psn);
}

/* The immediate is the lower word, in the order in which its program gave it. */
static bool is_immediate(uint8_t kind)
{
    return kind == SW_PAIRING_IMM_OF_WRITE || kind == SW_PAIRING_IMM_OF_SEND;
}

void sw_pairing_note_encode(const struct sw_pairing_note *note, uint8_t to[SW_PAIRING_NOTE_BYTES])
{
    to[0] = note->kind;
    to[1] = note->argument;
    sw_be16_store(to + 2, 0);
    if (is_immediate(note->kind))
        memcpy(to + 4, &note->value, sizeof(note->value));
    else
        sw_be32_store(to + 4, note->value);
}

void sw_pairing_note_decode(const uint8_t from[SW_PAIRING_NOTE_BYTES], struct sw_pairing_note *out)
{
    *out = (struct sw_pairing_note){.kind = from[0], .argument = from[1]};
    if (is_immediate(from[0]))
        memcpy(&out->value, from + 4, sizeof(out->value));
    else
        out->value = sw_be32_load(from + 4);
}
