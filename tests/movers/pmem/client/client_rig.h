/* SPDX-License-Identifier: BSD-2-Clause */
/* A server in a thread of this process, which ends and begins anew, and a client of it. */
#ifndef SW_TESTS_PMEM_CLIENT_RIG_H
#define SW_TESTS_PMEM_CLIENT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "pmem/server/server.h"
#include "sidewire/pmem.h"

enum { REGION = 1 << 20, LOCAL = 1 << 18, WAIT_MS = 20000 };

struct world {
    struct pms_region region;
    struct pms_server server;
    pthread_t thread;
    struct mover_loop loop;
    struct mover_watch stop;
    bool is_serving;
    char port[8];
    struct sw_pmem_options options;
    struct sw_pmem *pmem;
    struct sw_pmem_mem *mem;
    uint8_t *local;
};

/* Before and after each case: a server whose region all may write. */
int world_set_up(void **state);
int world_tear_down(void **state);
#define CASE(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)

void world_begin(struct world *w, const char *rule);
void world_end(struct world *w);
void connect_client(struct world *w);

struct tally {
    uint32_t of[SW_PMEM_FORKED + 1], sum;
};

/* Its argument is a struct tally. */
void count_result(void *arg, const struct sw_pmem_result *result);
struct sw_pmem_op write_op(struct world *w, uint64_t offset, uint32_t bytes);
enum sw_pmem_status post_write(struct world *w, struct tally *tally, uint32_t flags,
                               uint64_t session);
void await(struct world *w, const struct tally *tally, uint32_t sum);
void await_state(struct world *w, enum sw_pmem_state state);

#endif
