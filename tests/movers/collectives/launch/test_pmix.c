/* SPDX-License-Identifier: BSD-2-Clause */
/* A launcher with PMIx that lies, refuses or hangs: the library is fake_pmix.c. Each ends with an
 * error that says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/launch/way.h"

enum { QUICK_MS = 100, PATIENT_MS = 20000 };

static enum sw_coll_status ask_fake(const char *answers, uint32_t timeout_ms,
                                    struct sw_coll_launch *launch, struct sw_coll_error *error)
{
    setenv("PMIX_RANK", "0", 1);
    setenv("PMIX_NAMESPACE", "fake", 1);
    setenv("FAKE_PMIX", answers, 1);
    return sw_coll_launch_find(launch, timeout_ms, error);
}

static struct sw_coll_launch expect_launch(const char *answers)
{
    struct sw_coll_launch launch;
    struct sw_coll_error error = {.text = ""};
    if (ask_fake(answers, PATIENT_MS, &launch, &error))
        fail_msg("%s: %s", answers, error.text);
    return launch;
}

static void expect_failure(const char *answers, uint32_t timeout_ms, enum sw_coll_status status,
                           const char *text)
{
    struct sw_coll_launch launch = {.size = 77};
    struct sw_coll_error error = {.text = ""};
    const enum sw_coll_status found = ask_fake(answers, timeout_ms, &launch, &error);
    if (found != status || error.status != status || !strstr(error.text, text))
        fail_msg("%s: status %d, '%s'", answers, found, error.text);
    assert_int_equal(launch.size, 77);
}

static void pmix__rank_0_puts_and_others_get(void **state)
{
    (void)state;
    struct sw_coll_launch launch = expect_launch("rank=0 size=3 local=3");
    assert_int_equal(launch.size, 3);
    assert_int_equal(launch.local_size, 3);
    assert_non_null(strchr(launch.meet, ':'));
    assert_int_equal(strlen(launch.token), 32);
    launch = expect_launch("rank=2 size=3 local=2 local_rank=1 word=192.0.2.1:7/secret");
    assert_int_equal(launch.rank, 2);
    assert_int_equal(launch.local_rank, 1);
    assert_string_equal(launch.meet, "192.0.2.1:7");
    assert_string_equal(launch.token, "secret");
    assert_string_equal(launch.launcher, "PMIx of the launcher");
}

static void pmix__numbers_that_make_no_sense(void **state)
{
    (void)state;
    const enum sw_coll_status wrong = SW_COLL_PROTOCOL;
    const char *const unsaid = "does not say of how many ranks";
    expect_failure("rank=0 size=none", PATIENT_MS, wrong, unsaid);
    expect_failure("rank=0 size=null", PATIENT_MS, wrong, unsaid);
    expect_failure("rank=0 size=text", PATIENT_MS, wrong, unsaid);
    expect_failure("rank=0 size=0", PATIENT_MS, wrong, "this is rank 0 of 0");
    expect_failure("rank=3 size=3 word=a:1/b", PATIENT_MS, wrong, "this is rank 3 of 3");
    expect_failure("rank=4294967295 size=3 word=a:1/b", PATIENT_MS, wrong, "rank 4294967295 of 3");
    expect_failure("rank=0 size=4294967295", PATIENT_MS, wrong, "are 1024 at most");
    expect_failure("rank=1 size=1025 word=a:1/b", PATIENT_MS, wrong, "are 1024 at most");
}

/* They serve to choose, and are nothing that a rank needs. */
static void pmix__numbers_of_a_host_that_make_no_sense(void **state)
{
    (void)state;
    const char *const answers[] = {"local=none local_rank=7", "local=text local_rank=text",
                                   "local=4000000000 local_rank=1", "local=2 local_rank=2",
                                   "local=null local_rank=4000000000"};
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        char words[200];
        snprintf(words, sizeof(words), "rank=1 size=3 word=a:1/b %s", answers[i]);
        const struct sw_coll_launch launch = expect_launch(words);
        assert_int_equal(launch.local_size, 0);
        assert_int_equal(launch.local_rank, 0);
    }
}

static void pmix__words_that_make_no_sense(void **state)
{
    (void)state;
    static char words[400] = "rank=1 size=3 word=";
    const char *const garbage[] = {"no-slash", "/token", "a:1/", "a:1/\x1b[2J", "\xff\xfe/\xff"};
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        snprintf(words, sizeof(words), "rank=1 size=3 word=%s", garbage[i]);
        expect_failure(words, PATIENT_MS, SW_COLL_PROTOCOL, "for where rank 0 is");
    }
    expect_failure("rank=1 size=3 word=a:1/\x1b[2J", PATIENT_MS, SW_COLL_PROTOCOL,
                   "has 'a:1/?[2J' for");
    memset(words + strlen("rank=1 size=3 word="), 'x', 200);
    expect_failure(words, PATIENT_MS, SW_COLL_SYSTEM, "where is rank 0?");
    expect_failure("rank=1 size=3 word=null", PATIENT_MS, SW_COLL_SYSTEM, "where is rank 0?");
    expect_failure("rank=1 size=3 word=number", PATIENT_MS, SW_COLL_SYSTEM, "where is rank 0?");
}

static void pmix__refuses(void **state)
{
    (void)state;
    const enum sw_coll_status system = SW_COLL_SYSTEM;
    expect_failure("init=refuse", PATIENT_MS, system, "it cannot be reached: fake error");
    expect_failure("init=refuse texts=none", PATIENT_MS, system, "it does not say why");
    expect_failure("rank=0 size=2 put=refuse", PATIENT_MS, system, "it takes no address: fake");
    expect_failure("rank=1 size=2 word=refuse", PATIENT_MS, system, "where is rank 0?: fake");
}

static void pmix__never_answers(void **state)
{
    (void)state;
    expect_failure("rank=1 size=2 word=absent", QUICK_MS, SW_COLL_TIMEOUT, "rank 0 has not told");
    expect_failure("rank=1 size=2 word=silent", QUICK_MS, SW_COLL_TIMEOUT, "rank 0 has not told");
    expect_failure("init=hang", QUICK_MS, SW_COLL_TIMEOUT, "(PMIx) does not answer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pmix__rank_0_puts_and_others_get),
        cmocka_unit_test(pmix__numbers_that_make_no_sense),
        cmocka_unit_test(pmix__numbers_of_a_host_that_make_no_sense),
        cmocka_unit_test(pmix__words_that_make_no_sense),
        cmocka_unit_test(pmix__refuses),
        cmocka_unit_test(pmix__never_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
