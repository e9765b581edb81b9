/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/mad.h"

#include "wire/bytes.h"

void sw_mad_header_decode(const uint8_t *mad, struct sw_mad_header *out)
{
    *out = (struct sw_mad_header){
        .base_version = mad[0],
        .class = mad[1],
        .class_version = mad[2],
        .method = mad[3],
        .status = sw_be16_load(mad + 4),
        .class_specific = sw_be16_load(mad + 6),
        .transaction = sw_be64_load(mad + 8),
        .attribute = sw_be16_load(mad + 16),
        .modifier = sw_be32_load(mad + 20),
    };
}

void sw_mad_header_encode(const struct sw_mad_header *header, uint8_t *mad)
{
    mad[0] = header->base_version;
    mad[1] = header->class;
    mad[2] = header->class_version;
    mad[3] = header->method;
    sw_be16_store(mad + 4, header->status);
    sw_be16_store(mad + 6, header->class_specific);
    sw_be64_store(mad + 8, header->transaction);
    sw_be16_store(mad + 16, header->attribute);
    sw_be16_store(mad + 18, 0);
    sw_be32_store(mad + 20, header->modifier);
}
