/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/medium/claim.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "snapshot/core/sum.h"

enum { EPOCH_AT = 8, BEAT_AT = 16, HELD_AT = 24, ID_AT = 32, WRITER_AT = 48, SUM_AT = 4080 };

static const char magic[8] = "SWSNAPC\1";

/* What strangers wrote is shown to users. */
static void clean_writer(char writer[SNAP_WRITER_BYTES])
{
    writer[SNAP_WRITER_BYTES - 1] = 0;
    for (char *at = writer; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
}

/* The sum of all bytes but its own. */
static struct snap_sum claim_sum(const uint8_t block[SNAP_BLOCK_BYTES])
{
    uint8_t copy[SNAP_BLOCK_BYTES];
    memcpy(copy, block, SNAP_BLOCK_BYTES);
    memset(copy + SUM_AT, 0, SNAP_BLOCK_BYTES - SUM_AT);
    return snap_sum_block(copy, 0);
}

void snap_claim_encode(const struct snap_claim *claim, uint8_t block[SNAP_BLOCK_BYTES])
{
    memset(block, 0, SNAP_BLOCK_BYTES);
    memcpy(block, magic, sizeof(magic));
    put_le64(block + EPOCH_AT, claim->epoch);
    put_le64(block + BEAT_AT, claim->beat);
    block[HELD_AT] = claim->is_held;
    memcpy(block + ID_AT, claim->id, sizeof(claim->id));
    memcpy(block + WRITER_AT, claim->writer, sizeof(claim->writer));
    const struct snap_sum sum = claim_sum(block);
    put_le64(block + SUM_AT, sum.low);
    put_le64(block + SUM_AT + 8, sum.high);
}

bool snap_claim_decode(const uint8_t block[SNAP_BLOCK_BYTES], struct snap_claim *claim)
{
    static const uint8_t zeroes[SNAP_BLOCK_BYTES];
    *claim = (struct snap_claim){.epoch = 0};
    if (!memcmp(block, zeroes, sizeof(zeroes)))
        return true;
    const struct snap_sum sum = {get_le64(block + SUM_AT), get_le64(block + SUM_AT + 8)};
    if (memcmp(block, magic, sizeof(magic)))
        return false;
    claim->is_torn = !snap_sum_equal(sum, claim_sum(block));
    claim->epoch = get_le64(block + EPOCH_AT) & INT64_MAX; /* it can be counted up */
    claim->beat = get_le64(block + BEAT_AT);
    claim->is_held = block[HELD_AT] != 0;
    memcpy(claim->id, block + ID_AT, sizeof(claim->id));
    memcpy(claim->writer, block + WRITER_AT, sizeof(claim->writer));
    clean_writer(claim->writer);
    return true;
}

bool snap_claim_is_of(const struct snap_claim *claim, const struct snap_claim *other)
{
    return !claim->is_torn && claim->epoch == other->epoch &&
           !memcmp(claim->id, other->id, sizeof(claim->id));
}

bool snap_claim_follow(const struct snap_claim *before, const char *writer,
                       struct snap_claim *claim)
{
    *claim = (struct snap_claim){.epoch = before->epoch + 1, .is_held = true};
    if (writer)
        snprintf(claim->writer, sizeof(claim->writer), "%s", writer);
    else
        snprintf(claim->writer, sizeof(claim->writer), "process %d", getpid());
    return getrandom(claim->id, sizeof(claim->id), 0) == (ssize_t)sizeof(claim->id);
}
