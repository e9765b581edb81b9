/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/random.h"

#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "base/siphash.h"

static uint64_t derive_word(void)
{
    static _Atomic uint64_t count;
    struct sw_siphash_key key = {{(uint64_t)getpid(), 0}};
    const void *given = (const void *)getauxval(AT_RANDOM);
    if (given)
        memcpy(&key, given, sizeof(key));
    return sw_siphash(&key, sw_clock_ns() ^ (uint64_t)getpid() << 32, ++count);
}

void sw_random_fill(void *out, size_t len_bytes)
{
    uint8_t *at = out;
    /* Up to 256 bytes come whole. */
    while (len_bytes) {
        size_t part = sw_min_u64(len_bytes, 256);
        ssize_t got = getrandom(at, part, GRND_NONBLOCK);
        if (got <= 0) {
            uint64_t word = derive_word();
            got = (ssize_t)sw_min_u64(part, sizeof(word));
            memcpy(at, &word, (size_t)got);
        }
        at += got;
        len_bytes -= (size_t)got;
    }
}

uint64_t sw_random64(void)
{
    uint64_t value;
    sw_random_fill(&value, sizeof(value));
    return value;
}
