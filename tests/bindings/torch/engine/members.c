// SPDX-License-Identifier: BSD-2-Clause
#include "members.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { END_S = 100 };

struct meeting { /* of a group */
    struct member *member;
    uint32_t group, size;
};

void need_at(bool holds, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: does not hold\n", file, line);
    fflush(NULL);
    _exit(1);
}

void nap_ms(uint32_t ms)
{
    usleep(ms * 1000);
}

void flag_raise(struct member *member, uint32_t flag)
{
    __atomic_fetch_add(&member->shared->flags[flag], 1, __ATOMIC_SEQ_CST);
}

void flag_await(struct member *member, uint32_t flag, uint32_t count)
{
    while (__atomic_load_n(&member->shared->flags[flag], __ATOMIC_SEQ_CST) < count)
        nap_ms(1);
}

void members_meet(struct member *member, uint32_t flag)
{
    flag_raise(member, flag);
    flag_await(member, flag, member->size);
}

static int exchange_here(void *context, const void *card, size_t bytes, void *cards,
                         uint64_t deadline_ns)
{
    const struct meeting *meeting = context;
    struct members_shared *shared = meeting->member->shared;
    uint32_t *arrived = &shared->arrived[meeting->group];
    need(bytes <= SW_COLL_CARD_MAX);
    memcpy(shared->cards[meeting->group][meeting->member->rank], card, bytes);
    __atomic_fetch_add(arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(arrived, __ATOMIC_SEQ_CST) < meeting->size) {
        if (sw_coll_deadline_ms(0) >= deadline_ns)
            return -ETIMEDOUT;
        usleep(300);
    }
    for (uint32_t rank = 0; rank < meeting->size; rank++)
        memcpy((uint8_t *)cards + rank * bytes, shared->cards[meeting->group][rank], bytes);
    return 0;
}

struct pge_engine *member_open(struct member *member, uint32_t group, uint32_t size,
                               const struct pge_options *wanted)
{
    struct meeting meeting = {member, group, size};
    struct sw_coll_error error = {.text = ""};
    struct pge_options options;
    struct pge_engine *engine;
    pge_options_init(&options);
    if (wanted)
        options = *wanted;
    options.coll.rank = member->rank;
    options.coll.size = size;
    options.coll.exchange = exchange_here;
    options.coll.exchange_context = &meeting;
    if (pge_open(&options, &error, &engine)) {
        fprintf(stderr, "rank %u: %s\n", member->rank, error.text);
        need(false);
    }
    return engine;
}

static void be_member(struct members_shared *shared, uint32_t rank, uint32_t size, member_main *run)
{
    struct member member = {.rank = rank, .size = size, .shared = shared};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("SIDEWIRE_COLL_STATUS", "off", 1);
    alarm(END_S); /* one that hangs is a failure */
    member.engine = member_open(&member, 0, size, NULL);
    run(&member);
    pge_close(member.engine);
    exit(0);
}

void members_run(uint32_t size, member_main *run, uint32_t killed)
{
    pid_t pids[MEMBERS];
    bool has_failed = false;
    struct members_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    fflush(NULL);
    for (uint32_t i = 0; i < size; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (!pids[i])
            be_member(shared, i, size, run);
    }
    for (uint32_t i = 0; i < size; i++) {
        int how = -1;
        assert_int_equal(waitpid(pids[i], &how, 0), pids[i]);
        if (how == (killed & 1u << i ? SIGKILL : 0))
            continue;
        print_error("rank %u ended with %d\n", i, how);
        has_failed = true;
    }
    munmap(shared, sizeof(*shared));
    assert_false(has_failed);
}

// ---- operations ----

static void note_done(struct pge_operation *operation)
{
    struct work *work = operation->context;
    need(!pge_is_over(operation));
    __atomic_fetch_add(&work->done, 1, __ATOMIC_SEQ_CST);
}

static void note_release(struct pge_operation *operation)
{
    struct work *work = operation->context;
    need(pge_is_over(operation));
    __atomic_fetch_add(&work->released, 1, __ATOMIC_SEQ_CST);
}

void work_init(struct work *work, enum pge_kind kind)
{
    memset(work, 0, sizeof(*work));
    work->operation.kind = kind;
    work->operation.done = note_done;
    work->operation.release = note_release;
    work->operation.context = work;
}

void work_submit(struct member *member, struct work *work)
{
    struct pge_operation *operation = &work->operation;
    pge_submit(member->engine, &operation, 1);
}

void work_watch(const struct work *work)
{
    while (!__atomic_load_n(&work->released, __ATOMIC_SEQ_CST))
        usleep(50);
    need(work->done == 1 && work->released == 1);
}

void work_end(struct member *member, struct work *work, enum sw_coll_status status)
{
    struct sw_coll_error error = {.text = ""};
    const enum sw_coll_status got = pge_wait(member->engine, &work->operation, 0, &error);
    if (got != status)
        fprintf(stderr, "rank %u: %s: %s\n", member->rank, sw_coll_status_text(got), error.text);
    need(got == status);
    work_watch(work);
}

void work_send(struct work *work, uint32_t peer, uint64_t tag, const void *data, uint64_t bytes)
{
    work_init(work, PGE_SEND);
    work->operation.peer = peer;
    work->operation.tag = tag;
    work->operation.call.send = data;
    work->operation.call.count = bytes;
}

void work_recv(struct work *work, uint32_t peer, uint64_t tag, void *data, uint64_t bytes)
{
    work_init(work, PGE_RECV);
    work->operation.peer = peer;
    work->operation.tag = tag;
    work->operation.call.recv = data;
    work->operation.call.count = bytes;
}

void work_sum(struct work *work, const uint64_t *mine, uint64_t *sum, uint64_t count)
{
    work_init(work, PGE_COLLECTIVE);
    work->operation.call = (struct sw_coll_call){
        .kind = SW_COLL_ALL_REDUCE, .type = SW_COLL_U64, .send = mine, .recv = sum, .count = count};
}

void sum_once(struct member *member, uint64_t value)
{
    const uint64_t mine = member->rank + value;
    uint64_t sum = 0;
    struct work work;
    work_sum(&work, &mine, &sum, 1);
    work_submit(member, &work);
    work_end(member, &work, SW_COLL_OK);
    need(sum == member->size * (member->size - 1) / 2 + member->size * value);
}
