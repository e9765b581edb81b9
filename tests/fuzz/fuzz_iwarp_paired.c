/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What comes to queue pairs of RoCE devices over TCP: the private data of a start, of which nothing
 * but the one right reply is believed; then notes, requests and void FPDUs in any order, of which
 * what is counted stays within what there was. Input: how it is set up, how long the pieces are,
 * then a start, or the stream.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "transport/iwarp/iwarp.h"
#include "transport/iwarp/start.h"
#include "transport/iwarp/stream.h"
#include "wire/iwarp/pairing.h"

enum { CHOICES = 4, RING = 16, ROOM = 4096, DATA_BYTES = 100, FPDUS_MAX = 64, LAST_MAX = 3 };
enum { QPN = 0x1234, PEER_QPN = 0x4321, PSN = 0x777, PEER_PSN = 0x888, NONCE = 99 };

struct scene {
    struct sw_iwarp machine;
    struct sw_iwarp_stream stream;
    struct sw_request ring[RING];
    uint8_t buffer[ROOM], kept[ROOM];
    uint8_t choice;
};

static void demand(bool holds)
{
    if (!holds)
        abort();
}

/* ---- the start ---- */

static void judge_private(const struct sw_mpa_frame *frame, const struct sw_pairing *request)
{
    struct sw_pairing said;
    uint8_t again[SW_PAIRING_BYTES];
    if (!sw_pairing_decode(frame->private_data, frame->private_len, &said))
        return;
    sw_pairing_encode(&said, again);
    demand(frame->private_len == SW_PAIRING_BYTES &&
           memcmp(again, frame->private_data, sizeof(again)) == 0);
    demand(said.kind < SW_PAIRING_KINDS);
    if (!sw_pairing_agrees(request, &said))
        return;
    demand(said.own_qpn == PEER_QPN && said.peer_qpn == QPN && said.peer_psn == PSN);
    demand(said.nonce == NONCE && said.kind == SW_PAIRING_REPLY);
    demand(said.own_psn == PEER_PSN || said.own_psn == SW_PAIRING_PSN_OPEN);
}

static void run_start(bool calls, const uint8_t *data, size_t size, size_t piece)
{
    struct sw_iwarp_start start;
    uint8_t private_data[SW_PAIRING_BYTES];
    const struct sw_pairing request = {.kind = SW_PAIRING_REQUEST,
                                       .skills = SW_PAIRING_SKILLS,
                                       .own_qpn = QPN,
                                       .peer_qpn = PEER_QPN,
                                       .own_psn = PSN,
                                       .peer_psn = PEER_PSN,
                                       .nonce = NONCE};
    sw_pairing_encode(&request, private_data);
    const struct sw_iwarp_start_config config = {.revision = 2,
                                                 .wants_large = true,
                                                 .ird = SW_MPA_DEPTH_MAX,
                                                 .ord = SW_MPA_DEPTH_MAX,
                                                 .private_len = SW_PAIRING_BYTES,
                                                 .private_data = private_data};
    const struct sw_iwarp_start_config listens = {.revision = 2};
    if (calls)
        sw_iwarp_start_connect(&start, &config, 0);
    else
        sw_iwarp_start_listen(&start, &listens, 0);
    for (size_t at = 0; at < size; at += piece)
        sw_iwarp_start_take(&start, data + at, size - at < piece ? size - at : piece);
    if (start.state == SW_IWARP_OPEN || start.state == SW_IWARP_REJECTED ||
        start.state == SW_IWARP_REQUESTED)
        judge_private(&start.peer, &request);
    if (start.state != SW_IWARP_REQUESTED)
        return;
    sw_iwarp_start_accept(&start, &config, 0);
    demand(sw_mpa_check(start.out, start.out_len, true) == SW_MPA_FAULT_NONE);
}

/* ---- the stream ---- */

static struct sw_outcome outcome_of(struct scene *s)
{
    static const uint8_t syndromes[] = {0x1f, 0x1f, 0x1f, 0x20, 0x61, 0x62, 0x63, 0x1f};
    const uint8_t choice = s->choice;
    s->choice = (uint8_t)(choice << 1 | choice >> 7); /* another one next time */
    return (struct sw_outcome){.syndrome = syndromes[choice & 7], .why = choice >> 3 & 3};
}

static void check_demand(const struct sw_demand *asked, const struct sw_iwarp_fpdu *fpdu)
{
    demand(asked->pieces == 1 && asked->total <= UINT32_MAX);
    if (asked->len_bytes == 0)
        return;
    demand(asked->kind == SW_DEMAND_SEND || asked->kind == SW_DEMAND_WRITE);
    demand(asked->payload >= fpdu->ulpdu);
    demand(asked->payload + asked->len_bytes == fpdu->ulpdu + fpdu->len);
}

static void take_fpdu(struct scene *s, const struct sw_iwarp_fpdu *fpdu)
{
    struct sw_iwarp_input input = {0};
    if (fpdu->is_void) {
        sw_iwarp_take_void(&s->machine, fpdu->ulpdu, fpdu->len);
        return;
    }
    switch (sw_iwarp_admit(&s->machine, fpdu->ulpdu, fpdu->len, &input)) {
    case SW_IWARP_DEMAND: {
        check_demand(&input.demand, fpdu);
        if (input.demand.kind == SW_DEMAND_FLUSH) { /* it goes on elsewhere */
            memcpy(s->kept, fpdu->ulpdu, fpdu->len);
            sw_iwarp_keep(&s->machine, s->kept);
        }
        const struct sw_outcome outcome = outcome_of(s);
        sw_iwarp_conclude(&s->machine, &input.demand, &outcome);
        break;
    }
    case SW_IWARP_PLACE:
        demand(input.position < RING);
        demand(input.offset + input.len_bytes <= DATA_BYTES);
        break;
    case SW_IWARP_NOTHING:
        break;
    }
}

static void check_counts(const struct scene *s)
{
    const struct sw_iwarp *w = &s->machine;
    demand(w->done <= w->sent && w->sent <= w->tail);
    demand(w->read_count <= w->config.ord);
    demand(w->answer_count <= (uint32_t)w->config.ird + 1);
    demand((int32_t)(w->paired.out - w->paired.acked) >= 0);
    demand((int32_t)(w->paired.in - w->paired.told) >= 0);
}

static void send_some(struct scene *s)
{
    struct sw_iwarp_emission emission;
    for (int i = 0; i < FPDUS_MAX && sw_iwarp_next(&s->machine, &emission); i++) {
        demand(emission.head_len <= SW_IWARP_HEAD_MAX);
        demand(sw_fpdu_len(sw_iwarp_ulpdu_len(&emission)) <= s->machine.config.fpdu_max);
        if (emission.source == SW_PAYLOAD_MEMORY && (s->choice & 0x40))
            sw_iwarp_unreadable(&s->machine, SW_ACCESS_FAULT_KEY);
        check_counts(s);
    }
}

static void post_some(struct scene *s)
{
    static const uint8_t kinds[] = {SW_REQUEST_READ, SW_REQUEST_FLUSH,        SW_REQUEST_WRITE,
                                    SW_REQUEST_SEND, SW_REQUEST_ATOMIC_WRITE, SW_REQUEST_FETCH_ADD,
                                    SW_REQUEST_SEND};
    for (size_t i = 0; i < sizeof(kinds); i++) {
        const struct sw_request request = {
            .kind = kinds[i],
            .flags = i & 1 ? SW_REQUEST_IMM : 0,
            .len_bytes = DATA_BYTES,
            .rkey = 7,
        };
        if (sw_iwarp_supports(&s->machine, &request))
            sw_iwarp_post(&s->machine, &request);
    }
}

static void say_last(struct scene *s)
{
    struct sw_iwarp_emission emission;
    int count = 0;
    while (sw_iwarp_say_last(&s->machine, &emission))
        demand(++count <= LAST_MAX);
}

static void run_stream(struct scene *s, const uint8_t *data, size_t size, size_t piece)
{
    post_some(s);
    send_some(s);
    for (size_t at = 0; at < size; at += piece) {
        const size_t end = size - at < piece ? size : at + piece;
        struct sw_iwarp_fpdu fpdu;
        size_t used, from = at;
        while (sw_iwarp_stream_take(&s->stream, data + from, end - from, &used, &fpdu) ==
               SW_IWARP_FPDU) {
            take_fpdu(s, &fpdu);
            check_counts(s);
            from += used;
        }
        sw_iwarp_tell(&s->machine);
        sw_iwarp_resume(&s->machine);
        send_some(s);
    }
    say_last(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct scene s;
    if (size < CHOICES)
        return 0;
    const size_t piece = data[2] ? data[2] : size;
    const uint8_t how = data[0];
    const struct sw_iwarp_config config = {.ird = data[1] & 15,
                                           .ord = 1 + (data[1] >> 4),
                                           .fpdu_max = 256 + data[0],
                                           .is_initiator = how & 4,
                                           .is_paired = true,
                                           .has_persistence = how & 0x10,
                                           .rnr_retry = how >> 5,
                                           .rnr_timer = 12};
    s.choice = data[3];
    if (how & 1) {
        run_start(how & 2, data + CHOICES, size - CHOICES, piece);
        return 0;
    }
    sw_iwarp_init(&s.machine, &config, s.ring, RING);
    sw_iwarp_stream_init(&s.stream, s.buffer, sizeof(s.buffer), how & 8);
    run_stream(&s, data + CHOICES, size - CHOICES, piece);
    return 0;
}
