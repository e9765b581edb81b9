/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a fuzz target without libFuzzer, as a test in every build: `replay [ROUNDS [SEED]]` feeds it
 * pieces of this very program with bytes changed at random, the same ones for the same seed. Each
 * input is an allocation of its own, for the sanitizers to see its end.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 4096, CHANGES_MAX = 16 };

static uint64_t next_random(uint64_t *state) /* xorshift64, Marsaglia 2003 */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 200000;
    uint64_t state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    static uint8_t seed[INPUT_MAX];
    FILE *self = fopen("/proc/self/exe", "re");
    if (!self || state == 0 || fread(seed, 1, sizeof(seed), self) != sizeof(seed))
        return EXIT_FAILURE;
    fclose(self);
    for (unsigned long round = 0; round < rounds; round++) {
        size_t len = next_random(&state) % (INPUT_MAX + 1);
        uint8_t *input = malloc(len ? len : 1);
        if (!input)
            return EXIT_FAILURE;
        memcpy(input, seed, len);
        for (uint64_t i = next_random(&state) % (CHANGES_MAX + 1); len && i > 0; i--) {
            /* Half of the changes go to the start, where the headers are. */
            size_t reach = next_random(&state) % 2 && len > 256 ? 256 : len;
            input[next_random(&state) % reach] = (uint8_t)next_random(&state);
        }
        LLVMFuzzerTestOneInput(input, len);
        free(input);
    }
    printf("%lu inputs\n", rounds);
    return EXIT_SUCCESS;
}
