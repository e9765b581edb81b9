/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/direct/process/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct sw_direct sw_direct = {.lock = PTHREAD_MUTEX_INITIALIZER, .listener = -1};

void sw_direct_read_modes(void)
{
    const char *mode = getenv("SIDEWIRE_DIRECT");
    sw_direct.modes = (struct sw_direct_modes){true, true, true};
    sw_direct.off = false;
    if (!mode || !*mode || !strcmp(mode, "auto"))
        return;
    if (!strcmp(mode, "mapped"))
        sw_direct.modes.cma = false;
    else if (!strcmp(mode, "cma"))
        sw_direct.modes.mapped = false;
    else if (!strcmp(mode, "ring"))
        sw_direct.modes.mapped = sw_direct.modes.cma = false;
    else if (!strcmp(mode, "off"))
        sw_direct.off = true;
    else
        sw_warn("SIDEWIRE_DIRECT=%s is not auto, mapped, cma, ring or off; using auto", mode);
}
