/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A server that was started a moment ago may not listen yet, as in a script that starts it in one
 * line and asks it in the next. A command tries for two seconds, and says so:
 *
 *     struct mover_patience patience = mover_patience_begin();
 *     while (!connect(error))
 *         if (!is_absent(error) || !mover_patience_lasts(&patience, error->text))
 *             return mover_fail("%s", error->text);
 */
#ifndef SW_MOVERS_PATIENCE_H
#define SW_MOVERS_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

struct mover_patience {
    uint64_t until_ns;
    bool has_told;
};

struct mover_patience mover_patience_begin(void);
/* True: a moment has passed, try again. The first time it says why, and that it tries again. */
bool mover_patience_lasts(struct mover_patience *patience, const char *why);

#endif
