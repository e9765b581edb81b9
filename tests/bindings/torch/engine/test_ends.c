// SPDX-License-Identifier: BSD-2-Clause
// How process groups end: by a close, an abort, a death, a fork, or the end of the process.
#include "members.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PENDING = 5 };

static uint64_t mine, sums[PENDING + 1], value;
static struct work works[PENDING + 1];

// Sums that rank 0 does not take part in, and a message that nobody sends.
static void submit_pending(struct member *member)
{
    for (uint32_t i = 0; i < PENDING; i++) {
        if (i % 2)
            work_sum(&works[i], &mine, &sums[i], 1);
        else
            work_recv(&works[i], 0, i, &value, 8);
        work_submit(member, &works[i]);
    }
}

static void need_ended(enum sw_coll_status status, const char *text)
{
    for (uint32_t i = 0; i < PENDING; i++) {
        work_watch(&works[i]);
        need(works[i].operation.error.status == status);
        need(strstr(works[i].operation.error.text, text));
    }
}

// ---- close ----

static void *wait_for_end(void *arg)
{
    struct member *member = arg;
    need(pge_wait(member->engine, &works[1].operation, 0, NULL) == SW_COLL_REVOKED);
    return NULL;
}

// With threads that wait, and with a driver among them.
static void close_amid(struct member *member)
{
    pthread_t threads[2];
    members_meet(member, 0);
    if (!member->rank) {
        flag_await(member, 1, 1);
        return;
    }
    submit_pending(member);
    for (int i = 0; i < 2; i++)
        need(!pthread_create(&threads[i], NULL, wait_for_end, member));
    nap_ms(20);
    pge_close(member->engine);
    member->engine = NULL;
    need_ended(SW_COLL_REVOKED, "closed");
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    flag_raise(member, 1);
}

static void close__ends_what_is_under_way(void **state)
{
    (void)state;
    members_run(2, close_amid, 0);
}

// Another thread closes it, which may not have begun when the process ends. Until then nothing that
// LeakSanitizer looks at has the engine's address but this.
static struct pge_engine *volatile closed_apart;

static void close_group(void *arg)
{
    struct member *member = arg;
    struct pge_engine *engine = member->engine;
    closed_apart = engine;
    pge_close(engine);
    __atomic_store_n(&member->engine, NULL, __ATOMIC_SEQ_CST);
}

// The last reference to a group may go at the end of a function that it has called.
static void close_in_later(struct member *member)
{
    sum_once(member, 1);
    need(pge_later(member->engine, close_group, member));
    while (__atomic_load_n(&member->engine, __ATOMIC_SEQ_CST))
        nap_ms(1);
    pge_close(NULL);
}

static void close__in_a_function_of_its_own(void **state)
{
    (void)state;
    members_run(2, close_in_later, 0);
}

static void close_own_group(struct pge_operation *operation)
{
    close_group(operation->context);
}

// The same at the end of an operation: another thread closes it.
static void close_in_release(struct member *member)
{
    work_sum(&works[0], &mine, &sums[0], 1);
    works[0].operation.done = NULL;
    works[0].operation.release = close_own_group;
    works[0].operation.context = member;
    work_submit(member, &works[0]);
    while (__atomic_load_n(&member->engine, __ATOMIC_SEQ_CST))
        nap_ms(1);
    members_meet(member, 0);
}

static void close__at_the_end_of_an_operation(void **state)
{
    (void)state;
    members_run(2, close_in_release, 0);
}

// ---- abort ----

static void abort_amid(struct member *member)
{
    members_meet(member, 0);
    if (member->rank == 2) {
        submit_pending(member);
        flag_await(member, 2, 1);
        pge_abort(member->engine, "a watchdog has had enough");
        need_ended(SW_COLL_REVOKED, "a watchdog has had enough");
        work_sum(&works[0], &mine, &sums[0], 1);
        work_submit(member, &works[0]);
        work_end(member, &works[0], SW_COLL_REVOKED);
        need(strstr(works[0].operation.error.text, "a watchdog has had enough"));
    } else if (member->rank == 1) {
        submit_pending(member);
        flag_raise(member, 2);
        need_ended(SW_COLL_REVOKED, "revoke");
    } /* rank 0 makes no call, and takes part in what they agree on */
    struct sw_coll_error error;
    while (pge_error(member->engine, &error) != SW_COLL_REVOKED)
        nap_ms(5);
    members_meet(member, 1);
}

static void abort__ends_all_on_all_ranks(void **state)
{
    (void)state;
    members_run(3, abort_amid, 0);
}

// ---- deaths ----

static void outlive_one(struct member *member)
{
    struct sw_coll_error error = {.text = ""};
    struct pge_engine *rest;
    bool is_gone[MEMBERS];
    members_meet(member, 0);
    if (member->rank == 1) {
        flag_await(member, 1, 1);
        kill(getpid(), SIGKILL);
    }
    if (member->rank == 2) { /* others make no call */
        submit_pending(member);
        flag_raise(member, 1);
    }
    while (pge_error(member->engine, &error) != SW_COLL_RANK_GONE)
        nap_ms(5);
    need(strstr(error.text, "rank 1"));
    need(pge_gone(member->engine, is_gone) == 1 && is_gone[1]);
    if (member->rank == 2)
        need_ended(SW_COLL_RANK_GONE, "rank 1");
    const enum sw_coll_status status = pge_shrink(member->engine, 0, &error, &rest);
    need(!status && rest);
    pge_close(member->engine);
    member->engine = rest;
    member->rank = pge_rank(rest);
    member->size = pge_size(rest);
    need(member->size == 3);
    for (uint64_t i = 0; i < 20; i++)
        sum_once(member, i);
}

static void death__the_others_shrink(void **state)
{
    (void)state;
    members_run(4, outlive_one, 1u << 1);
}

// One that has not failed, while an operation is under way.
static void shrink_amid(struct member *member)
{
    struct sw_coll_error error = {.text = ""};
    struct pge_engine *rest;
    if (member->rank)
        submit_pending(member);
    members_meet(member, 0);
    need(!pge_shrink(member->engine, 0, &error, &rest));
    if (member->rank)
        need_ended(SW_COLL_REVOKED, "");
    pge_close(member->engine);
    member->engine = rest;
    sum_once(member, 4);
}

static void shrink__ends_what_is_under_way(void **state)
{
    (void)state;
    members_run(2, shrink_amid, 0);
}

// ---- fork ----

static void use_in_child(struct member *member)
{
    struct sw_coll_error error;
    struct pge_engine *rest;
    bool is_gone[MEMBERS];
    need(!pge_is_over(&works[0].operation) && !pge_test(member->engine, &works[0].operation));
    need(pge_wait(member->engine, &works[0].operation, 0, &error) == SW_COLL_FORKED);
    need(strstr(error.text, "parent"));
    work_sum(&works[PENDING], &mine, &sums[0], 1);
    work_submit(member, &works[PENDING]);
    work_end(member, &works[PENDING], SW_COLL_FORKED);
    need(pge_error(member->engine, &error) == SW_COLL_FORKED);
    need(pge_shrink(member->engine, 0, &error, &rest) == SW_COLL_FORKED && !rest);
    need(!pge_later(member->engine, close_group, member));
    need(!pge_gone(member->engine, is_gone) && !pge_sequence(member->engine));
    pge_sequence_set(member->engine, 3);
    pge_urge(member->engine);
    pge_abort(member->engine, "no");
    pge_close(member->engine);
#ifdef __SANITIZE_ADDRESS__
    _exit(0); /* what only threads of the parent refer to would count as leaked */
#else
    exit(0);
#endif
}

static void fork_amid(struct member *member)
{
    work_sum(&works[0], &mine, &sums[0], 1);
    if (member->rank) {
        work_submit(member, &works[0]);
        for (int i = 0; i < 5; i++) {
            int how = -1;
            const pid_t child = fork();
            if (!child)
                use_in_child(member);
            need(child > 0 && waitpid(child, &how, 0) == child && !how);
        }
    }
    members_meet(member, 0);
    if (!member->rank)
        work_submit(member, &works[0]);
    work_end(member, &works[0], SW_COLL_OK);
    sum_once(member, 2);
}

static void fork__a_child_is_told(void **state)
{
    (void)state;
    members_run(2, fork_amid, 0);
}

// ---- exit ----

static void never_done(struct pge_operation *operation)
{
    (void)operation;
    need(false);
}

// Nobody is told, as an interpreter that has ended can be told nothing.
static void exit_amid(struct member *member)
{
    members_meet(member, 0);
    if (member->rank) {
        submit_pending(member);
        for (uint32_t i = 0; i < PENDING; i++)
            works[i].operation.done = works[i].operation.release = never_done;
        nap_ms(20);
        exit(0);
    }
    work_recv(&works[0], 1, 0, &value, 8);
    work_submit(member, &works[0]);
    work_end(member, &works[0], SW_COLL_RANK_GONE);
    exit(0);
}

static void exit__without_a_close(void **state)
{
    (void)state;
    members_run(2, exit_amid, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close__ends_what_is_under_way),
        cmocka_unit_test(close__in_a_function_of_its_own),
        cmocka_unit_test(close__at_the_end_of_an_operation),
        cmocka_unit_test(abort__ends_all_on_all_ranks),
        cmocka_unit_test(death__the_others_shrink),
        cmocka_unit_test(shrink__ends_what_is_under_way),
        cmocka_unit_test(fork__a_child_is_told),
        cmocka_unit_test(exit__without_a_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
