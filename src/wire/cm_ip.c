/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "wire/bytes.h"
#include "wire/cm_mad.h"

bool sw_cm_ip_header_decode(const uint8_t *from, struct sw_cm_ip_header *out)
{
    struct sw_cm_ip_header header = {.major_version = from[0] >> 4,
                                     .minor_version = from[0] & 0x0f,
                                     .ip_version = from[1] >> 4,
                                     .src_port = sw_be16_load(from + 2)};
    if (header.major_version != 0 || (header.ip_version != 4 && header.ip_version != 6))
        return false;
    memcpy(header.src_addr, from + 4, sizeof(header.src_addr));
    memcpy(header.dst_addr, from + 20, sizeof(header.dst_addr));
    *out = header;
    return true;
}

void sw_cm_ip_header_encode(const struct sw_cm_ip_header *header, uint8_t *to)
{
    to[0] = (uint8_t)(header->major_version << 4 | (header->minor_version & 0x0f));
    to[1] = (uint8_t)(header->ip_version << 4);
    sw_be16_store(to + 2, header->src_port);
    memcpy(to + 4, header->src_addr, sizeof(header->src_addr));
    memcpy(to + 20, header->dst_addr, sizeof(header->dst_addr));
}
