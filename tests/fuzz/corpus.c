/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs a fuzz target without libFuzzer, as a test in every build: `corpus FOLDER [ROUNDS [SEED]]`
 * feeds it each file of the folder, then as many variations of them, the same for the same seed.
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUTS_MAX = 512, INPUT_MAX = 4096, CHANGES_MAX = 12 };

struct input {
    uint8_t bytes[INPUT_MAX];
    size_t len;
};
static struct input inputs[INPUTS_MAX];
static size_t input_count;

static uint64_t next_random(uint64_t *state) /* xorshift64, Marsaglia 2003 */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void read_all(const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, is_input, by_name);
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        FILE *file = input_count < INPUTS_MAX ? fopen(path, "re") : NULL;
        if (file) {
            struct input *input = &inputs[input_count++];
            input->len = fread(input->bytes, 1, INPUT_MAX, file);
            fclose(file);
        }
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

/* Each in an allocation of its own, for the sanitizers to see its end. */
static void run(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    if (!copy)
        exit(EXIT_FAILURE);
    memcpy(copy, bytes, len);
    LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

/* The start of one input, the end of another, and some bytes changed. */
static void run_variation(uint64_t *state)
{
    static uint8_t bytes[2 * INPUT_MAX];
    const struct input *first = &inputs[next_random(state) % input_count];
    const struct input *second = &inputs[next_random(state) % input_count];
    size_t head = next_random(state) % (first->len + 1),
           tail = next_random(state) % (second->len + 1);
    memcpy(bytes, first->bytes, head);
    memcpy(bytes + head, second->bytes + second->len - tail, tail);
    size_t len = head + tail;
    for (uint64_t i = next_random(state) % (CHANGES_MAX + 1); len && i > 0; i--)
        bytes[next_random(state) % len] = (uint8_t)next_random(state);
    run(bytes, len);
}

int main(int argc, char **argv)
{
    unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 2000;
    uint64_t state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    if (argc < 2 || state == 0)
        return EXIT_FAILURE;
    read_all(argv[1]);
    if (input_count == 0) {
        fprintf(stderr, "%s: no inputs\n", argv[1]);
        return EXIT_FAILURE;
    }
    for (size_t i = 0; i < input_count; i++)
        run(inputs[i].bytes, inputs[i].len);
    for (unsigned long round = 0; round < rounds; round++)
        run_variation(&state);
    printf("%zu inputs, %lu variations\n", input_count, rounds);
    return EXIT_SUCCESS;
}
