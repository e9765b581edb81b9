/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranks for tests: each is a process, forked before the library is used, and they hand out their
 * cards by memory that they share. The process of the test itself never uses RDMA.
 */
#ifndef SW_TESTS_MOVERS_COLLECTIVES_RANKS_H
#define SW_TESTS_MOVERS_COLLECTIVES_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "collectives/comm/card.h"
#include "sidewire/coll.h"

enum { RANKS = 20, PATIENCE_MS = 60000, FLAGS = 8 };

struct rank_result {
    enum sw_coll_status status;
    char text[256];
    uint32_t gone;
    char log[256];
    uint32_t naps; /* how often it has looked, and had nothing to do */
};

struct ranks_shared {
    uint32_t arrived;
    uint8_t cards[RANKS][COLL_CARD_BYTES];
    struct rank_result results[RANKS];
    uint32_t flags[FLAGS]; /* a test's own */
};

struct rank {
    uint32_t rank, size;
    struct sw_coll_options options;
    struct sw_coll *coll; /* open */
    struct ranks_shared *shared;
    struct rank_result *result;
};

/* What a rank does. In it nothing may be asserted: need() ends the process. */
typedef void rank_main(struct rank *rank);

struct ranks {
    uint32_t size;
    pid_t pids[RANKS];
    struct ranks_shared *shared;
};

/* Ranks have pages for `sidewire coll status`. Those that are killed would leave them behind. */
extern bool ranks_have_pages;

/* Changes the options of a rank before it opens; NULL: those that all tests have. */
typedef void rank_options(struct rank *rank);

void ranks_start(struct ranks *ranks, uint32_t size, rank_main *run, rank_options *set);
/* Waits for all but those in the mask, which were killed. All must have ended well. */
void ranks_end(struct ranks *ranks, uint32_t killed);
/* Both. */
void ranks_run(uint32_t size, rank_main *run);
/* Ends the process with a line if it does not hold. */
#define need(holds) need_at((holds), __FILE__, __LINE__)
void need_at(bool holds, const char *file, int line);
void need_ok(struct rank *rank, enum sw_coll_status status, const struct sw_coll_error *error);

/* The network namespace of that name. */
void rank_enter(const char *name);

void flag_raise(struct ranks_shared *shared, uint32_t flag);
void flag_await(const struct ranks_shared *shared, uint32_t flag, uint32_t count);
void nap_ms(uint32_t ms);

#endif
