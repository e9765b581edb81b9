/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What comes over a connection for datagrams: whatever it is, in pieces of any length, a packet
 * that is given out lies within its FPDU, is one of UD, and is what an encoder would say again.
 * Input: with CRCs or not, how long the pieces are, then the stream.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "transport/iwarp/stream.h"
#include "wire/iwarp/carried.h"
#include "wire/packet.h"

enum { CHOICES = 2, DETH_BYTES = 8 };

static void demand(bool holds)
{
    if (!holds)
        abort();
}

/* The head is written for each datagram; what stands in it is read back the same. */
static void check_head(const struct sw_carried *carried)
{
    static uint8_t again[SW_CARRIED_HEAD_BYTES + SW_CARRIED_PACKET_MAX];
    struct sw_carried read;
    sw_carried_encode(carried, again);
    memcpy(again + SW_CARRIED_HEAD_BYTES, carried->packet, carried->len_bytes);
    demand(sw_carried_decode(again + SW_FPDU_LENGTH_BYTES, sw_carried_ulpdu_len(carried), &read));
    demand(read.msn == carried->msn && read.traffic_class == carried->traffic_class);
    demand(read.hop_limit == carried->hop_limit && read.source_port == carried->source_port);
    demand(read.len_bytes == carried->len_bytes);
}

/* False: the connection ends. */
static bool take_fpdu(const struct sw_iwarp_fpdu *fpdu, uint32_t *msn)
{
    struct sw_carried carried;
    if (!sw_carried_decode(fpdu->ulpdu, fpdu->len, &carried) || carried.msn != *msn + 1)
        return false;
    *msn = carried.msn;
    demand(carried.len_bytes >= SW_BTH_BYTES + DETH_BYTES + SW_ICRC_BYTES);
    demand(carried.len_bytes <= SW_CARRIED_PACKET_MAX);
    demand(carried.packet >= fpdu->ulpdu);
    demand(carried.packet + carried.len_bytes == fpdu->ulpdu + fpdu->len);
    check_head(&carried);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t buffer[SW_CARRIED_MAX];
    struct sw_iwarp_stream stream;
    uint32_t msn = 0;
    if (size < CHOICES)
        return 0;
    const size_t piece = data[1] ? data[1] : size;
    sw_iwarp_stream_init(&stream, buffer, sizeof(buffer), data[0] & 1);
    data += CHOICES;
    size -= CHOICES;
    for (size_t at = 0; at < size; at += piece) {
        const size_t end = size - at < piece ? size : at + piece;
        struct sw_iwarp_fpdu fpdu;
        size_t used, from = at;
        while (sw_iwarp_stream_take(&stream, data + from, end - from, &used, &fpdu) ==
               SW_IWARP_FPDU) {
            if (!take_fpdu(&fpdu, &msn))
                return 0;
            from += used;
        }
        demand(stream.have < sizeof(buffer) && from + used <= end);
    }
    return 0;
}
