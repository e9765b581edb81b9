/* SPDX-License-Identifier: BSD-2-Clause */
/* The header that all management datagrams (MADs) begin with. IBTA Vol1 13.4.3. */
#ifndef SW_WIRE_MAD_H
#define SW_WIRE_MAD_H

#include <stdint.h>

enum {
    SW_MAD_BYTES = 256, /* of every MAD, header included */
    SW_MAD_HEADER_BYTES = 24,
    SW_MAD_QPN = 1,              /* the general service interface */
    SW_MAD_BASE_VERSION = 1,     /* the only one */
    SW_MAD_METHOD_SEND = 0x03,   /* all of CM */
    SW_MAD_CLASS_CM = 0x07,      /* communication management */
    SW_MAD_CLASS_CM_VERSION = 2, /* of which there is no other either */
};
#define SW_MAD_QKEY 0x80010000u /* of QP 1 */

struct sw_mad_header {
    uint8_t base_version, class, class_version, method;
    uint16_t status, class_specific;
    uint64_t transaction;
    uint16_t attribute;
    uint32_t modifier;
};

/* From and to the first SW_MAD_HEADER_BYTES of a MAD; the reserved field is written as zero. */
void sw_mad_header_decode(const uint8_t *mad, struct sw_mad_header *out);
void sw_mad_header_encode(const struct sw_mad_header *header, uint8_t *mad);

#endif
