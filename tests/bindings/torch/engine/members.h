/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Members of process groups for tests: each is a process, forked before RDMA is used. They hand out
 * their cards by memory that they share, in place of torch's store.
 */
#ifndef SW_TESTS_BINDINGS_TORCH_ENGINE_MEMBERS_H
#define SW_TESTS_BINDINGS_TORCH_ENGINE_MEMBERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "../../../../bindings/torch/engine/engine.h"

enum { MEMBERS = 4, GROUPS = 3, FLAGS = 8, PATIENCE_MS = 60000 };

struct members_shared {
    uint32_t arrived[GROUPS];
    uint8_t cards[GROUPS][MEMBERS][SW_COLL_CARD_MAX];
    uint32_t flags[FLAGS]; /* a test's own */
};

struct member {
    uint32_t rank, size;
    struct members_shared *shared;
    struct pge_engine *engine; /* of group 0; NULL: the test has closed it */
};

/* What a member does. In it nothing may be asserted: need() ends the process. */
typedef void member_main(struct member *member);

/* All must end well, but for those in the mask, which were killed. */
void members_run(uint32_t size, member_main *run, uint32_t killed);
/* Another group, of the first `size` members. */
struct pge_engine *member_open(struct member *member, uint32_t group, uint32_t size,
                               const struct pge_options *options);

#define need(holds) need_at((holds), __FILE__, __LINE__)
void need_at(bool holds, const char *file, int line);
void nap_ms(uint32_t ms);
void flag_raise(struct member *member, uint32_t flag);
void flag_await(struct member *member, uint32_t flag, uint32_t count);
/* All members have come here. */
void members_meet(struct member *member, uint32_t flag);

/* ---- operations ---- */

struct work { /* as torch has them */
    struct pge_operation operation;
    uint32_t done, released; /* so often */
};

void work_init(struct work *work, enum pge_kind kind);
void work_submit(struct member *member, struct work *work);
/* Waits, and needs that status. */
void work_end(struct member *member, struct work *work, enum sw_coll_status status);
/* As futures do: it only looks. */
void work_watch(const struct work *work);
void work_send(struct work *work, uint32_t peer, uint64_t tag, const void *data, uint64_t bytes);
void work_recv(struct work *work, uint32_t peer, uint64_t tag, void *data, uint64_t bytes);
void work_sum(struct work *work, const uint64_t *mine, uint64_t *sum, uint64_t count);
/* A sum of one number each, which must be right. */
void sum_once(struct member *member, uint64_t value);

#endif
