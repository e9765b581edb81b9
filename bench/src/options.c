/* SPDX-License-Identifier: BSD-2-Clause */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdlib.h>

static bool store_number(const struct bench_option *option, const char *text)
{
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 0);
    if (errno || end == text || *end || *text == '-' ||
        (option->bytes < sizeof(number) && number >> (8 * option->bytes)))
        return false;
    switch (option->bytes) {
    case sizeof(uint16_t):
        *(uint16_t *)option->to = (uint16_t)number;
        return true;
    case sizeof(uint32_t):
        *(uint32_t *)option->to = (uint32_t)number;
        return true;
    case sizeof(uint64_t):
        *(uint64_t *)option->to = number;
        return true;
    default:
        return false;
    }
}

static bool store_value(const struct bench_option *option, const char *text)
{
    if (option->value == BENCH_NUMBER)
        return store_number(option, text);
    if (option->value == BENCH_FLAG)
        *(bool *)option->to = true;
    else
        *(const char **)option->to = text;
    return true;
}

bool bench_parse_options(int argc, char **argv, const struct bench_option *options, size_t count)
{
    struct option longs[BENCH_OPTIONS_MAX + 1] = {0};
    char letters[2 * BENCH_OPTIONS_MAX + 1] = "", *end = letters;
    int found;
    if (count > BENCH_OPTIONS_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        const bool has_value = options[i].value != BENCH_FLAG;
        longs[i] = (struct option){options[i].name, has_value ? required_argument : no_argument,
                                   NULL, options[i].letter};
        *end++ = options[i].letter;
        if (has_value)
            *end++ = ':';
    }
    while ((found = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        const struct bench_option *option = options;
        while (option < options + count && option->letter != found)
            option++;
        if (option == options + count || !store_value(option, optarg))
            return false;
    }
    return true;
}
