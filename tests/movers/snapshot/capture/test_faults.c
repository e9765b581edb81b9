/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that vanishes: whose faults are caught. In a child of fork() none are, though its threads
 * have the stacks, and with them the names, of threads that read in the parent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "snapshot/capture/faults.h"

enum { CAUGHT = 3, OF_THE_PROGRAM = 5, PAGE = 4096 };

static sem_t is_reading, may_end;
static const volatile uint8_t *forbidden;

static void own_handler(int number)
{
    (void)number;
    _exit(OF_THE_PROGRAM);
}

/* Only a fault of another thread gets to the jump. */
static void *read_slowly(void *arg)
{
    struct snap_fault fault;
    snap_fault_begin(&fault);
    if (sigsetjmp(fault.back, 0))
        _exit(CAUGHT);
    sem_post(&is_reading);
    sem_wait(&may_end);
    snap_fault_end(&fault);
    return arg;
}

static void *fault_now(void *arg)
{
    return *forbidden ? arg : NULL;
}

static int end_of_child(void)
{
    int status = 0;
    pthread_t thread;
    const pid_t child = fork();
    if (child == 0) {
        pthread_create(&thread, NULL, fault_now, NULL);
        pthread_join(thread, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void faults__of_a_forked_child_are_its_own(void **state)
{
    const struct sigaction own = {.sa_handler = own_handler};
    struct sigaction before;
    pthread_t thread;
    (void)state;
    void *page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    forbidden = page;
    assert_int_equal(sem_init(&is_reading, 0, 0) | sem_init(&may_end, 0, 0), 0);
    assert_int_equal(sigaction(SIGSEGV, &own, &before), 0);
    snap_faults_open();
    assert_int_equal(pthread_create(&thread, NULL, read_slowly, NULL), 0);
    sem_wait(&is_reading);
    const int end = end_of_child();
    sem_post(&may_end);
    pthread_join(thread, NULL);
    snap_faults_close();
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    munmap(page, PAGE);
    assert_int_equal(end, OF_THE_PROGRAM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults__of_a_forked_child_are_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
