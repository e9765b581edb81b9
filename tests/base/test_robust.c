/* SPDX-License-Identifier: BSD-2-Clause */
/* A child holds a word by a thread of its own, and ends by each way that there is. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/robust.h"

enum ending { KILLED, EXITS, EXECUTES };

static _Atomic uint32_t *word; /* and whether it is held, behind it */

static void *hold(void *arg)
{
    (void)arg;
    atomic_store(word + 1, sw_robust_hold(word) ? 1 : 2);
    pause();
    return NULL;
}

static void live(enum ending ending)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, hold, NULL))
        _exit(1);
    while (!atomic_load(word + 1))
        usleep(100);
    if (ending == EXITS)
        _exit(0);
    if (ending == EXECUTES)
        execl("/bin/true", "true", (char *)NULL);
    pause();
}

/* Whether it is told of after the end, and not before it. */
static void end_by(enum ending ending)
{
    int status;
    word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(word, MAP_FAILED);
    assert_false(sw_robust_has_ended(word));
    const pid_t child = fork();
    if (child == 0)
        live(ending);
    while (!atomic_load(word + 1))
        usleep(100);
    assert_int_equal(atomic_load(word + 1), 1);
    if (ending == KILLED) {
        assert_false(sw_robust_has_ended(word));
        kill(child, SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(sw_robust_has_ended(word));
    munmap((void *)word, 4096);
}

static void sw_robust_has_ended__by_a_signal(void **state)
{
    (void)state;
    end_by(KILLED);
}

static void sw_robust_has_ended__by_exit(void **state)
{
    (void)state;
    end_by(EXITS);
}

static void sw_robust_has_ended__by_exec(void **state)
{
    (void)state;
    end_by(EXECUTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_robust_has_ended__by_a_signal),
        cmocka_unit_test(sw_robust_has_ended__by_exit),
        cmocka_unit_test(sw_robust_has_ended__by_exec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
