/* SPDX-License-Identifier: BSD-2-Clause */
/* Words of collectives on the command line. */
#ifndef SW_COLLECTIVES_WORDS_H
#define SW_COLLECTIVES_WORDS_H

#include "common/command/option.h"

mover_take co_take_kind;      /* enum sw_coll_kind */
mover_take co_take_type;      /* uint32_t: enum sw_coll_type; SW_COLL_TYPES: "all" */
mover_take co_take_op;        /* uint32_t: enum sw_coll_op; SW_COLL_OPS: "all" */
mover_take co_take_order;     /* uint32_t: enum sw_coll_order */
mover_take co_take_algorithm; /* const char *: the text, which is the name of one */

#endif
