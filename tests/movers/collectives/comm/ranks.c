// SPDX-License-Identifier: BSD-2-Clause
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../preload/namespace.h"
#include "collectives/core/page.h"
#include "common/time/clock.h"

bool ranks_have_pages;

void nap_ms(uint32_t ms)
{
    usleep(ms * 1000);
}

void need_at(bool holds, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: does not hold\n", file, line);
    fflush(NULL);
    _exit(1);
}

void need_ok(struct rank *rank, enum sw_coll_status status, const struct sw_coll_error *error)
{
    if (!status)
        return;
    fprintf(stderr, "rank %u: %s: %s\n", rank->rank, sw_coll_status_text(status), error->text);
    fflush(NULL);
    _exit(1);
}

void rank_enter(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "/run/netns/%s", name);
    const int at = open(path, O_RDONLY | O_CLOEXEC);
    need(at >= 0 && !setns(at, CLONE_NEWNET));
    close(at);
}

void flag_raise(struct ranks_shared *shared, uint32_t flag)
{
    __atomic_fetch_add(&shared->flags[flag], 1, __ATOMIC_SEQ_CST);
}

void flag_await(const struct ranks_shared *shared, uint32_t flag, uint32_t count)
{
    while (__atomic_load_n(&shared->flags[flag], __ATOMIC_SEQ_CST) < count)
        nap_ms(1);
}

static int exchange_cards(void *context, const void *card, size_t bytes, void *cards,
                          uint64_t deadline_ns)
{
    struct rank *rank = context;
    struct ranks_shared *shared = rank->shared;
    need(bytes == COLL_CARD_BYTES);
    memcpy(shared->cards[rank->rank], card, bytes);
    __atomic_fetch_add(&shared->arrived, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < rank->size) {
        if (mover_now_ns() >= deadline_ns)
            return -ETIMEDOUT;
        usleep(300);
    }
    memcpy(cards, shared->cards, bytes * rank->size);
    return 0;
}

static void keep_line(void *context, const char *line)
{
    struct rank *rank = context;
    snprintf(rank->result->log, sizeof(rank->result->log), "%s", line);
}

static void be_rank(struct ranks_shared *shared, uint32_t number, uint32_t size, rank_main *run,
                    rank_options *set)
{
    struct rank rank = {
        .rank = number, .size = size, .shared = shared, .result = &shared->results[number]};
    struct sw_coll_error error = {.text = ""};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!ranks_have_pages)
        setenv(COLL_PAGE_OFF, "off", 1);
    sw_coll_options_init(&rank.options);
    rank.options.rank = number;
    rank.options.size = size;
    rank.options.exchange = exchange_cards;
    rank.options.exchange_context = &rank;
    rank.options.log = keep_line;
    rank.options.log_context = &rank;
    if (set)
        set(&rank);
    need_ok(&rank, sw_coll_open(&rank.options, &error, &rank.coll), &error);
    run(&rank);
    if (rank.coll)
        sw_coll_close(rank.coll);
    exit(0);
}

/* Over packets all programs of a host share a port: packets that came to one of another test that
 * is stopped wait as long as it is, and connections with them (docs/limits.md). */
static void leave_others(void)
{
    static bool has_left;
    const char *link = getenv("SIDEWIRE_LINK");
    if (!has_left && link && strcmp(link, "roce") == 0)
        (void)namespace_own_network();
    has_left = true;
}

void ranks_start(struct ranks *ranks, uint32_t size, rank_main *run, rank_options *set)
{
    leave_others();
    ranks->size = size;
    ranks->shared = mmap(NULL, sizeof(*ranks->shared), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(ranks->shared, MAP_FAILED);
    fflush(NULL);
    for (uint32_t i = 0; i < size; i++) {
        ranks->pids[i] = fork();
        assert_true(ranks->pids[i] >= 0);
        if (!ranks->pids[i])
            be_rank(ranks->shared, i, size, run, set);
    }
}

void ranks_end(struct ranks *ranks, uint32_t killed)
{
    bool has_failed = false;
    for (uint32_t i = 0; i < ranks->size; i++) {
        int how = -1;
        const bool was_killed = killed & 1u << i;
        assert_int_equal(waitpid(ranks->pids[i], &how, 0), ranks->pids[i]);
        if (how == (was_killed ? SIGKILL : 0))
            continue;
        print_error("rank %u ended with %d\n", i, how);
        has_failed = true;
    }
    assert_false(has_failed);
    munmap(ranks->shared, sizeof(*ranks->shared));
}

void ranks_run(uint32_t size, rank_main *run)
{
    struct ranks ranks;
    ranks_start(&ranks, size, run, NULL);
    ranks_end(&ranks, 0);
}
