/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of namespaces: when a piece gets a large page, and that its bytes stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "nvme/target/backend/large_pages.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { PIECE = NVT_LARGE_PAGE_BYTES, PIECES = 3, BLOCK = 4096 };

/* Bytes of the mapping at `base` that large pages of a file map. */
static size_t large_bytes(const uint8_t *base)
{
    char line[512];
    unsigned long long begin, end;
    size_t found = 0, kib;
    bool is_ours = false;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    assert_non_null(smaps);
    while (fgets(line, sizeof(line), smaps)) {
        if (sscanf(line, "%llx-%llx ", &begin, &end) == 2)
            is_ours = begin <= (uintptr_t)base && (uintptr_t)base < end;
        else if (is_ours && sscanf(line, "ShmemPmdMapped: %zu kB", &kib) == 1)
            found += kib << 10;
    }
    fclose(smaps);
    return found;
}

static void write_block(struct nvt_large_pages *pages, size_t at)
{
    memset(pages->base + at, (int)(at / BLOCK) + 1, BLOCK);
    nvt_large_pages_note(pages, at, BLOCK);
}

static void check_blocks(const struct nvt_large_pages *pages, size_t end)
{
    for (size_t at = 0; at < end; at += BLOCK) {
        assert_int_equal(pages->base[at], (uint8_t)(at / BLOCK + 1));
        assert_int_equal(pages->base[at + BLOCK - 1], (uint8_t)(at / BLOCK + 1));
    }
    for (size_t at = end; at < PIECE; at += BLOCK)
        assert_int_equal(pages->base[at], 0);
}

static bool kernel_makes_large_pages(void)
{
    struct nvt_large_pages pages;
    assert_int_equal(nvt_large_pages_map(&pages, PIECE), 0);
    pages.base[0] = 1;
    const bool made = !madvise(pages.base, PIECE, MADV_COLLAPSE);
    nvt_large_pages_unmap(&pages);
    return made;
}

static void note__half_of_a_piece_gets_its_page(void **state)
{
    (void)state;
    if (!kernel_makes_large_pages()) {
        print_message("SKIP: the kernel makes no large pages in a memfd\n");
        skip();
    }
    struct nvt_large_pages pages;
    assert_int_equal(nvt_large_pages_map(&pages, PIECES * PIECE + BLOCK), 0);
    size_t at = 0;
    for (; at < PIECE / 2 - BLOCK; at += BLOCK)
        write_block(&pages, at);
    assert_int_equal(large_bytes(pages.base), 0);
    write_block(&pages, at);
    pages.base[0] = 1; /* mapped anew by an access */
    assert_int_equal(large_bytes(pages.base), PIECE);
    check_blocks(&pages, PIECE / 2);
    nvt_large_pages_unmap(&pages);
}

/* Bytes written over the end of a piece count for both, and no more than that. */
static void note__counts_each_piece(void **state)
{
    (void)state;
    struct nvt_large_pages pages;
    assert_int_equal(nvt_large_pages_map(&pages, PIECES * PIECE + BLOCK), 0);
    assert_int_equal((uintptr_t)pages.base % PIECE, 0);
    if (pages.written) {
        nvt_large_pages_note(&pages, PIECE - BLOCK, 3 * BLOCK);
        assert_int_equal(pages.written[0], BLOCK / 512);
        assert_int_equal(pages.written[1], 2 * BLOCK / 512);
        assert_int_equal(pages.written[2], 0);
        nvt_large_pages_note(&pages, PIECES * PIECE, BLOCK); /* too short for a page */
        nvt_large_pages_note(&pages, PIECE, 2 * PIECE);
        assert_int_equal(pages.written[1], PIECE / 2 / 512);
        assert_int_equal(pages.written[2], PIECE / 2 / 512);
    }
    nvt_large_pages_unmap(&pages);
}

static void map__a_size_of_less_than_a_piece(void **state)
{
    (void)state;
    struct nvt_large_pages pages;
    assert_int_equal(nvt_large_pages_map(&pages, 3 * 512), 0);
    memset(pages.base, 7, 3 * 512);
    nvt_large_pages_note(&pages, 0, 3 * 512);
    nvt_large_pages_unmap(&pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(note__half_of_a_piece_gets_its_page),
        cmocka_unit_test(note__counts_each_piece),
        cmocka_unit_test(map__a_size_of_less_than_a_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
