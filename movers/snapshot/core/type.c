/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/core/type.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t bytes;
} TYPES[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},   {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"U16", 2},
    {"I16", 2},  {"F16", 2}, {"BF16", 2}, {"U32", 4},     {"I32", 4},     {"F32", 4},
    {"U64", 8},  {"I64", 8}, {"F64", 8},  {"C64", 8},
};

uint32_t snap_type_bytes(const char *type)
{
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(*TYPES); i++)
        if (strcmp(TYPES[i].name, type) == 0)
            return TYPES[i].bytes;
    return 0;
}
