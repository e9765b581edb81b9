/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/command/patience.h"

#include <poll.h>
#include <stddef.h>

#include "common/command/front.h"
#include "common/time/clock.h"

enum { PATIENCE_S = 2, AGAIN_MS = 50 };

struct mover_patience mover_patience_begin(void)
{
    return (struct mover_patience){.until_ns = mover_now_ns() + PATIENCE_S * NS_PER_S};
}

bool mover_patience_lasts(struct mover_patience *patience, const char *why)
{
    if (mover_now_ns() >= patience->until_ns)
        return false;
    if (!patience->has_told)
        mover_fail("%s; trying again for %d s", why, PATIENCE_S);
    patience->has_told = true;
    poll(NULL, 0, AGAIN_MS);
    return true;
}
