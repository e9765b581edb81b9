/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/old_option.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>

/* More than a command has. */
enum { OLD_OPTIONS_MAX = 16 };

/* Whether it was not told yet: one that is repeated is told once. */
static bool begin_telling(const struct mover_option *old)
{
    static const struct mover_option *told[OLD_OPTIONS_MAX];
    int at = 0;
    while (at < OLD_OPTIONS_MAX && told[at] && told[at] != old)
        at++;
    if (at == OLD_OPTIONS_MAX || told[at] == old)
        return false;
    told[at] = old;
    return true;
}

void mover_old_option_tell(const struct argp_state *state, const struct mover_option *old,
                           const struct mover_option *now)
{
    assert(now && now->name);
    if (!begin_telling(old))
        return;
    if (old->name)
        fprintf(stderr, "%s: --%s is --%s now; the old name goes with the next release\n",
                state->name, old->name, now->name);
    else
        fprintf(stderr, "%s: -%c is --%s now; the letter goes with the next release\n", state->name,
                old->letter, now->name);
}
