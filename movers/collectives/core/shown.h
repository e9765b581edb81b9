/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a rank shows to all others while an operation is under way. They read it, and it has no part
 * in that: it may be stopped by then. Once its OPEN is there, so are the counts. They stay until
 * the next operation begins, and nobody begins that where calls differ.
 */
#ifndef SW_COLLECTIVES_SHOWN_H
#define SW_COLLECTIVES_SHOWN_H

#include <stdint.h>

struct coll_shown {
    /* In algorithms of several rounds a rank may be late since another one is. */
    uint64_t number;      /* of the operation */
    uint64_t awaited;     /* the rank whose STEP it waits for, from 1; 0: none */
    uint64_t step;        /* the number of that */
    uint64_t unconfirmed; /* a rank that does not confirm a request, from 1; 0: none */
    uint64_t reserved[4];
    uint64_t counts[]; /* of the newest call that had them, one for each rank */
};

static inline uint64_t coll_shown_bytes(uint32_t size)
{
    return sizeof(struct coll_shown) + (uint64_t)size * sizeof(uint64_t);
}

/* Others may read it at any time. */
static inline void coll_show_word(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

#endif
