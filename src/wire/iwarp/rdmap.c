/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/iwarp/rdmap.h"

#include "wire/bytes.h"

#define TAGGED(kind_, name_) \
    [SW_RDMAP_##kind_] = {.name = name_, .number = SW_RDMAP_##kind_, .is_tagged = true}
#define UNTAGGED(kind_, name_, queue_, ...) \
    [SW_RDMAP_##kind_] = {                  \
        .name = name_, .number = SW_RDMAP_##kind_, .queue = SW_DDP_QUEUE_##queue_, __VA_ARGS__}

static const struct sw_rdmap_opcode opcodes[SW_RDMAP_KINDS] = {
    TAGGED(WRITE, "WRITE"),
    UNTAGGED(READ_REQUEST, "READ Request", REQUEST, .body_len = SW_RDMAP_READ_BYTES),
    TAGGED(READ_RESPONSE, "READ Response"),
    UNTAGGED(SEND, "SEND", SEND, .is_send = true),
    UNTAGGED(SEND_INV, "SEND with Invalidate", SEND, .is_send = true, .invalidates = true),
    UNTAGGED(SEND_SE, "SEND with Solicited Event", SEND, .is_send = true, .solicited = true),
    UNTAGGED(SEND_SE_INV, "SEND with Solicited Event and Invalidate", SEND, .is_send = true,
             .solicited = true, .invalidates = true),
    UNTAGGED(TERMINATE, "Terminate", TERMINATE),
    UNTAGGED(IMMEDIATE, "Immediate", SEND, .body_len = SW_RDMAP_IMMEDIATE_BYTES),
    UNTAGGED(IMMEDIATE_SE, "Immediate with Solicited Event", SEND,
             .body_len = SW_RDMAP_IMMEDIATE_BYTES, .solicited = true),
    UNTAGGED(ATOMIC_REQUEST, "Atomic Request", REQUEST, .body_len = SW_RDMAP_ATOMIC_REQUEST_BYTES),
    UNTAGGED(ATOMIC_RESPONSE, "Atomic Response", ATOMIC_RESPONSE,
             .body_len = SW_RDMAP_ATOMIC_RESPONSE_BYTES),
    UNTAGGED(FLUSH, "FLUSH", REQUEST, .body_len = SW_RDMAP_FLUSH_BYTES),
};

const struct sw_rdmap_opcode *sw_rdmap_opcode_of(uint8_t number)
{
    return number < SW_RDMAP_KINDS ? &opcodes[number] : NULL;
}

void sw_rdmap_read_encode(const struct sw_rdmap_read *read, uint8_t to[SW_RDMAP_READ_BYTES])
{
    sw_be32_store(to, read->sink_stag);
    sw_be64_store(to + 4, read->sink_to);
    sw_be32_store(to + 12, read->len_bytes);
    sw_be32_store(to + 16, read->source_stag);
    sw_be64_store(to + 20, read->source_to);
}

void sw_rdmap_read_decode(const uint8_t body[SW_RDMAP_READ_BYTES], struct sw_rdmap_read *out)
{
    *out = (struct sw_rdmap_read){
        .sink_stag = sw_be32_load(body),
        .sink_to = sw_be64_load(body + 4),
        .len_bytes = sw_be32_load(body + 12),
        .source_stag = sw_be32_load(body + 16),
        .source_to = sw_be64_load(body + 20),
    };
}

enum { ATOMIC_KIND_MASK = 0x0f };

void sw_rdmap_atomic_encode(const struct sw_rdmap_atomic *atomic,
                            uint8_t to[SW_RDMAP_ATOMIC_REQUEST_BYTES])
{
    sw_be32_store(to, atomic->kind & ATOMIC_KIND_MASK);
    sw_be32_store(to + 4, atomic->id);
    sw_be32_store(to + 8, atomic->stag);
    sw_be64_store(to + 12, atomic->to);
    sw_be64_store(to + 20, atomic->data);
    sw_be64_store(to + 28, atomic->data_mask);
    sw_be64_store(to + 36, atomic->compare);
    sw_be64_store(to + 44, atomic->compare_mask);
}

void sw_rdmap_atomic_decode(const uint8_t body[SW_RDMAP_ATOMIC_REQUEST_BYTES],
                            struct sw_rdmap_atomic *out)
{
    *out = (struct sw_rdmap_atomic){
        .kind = (uint8_t)(sw_be32_load(body) & ATOMIC_KIND_MASK),
        .id = sw_be32_load(body + 4),
        .stag = sw_be32_load(body + 8),
        .to = sw_be64_load(body + 12),
        .data = sw_be64_load(body + 20),
        .data_mask = sw_be64_load(body + 28),
        .compare = sw_be64_load(body + 36),
        .compare_mask = sw_be64_load(body + 44),
    };
}

void sw_rdmap_flush_encode(const struct sw_rdmap_flush *flush, uint8_t to[SW_RDMAP_FLUSH_BYTES])
{
    sw_be32_store(to, flush->type);
    sw_be32_store(to + 4, flush->id);
    sw_be32_store(to + 8, flush->stag);
    sw_be64_store(to + 12, flush->to);
    sw_be32_store(to + 20, flush->len_bytes);
}

void sw_rdmap_flush_decode(const uint8_t body[SW_RDMAP_FLUSH_BYTES], struct sw_rdmap_flush *out)
{
    *out = (struct sw_rdmap_flush){
        .type = sw_be32_load(body),
        .id = sw_be32_load(body + 4),
        .stag = sw_be32_load(body + 8),
        .to = sw_be64_load(body + 12),
        .len_bytes = sw_be32_load(body + 20),
    };
}

void sw_rdmap_original_encode(const struct sw_rdmap_original *original,
                              uint8_t to[SW_RDMAP_ATOMIC_RESPONSE_BYTES])
{
    sw_be32_store(to, original->id);
    sw_be64_store(to + 4, original->value);
}

void sw_rdmap_original_decode(const uint8_t body[SW_RDMAP_ATOMIC_RESPONSE_BYTES],
                              struct sw_rdmap_original *out)
{
    *out = (struct sw_rdmap_original){.id = sw_be32_load(body), .value = sw_be64_load(body + 4)};
}
