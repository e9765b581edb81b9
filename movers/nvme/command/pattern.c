/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks that say who they are: address, round and a checksum, and content made of both. */
#include "nvme/command/bench.h"

#include <string.h>

struct header {
    uint64_t magic, lba, sequence, checksum;
};

static const uint64_t magic = 0x6b63656863777300; /* "\0swcheck" */

static uint64_t pattern_next_word(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static uint64_t checksum_of(const uint8_t *data, uint32_t block_bytes, const struct header *header)
{
    uint64_t sum = header->lba ^ header->sequence * 0x9e3779b97f4a7c15;
    for (uint32_t at = sizeof(*header); at + 8 <= block_bytes; at += 8) {
        uint64_t word;
        memcpy(&word, data + at, 8);
        sum = (sum ^ word) * 0x100000001b3;
        sum ^= sum >> 29;
    }
    return sum;
}

void nv_pattern_fill(uint8_t *data, uint32_t block_bytes, uint64_t lba, uint64_t sequence)
{
    struct header header = {.magic = magic, .lba = lba, .sequence = sequence};
    uint64_t seed = lba * 31 + sequence;
    for (uint32_t at = sizeof(header); at + 8 <= block_bytes; at += 8) {
        const uint64_t word = pattern_next_word(&seed);
        memcpy(data + at, &word, 8);
    }
    header.checksum = checksum_of(data, block_bytes, &header);
    memcpy(data, &header, sizeof(header));
}

const char *nv_pattern_check(const uint8_t *data, uint32_t block_bytes, uint64_t lba,
                             uint64_t sequence)
{
    struct header header;
    memcpy(&header, data, sizeof(header));
    if (header.magic != magic)
        return "no block that was written here";
    if (header.checksum != checksum_of(data, block_bytes, &header))
        return "a torn or damaged block";
    if (header.lba != lba)
        return "a block of another address";
    if (header.sequence != sequence)
        return header.sequence < sequence ? "an older block: the last write is lost"
                                          : "a block of a later round";
    return NULL;
}
