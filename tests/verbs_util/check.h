/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks for tests made of several processes: a failed one prints where and what was seen and ends
 * its process with status 1, so that the parent (vu_run_pair in pair.h) reports it. Also seeded
 * random numbers and a digest, so that a failing run can be repeated from its seed.
 * With VU_STOP in the environment it stops there instead, for a debugger.
 */
#ifndef SW_TESTS_VERBS_UTIL_CHECK_H
#define SW_TESTS_VERBS_UTIL_CHECK_H

#include <stddef.h>
#include <stdint.h>

#define VU_SKIPPED 77

/* Prefixes what this process (or thread) prints: "side a". */
void vu_set_side(const char *side);
__attribute__((noreturn, format(printf, 3, 4))) void vu_fail(const char *file, int line,
                                                             const char *fmt, ...);
/* Ends the process with status 77 and `SKIP: reason` as the last line. */
__attribute__((noreturn, format(printf, 1, 2))) void vu_skip(const char *fmt, ...);

#define VU_FAIL(...) vu_fail(__FILE__, __LINE__, __VA_ARGS__)
#define VU_CHECK(cond, fmt, ...)                                           \
    do {                                                                   \
        if (!(cond))                                                       \
            vu_fail(__FILE__, __LINE__, "%s: " fmt, #cond, ##__VA_ARGS__); \
    } while (0)
#define VU_TRUE(cond) VU_CHECK(cond, "not so")
#define VU_EQ(seen, wanted)                                                                       \
    do {                                                                                          \
        long long vu_seen = (long long)(seen), vu_wanted = (long long)(wanted);                   \
        if (vu_seen != vu_wanted)                                                                 \
            vu_fail(__FILE__, __LINE__, "%s is %lld (0x%llx), not %lld (0x%llx)", #seen, vu_seen, \
                    vu_seen, vu_wanted, vu_wanted);                                               \
    } while (0)

uint64_t vu_now_ms(void);
void vu_sleep_ms(unsigned int ms);

struct vu_random {
    uint64_t state;
};
uint64_t vu_random(struct vu_random *random);
/* Uniform enough for tests: 0 <= result < bound; bound > 0. */
uint32_t vu_random_below(struct vu_random *random, uint32_t bound);
void vu_random_fill(struct vu_random *random, void *buf, size_t len_bytes);

/* Order-dependent 64-bit digest; chain parts by passing the last result as `seed`. */
uint64_t vu_digest(uint64_t seed, const void *buf, size_t len_bytes);

#endif
