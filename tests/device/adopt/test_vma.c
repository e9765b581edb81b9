/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading this process's mappings, as text and by ioctl. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/adopt/vma.h"

static void parse__kinds(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum sw_vma_kind kind;
        int prot;
        const char *name;
    } cases[] = {
        {"7f00-7f10 rw-p 00000000 00:00 0 ", SW_VMA_ANON, PROT_READ | PROT_WRITE, ""},
        {"7f00-7f10 ---p 00000000 00:00 0", SW_VMA_ANON, PROT_NONE, ""},
        {"7f00-7f10 rw-p 00000000 00:00 0      [heap]", SW_VMA_ANON, 3, "[heap]"},
        {"7f00-7f10 rw-p 00000000 00:00 0 [anon:pool]", SW_VMA_ANON, 3, "[anon:pool]"},
        {"7f00-7f10 rw-p 00000000 00:00 0 [stack]", SW_VMA_OTHER, 3, "[stack]"},
        {"7f00-7f10 r--p 00000000 00:00 0 [vvar]", SW_VMA_OTHER, PROT_READ, "[vvar]"},
        {"7f00-7f10 r-xp 00001000 fe:01 77 /lib/a b.so", SW_VMA_OTHER, PROT_READ | PROT_EXEC,
         "/lib/a b.so"},
        {"7f00-7f10 rw-s 00002000 00:01 9 /memfd:x (deleted)", SW_VMA_SHARED, 3,
         "/memfd:x (deleted)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sw_vma vma;
        const char *name;
        assert_true(sw_vma_parse(cases[i].line, &vma, &name));
        assert_int_equal(vma.start, 0x7f00);
        assert_int_equal(vma.end, 0x7f10);
        assert_int_equal(vma.kind, cases[i].kind);
        assert_int_equal(vma.prot, cases[i].prot);
        assert_string_equal(name, cases[i].name);
    }
}

static void parse__file(void **state)
{
    (void)state;
    struct sw_vma vma;
    const char *name;
    assert_true(sw_vma_parse("ffffffffff600000-ffffffffff601000 --xs 1ff000 fe:1a 123456789 /x",
                             &vma, &name));
    assert_int_equal(vma.end, 0xffffffffff601000);
    assert_int_equal(vma.offset, 0x1ff000);
    assert_int_equal(vma.dev_major, 0xfe);
    assert_int_equal(vma.dev_minor, 0x1a);
    assert_int_equal(vma.ino, 123456789);
}

static void parse__malformed(void **state)
{
    (void)state;
    static const char *const lines[] = {"", "7f00-7f10", "7f10-7f00 rw-p 0 00:00 0 ",
                                        "7f00-7f10 rw- 0 00:00 0 ", "x-y rw-p 0 00:00 0 "};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct sw_vma vma;
        const char *name;
        assert_false(sw_vma_parse(lines[i], &vma, &name));
    }
}

/* Both ways to read tell the same about all mappings, which this makes too many for one buffer. */
static void next__text_and_query_agree(void **state)
{
    (void)state;
    long page = sysconf(_SC_PAGESIZE);
    uint8_t *base = mmap(NULL, 400 * (size_t)page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 400; i += 2)
        mprotect(base + i * page, (size_t)page, PROT_NONE);
    static struct sw_vma_reader text, query;
    assert_int_equal(sw_vma_open(&text, true), 0);
    assert_int_equal(sw_vma_open(&query, false), 0);
    int count = 0;
    for (uint64_t at = 0;; count++) {
        struct sw_vma one = {0}, other = {0};
        int found = sw_vma_next(&text, at, &one);
        /* The query does not list the vsyscall page, which is no mapping of the process. */
        if (found == 1 && !strcmp(text.name, "[vsyscall]"))
            break;
        assert_int_equal(sw_vma_next(&query, at, &other), found);
        if (!found)
            break;
        assert_memory_equal(&one, &other, sizeof(one));
        assert_string_equal(text.name, query.name);
        at = one.end;
    }
    assert_true(count >= 400);
    sw_vma_close(&text);
    sw_vma_close(&query);
    munmap(base, 400 * (size_t)page);
}

static void next__finds_from_the_middle_and_repeats(void **state)
{
    (void)state;
    static struct sw_vma_reader reader;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint8_t *base =
        mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(base + page, page);
    uint64_t va = (uint64_t)(uintptr_t)base;
    for (int text = 0; text < 2; text++) {
        struct sw_vma vma;
        assert_int_equal(sw_vma_open(&reader, text), 0);
        for (int twice = 0; twice < 2; twice++) {
            assert_int_equal(sw_vma_next(&reader, va + 5, &vma), 1);
            assert_true(vma.start <= va && vma.end == va + page);
        }
        assert_int_equal(sw_vma_next(&reader, va + page, &vma), 1);
        assert_int_equal(vma.start, va + 2 * page);
        assert_int_equal(sw_vma_next(&reader, UINT64_MAX, &vma), 0);
        sw_vma_close(&reader);
    }
    munmap(base, page);
    munmap(base + 2 * page, page);
}

static void parse_bar__of_its_line(void **state)
{
    (void)state;
    static const char text[] = "0x00000000febd1000 0x00000000febd10ff 0x0000000000040200\n"
                               "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
                               "0x00000000fe000000 0x00000000fe3fffff 0x000000000014220c\n";
    uint64_t start = 1;
    assert_true(sw_vma_parse_bar(text, 0, &start));
    assert_int_equal(start, 0xfebd1000);
    assert_true(sw_vma_parse_bar(text, 2, &start));
    assert_int_equal(start, 0xfe000000);
    assert_false(sw_vma_parse_bar(text, 3, &start)); /* the file ends before it */
    assert_false(sw_vma_parse_bar("", 0, &start));
    assert_false(sw_vma_parse_bar("", 5, &start));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse__kinds),
        cmocka_unit_test(parse__file),
        cmocka_unit_test(parse__malformed),
        cmocka_unit_test(parse_bar__of_its_line),
        cmocka_unit_test(next__text_and_query_agree),
        cmocka_unit_test(next__finds_from_the_middle_and_repeats),
    };
    return cmocka_run_group_tests_name("vma", tests, NULL, NULL);
}
