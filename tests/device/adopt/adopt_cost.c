/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What adoption costs: time to adopt, give back and fork at several sizes, beside memcpy of as much
 * memory, and how fast the memory is before and while it is adopted. Run by `meson test --benchmark
 * adopt_cost`; each figure is the best of some rounds. usage: adopt_cost [LARGEST_MIB]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adopt_check.h"
#include "base/clock.h"
#include "device/adopt/adopt.h"

struct cost {
    uint64_t get_ns;
    uint64_t put_ns;
    uint64_t fork_ns; /* while adopted, until the child has ended */
    uint64_t copy_ns;
    uint64_t set_ns[2]; /* memset before, while adopted */
    uint64_t hop_ns[2]; /* a thousand dependent loads at random */
};

static void keep_least(uint64_t *least, uint64_t start_ns)
{
    uint64_t took = sw_clock_ns() - start_ns;
    if (took < *least)
        *least = took;
}

static void measure_speed(struct cost *cost, uint8_t *base, size_t len, int when)
{
    uint64_t start = sw_clock_ns();
    memset(base, 1 + when, len);
    keep_least(&cost->set_ns[when], start);
    size_t at = 12345;
    start = sw_clock_ns();
    for (int i = 0; i < 1000; i++)
        at = (at * 6364136223846793005ull + 1442695040888963407ull + base[at % len]) >> 3;
    keep_least(&cost->hop_ns[when], start);
    if (at == 0)
        putchar(' ');
}

static void measure_fork(struct cost *cost)
{
    uint64_t start = sw_clock_ns();
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    keep_least(&cost->fork_ns, start);
}

static bool measure(struct cost *cost, size_t len, bool huge)
{
    struct sw_extent extents[EXTENTS_MAX];
    uint8_t *base = buffer_new(len), *other = buffer_new(len);
    if (huge)
        madvise(base, len, MADV_HUGEPAGE);
    memset(base, 1, len);
    memset(other, 1, len);
    uint64_t start = sw_clock_ns();
    memcpy(other, base, len);
    keep_least(&cost->copy_ns, start);
    munmap(other, len);
    measure_speed(cost, base, len, 0);
    start = sw_clock_ns();
    int n = sw_adopt_get((uint64_t)(uintptr_t)base, len, adopt_handed, extents, EXTENTS_MAX, NULL);
    keep_least(&cost->get_ns, start);
    measure_speed(cost, base, len, 1);
    measure_fork(cost);
    start = sw_clock_ns();
    for (int i = 0; i < n; i++)
        sw_adopt_put(extents[i].segment);
    keep_least(&cost->put_ns, start);
    munmap(base, len);
    return n > 0;
}

static double us(uint64_t ns)
{
    return (double)ns / 1000;
}

static void report(size_t len, bool huge)
{
    struct cost cost;
    memset(&cost, 0xff, sizeof(cost));
    int rounds = len >= 256 * MIB ? 3 : 20;
    for (int i = 0; i < rounds; i++) {
        if (!measure(&cost, len, huge)) {
            printf("%10zu KiB: not adopted\n", len / 1024);
            return;
        }
    }
    printf("%10zu %5s %10.0f %10.0f %10.0f %10.0f   %6.1f %6.1f   %6.0f %6.0f\n", len / 1024,
           huge ? "yes" : "no", us(cost.get_ns), us(cost.put_ns), us(cost.fork_ns),
           us(cost.copy_ns), (double)len / (double)cost.set_ns[0],
           (double)len / (double)cost.set_ns[1], (double)cost.hop_ns[0] / 1000,
           (double)cost.hop_ns[1] / 1000);
}

/* A region of which hardly anything is populated. */
static void report_sparse(size_t len, size_t pages)
{
    struct sw_extent extents[EXTENTS_MAX];
    uint8_t *base = buffer_new(len);
    madvise(base, len, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < pages; i++)
        base[i * (len / pages)] = 1;
    uint64_t start = sw_clock_ns();
    int n = sw_adopt_get((uint64_t)(uintptr_t)base, len, adopt_handed, extents, EXTENTS_MAX, NULL);
    uint64_t got = sw_clock_ns();
    uint64_t held = n == 1 ? file_bytes(sw_segment_fd(extents[0].segment)) : 0;
    for (int i = 0; i < n; i++)
        sw_adopt_put(extents[i].segment);
    printf("sparse: %zu MiB with %zu pages: get %.0f us, put %.0f us, file holds %llu KiB\n",
           len / MIB, pages, us(got - start), us(sw_clock_ns() - got),
           (unsigned long long)held / 1024);
    munmap(base, len);
}

int main(int argc, char **argv)
{
    size_t largest = argc > 1 ? strtoul(argv[1], NULL, 10) * MIB : 1024 * MIB;
    printf("adoption: %s\n", sw_adopt_reason_str(sw_adopt_probe()));
    printf("%10s %5s %10s %10s %10s %10s   %13s   %13s\n", "KiB", "large", "get us", "put us",
           "fork us", "memcpy us", "memset GB/s", "random ns");
    for (int huge = 0; huge < 2; huge++) {
        for (size_t len = 4096; len <= largest; len *= 4)
            report(len, huge);
    }
    report_sparse(largest, 100);
    return 0;
}
