/* SPDX-License-Identifier: BSD-2-Clause */
/* Options that were spelled otherwise before. For a release both spellings are taken; --help shows
 * the new one alone. docs/vocabulary.md lists the old ones. */
#ifndef SW_MOVERS_OLD_OPTION_H
#define SW_MOVERS_OLD_OPTION_H

#include <argp.h>

#include "common/command/option.h"

/* Standard error is told of each old spelling once. */
void mover_old_option_tell(const struct argp_state *state, const struct mover_option *old,
                           const struct mover_option *now);

#endif
