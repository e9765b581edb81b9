/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* What was written to standard error, which is a file meanwhile. */
static char said[16384];
static int file_fd, error_fd;

static void hear(void)
{
    unsetenv("JOURNAL_STREAM");
    error_fd = dup(STDERR_FILENO);
    file_fd = memfd_create("log", 0);
    dup2(file_fd, STDERR_FILENO);
}

static const char *heard(void)
{
    const ssize_t bytes = pread(file_fd, said, sizeof(said) - 1, 0);
    dup2(error_fd, STDERR_FILENO);
    close(error_fd);
    close(file_fd);
    said[bytes > 0 ? bytes : 0] = '\0';
    return said;
}

static void log__levels(void **state)
{
    (void)state;
    hear();
    mover_log_name("sidewire x");
    mover_log(MOVER_LOG_ERROR, "a %d", 1);
    mover_log(MOVER_LOG_WARNING, "b");
    mover_log(MOVER_LOG_INFO, "c"); /* not without --log */
    mover_log_open(MOVER_LOG_ERROR, false);
    mover_log(MOVER_LOG_WARNING, "d");
    assert_string_equal(heard(), "sidewire x: a 1\nsidewire x: b\n");
}

static void log__time(void **state)
{
    int year, ms, end = 0;
    (void)state;
    hear();
    mover_log_open(MOVER_LOG_INFO, true);
    mover_log(MOVER_LOG_INFO, "hello");
    heard();
    assert_int_equal(sscanf(said, "%d-%*d-%*dT%*d:%*d:%*d.%dZ %n", &year, &ms, &end), 2);
    assert_true(year >= 2024);
    assert_string_equal(said + end, "info sidewire x: hello\n");
    mover_log_open(MOVER_LOG_WARNING, false);
}

static void log__of_the_journal(void **state)
{
    char stream[64];
    struct stat about;
    (void)state;
    hear();
    fstat(STDERR_FILENO, &about);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)about.st_dev, (uintmax_t)about.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    mover_log(MOVER_LOG_WARNING, "hello");
    setenv("JOURNAL_STREAM", "1:1", 1); /* its output was sent elsewhere */
    mover_log(MOVER_LOG_WARNING, "hello");
    setenv("JOURNAL_STREAM", "nonsense", 1);
    mover_log(MOVER_LOG_WARNING, "hello");
    assert_string_equal(heard(), "<4>hello\nsidewire x: hello\nsidewire x: hello\n");
}

static void log__of_others_in_the_journal(void **state)
{
    char stream[64];
    struct stat about;
    (void)state;
    hear();
    fprintf(stderr, "before\n");
    fstat(STDERR_FILENO, &about);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)about.st_dev, (uintmax_t)about.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    mover_log_others_begin();
    fprintf(stderr, "%s: ", "sidewire x"); /* a line in parts, as of argp */
    fprintf(stderr, "wrong\nTry\n");
    fprintf(stderr, "half");
    mover_log_others_end();
    fprintf(stderr, "after\n");
    setenv("JOURNAL_STREAM", "1:1", 1);
    mover_log_others_begin();
    fprintf(stderr, "elsewhere\n");
    mover_log_others_end();
    assert_string_equal(heard(), "before\n<3>sidewire x: wrong\n<3>Try\n<3>half\nafter\n"
                                 "elsewhere\n");
}

/* A stranger may choose a name that looks like another line, or moves the cursor. */
static void log__texts_of_strangers(void **state)
{
    static char long_text[10000];
    (void)state;
    memset(long_text, 'x', sizeof(long_text) - 1);
    hear();
    mover_log(MOVER_LOG_WARNING, "%s", "a\n<0>b\033[2J");
    mover_log(MOVER_LOG_WARNING, "%s", long_text);
    heard();
    assert_memory_equal(said, "sidewire x: a?<0>b?[2J\n", 23);
    assert_int_equal(strspn(said + 23 + strlen("sidewire x: "), "x"), 4095);
    assert_int_equal(said[strlen(said) - 1], '\n');
}

static void log__told_once_a_second(void **state)
{
    static struct mover_told told;
    (void)state;
    hear();
    for (int i = 0; i < 3; i++)
        mover_log_told(&told, MOVER_LOG_WARNING, "bad %d", i);
    told.at_ns = 1; /* long ago */
    mover_log_told(&told, MOVER_LOG_WARNING, "bad %d", 3);
    told.at_ns = 1;
    mover_log_told(&told, MOVER_LOG_INFO, "not of this level");
    assert_string_equal(heard(),
                        "sidewire x: bad 0\nsidewire x: bad 3 (and 2 others since the last "
                        "such line)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log__levels),
        cmocka_unit_test(log__time),
        cmocka_unit_test(log__of_the_journal),
        cmocka_unit_test(log__of_others_in_the_journal),
        cmocka_unit_test(log__texts_of_strangers),
        cmocka_unit_test(log__told_once_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
