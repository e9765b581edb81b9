/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/rdma/fork_guard.h"

static void child_ends(pid_t child)
{
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
}

static void is_forked__in_a_child_and_in_its_child(void **state)
{
    struct mover_fork_guard guard = {.alive = NULL};
    (void)state;
    assert_true(mover_fork_guard_open(&guard));
    assert_false(mover_is_forked(&guard));
    const pid_t child = fork();
    if (!child) {
        struct mover_fork_guard own = {.alive = NULL};
        bool is_fine =
            mover_is_forked(&guard) && mover_fork_guard_open(&own) && !mover_is_forked(&own);
        const pid_t grandchild = fork();
        if (!grandchild)
            _exit(!(mover_is_forked(&guard) && mover_is_forked(&own)));
        int how = -1;
        is_fine = is_fine && waitpid(grandchild, &how, 0) == grandchild && !how;
        is_fine = is_fine && !mover_is_forked(&own);
        mover_fork_guard_close(&guard);
        _exit(!is_fine);
    }
    child_ends(child);
    assert_false(mover_is_forked(&guard)); /* whatever the child has done with it */
    mover_fork_guard_close(&guard);
}

static void is_forked__where_it_is_not_open(void **state)
{
    struct mover_fork_guard guard = {.alive = NULL};
    (void)state;
    assert_false(mover_is_forked(&guard));
    assert_true(mover_fork_guard_open(&guard));
    mover_fork_guard_close(&guard);
    mover_fork_guard_close(&guard);
    const pid_t child = fork();
    if (!child)
        _exit(mover_is_forked(&guard));
    child_ends(child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_forked__in_a_child_and_in_its_child),
        cmocka_unit_test(is_forked__where_it_is_not_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
