// SPDX-License-Identifier: BSD-2-Clause
// What ranks record, and when they write it.
#include "ranks.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/core/recorder.h"

enum { READY, GO, MANY_SUMS = 3000 };

static char folder[] = "/tmp/coll_recorder.XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    ranks_have_pages = true;
    unsetenv(COLL_PAGE_OFF);
    return mkdtemp(folder) && !setenv("XDG_RUNTIME_DIR", folder, 1) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[80];
    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command); // NOLINT: a name of this test's own
}

// ---- dumps ----

static void dump_path(uint32_t rank, char *path, size_t room)
{
    snprintf(path, room, "%s/%u.json", folder, rank);
}

static void dump_now(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    char path[80];
    dump_path(rank->rank, path, sizeof(path));
    need_ok(rank, sw_coll_dump(rank->coll, path, &error), &error);
}

static json_t *read_dump(const char *path)
{
    json_error_t error;
    json_t *dump = json_load_file(path, 0, &error);
    if (!dump)
        fail_msg("%s: %s", path, error.text);
    return dump;
}

static json_t *read_own(uint32_t rank)
{
    char path[80];
    dump_path(rank, path, sizeof(path));
    return read_dump(path);
}

static json_t *operation(json_t *dump, size_t index)
{
    json_t *found = json_array_get(json_object_get(dump, "operations"), index);
    assert_non_null(found);
    return found;
}

static json_int_t number_of(json_t *json, const char *key)
{
    assert_true(json_is_integer(json_object_get(json, key)));
    return json_integer_value(json_object_get(json, key));
}

static void expect_text(json_t *json, const char *key, const char *text)
{
    const char *found = json_string_value(json_object_get(json, key));
    assert_non_null(found);
    assert_string_equal(found, text);
}

static void expect_list(json_t *json, const char *key, const char *text)
{
    char *found = json_dumps(json_object_get(json, key), JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(found, text);
    free(found);
}

// ---- what is recorded ----

static void call_all_sorts(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *part = NULL;
    float send[64] = {0}, recv[64];
    const uint64_t gathered[] = {3, 5};
    const uint64_t to_each[] = {1 + rank->rank, 2}, from_each[] = {rank->rank ? 2 : 1, 2};
    const struct sw_coll_call calls[] = {
        {.kind = SW_COLL_REDUCE,
         .type = SW_COLL_F32,
         .op = SW_COLL_MAX,
         .root = 1,
         .send = send,
         .recv = recv,
         .count = 7,
         .leaves = 2},
        {.kind = SW_COLL_ALL_GATHER,
         .type = SW_COLL_F32,
         .send = send,
         .recv = recv,
         .counts = gathered},
        {.kind = SW_COLL_ALL_TO_ALL,
         .type = SW_COLL_F32,
         .send = send,
         .recv = recv,
         .counts = to_each,
         .recv_counts = from_each},
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        need_ok(rank, sw_coll_run(rank->coll, &calls[i], 0, &error), &error);
    need_ok(rank,
            rank->rank ? sw_coll_recv(rank->coll, 0, recv, 9, SW_COLL_U8, 0, &error)
                       : sw_coll_send(rank->coll, 1, send, 9, SW_COLL_U8, 0, &error),
            &error);
    need_ok(rank, sw_coll_split(rank->coll, 1, -(int32_t)rank->rank, 0, &error, &part), &error);
    sw_coll_close(part);
    dump_now(rank);
}

static void check_sorts(uint32_t rank)
{
    json_t *dump = read_own(rank);
    expect_text(dump, "format", "sidewire-coll-dump");
    expect_text(dump, "why", "call");
    assert_true(number_of(dump, "rank") == rank && number_of(dump, "ranks") == 2);
    json_t *reduce = operation(dump, 0), *gather = operation(dump, 1), *pairs = operation(dump, 2);
    expect_text(reduce, "collective", "reduce");
    expect_text(reduce, "op", "max");
    expect_text(reduce, "algorithm", "eager");
    expect_text(reduce, "status", "ok");
    assert_true(number_of(reduce, "number") == 1 && number_of(reduce, "root") == 1);
    assert_true(number_of(reduce, "elements") == 7 && number_of(reduce, "bytes") == 28);
    assert_int_equal(number_of(reduce, "leaves"), 2);
    assert_true(number_of(reduce, "posted_ns") <= number_of(reduce, "begun_ns"));
    assert_true(number_of(reduce, "begun_ns") <= number_of(reduce, "ended_ns"));
    expect_list(gather, "counts", "[3,5]");
    assert_null(json_object_get(gather, "recv_counts"));
    expect_text(pairs, "algorithm", "owners");
    expect_list(pairs, "counts", rank ? "[2,2]" : "[1,2]");
    expect_list(pairs, "recv_counts", rank ? "[2,2]" : "[1,2]");
    json_t *message = operation(dump, 3), *split = operation(dump, 7);
    expect_text(message, "collective", rank ? "recv" : "send");
    assert_true(number_of(message, "peer") == !rank && number_of(message, "bytes") == 9);
    expect_text(operation(dump, 4), "collective", "all_gather"); // the split's own
    expect_text(split, "collective", "split");
    assert_true(number_of(split, "color") == 1 && number_of(split, "key") == -(json_int_t)rank);
    assert_int_equal(strlen(json_string_value(json_object_get(split, "child"))), 16);
    json_decref(dump);
}

static void recorder__has_all_that_a_rank_called(void **state)
{
    (void)state;
    ranks_run(2, call_all_sorts);
    check_sorts(0);
    check_sorts(1);
}

static void gather_often(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    uint8_t send[256] = {0}, recv[512];
    for (uint64_t i = 1; i <= MANY_SUMS; i++) {
        const uint64_t counts[] = {i % 200, i % 7};
        const struct sw_coll_call call = {.kind = SW_COLL_ALL_GATHER,
                                          .type = SW_COLL_U8,
                                          .send = send,
                                          .recv = recv,
                                          .counts = counts};
        need_ok(rank, sw_coll_run(rank->coll, &call, 0, &error), &error);
    }
    dump_now(rank);
}

static void recorder__keeps_the_newest(void **state)
{
    char counts[40];
    (void)state;
    ranks_run(2, gather_often);
    json_t *dump = read_own(1);
    assert_int_equal(number_of(dump, "recorded"), MANY_SUMS);
    assert_int_equal(json_array_size(json_object_get(dump, "operations")), COLL_RECORDS);
    for (uint32_t i = 0; i < COLL_RECORDS; i++) {
        const uint32_t number = MANY_SUMS - COLL_RECORDS + 1 + i;
        assert_int_equal(number_of(operation(dump, i), "number"), number);
        snprintf(counts, sizeof(counts), "[%u,%u]", number % 200, number % 7);
        expect_list(operation(dump, i), "counts", counts);
    }
    json_decref(dump);
}

// Where newer counts lie in their place.
static void recorder__loses_old_counts_and_says_so(void **state)
{
    static struct coll_recorder recorder;
    uint64_t counts[8];
    const struct coll_recorded record = {.counts_at = 10, .has = COLL_HAS_COUNTS};
    (void)state;
    for (uint32_t i = 0; i < COLL_RECORDED_COUNTS; i++)
        recorder.counts[i] = i;
    recorder.counted = 10 + COLL_RECORDED_COUNTS;
    assert_true(coll_recorder_counts(&recorder, &record, COLL_HAS_COUNTS, 8, counts));
    assert_int_equal(counts[7], 17);
    recorder.counted++;
    assert_false(coll_recorder_counts(&recorder, &record, COLL_HAS_COUNTS, 8, counts));
    assert_false(coll_recorder_counts(&recorder, &record, COLL_HAS_RECV_COUNTS, 8, counts));
}

// ---- when it is written ----

static void want_dumps(struct rank *rank)
{
    rank->options.dump_folder = folder;
    rank->options.dump_signal = SIGUSR1;
}

// What the log says is the name of the file.
static json_t *dump_of_log(struct ranks *ranks, uint32_t rank)
{
    const char *said = strstr(ranks->shared->results[rank].log, folder);
    assert_non_null(said);
    return read_dump(said);
}

static void call_unlike(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    float send[4] = {0}, recv[4];
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
    need(sw_coll_all_reduce(rank->coll, send, recv, 3 + rank->rank, SW_COLL_F32, SW_COLL_SUM, 0,
                            &error) == SW_COLL_MISMATCH);
    dump_now(rank); // it has failed, and still has what it recorded
}

static void dump__after_a_failure(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 2, call_unlike, want_dumps);
    char said[2][256];
    int how;
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_true(waitpid(ranks.pids[rank], &how, 0) > 0 && !how);
    for (uint32_t rank = 0; rank < 2; rank++) {
        json_t *dump = dump_of_log(&ranks, rank), *own = read_own(rank);
        json_t *error = json_object_get(dump, "error");
        expect_text(dump, "why", "error");
        expect_text(own, "why", "call");
        expect_text(error, "status", "mismatch");
        snprintf(said[rank], sizeof(said[rank]), "%s",
                 json_string_value(json_object_get(error, "text")));
        json_t *last = operation(dump, 1);
        assert_int_equal(number_of(last, "elements"), 3 + rank);
        expect_text(last, "status", "mismatch");
        assert_true(number_of(last, "ended_ns") >= number_of(last, "begun_ns"));
        json_decref(dump);
        json_decref(own);
    }
    assert_string_equal(said[0], said[1]);
}

static void wait_for_the_other(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
    flag_raise(rank->shared, READY);
    if (rank->rank)
        flag_await(rank->shared, GO, 1);
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
}

static void dump__when_a_signal_comes_to_a_rank_that_waits(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 2, wait_for_the_other, want_dumps);
    flag_await(ranks.shared, READY, 2);
    nap_ms(20);
    kill(ranks.pids[0], SIGUSR1);
    while (!strchr(ranks.shared->results[0].log, '/'))
        nap_ms(5);
    nap_ms(5); // the line may be half there
    json_t *dump = dump_of_log(&ranks, 0), *now = json_object_get(dump, "state");
    expect_text(dump, "why", "signal");
    assert_int_equal(number_of(now, "number"), 2);
    expect_list(now, "waits_for", "[1]");
    expect_text(operation(dump, 1), "status", "under way");
    json_decref(dump);
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 0);
}

static void want_dumps_of_faults(struct rank *rank)
{
    rank->options.dump_folder = folder;
    rank->options.dump_signal = SIGSEGV;
}

// The handler returns, so the fault would come again, for ever.
static void keep_faults(struct rank *rank)
{
    struct sigaction action;
    need(strstr(rank->result->log, "signal 11 cannot be had for dumps"));
    need(!sigaction(SIGSEGV, NULL, &action) && !(action.sa_flags & SA_SIGINFO));
}

static void dump__leaves_faults_to_end_the_process(void **state)
{
    (void)state;
    struct ranks ranks;
    ranks_start(&ranks, 2, keep_faults, want_dumps_of_faults);
    ranks_end(&ranks, 0);
}

static void record_nothing(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
    need(sw_coll_dump_fd(rank->coll, 2, &error) == SW_COLL_NOT_SUPPORTED);
    need(strstr(error.text, "SIDEWIRE_COLL_STATUS=off"));
}

static void dump__of_a_rank_that_is_not_to_record(void **state)
{
    (void)state;
    ranks_have_pages = false;
    ranks_run(2, record_nothing);
    ranks_have_pages = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorder__has_all_that_a_rank_called),
        cmocka_unit_test(recorder__keeps_the_newest),
        cmocka_unit_test(recorder__loses_old_counts_and_says_so),
        cmocka_unit_test(dump__after_a_failure),
        cmocka_unit_test(dump__when_a_signal_comes_to_a_rank_that_waits),
        cmocka_unit_test(dump__leaves_faults_to_end_the_process),
        cmocka_unit_test(dump__of_a_rank_that_is_not_to_record),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
