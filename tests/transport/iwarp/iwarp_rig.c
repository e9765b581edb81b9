/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/iwarp/iwarp_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/iwarp/mpa.h"

struct sw_iwarp_config iwarp_usual(void)
{
    return (struct sw_iwarp_config){.ird = IWARP_IRD,
                                    .ord = IWARP_ORD,
                                    .fpdu_max = IWARP_FPDU_BYTES,
                                    .is_initiator = true,
                                    .token_seed = 77};
}

struct iwarp_rig *iwarp_rig_with(const struct sw_iwarp_config *config)
{
    static struct iwarp_rig rig;
    memset(&rig, 0, sizeof(rig));
    sw_iwarp_init(&rig.machine, config, rig.ring, IWARP_RING);
    return &rig;
}

struct iwarp_rig *iwarp_rig_of(void)
{
    const struct sw_iwarp_config config = iwarp_usual();
    return iwarp_rig_with(&config);
}

void iwarp_post(struct iwarp_rig *rig, uint8_t kind, uint32_t len_bytes, uint8_t flags)
{
    const struct sw_request request = {.kind = kind,
                                       .flags = flags,
                                       .len_bytes = len_bytes,
                                       .rkey = 0x1234,
                                       .remote_addr = 0x10000,
                                       .imm_or_key = 0x01020304,
                                       .compare_add = 5,
                                       .swap = 6};
    assert_true(sw_iwarp_supports(&rig->machine, &request));
    assert_true(sw_iwarp_post(&rig->machine, &request));
}

void iwarp_sends(struct iwarp_rig *rig, enum sw_rdmap_kind kind)
{
    uint8_t ulpdu[IWARP_FPDU_BYTES] = {0};
    assert_true(sw_iwarp_next(&rig->machine, &rig->emission));
    const uint32_t len = sw_iwarp_ulpdu_len(&rig->emission);
    assert_int_equal(sw_be16_load(rig->emission.head), len);
    assert_true(sw_fpdu_len(len) <= IWARP_FPDU_BYTES);
    memcpy(ulpdu, rig->emission.head + SW_FPDU_LENGTH_BYTES, rig->emission.head_len - 2u);
    assert_int_equal(sw_ddp_check(ulpdu, len), SW_DDP_FAULT_NONE);
    sw_ddp_decode(ulpdu, len, &rig->segment);
    assert_int_equal(rig->segment.opcode->number, kind);
}

void iwarp_sends_nothing(struct iwarp_rig *rig)
{
    assert_false(sw_iwarp_next(&rig->machine, &rig->emission));
}

void iwarp_terminates(struct iwarp_rig *rig, uint16_t cause)
{
    assert_true(rig->machine.over && !rig->machine.by_peer);
    iwarp_sends(rig, SW_RDMAP_TERMINATE);
    assert_int_equal(sw_be16_load(rig->emission.head + 2 + SW_DDP_UNTAGGED_BYTES), cause);
    assert_int_equal(rig->segment.msn, 1);
    iwarp_sends_nothing(rig); /* it is the last */
}

enum sw_iwarp_step iwarp_take(struct iwarp_rig *rig, const struct sw_ddp_segment *segment,
                              const uint8_t *body, uint32_t body_len)
{
    static uint8_t ulpdu[4096];
    memset(ulpdu, 0, sizeof(ulpdu));
    const uint32_t at = sw_ddp_encode(segment, ulpdu);
    if (body)
        memcpy(ulpdu + at, body, body_len);
    memset(&rig->input, 0, sizeof(rig->input));
    return sw_iwarp_admit(&rig->machine, ulpdu, at + body_len, &rig->input);
}

enum sw_iwarp_step iwarp_take_send(struct iwarp_rig *rig, uint8_t kind, uint32_t msn, uint32_t mo,
                                   uint32_t len, bool last)
{
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(kind), .last = last, .msn = msn, .mo = mo, .stag = 0xabcd};
    return iwarp_take(rig, &segment, NULL, len);
}

enum sw_iwarp_step iwarp_take_write(struct iwarp_rig *rig, uint64_t to, uint32_t len, bool last)
{
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_WRITE), .last = last, .stag = 0x99, .to = to};
    return iwarp_take(rig, &segment, NULL, len);
}

enum sw_iwarp_step iwarp_take_read(struct iwarp_rig *rig, uint32_t msn, uint64_t from, uint32_t len)
{
    uint8_t body[SW_RDMAP_READ_BYTES];
    const struct sw_rdmap_read read = {.sink_stag = 0x5151,
                                       .sink_to = 0x7000,
                                       .len_bytes = len,
                                       .source_stag = 0x88,
                                       .source_to = from};
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_READ_REQUEST), .last = true, .msn = msn};
    sw_rdmap_read_encode(&read, body);
    return iwarp_take(rig, &segment, body, sizeof(body));
}

enum sw_iwarp_step iwarp_take_response(struct iwarp_rig *rig, uint32_t stag, uint64_t to,
                                       uint32_t len, bool last)
{
    const struct sw_ddp_segment segment = {
        .opcode = sw_rdmap_opcode_of(SW_RDMAP_READ_RESPONSE), .last = last, .stag = stag, .to = to};
    return iwarp_take(rig, &segment, NULL, len);
}

uint32_t iwarp_token_of(const struct iwarp_rig *rig, uint32_t index)
{
    return rig->machine.reads[index].token;
}

void iwarp_conclude(struct iwarp_rig *rig, uint8_t syndrome, enum sw_access_fault why)
{
    const struct sw_outcome outcome = {.syndrome = syndrome, .why = (uint8_t)why};
    sw_iwarp_conclude(&rig->machine, &rig->input.demand, &outcome);
}
