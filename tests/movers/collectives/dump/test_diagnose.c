// SPDX-License-Identifier: BSD-2-Clause
// Ranks with a fault each, and what is found in their dumps.
#include "../comm/ranks.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/dump/diagnose.h"
#include "collectives/dump/write.h"
#include "common/time/clock.h"

enum { READY, GO, THREE = 3, DEADLINE_MS = 1000, LATE_MS = 1000, DUMPS = 16 };

static char folder[] = "/tmp/coll_diagnose.XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    ranks_have_pages = true;
    unsetenv(COLL_PAGE_OFF);
    return mkdtemp(folder) && !setenv("XDG_RUNTIME_DIR", folder, 1) ? 0 : -1;
}

static int empty_folder(void **state)
{
    char command[80];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s/*", folder);
    return system(command); // NOLINT: a name of this test's own
}

static int remove_folder(void **state)
{
    return empty_folder(state) || rmdir(folder);
}

// ---- dumps, and what is found in them ----

static struct coll_dump *dumps[DUMPS];
static size_t dump_count;
static struct coll_findings findings;

static void take_file(const char *path)
{
    static char text[1 << 20];
    char error[200] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t bytes = fread(text, 1, sizeof(text), file);
    fclose(file);
    assert_true(dump_count < DUMPS);
    dumps[dump_count] = coll_dump_of_text(text, bytes, error, sizeof(error));
    if (!dumps[dump_count++])
        fail_msg("%s: %s", path, error);
}

static void take_all(void)
{
    char path[400];
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (strstr(entry->d_name, COLL_DUMP_SUFFIX))
            take_file(path);
    }
    closedir(dir);
}

// The page of a rank, as `sidewire coll dump` reads it.
static void take_page(uint32_t rank, enum coll_dump_process process)
{
    char path[400], end[40], error[200] = "";
    const struct coll_dump_case how = {COLL_DUMP_READ, process, mover_now_ns()};
    snprintf(path, sizeof(path), "%s/sidewire-coll", folder);
    snprintf(end, sizeof(end), "-%u" COLL_PAGE_SUFFIX, rank);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (!strstr(entry->d_name, end))
            continue;
        snprintf(path, sizeof(path), "%s/sidewire-coll/%s", folder, entry->d_name);
        const int fd = open(path, O_RDONLY);
        void *recorder = mmap(NULL, sizeof(struct coll_recorder), PROT_READ, MAP_SHARED, fd, 0);
        assert_true(fd >= 0 && recorder != MAP_FAILED);
        json_t *json = coll_dump_make(recorder, &how);
        dumps[dump_count] = coll_dump_of_json(json, error, sizeof(error));
        assert_non_null(dumps[dump_count++]);
        json_decref(json);
        munmap(recorder, sizeof(struct coll_recorder));
        close(fd);
    }
    closedir(dir);
}

static void forget_all(void)
{
    for (size_t i = 0; i < dump_count; i++)
        coll_dump_free(dumps[i]);
    dump_count = 0;
    free(findings.all);
    findings = (struct coll_findings){0};
}

static const struct coll_finding *find_one(enum coll_found verdict)
{
    const struct coll_dump *sorted[DUMPS];
    free(findings.all);
    findings = (struct coll_findings){0};
    memcpy(sorted, dumps, sizeof(sorted));
    assert_true(coll_diagnose(sorted, dump_count, &findings));
    for (size_t i = 0; i < findings.count; i++)
        if (findings.all[i].verdict == verdict)
            return &findings.all[i];
    for (size_t i = 0; i < findings.count; i++)
        print_error("%s: %s\n", coll_finding_word(findings.all[i].verdict), findings.all[i].text);
    fail_msg("nothing is found to be %s", coll_finding_word(verdict));
    return NULL;
}

static void expect_words(const struct coll_finding *finding, const char *words)
{
    if (!strstr(finding->text, words))
        fail_msg("\"%s\" lacks \"%s\"", finding->text, words);
}

// ---- faults ----

static void want_dumps(struct rank *rank)
{
    rank->options.dump_folder = folder;
}

static void dump_now(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    char path[80];
    snprintf(path, sizeof(path), "%s/%u.json", folder, rank->rank);
    need_ok(rank, sw_coll_dump(rank->coll, path, &error), &error);
}

static void sum_now(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    float send[16] = {0}, sum[16];
    need_ok(rank,
            sw_coll_all_reduce(rank->coll, send, sum, 16, SW_COLL_F32, SW_COLL_SUM, 0, &error),
            &error);
}

static void come_late_once(struct rank *rank)
{
    for (uint32_t i = 1; i <= 5; i++) {
        if (i == 3 && rank->rank == 1)
            nap_ms(LATE_MS);
        sum_now(rank);
    }
    dump_now(rank);
}

static void be_patient(struct rank *rank)
{
    (void)rank;
}

static void late__is_named_with_its_operation(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, THREE, come_late_once, be_patient);
    ranks_end(&ranks, 0);
    take_all();
    const struct coll_finding *late = find_one(COLL_FOUND_LATE);
    assert_int_equal(late->rank, 1);
    assert_int_equal(late->number, 3);
    assert_true(late->time_ns > 0);
    expect_words(late, "most to operation 3 (all_reduce (sum) of 16 f32)");
    forget_all();
}

static void call_another(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    float send[16] = {0}, all[48];
    const struct sw_coll_call call = {.kind = rank->rank == 2 ? SW_COLL_ALL_GATHER : SW_COLL_REDUCE,
                                      .type = SW_COLL_F32,
                                      .root = 1,
                                      .send = send,
                                      .recv = all,
                                      .count = 16};
    sum_now(rank);
    need(sw_coll_run(rank->coll, &call, 0, &error) == SW_COLL_MISMATCH);
}

static void other_call__is_named_with_both(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, THREE, call_another, want_dumps);
    ranks_end(&ranks, 0);
    take_all();
    assert_int_equal(dump_count, THREE);
    const struct coll_finding *unlike = find_one(COLL_FOUND_DIFFERS);
    assert_true(unlike->rank == 2 && unlike->number == 2);
    expect_words(unlike,
                 "operation 2: rank 2 called all_gather of 16 f32, and ranks 0 and 1 called "
                 "reduce (sum) of 16 f32, root 1");
    expect_words(find_one(COLL_FOUND_FAILED), "rank 2 calls all_gather");
    forget_all();
}

static uint32_t sum_deadline_ms;

// Rank 1 never comes to the second sum.
static void sum_without_one(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    float send[16] = {0}, sum[16];
    sum_now(rank);
    flag_raise(rank->shared, READY);
    if (rank->rank == 1)
        flag_await(rank->shared, GO, 1);
    sw_coll_all_reduce(rank->coll, send, sum, 16, SW_COLL_F32, SW_COLL_SUM,
                       sw_coll_deadline_ms(sum_deadline_ms), &error);
}

static void await_ends(struct ranks *ranks, uint32_t but)
{
    int how;
    for (uint32_t rank = 0; rank < ranks->size; rank++)
        if (rank != but)
            assert_true(waitpid(ranks->pids[rank], &how, 0) > 0 && !how);
}

static void killed__is_named_though_it_has_no_dump(void **state)
{
    struct ranks ranks;
    int how;
    (void)state;
    sum_deadline_ms = PATIENCE_MS;
    ranks_start(&ranks, THREE, sum_without_one, want_dumps);
    flag_await(ranks.shared, READY, THREE);
    kill(ranks.pids[1], SIGKILL);
    await_ends(&ranks, 1);
    assert_true(waitpid(ranks.pids[1], &how, 0) > 0);
    take_all();
    assert_int_equal(dump_count, 2);
    const struct coll_finding *gone = find_one(COLL_FOUND_GONE);
    assert_int_equal(gone->rank, 1);
    assert_int_equal(find_one(COLL_FOUND_NO_DUMP)->rank, 1);
    // Its page is there.
    take_page(1, COLL_PROCESS_DEAD);
    assert_int_equal(dump_count, THREE);
    gone = find_one(COLL_FOUND_GONE);
    assert_true(gone->rank == 1 && gone->number == 1);
    expect_words(gone, "its last one, operation 1 (all_reduce (sum) of 16 f32), ended");
    forget_all();
}

static void stopped__is_awaited_at_the_deadline(void **state)
{
    struct ranks ranks;
    int how;
    (void)state;
    sum_deadline_ms = DEADLINE_MS;
    ranks_start(&ranks, THREE, sum_without_one, want_dumps);
    flag_await(ranks.shared, READY, THREE);
    kill(ranks.pids[1], SIGSTOP);
    await_ends(&ranks, 1);
    take_all();
    assert_int_equal(dump_count, 2);
    const struct coll_finding *awaited = find_one(COLL_FOUND_AWAITED);
    assert_true(awaited->rank == 1 && awaited->number == 2);
    assert_true(awaited->waiting[0] && !(awaited->waiting[0] & ~5)); // one may be late itself
    expect_words(awaited, "rank 1 is awaited by rank");
    expect_words(awaited, "in operation 2 (all_reduce (sum) of 16 f32); rank 1 has no dump");
    for (size_t i = 0; i < findings.count; i++) // it is late, and lives
        assert_int_not_equal(findings.all[i].verdict, COLL_FOUND_GONE);
    take_page(1, COLL_PROCESS_STOPPED);
    expect_words(find_one(COLL_FOUND_AWAITED),
                 "rank 1 has not begun it: its last one, operation 1");
    expect_words(find_one(COLL_FOUND_AWAITED), "its process is stopped");
    kill(ranks.pids[1], SIGKILL);
    assert_true(waitpid(ranks.pids[1], &how, 0) > 0);
    forget_all();
}

// ---- what is said before ----

static void wait_in_a_barrier(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    sum_now(rank);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, GO, 1);
    need(sw_coll_barrier(rank->coll, sw_coll_deadline_ms(2 * DEADLINE_MS), &error) ==
         SW_COLL_TIMEOUT);
    snprintf(rank->result->text, sizeof(rank->result->text), "%s", error.text);
}

static void watchdog__says_who_is_late_and_what_it_does(void **state)
{
    struct ranks ranks;
    char does[80];
    int how;
    (void)state;
    ranks_start(&ranks, 2, wait_in_a_barrier, be_patient);
    flag_await(ranks.shared, READY, 2);
    kill(ranks.pids[1], SIGSTOP);
    flag_raise(ranks.shared, GO);
    await_ends(&ranks, 1);
    const char *log = ranks.shared->results[0].log, *error = ranks.shared->results[0].text;
    const char *late = "rank 1 has not begun operation 2 (barrier), ";
    snprintf(does, sizeof(does), "; its process %d is stopped", ranks.pids[1]);
    if (strncmp(log, "rank 0: ", 8) != 0 || strncmp(log + 8, late, strlen(late)) != 0 ||
        !strstr(log, " s more") || !strstr(log, does))
        fail_msg("the log says: %s", log);
    if (strncmp(error, late, strlen(late)) != 0 || !strstr(error, "the deadline has passed; its") ||
        !strstr(error, does))
        fail_msg("the error is: %s", error);
    kill(ranks.pids[1], SIGKILL);
    assert_true(waitpid(ranks.pids[1], &how, 0) > 0);
}

static void await_the_first(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    if (rank->rank) {
        flag_await(rank->shared, GO, 1);
        return;
    }
    need(sw_coll_barrier(rank->coll, sw_coll_deadline_ms(2 * DEADLINE_MS), &error) ==
         SW_COLL_TIMEOUT);
    snprintf(rank->result->text, sizeof(rank->result->text), "%s", error.text);
    flag_raise(rank->shared, GO);
}

static void watchdog__of_a_rank_that_has_begun_none(void **state)
{
    struct ranks ranks;
    char does[80];
    (void)state;
    ranks_start(&ranks, 2, await_the_first, be_patient);
    snprintf(does, sizeof(does), "; its process %d computes, and has begun none yet",
             ranks.pids[1]);
    flag_await(ranks.shared, GO, 1);
    const char *error = ranks.shared->results[0].text;
    if (!strstr(error, does))
        fail_msg("the error is: %s", error);
    ranks_end(&ranks, 0);
}

static void await_a_message(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    uint8_t data[5] = {0};
    sum_now(rank);
    if (rank->rank == 0)
        need(sw_coll_recv(rank->coll, 1, data, 5, SW_COLL_U8, sw_coll_deadline_ms(DEADLINE_MS),
                          &error) == SW_COLL_TIMEOUT);
    else
        need(sw_coll_barrier(rank->coll, sw_coll_deadline_ms(PATIENCE_MS), &error));
}

static void be_quick(struct rank *rank)
{
    rank->options.timeout_ms = DEADLINE_MS;
}

// As the engine of torch's process groups does: it posts a receive when the message is there.
static void await_a_message_in_sight(struct rank *rank)
{
    const struct sw_coll_message wanted = {.count = 5, .type = SW_COLL_U8};
    struct sw_coll_error error = {.text = ""};
    uint32_t which;
    sum_now(rank);
    if (rank->rank) {
        flag_await(rank->shared, GO, 1);
        return;
    }
    sw_coll_await(rank->coll, 1, &wanted);
    need(sw_coll_wait_any(rank->coll, NULL, 0, sw_coll_deadline_ms(DEADLINE_MS), &which, &error) ==
         SW_COLL_TIMEOUT);
    flag_raise(rank->shared, GO);
}

static void watchdog__of_a_message_without_a_receive(void **state)
{
    struct ranks ranks;
    char does[80];
    (void)state;
    ranks_start(&ranks, 2, await_a_message_in_sight, be_quick);
    snprintf(does, sizeof(does), "; its process %d computes since operation 1", ranks.pids[1]);
    flag_await(ranks.shared, GO, 1);
    const char *log = ranks.shared->results[0].log;
    if (!strstr(log, "rank 0: rank 1 has not sent the message that it waits for, for ") ||
        !strstr(log, does))
        fail_msg("the log is: %s", log);
    ranks_end(&ranks, 0);
}

// Ranks 1 and 2 are in a barrier to which rank 0 does not come, since it awaits a message of 1.
static void message__that_nobody_sends(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, THREE, await_a_message, want_dumps);
    ranks_end(&ranks, 0);
    take_all();
    assert_int_equal(dump_count, THREE);
    const struct coll_finding *cycle = find_one(COLL_FOUND_CYCLE);
    assert_int_equal(cycle->waiting[0], 3);
    expect_words(cycle, "rank 0 awaits a message of rank 1, rank 1 waits for rank 0 in operation 2 "
                        "(barrier); for ");
    expect_words(find_one(COLL_FOUND_FAILED), "rank 1 has not sent message 1 to rank 0");
    forget_all();
}

// Each sends to the next one first, more than is taken before it is received.
static void send_first(struct rank *rank)
{
    static uint8_t data[1 << 20];
    struct sw_coll_error error = {.text = ""};
    sum_now(rank);
    need(sw_coll_send(rank->coll, (rank->rank + 1) % rank->size, data, sizeof(data), SW_COLL_U8,
                      sw_coll_deadline_ms(DEADLINE_MS), &error) == SW_COLL_TIMEOUT);
    snprintf(rank->result->text, sizeof(rank->result->text), "%s", error.text);
}

static void expect_cycle(uint32_t size, const char *words)
{
    struct ranks ranks;
    ranks_start(&ranks, size, send_first, want_dumps);
    await_ends(&ranks, size);
    take_all();
    assert_int_equal(dump_count, size);
    const struct coll_finding *cycle = find_one(COLL_FOUND_CYCLE);
    assert_int_equal(cycle->waiting[0], (1u << size) - 1);
    expect_words(cycle, words);
    for (size_t i = 0; i < findings.count; i++) // no rank has the blame
        assert_int_not_equal(findings.all[i].verdict, COLL_FOUND_AWAITED);
    if (!strstr(ranks.shared->results[0].text, words))
        fail_msg("the error is: %s", ranks.shared->results[0].text);
    forget_all();
}

static void cycle__of_ranks_that_send_first(void **state)
{
    (void)state;
    expect_cycle(2, "ranks wait for each other in a cycle: rank 0 sends to rank 1, rank 1 sends to "
                    "rank 0");
    assert_false(empty_folder(state));
    expect_cycle(3, "ranks wait for each other in a cycle: rank 0 sends to rank 1, rank 1 sends to "
                    "rank 2, rank 2 sends to rank 0");
}

// Rank 0 has sent what rank 1 will take when it comes, so it is no cycle that rank 1 awaits it.
static void send_early(struct rank *rank)
{
    static uint8_t data[1 << 20];
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_request *request = NULL;
    sum_now(rank);
    if (rank->rank == 0)
        need_ok(
            rank,
            sw_coll_send_post(rank->coll, 1, data, sizeof(data), SW_COLL_U8, 0, &error, &request),
            &error);
    flag_raise(rank->shared, READY);
    if (rank->rank == 0) {
        flag_await(rank->shared, GO, 1);
        need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
        need_ok(rank, sw_coll_wait(request, &error), &error);
        return;
    }
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
    need_ok(rank, sw_coll_recv(rank->coll, 0, data, sizeof(data), SW_COLL_U8, 0, &error), &error);
}

static void open_another(struct rank *rank)
{
    const bool is_awaited[2] = {true, true}; // itself does not count
    if (rank->rank == 0)
        sw_coll_await_ranks(rank->coll, is_awaited, sw_coll_deadline_ms(0) - 5000000000);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, GO, 1);
    sw_coll_await_ranks(rank->coll, NULL, 0);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, GO, 2);
}

static void awaited__to_open_another_communicator(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 2, open_another, be_patient);
    for (uint32_t round = 1; round <= 2; round++) {
        flag_await(ranks.shared, READY, 2 * round);
        forget_all();
        take_page(0, COLL_PROCESS_ALIVE);
        take_page(1, COLL_PROCESS_ALIVE);
        expect_words(find_one(round == 1 ? COLL_FOUND_AWAITED : COLL_FOUND_WELL),
                     round == 1 ? "rank 1 is awaited by rank 0 for 5.0 s, to open another "
                                  "communicator, and has not come"
                                : "no rank waits");
        flag_raise(ranks.shared, GO);
    }
    ranks_end(&ranks, 0);
    forget_all();
}

static void cycle__is_none_while_a_rank_computes(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 2, send_early, be_patient);
    flag_await(ranks.shared, READY, 2);
    do { // until rank 1 waits in the barrier
        nap_ms(5);
        forget_all();
        take_page(0, COLL_PROCESS_ALIVE);
        take_page(1, COLL_PROCESS_ALIVE);
    } while (!dumps[1]->seen.page.state.is_waiting);
    assert_true(dumps[0]->seen.page.state.is_waiting); // for its message
    assert_int_equal(find_one(COLL_FOUND_AWAITED)->rank, 0);
    for (size_t i = 0; i < findings.count; i++)
        assert_int_not_equal(findings.all[i].verdict, COLL_FOUND_CYCLE);
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 0);
    forget_all();
}

// In the part rank 1 of the whole waits for rank 2, which waits for it in the whole.
static void wait_in_two(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *part = NULL;
    need_ok(rank, sw_coll_split(rank->coll, rank->rank > 0, 0, 0, &error, &part), &error);
    flag_raise(rank->shared, READY);
    struct sw_coll *busy = rank->rank == 1 ? part : rank->coll;
    sw_coll_barrier(busy, sw_coll_deadline_ms(PATIENCE_MS), &error);
    sw_coll_close(part);
}

static void parts__each_waits_in_another_communicator(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, THREE, wait_in_two, be_patient);
    flag_await(ranks.shared, READY, THREE);
    do { // until all wait, as their pages say
        nap_ms(20);
        forget_all();
        for (uint32_t rank = 0; rank < THREE; rank++)
            take_page(rank, COLL_PROCESS_ALIVE);
        size_t waiting = 0;
        for (size_t i = 0; i < dump_count; i++)
            waiting += dumps[i]->seen.page.state.is_waiting;
        if (waiting == THREE)
            break;
    } while (true);
    size_t found = 0;
    find_one(COLL_FOUND_AWAITED);
    for (size_t i = 0; i < findings.count; i++)
        if (findings.all[i].verdict == COLL_FOUND_AWAITED) {
            expect_words(&findings.all[i], "and waits in job");
            found++;
        }
    assert_int_equal(found, 2);
    for (uint32_t rank = 0; rank < THREE; rank++)
        kill(ranks.pids[rank], SIGKILL);
    ranks_end(&ranks, 7);
    forget_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(awaited__to_open_another_communicator),
        cmocka_unit_test_teardown(late__is_named_with_its_operation, empty_folder),
        cmocka_unit_test_teardown(other_call__is_named_with_both, empty_folder),
        cmocka_unit_test_teardown(killed__is_named_though_it_has_no_dump, empty_folder),
        cmocka_unit_test_teardown(stopped__is_awaited_at_the_deadline, empty_folder),
        cmocka_unit_test_teardown(watchdog__says_who_is_late_and_what_it_does, empty_folder),
        cmocka_unit_test_teardown(watchdog__of_a_rank_that_has_begun_none, empty_folder),
        cmocka_unit_test_teardown(watchdog__of_a_message_without_a_receive, empty_folder),
        cmocka_unit_test_teardown(message__that_nobody_sends, empty_folder),
        cmocka_unit_test_teardown(cycle__of_ranks_that_send_first, empty_folder),
        cmocka_unit_test_teardown(cycle__is_none_while_a_rank_computes, empty_folder),
        cmocka_unit_test_teardown(parts__each_waits_in_another_communicator, empty_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
