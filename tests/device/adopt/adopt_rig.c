/* SPDX-License-Identifier: BSD-2-Clause */
#include "adopt_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

struct sw_extent extents[EXTENTS_MAX];

int adopt_range(const void *base, size_t len, enum sw_adopt_reason *why)
{
    return sw_adopt_get((uint64_t)(uintptr_t)base, len, adopt_handed, extents, EXTENTS_MAX, why);
}

struct sw_segment *adopt_one(const void *base, size_t len)
{
    if (adopt_range(base, len, NULL) != 1 || extents[0].len_bytes != len)
        return NULL;
    return extents[0].segment;
}

struct sw_segment *adopt_whole(const void *base, size_t len)
{
    enum sw_adopt_reason why;
    assert_int_equal(adopt_range(base, len, &why), 1);
    assert_int_equal(why, SW_ADOPT_OK);
    assert_int_equal(extents[0].va, (uint64_t)(uintptr_t)base);
    assert_int_equal(extents[0].len_bytes, len);
    return extents[0].segment;
}

bool adopt_is_refused(void)
{
    const enum sw_adopt_reason reason = sw_adopt_probe();
    if (reason != SW_ADOPT_OK)
        printf("SKIP: %s\n", sw_adopt_reason_str(reason));
    return reason != SW_ADOPT_OK;
}
