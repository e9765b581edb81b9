/* SPDX-License-Identifier: BSD-2-Clause */
/* Access to a file that somebody makes shorter, and what becomes of other faults. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>

#include "nvme/target/backend/guard.h"

enum { PAGE = 4096, PAGES = 4, BYTES = PAGES * PAGE };

static uint8_t *mapped;
static int file;
static sigjmp_buf way_out;
static volatile sig_atomic_t faults;
static struct sigaction guard; /* cmocka puts its own in the place, before each test */

/* As a program has one before it serves anything. */
static void take_fault_of_program(int number)
{
    (void)number;
    faults++;
    siglongjmp(way_out, 1);
}

static int map_file(void **state)
{
    (void)state;
    file = memfd_create("test-guard", MFD_CLOEXEC);
    assert_int_equal(ftruncate(file, BYTES), 0);
    mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    memset(mapped, 0x5a, BYTES);
    faults = 0;
    return 0;
}

static int unmap_file(void **state)
{
    (void)state;
    munmap(mapped, BYTES);
    return close(file);
}

static void guard__tells_of_pages_that_are_gone(void **state)
{
    (void)state;
    sigaction(SIGBUS, &guard, NULL);
    static uint8_t other[BYTES];
    assert_true(nvt_guard_read(other, mapped, BYTES));
    assert_int_equal(ftruncate(file, 2 * PAGE), 0);
    for (int i = 0; i < 2; i++) { /* no less often than the first time */
        assert_false(nvt_guard_read(other, mapped, BYTES));
        assert_false(nvt_guard_write(mapped + PAGE, other, 2 * PAGE));
        assert_false(nvt_guard_zero(mapped + 2 * PAGE, PAGE));
        assert_false(nvt_guard_touch(mapped, BYTES, false));
        assert_false(nvt_guard_touch(mapped + PAGE, PAGE + 1, true));
    }
    assert_true(nvt_guard_touch(mapped, 2 * PAGE, true));
    assert_true(nvt_guard_read(other, mapped, 2 * PAGE));
    assert_int_equal(faults, 0);
}

static void guard__touch_changes_nothing(void **state)
{
    (void)state;
    assert_true(nvt_guard_touch(mapped, BYTES, true));
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(mapped[i], 0x5a);
}

static void guard__other_faults_are_handed_on(void **state)
{
    (void)state;
    sigaction(SIGBUS, &guard, NULL);
    const volatile uint8_t *gone = mapped + 2 * PAGE;
    uint8_t other[PAGE];
    assert_int_equal(ftruncate(file, 2 * PAGE), 0);
    if (!sigsetjmp(way_out, 1))
        (void)*gone;
    assert_int_equal(faults, 1);
    if (!sigsetjmp(way_out, 1)) /* a fault beside the guarded range */
        nvt_guard_write(mapped, (const uint8_t *)gone, PAGE);
    assert_int_equal(faults, 2);
    assert_false(nvt_guard_read(other, (const uint8_t *)gone, PAGE));
    assert_int_equal(faults, 2);
}

/* The kernel's word for memory that has failed, which names the page. */
static int8_t page_shift;

static void take_fault_of_memory(int number, siginfo_t *info, void *context)
{
    info->si_code = BUS_MCEERR_AR;
    info->si_addr = (void *)((uintptr_t)info->si_addr >> page_shift << page_shift);
    info->si_addr_lsb = page_shift;
    guard.sa_sigaction(number, info, context);
}

static void guard__knows_failed_memory_by_its_page(void **state)
{
    (void)state;
    struct sigaction memory = {.sa_sigaction = take_fault_of_memory, .sa_flags = SA_SIGINFO};
    uint8_t other[512];
    sigaction(SIGBUS, &memory, NULL);
    assert_int_equal(ftruncate(file, 2 * PAGE), 0);
    for (page_shift = 12; page_shift <= 21; page_shift += 9) { /* 4 KiB and 2 MiB */
        bool is_there = true;
        if (!sigsetjmp(way_out, 1))
            is_there = nvt_guard_read(other, mapped + 2 * PAGE + 1024, sizeof(other));
        assert_false(is_there);
        assert_int_equal(faults, 0);
    }
}

static void *read_what_is_gone(void *arg)
{
    uint8_t other[PAGE];
    for (int i = 0; i < 1000; i++)
        if (nvt_guard_read(other, mapped + 2 * PAGE, PAGE) || !nvt_guard_read(other, mapped, PAGE))
            *(bool *)arg = true;
    return NULL;
}

static void guard__threads_do_not_meet(void **state)
{
    (void)state;
    sigaction(SIGBUS, &guard, NULL);
    pthread_t threads[2];
    bool wrong[2] = {0};
    assert_int_equal(ftruncate(file, 2 * PAGE), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_what_is_gone, &wrong[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_false(wrong[i]);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, map_file, unmap_file)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(guard__tells_of_pages_that_are_gone), CASE(guard__touch_changes_nothing),
        CASE(guard__other_faults_are_handed_on),   CASE(guard__knows_failed_memory_by_its_page),
        CASE(guard__threads_do_not_meet),
    };
    signal(SIGBUS, take_fault_of_program);
    if (nvt_guard_open() || sigaction(SIGBUS, NULL, &guard))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
