/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The codec of CM messages: whatever comes, nothing outside of it is read, and what is taken for a
 * message makes a MAD that is the same message again.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "wire/cm_mad.h"

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void check(const uint8_t *data, size_t size)
{
    struct sw_cm_message message, again;
    uint8_t once[SW_MAD_BYTES], twice[SW_MAD_BYTES];
    enum sw_cm_mad_fault fault = sw_cm_mad_decode(data, size, &message);
    demand(sw_cm_mad_fault_name(fault) != NULL);
    if (fault)
        return;
    demand(size == SW_MAD_BYTES && sw_cm_attribute_name((uint16_t)message.attribute) != NULL);
    sw_cm_mad_encode(&message, once);
    memset(&again, 0, sizeof(again));
    demand(sw_cm_mad_decode(once, sizeof(once), &again) == SW_CM_MAD_FAULT_NONE);
    demand(again.attribute == message.attribute && again.transaction == message.transaction);
    sw_cm_mad_encode(&again, twice);
    demand(memcmp(once, twice, sizeof(once)) == 0);
    struct sw_cm_ip_header header;
    if (message.attribute == SW_CM_REQ)
        sw_cm_ip_header_decode(message.req.private_data, &header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size);
    uint8_t *mad = calloc(1, SW_MAD_BYTES); /* in an allocation of its own */
    demand(mad != NULL);
    memcpy(mad, data, size < SW_MAD_BYTES ? size : SW_MAD_BYTES);
    check(mad, SW_MAD_BYTES);
    free(mad);
    return 0;
}
