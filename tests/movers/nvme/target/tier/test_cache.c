/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/tier/cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = NVT_TIER_CACHE_BLOCK, BLOCKS = 200 };

static uint8_t data[4 * BLOCK], got[4 * BLOCK];

static bool read_through(struct nvt_tier_cache *cache, uint64_t block)
{
    if (nvt_tier_cache_read(cache, block * BLOCK, BLOCK, got))
        return true;
    memset(data, (int)(block % 251), BLOCK);
    nvt_tier_cache_fill(cache, block * BLOCK, BLOCK, data, nvt_tier_cache_version(cache));
    return false;
}

static void cache__gives_what_it_got(void **state)
{
    struct nvt_tier_cache *cache = nvt_tier_cache_open(BLOCKS * BLOCK);
    (void)state;
    for (uint32_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 7 >> 3);
    nvt_tier_cache_fill(cache, BLOCK - 512, sizeof(data), data, nvt_tier_cache_version(cache));
    assert_true(nvt_tier_cache_read(cache, BLOCK, 3 * BLOCK, got));
    assert_memory_equal(got, data + 512, 3 * BLOCK);
    assert_true(nvt_tier_cache_read(cache, BLOCK + 512, 1024, got));
    assert_memory_equal(got, data + 1024, 1024);
    assert_false(nvt_tier_cache_read(cache, BLOCK - 512, 1024, got)); /* not all of it */
    nvt_tier_cache_forget(cache, 2 * BLOCK + 512, 512);
    assert_false(nvt_tier_cache_read(cache, 2 * BLOCK, BLOCK, got));
    assert_true(nvt_tier_cache_read(cache, 3 * BLOCK, BLOCK, got));
    nvt_tier_cache_close(cache);
}

/* FILE was asked, the block was written, FILE answered. */
static void fill__not_of_what_has_changed_meanwhile(void **state)
{
    struct nvt_tier_cache *cache = nvt_tier_cache_open(BLOCKS * BLOCK);
    (void)state;
    const uint32_t version = nvt_tier_cache_version(cache);
    nvt_tier_cache_forget(cache, BLOCK, 512);
    nvt_tier_cache_fill(cache, 0, 3 * BLOCK, data, version);
    assert_true(nvt_tier_cache_read(cache, 0, BLOCK, got));
    assert_false(nvt_tier_cache_read(cache, BLOCK, BLOCK, got));
    nvt_tier_cache_forget(cache, 0, UINT64_MAX / 2); /* all */
    assert_false(nvt_tier_cache_read(cache, 0, BLOCK, got));
    nvt_tier_cache_fill(cache, 0, BLOCK, data, version);
    assert_false(nvt_tier_cache_read(cache, 0, BLOCK, got));
    nvt_tier_cache_close(cache);
}

/* Half of the memory is read again and again; then comes a scan of ten times the memory. */
static void scan__does_not_push_out_what_is_used(void **state)
{
    struct nvt_tier_cache *cache = nvt_tier_cache_open(BLOCKS * BLOCK);
    uint32_t hits = 0;
    (void)state;
    for (int round = 0; round < 8; round++)
        for (uint64_t block = 0; block < BLOCKS / 2; block++)
            read_through(cache, block);
    for (uint64_t block = 1000; block < 1000 + 10 * BLOCKS; block++)
        assert_false(read_through(cache, block));
    for (uint64_t block = 0; block < BLOCKS / 2; block++)
        hits += read_through(cache, block);
    assert_true(hits > BLOCKS * 9 / 20);
    nvt_tier_cache_close(cache);
}

static void cache__any_order(void **state)
{
    struct nvt_tier_cache *cache = nvt_tier_cache_open(64 * BLOCK);
    uint32_t seed = 3;
    (void)state;
    for (int i = 0; i < 200000; i++) {
        seed = seed * 1664525u + 1013904223u;
        const uint64_t block = (seed >> 8) % ((seed >> 30) ? 100 : 1000);
        if ((seed >> 5) % 16 == 0)
            nvt_tier_cache_forget(cache, block * BLOCK, BLOCK * (1 + (seed >> 3) % 3));
        else if (read_through(cache, block))
            assert_int_equal(got[17], block % 251);
    }
    nvt_tier_cache_close(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache__gives_what_it_got),
        cmocka_unit_test(fill__not_of_what_has_changed_meanwhile),
        cmocka_unit_test(scan__does_not_push_out_what_is_used),
        cmocka_unit_test(cache__any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
