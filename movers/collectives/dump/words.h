/* SPDX-License-Identifier: BSD-2-Clause */
/* Words of a dump, and their numbers: those of the library's own names, where it has them. */
#ifndef SW_COLLECTIVES_DUMP_WORDS_H
#define SW_COLLECTIVES_DUMP_WORDS_H

#include <stdint.h>

enum coll_word_list {
    COLL_WORDS_KIND,     /* enum sw_coll_kind, then enum coll_recorded_kind */
    COLL_WORDS_TYPE,     /* enum sw_coll_type */
    COLL_WORDS_OP,       /* enum sw_coll_op */
    COLL_WORDS_PLAN,     /* enum coll_plan but ANY */
    COLL_WORDS_STATUS,   /* enum sw_coll_status */
    COLL_WORDS_ACTIVITY, /* enum coll_activity */
    COLL_WORDS_ORDER,    /* enum sw_coll_order */
    COLL_WORDS_WHY,      /* enum coll_dump_why */
    COLL_WORDS_PROCESS,  /* enum coll_dump_process */
};

enum coll_dump_why {
    COLL_DUMP_CALLED,
    COLL_DUMP_FAILED,
    COLL_DUMP_SIGNALED,
    COLL_DUMP_READ, /* by somebody else, from the rank's page */
    COLL_DUMP_WHYS,
};

enum coll_dump_process {
    COLL_PROCESS_ALIVE,
    COLL_PROCESS_STOPPED,
    COLL_PROCESS_DEAD, /* killed, or ended without a close */
    COLL_PROCESSES,
};

/* NULL: there is none of that number. */
const char *coll_dump_word(enum coll_word_list list, uint32_t number);
/* UINT32_MAX: there is none. `word` may be NULL. */
uint32_t coll_dump_number(enum coll_word_list list, const char *word);

#endif
