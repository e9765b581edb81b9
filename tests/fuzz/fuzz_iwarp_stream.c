/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What comes over an iWARP connection: whatever it is, in pieces of any length, what is asked of
 * memory lies within the FPDU, what is placed belongs to a READ that is outstanding, and what is
 * sent are FPDUs. Input: how the machine is set up, how long the pieces are, then the stream.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "transport/iwarp/iwarp.h"
#include "transport/iwarp/stream.h"
#include "wire/iwarp/mpa.h"

enum { CHOICES = 4, RING = 8, ROOM = 4096, READ_BYTES = 100 };

struct scene {
    struct sw_iwarp machine;
    struct sw_iwarp_stream stream;
    struct sw_request ring[RING];
    uint8_t buffer[ROOM];
    uint8_t sink[RING][READ_BYTES];
    uint8_t choice;
};

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void check_demand(const struct sw_demand *asked, const struct sw_iwarp_fpdu *fpdu)
{
    demand(asked->pieces == 1 && asked->total <= UINT32_MAX);
    if (asked->len_bytes == 0)
        return;
    demand(asked->payload >= fpdu->ulpdu);
    demand(asked->payload + asked->len_bytes == fpdu->ulpdu + fpdu->len);
    if (asked->kind == SW_DEMAND_WRITE)
        demand(asked->addr + (asked->len_bytes - 1) >= asked->addr);
}

static struct sw_outcome outcome_of(uint8_t choice)
{
    static const uint8_t syndromes[] = {0x1f, 0x1f, 0x1f, 0x20, 0x61, 0x62, 0x63, 0x1f};
    return (struct sw_outcome){.syndrome = syndromes[choice & 7], .why = choice >> 3 & 3};
}

static void take_fpdu(struct scene *s, const struct sw_iwarp_fpdu *fpdu)
{
    struct sw_iwarp_input input = {0};
    switch (sw_iwarp_admit(&s->machine, fpdu->ulpdu, fpdu->len, &input)) {
    case SW_IWARP_DEMAND: {
        check_demand(&input.demand, fpdu);
        const struct sw_outcome outcome = outcome_of(s->choice);
        sw_iwarp_conclude(&s->machine, &input.demand, &outcome);
        break;
    }
    case SW_IWARP_PLACE:
        demand(input.position < RING && input.offset + input.len_bytes <= READ_BYTES);
        if (input.bytes)
            memcpy(s->sink[input.position] + input.offset, input.bytes, input.len_bytes);
        break;
    case SW_IWARP_NOTHING:
        break;
    }
}

static void send_all(struct scene *s)
{
    struct sw_iwarp_emission emission;
    for (int i = 0; sw_iwarp_next(&s->machine, &emission); i++) {
        demand(i < 100000);
        demand(emission.head_len <= SW_IWARP_HEAD_MAX);
        demand(sw_fpdu_len(sw_iwarp_ulpdu_len(&emission)) <= s->machine.config.fpdu_max);
        if (emission.source == SW_PAYLOAD_MEMORY && (s->choice & 0x40))
            sw_iwarp_unreadable(&s->machine, SW_ACCESS_FAULT_KEY);
        if (i == 3)
            return; /* the path takes no more for now */
    }
}

static void post_some(struct scene *s)
{
    static const uint8_t kinds[] = {SW_REQUEST_READ, SW_REQUEST_FETCH_ADD, SW_REQUEST_WRITE,
                                    SW_REQUEST_SEND, SW_REQUEST_READ};
    for (size_t i = 0; i < sizeof(kinds); i++) {
        const struct sw_request request = {.kind = kinds[i], .len_bytes = READ_BYTES, .rkey = 7};
        sw_iwarp_post(&s->machine, &request);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct scene s;
    if (size < CHOICES)
        return 0;
    static const uint8_t rtrs[] = {0, SW_MPA_RTR_SEND, SW_MPA_RTR_WRITE, SW_MPA_RTR_READ};
    const struct sw_iwarp_config config = {.ird = data[1] & 15,
                                           .ord = data[1] >> 4,
                                           .fpdu_max = 256 + data[0],
                                           .rtr = rtrs[data[0] & 3],
                                           .is_initiator = data[0] & 4,
                                           .is_held = !(data[0] & 4)};
    const size_t piece = data[2] ? data[2] : size;
    s.choice = data[3];
    sw_iwarp_init(&s.machine, &config, s.ring, RING);
    sw_iwarp_stream_init(&s.stream, s.buffer, sizeof(s.buffer), data[0] & 8);
    post_some(&s);
    send_all(&s);
    data += CHOICES;
    size -= CHOICES;
    for (size_t at = 0; at < size; at += piece) {
        const size_t end = size - at < piece ? size : at + piece;
        struct sw_iwarp_fpdu fpdu;
        size_t used, from = at;
        while (sw_iwarp_stream_take(&s.stream, data + from, end - from, &used, &fpdu) ==
               SW_IWARP_FPDU) {
            take_fpdu(&s, &fpdu);
            from += used;
        }
        demand(s.stream.have < sizeof(s.buffer) && from + used <= end);
        send_all(&s);
    }
    demand(s.machine.done <= s.machine.sent && s.machine.sent <= s.machine.tail);
    demand(s.machine.read_count <= config.ord);
    demand(s.machine.answer_count <= (uint32_t)config.ird + 1);
    return 0;
}
