/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SipHash-2-4 (Aumasson and Bernstein, INDOCRYPT 2012) of two words. Without the key nobody can
 * foresee a value or choose inputs that collide, so it serves for hash tables that strangers fill
 * and for numbers that they must not guess.
 */
#ifndef SW_BASE_SIPHASH_H
#define SW_BASE_SIPHASH_H

#include <stdint.h>

struct sw_siphash_key {
    uint64_t words[2];
};

static inline uint64_t sw_rotate_left(uint64_t x, unsigned int by)
{
    return x << by | x >> (64 - by);
}

static inline void sw_siphash_rounds(uint64_t v[4], int count)
{
    for (int i = 0; i < count; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = sw_rotate_left(v[1], 13) ^ v[0];
        v[3] = sw_rotate_left(v[3], 16) ^ v[2];
        v[0] = sw_rotate_left(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = sw_rotate_left(v[1], 17) ^ v[2];
        v[3] = sw_rotate_left(v[3], 21) ^ v[0];
        v[2] = sw_rotate_left(v[2], 32);
    }
}

static inline void sw_siphash_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sw_siphash_rounds(v, 2);
    v[0] ^= word;
}

/* The hash of the 16 bytes that `a` and `b` are in little-endian order. */
static inline uint64_t sw_siphash(const struct sw_siphash_key *key, uint64_t a, uint64_t b)
{
    uint64_t v[4] = {key->words[0] ^ 0x736f6d6570736575ull, key->words[1] ^ 0x646f72616e646f6dull,
                     key->words[0] ^ 0x6c7967656e657261ull, key->words[1] ^ 0x7465646279746573ull};
    sw_siphash_word(v, a);
    sw_siphash_word(v, b);
    sw_siphash_word(v, 16ull << 56); /* how many bytes it were, and no rest */
    v[2] ^= 0xff;
    sw_siphash_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
