// SPDX-License-Identifier: BSD-2-Clause
// Dumps as texts: what is read of them, what is refused, and what is found where clocks differ.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/core/record.h"
#include "collectives/dump/diagnose.h"

enum { TEXT = 4096, DUMPS = 4 };

static struct coll_dump *dumps[DUMPS];
static size_t dump_count;
static struct coll_findings findings;

static int forget_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < dump_count; i++)
        coll_dump_free(dumps[i]);
    dump_count = 0;
    free(findings.all);
    findings = (struct coll_findings){0};
    return 0;
}

static struct coll_dump *read_text(const char *text, char *error)
{
    return coll_dump_of_text(text, strlen(text), error, 200);
}

// A dump of that rank of two, on a host of its own. `more`: members; `operations`: of the list.
static void take_dump(uint32_t rank, uint64_t realtime_ns, const char *more, const char *operations)
{
    char text[TEXT], error[200] = "";
    snprintf(
        text, sizeof(text),
        "{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
        "\"ranks\":2,\"rank\":%u,\"host_id\":\"000000000000000%u\",\"monotonic_ns\":50000000000,"
        "\"realtime_ns\":%llu%s,\"operations\":[%s]}",
        rank, rank + 1, (unsigned long long)realtime_ns, more, operations);
    assert_true(dump_count < DUMPS);
    dumps[dump_count] = read_text(text, error);
    if (!dumps[dump_count++])
        fail_msg("%s: %s", text, error);
}

static const struct coll_finding *find_one(enum coll_found verdict)
{
    const struct coll_dump *sorted[DUMPS];
    memcpy(sorted, dumps, sizeof(sorted));
    free(findings.all);
    findings = (struct coll_findings){0};
    assert_true(coll_diagnose(sorted, dump_count, &findings));
    for (size_t i = 0; i < findings.count; i++)
        if (findings.all[i].verdict == verdict)
            return &findings.all[i];
    return NULL;
}

// ---- what is read ----

static void read__has_all_of_a_call(void **state)
{
    (void)state;
    take_dump(1, 7,
              ",\"site\":{\"eager_bytes\":512,\"algorithm\":\"halving\",\"order\":\"any\","
              "\"places\":[1,0]}",
              "{\"collective\":\"reduce_scatter\",\"number\":9,\"type\":\"bf16\",\"op\":\"avg\","
              "\"leaves\":3,\"counts\":[4,5],\"algorithm\":\"owners\",\"status\":\"ok\"},"
              "{\"collective\":\"split\",\"child\":\"00000000000000cd\",\"status\":\"ok\"}");
    const struct coll_dumped *found = coll_dump_find(dumps[0], 9);
    const struct coll_page_about *about = &dumps[0]->seen.page.about;
    assert_non_null(found);
    assert_true(found->kind == SW_COLL_REDUCE_SCATTER && found->type == SW_COLL_BF16);
    assert_true(found->op == SW_COLL_AVG && found->leaves == 3 && found->counts[1] == 5);
    assert_true(found->plan == COLL_PLAN_OWNERS && found->status == SW_COLL_OK);
    assert_true(about->wanted == COLL_PLAN_HALVING && about->order == SW_COLL_ORDER_ANY);
    assert_int_equal(about->eager_bytes, 512);
    assert_true(dumps[0]->ranks[0] == 1 && dumps[0]->places[1] == 0);
    assert_int_equal(dumps[0]->operations[1].kind, COLL_RECORDED_SPLIT);
    assert_int_equal(dumps[0]->operations[1].number, 0xcd);
    assert_null(coll_dump_find(dumps[0], 8));
}

static void read__refuses_what_makes_no_sense(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "no JSON"},
        {"[]", "no dump"},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":2}", "another \"version\""},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"1\"}", "hexadecimal"},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
         "\"ranks\":2,\"rank\":2}",
         "none of \"ranks\""},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
         "\"ranks\":1025}",
         "from 0 to 1024"},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
         "\"ranks\":2}",
         "\"operations\" is no list"},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
         "\"ranks\":2,\"operations\":[7]}",
         "no \"collective\""},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
         "\"ranks\":2,\"operations\":[{\"collective\":\"sum\"}]}",
         "\"collective\" has a word that is not known"},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
         "\"ranks\":2,\"operations\":[{\"collective\":\"gather\",\"status\":\"ok\",\"root\":2}]}",
         "names rank 2"},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
         "\"ranks\":2,\"operations\":[{\"collective\":\"gather\",\"status\":\"ok\","
         "\"counts\":[1,2,3]}]}",
         "a number for each rank"},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
         "\"ranks\":2,\"operations\":[{\"collective\":\"split\",\"status\":\"ok\","
         "\"color\":2147483648}]}",
         "\"color\" is no number of 32 bits"},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
         "\"ranks\":2,\"state\":{\"blocked_by\":[2]},\"operations\":[]}",
         "no rank at 0"},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
         "\"ranks\":2,\"state\":{\"waits_for\":[5]},\"operations\":[]}",
         "no rank at 0"},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"job\":\"00000000000000ab\","
         "\"ranks\":2,\"site\":{\"places\":[1,1]},\"operations\":[]}",
         "lacks rank 0"},
        {"{\"format\":\"sidewire-coll-dump\",\"version\":1,\"version\":1}", "no JSON"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char error[200] = "";
        assert_null(read_text(cases[i].text, error));
        if (!strstr(error, cases[i].words))
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].text, error, cases[i].words);
    }
}

static void read__leaves_no_control_characters_in_texts(void **state)
{
    (void)state;
    take_dump(0, 7, ",\"host\":\"a\\u001b[2J\",\"error\":{\"text\":\"b\\u0007\\u00e9\"}", "");
    assert_string_equal(dumps[0]->seen.page.about.host_name, "a?[2J");
    assert_string_equal(dumps[0]->seen.page.failure.text, "b???");
}

// ---- what is found ----

static void differ__of_an_all_to_all_names_the_pair(void **state)
{
    (void)state;
    take_dump(0, 7, "",
              "{\"collective\":\"all_to_all\",\"number\":1,\"type\":\"f32\",\"counts\":[1,5],"
              "\"recv_counts\":[1,2],\"status\":\"mismatch\"}");
    take_dump(1, 7, "",
              "{\"collective\":\"all_to_all\",\"number\":1,\"type\":\"f32\",\"counts\":[2,3],"
              "\"recv_counts\":[4,3],\"status\":\"mismatch\"}");
    const struct coll_finding *found = find_one(COLL_FOUND_DIFFERS);
    assert_non_null(found);
    assert_string_equal(found->text, "operation 1: rank 0 called all_to_all with 5 for rank 1, "
                                     "which awaits 4");
}

static void differ__of_a_message_names_both(void **state)
{
    (void)state;
    take_dump(0, 7, "",
              "{\"collective\":\"send\",\"number\":3,\"peer\":1,\"elements\":9,\"type\":\"u8\","
              "\"status\":\"ok\"}");
    take_dump(1, 7, "",
              "{\"collective\":\"recv\",\"number\":3,\"peer\":0,\"elements\":8,\"type\":\"u8\","
              "\"status\":\"mismatch\"}");
    const struct coll_finding *found = find_one(COLL_FOUND_DIFFERS);
    assert_non_null(found);
    assert_string_equal(found->text, "message 3 from rank 0 to rank 1: one calls send of 9 u8, the "
                                     "other recv of 8 u8");
}

#define BARRIER(number, begun, ended)                                         \
    "{\"collective\":\"barrier\",\"number\":" #number ",\"begun_ns\":" #begun \
    ",\"ended_ns\":" #ended ",\"status\":\"ok\"}"

// By real time rank 1 would be an hour late each time. But it ends when rank 0 does, so the clock
// of its host is wrong; what is left is its 2 s of operation 2.
static void late__in_spite_of_clocks_that_differ(void **state)
{
    const uint64_t hour_ns = 3600000000000;
    (void)state;
    take_dump(0, 90000000000, "",
              BARRIER(1, 1000000000, 1000100000) "," BARRIER(2, 2000000000, 4000100000));
    take_dump(1, 90000000000 + hour_ns, "",
              BARRIER(1, 1000000000, 1000100000) "," BARRIER(2, 4000000000, 4000100000));
    const struct coll_finding *found = find_one(COLL_FOUND_LATE);
    assert_non_null(found);
    assert_true(found->rank == 1 && found->number == 2);
    assert_true(found->time_ns > 1900000000 && found->time_ns < 2100000000);
}

static void well__where_nothing_is_wrong(void **state)
{
    (void)state;
    take_dump(0, 7, "", BARRIER(1, 1000000000, 1000100000));
    take_dump(1, 7, "", BARRIER(1, 1000050000, 1000100000));
    assert_non_null(find_one(COLL_FOUND_WELL));
    assert_int_equal(findings.count, 1);
}

static void older__dump_of_a_rank_does_not_count(void **state)
{
    (void)state;
    take_dump(0, 9, "", "{\"collective\":\"barrier\",\"number\":1,\"status\":\"ok\"}");
    take_dump(1, 8, "", "{\"collective\":\"gather\",\"number\":1,\"status\":\"ok\"}");
    take_dump(1, 9, "", "{\"collective\":\"barrier\",\"number\":1,\"status\":\"ok\"}");
    assert_null(find_one(COLL_FOUND_DIFFERS));
}

static void span__is_told_in_its_unit(void **state)
{
    char text[24];
    (void)state;
    coll_span_text(1250000000, text, sizeof(text));
    assert_string_equal(text, "1.2 s");
    coll_span_text(999999999, text, sizeof(text));
    assert_string_equal(text, "999 ms");
    coll_span_text(1999, text, sizeof(text));
    assert_string_equal(text, "1 us");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(read__has_all_of_a_call, forget_all),
        cmocka_unit_test_teardown(read__refuses_what_makes_no_sense, forget_all),
        cmocka_unit_test_teardown(read__leaves_no_control_characters_in_texts, forget_all),
        cmocka_unit_test_teardown(differ__of_an_all_to_all_names_the_pair, forget_all),
        cmocka_unit_test_teardown(differ__of_a_message_names_both, forget_all),
        cmocka_unit_test_teardown(late__in_spite_of_clocks_that_differ, forget_all),
        cmocka_unit_test_teardown(well__where_nothing_is_wrong, forget_all),
        cmocka_unit_test_teardown(older__dump_of_a_rank_does_not_count, forget_all),
        cmocka_unit_test(span__is_told_in_its_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
