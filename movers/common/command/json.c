/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/json.h"

#include <stdio.h>

#include "common/command/front.h"

int mover_print_json(json_t *json)
{
    const int code = json ? json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : -1;
    json_decref(json);
    putchar('\n');
    const int written = mover_finish_output();
    return code ? MOVER_FAILED : written;
}

void mover_hex(const uint8_t bytes[16], char text[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

const char *mover_rights_text(uint32_t rights)
{
    static const char *const texts[] = {"-", "r", "w", "rw"};
    return texts[rights & 3];
}
