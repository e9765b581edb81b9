/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/run.h"

#include <assert.h>
#include <string.h>

#include "wire/bytes.h"
#include "wire/psn.h"

enum { ALIKE_BYTES = 8, ASKING = 8, ACK_REQ = 0x80, PSN = 9, PAD_SHIFT = 4 }; /* of the BTH */
enum { RKEY = 8, LENGTH = 12 };                                               /* of the RETH */

bool sw_opcode_makes_runs(const struct sw_opcode *opcode)
{
    const bool is_reliable = opcode->service == SW_SERVICE_RC || opcode->service == SW_SERVICE_XRC;
    const bool writes = opcode->kind == SW_PACKET_WRITE, sends = opcode->kind == SW_PACKET_SEND;
    if (!is_reliable || opcode->headers & ~(SW_HEADER_XRCETH | SW_HEADER_RETH))
        return false;
    return opcode->position == SW_MIDDLE ? writes || sends : writes && opcode->position == SW_ONLY;
}

/* `rest`: payload and pad. */
static bool goes_on(const uint8_t *previous, const uint8_t *next, size_t rest, uint32_t pad)
{
    const size_t len = rest - pad;
    return rest > pad && memcmp(previous + RKEY, next + RKEY, SW_RETH_BYTES - RKEY) == 0 &&
           sw_be32_load(next + LENGTH) == len && sw_be64_load(next) == sw_be64_load(previous) + len;
}

bool sw_packet_follows(const uint8_t *previous, const uint8_t *next, size_t len)
{
    if (len < SW_BTH_BYTES + SW_ICRC_BYTES || memcmp(previous, next, ALIKE_BYTES) != 0 ||
        previous[ASKING] != (next[ASKING] & ~ACK_REQ) ||
        sw_be24_load(next + PSN) != sw_psn_add(sw_be24_load(previous + PSN), 1))
        return false;
    const struct sw_opcode *opcode = sw_opcode_of(next[0]);
    if (!opcode || !sw_opcode_makes_runs(opcode) ||
        len < opcode->header_len + (size_t)SW_ICRC_BYTES)
        return false;
    size_t at = SW_BTH_BYTES;
    if (opcode->headers & SW_HEADER_XRCETH) {
        if (memcmp(previous + at, next + at, SW_XRCETH_BYTES) != 0)
            return false;
        at += SW_XRCETH_BYTES;
    }
    return !(opcode->headers & SW_HEADER_RETH) ||
           goes_on(previous + at, next + at, len - opcode->header_len - SW_ICRC_BYTES,
                   next[1] >> PAD_SHIFT & 3);
}

void sw_packet_run_skip(struct sw_packet_run *run, uint32_t count)
{
    struct sw_packet *first = &run->first;
    assert(count <= run->count);
    run->count -= count;
    first->bth.psn = sw_psn_add(first->bth.psn, count);
    first->bth.ack_req = run->count == 1 && run->ack_req;
    if (run->stride_bytes)
        first->payload += (size_t)count * run->stride_bytes;
    if (first->opcode->headers & SW_HEADER_RETH)
        first->reth.addr += (uint64_t)count * first->payload_len;
}
