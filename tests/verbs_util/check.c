/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs_util/check.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static __thread const char *side_name = "test";

void vu_set_side(const char *side)
{
    side_name = side;
}

/* _exit, not exit: a failing side must not run the library's or libc's cleanup, which may hang on
 * what failed. */
void vu_fail(const char *file, int line, const char *fmt, ...)
{
    char text[800];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    const char *slash = strrchr(file, '/');
    fprintf(stderr, "  %s [%d] %s:%d: %s\n", side_name, (int)getpid(), slash ? slash + 1 : file,
            line, text);
    fflush(NULL);
    if (getenv("VU_STOP"))
        raise(SIGSTOP);
    _exit(1);
}

void vu_skip(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    printf("SKIP: ");
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
    fflush(NULL);
    _exit(VU_SKIPPED);
}

uint64_t vu_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void vu_sleep_ms(unsigned int ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

/* splitmix64 */
uint64_t vu_random(struct vu_random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint32_t vu_random_below(struct vu_random *random, uint32_t bound)
{
    return (uint32_t)((vu_random(random) >> 32) * bound >> 32);
}

void vu_random_fill(struct vu_random *random, void *buf, size_t len_bytes)
{
    uint8_t *at = buf;
    while (len_bytes > 0) {
        uint64_t word = vu_random(random);
        size_t n = len_bytes < sizeof(word) ? len_bytes : sizeof(word);
        memcpy(at, &word, n);
        at += n;
        len_bytes -= n;
    }
}

uint64_t vu_digest(uint64_t seed, const void *buf, size_t len_bytes)
{
    const uint8_t *at = buf;
    uint64_t hash = seed ^ 0xcbf29ce484222325ull;
    for (; len_bytes >= 8; len_bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        hash = (hash ^ word) * 0x9fb21c651e98df25ull;
        hash ^= hash >> 29;
    }
    for (; len_bytes > 0; len_bytes--, at++)
        hash = (hash ^ *at) * 0x100000001b3ull;
    return hash ^ (hash >> 32);
}
