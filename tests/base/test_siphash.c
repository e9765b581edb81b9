/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/siphash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The authors' test vector of 16 bytes: 00 01 .. 0f with the key 00 01 .. 0f. */
static void siphash__is_that_of_its_authors(void **state)
{
    (void)state;
    const struct sw_siphash_key key = {{0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull}};
    assert_int_equal(sw_siphash(&key, 0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull),
                     0x3f2acc7f57c29bdbull);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(siphash__is_that_of_its_authors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
