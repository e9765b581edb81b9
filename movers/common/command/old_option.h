/* SPDX-License-Identifier: BSD-2-Clause */
/* Options that were spelled otherwise before. For a release both spellings are taken; --help shows
 * the new one alone. docs/vocabulary.md lists the old ones. */
#ifndef SW_MOVERS_OLD_OPTION_H
#define SW_MOVERS_OLD_OPTION_H

#include <argp.h>

/* The flags of an old spelling, in the line of `options` behind the option that it stands for:
 *     {"count", KEY_COUNT, "N", 0, "How many", 1},
 *     {NULL, 'c', NULL, MOVER_OLD, NULL, 0}, */
enum { MOVER_OLD = OPTION_ALIAS | OPTION_HIDDEN };

/* The key of the option that `key` is an old spelling of, or `key`. Standard error is told of each
 * old spelling once. */
int mover_current_key(const struct argp_state *state, const struct argp_option *options, int key);

#endif
