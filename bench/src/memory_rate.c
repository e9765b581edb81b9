/* SPDX-License-Identifier: BSD-2-Clause */
/* What memory gives to a program beside others: the triad a = b + s * c of STREAM, over arrays that
 * no cache holds. usage: memory_rate SECONDS. Prints one JSON object. */
#include <stdio.h>
#include <stdlib.h>

#include "endpoint.h"

#define COUNT (4u << 20) /* 32 MiB in each of three arrays */
#define PIECE (64u << 10)

int main(int argc, char **argv)
{
    const double seconds = argc == 2 ? atof(argv[1]) : 0;
    double *a = calloc(COUNT, sizeof(*a)), *b = calloc(COUNT, sizeof(*b)),
           *c = calloc(COUNT, sizeof(*c));
    uint64_t moved = 0;

    if (seconds <= 0 || !a || !b || !c)
        bench_die("usage: memory_rate SECONDS");
    for (size_t i = 0; i < COUNT; i++) {
        a[i] = 0;
        b[i] = (double)i;
        c[i] = 1;
    }
    const uint64_t started_ns = bench_now_ns(), end_ns = started_ns + (uint64_t)(seconds * 1e9);
    uint64_t now_ns = started_ns;
    for (size_t at = 0; now_ns < end_ns; at = (at + PIECE) % COUNT) {
        for (size_t i = at; i < at + PIECE; i++)
            a[i] = b[i] + 3 * c[i];
        moved += 3 * PIECE * sizeof(*a);
        now_ns = bench_now_ns();
    }
    printf("{\"bytes_per_s\": %.0f, \"check\": %.0f}\n",
           (double)moved / ((double)(now_ns - started_ns) / 1e9), a[1]);
    free(a);
    free(b);
    free(c);
    return 0;
}
