/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cache_flush.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Which lines are written back shows where pages cannot be accessed: an instruction that names a
 * line of one faults. */
static sigjmp_buf back;
static size_t page;
static uint8_t *pages; /* of these the third cannot be accessed */

static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static int setup(void **state)
{
    (void)state;
    page = (size_t)getpagesize();
    pages = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    memset(pages, 0x5a, 4 * page);
    assert_int_equal(mprotect(pages + 2 * page, page, PROT_NONE), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return munmap(pages, 4 * page);
}

static bool faults(enum sw_cache_flush_how how, const uint8_t *at, size_t len_bytes)
{
    struct sigaction action = {.sa_handler = on_fault}, before;
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    volatile bool faulted = false;
    if (sigsetjmp(back, 1))
        faulted = true;
    else
        sw_cache_flush(how, at, len_bytes);
    sigaction(SIGSEGV, &before, NULL);
    return faulted;
}

#define FOR_EACH_WAY(how)                                                                  \
    for (enum sw_cache_flush_how how = SW_CACHE_FLUSH_CLFLUSH; how <= SW_CACHE_FLUSH_CVAP; \
         how = (enum sw_cache_flush_how)(how + 1))                                         \
        if (sw_cache_flush_has(how))

static void sw_cache_flush_how__is_one_there_is(void **state)
{
    (void)state;
    assert_true(sw_cache_flush_has(sw_cache_flush_how()));
    FOR_EACH_WAY(how)
    assert_true(sw_cache_flush_how() >= how);
#if defined(__x86_64__)
    assert_true(sw_cache_flush_has(SW_CACHE_FLUSH_CLFLUSH)); /* as old as x86-64 */
#endif
}

static void sw_cache_flush__all_lines_and_no_others(void **state)
{
    (void)state;
    const uint8_t *hole = pages + 2 * page;
    FOR_EACH_WAY(how)
    {
        assert_false(faults(how, pages, 2 * page));
        assert_false(faults(how, pages + 1, 2 * page - 1));
        assert_false(faults(how, hole - 1, 1));
        assert_true(faults(how, hole - 1, 2)); /* a last line of which one byte counts */
        assert_true(faults(how, hole - page, page + 1));
        assert_true(faults(how, hole + page - 1, 2)); /* and a first one */
        assert_false(faults(how, hole + page, 1));
        assert_false(faults(how, hole + page, page));
    }
}

static void sw_cache_flush__nothing(void **state)
{
    (void)state;
    FOR_EACH_WAY(how)
    assert_false(faults(how, pages + 2 * page, 0));
    assert_false(faults(SW_CACHE_FLUSH_NONE, pages + 2 * page, page));
}

static void sw_cache_flush__bytes_stay(void **state)
{
    (void)state;
    FOR_EACH_WAY(how)
    {
        for (size_t i = 0; i < 2 * page; i++)
            pages[i] = (uint8_t)(i * 7 + (size_t)how);
        assert_false(faults(how, pages, 2 * page));
        for (size_t i = 0; i < 2 * page; i++)
            assert_int_equal(pages[i], (uint8_t)(i * 7 + (size_t)how));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_cache_flush_how__is_one_there_is),
        cmocka_unit_test_setup_teardown(sw_cache_flush__all_lines_and_no_others, setup, teardown),
        cmocka_unit_test_setup_teardown(sw_cache_flush__nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(sw_cache_flush__bytes_stay, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
