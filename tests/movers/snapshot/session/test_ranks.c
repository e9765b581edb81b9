/* SPDX-License-Identifier: BSD-2-Clause */
/* Four ranks, a process each: all have a snapshot, or none. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "program.h"

enum { RANKS = 4, STEPS = 8 };

/* What a rank does at a step; 0, or how the child exits. */
typedef int step_of_rank(struct program *program, uint64_t step);

struct job {
    struct program program;
    char sink[128], meet[32];
    pid_t pids[RANKS];
};

static void find_port(char *meet, size_t bytes)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    close(fd);
    snprintf(meet, bytes, "127.0.0.1:%u", ntohs(at.sin_port));
}

static void job_open(struct job *job)
{
    memset(job, 0, sizeof(*job));
    program_open(&job->program, 1);
    snprintf(job->sink, sizeof(job->sink), "file:%s/{rank}.snap", job->program.folder);
    job->program.sink_texts[0] = job->sink;
    job->program.options.sinks = job->program.sink_texts;
    find_port(job->meet, sizeof(job->meet));
    job->program.options.meet = job->meet;
    job->program.options.rank_timeout_ms = 20000;
}

static void job_close(struct job *job)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        char path[128];
        snprintf(path, sizeof(path), "%s/%u.snap", job->program.folder, rank);
        unlink(path);
    }
    program_close(&job->program);
}

/* No assertion of cmocka here: a child exits. */
static int run_rank(struct program *program, uint32_t rank, step_of_rank *each)
{
    struct sw_snap_error error;
    program->options.rank = rank;
    program->options.world = RANKS;
    if (sw_snap_open(&program->options, &error, &program->snap) ||
        sw_snap_describe(program->snap, program->ranges, PROGRAM_RANGES, &error)) {
        fprintf(stderr, "rank %u: %s\n", rank, error.text);
        return 99;
    }
    int code = 0;
    for (uint64_t step = 1; step <= STEPS && !code; step++)
        code = each(program, step);
    sw_snap_close(program->snap);
    return code;
}

static void job_start(struct job *job, step_of_rank *each)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        job->pids[rank] = fork();
        assert_true(job->pids[rank] >= 0);
        if (!job->pids[rank])
            _exit(run_rank(&job->program, rank, each));
    }
}

/* How a rank has ended: its exit status, or 1000 and the signal. */
static int job_wait(struct job *job, uint32_t rank)
{
    int how;
    assert_int_equal(waitpid(job->pids[rank], &how, 0), job->pids[rank]);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 1000 + WTERMSIG(how);
}

/* Each rank has other bytes at each step. */
static uint64_t seed_of(uint32_t rank, uint64_t step)
{
    return rank * 1000 + step;
}

static enum sw_snap_status save_step(struct program *program, uint64_t step,
                                     struct sw_snap_error *error)
{
    const struct sw_snap_point point = {.step = step, .small = &step, .small_bytes = sizeof(step)};
    program_fill(program, seed_of(program->options.rank, step));
    enum sw_snap_status status = sw_snap_begin(program->snap, &point, error);
    if (status)
        return status;
    sw_snap_gate(program->snap, SW_SNAP_HELP, 0);
    status = sw_snap_wait(program->snap, SW_SNAP_DURABLE, 0, error);
    sw_snap_wait(program->snap, SW_SNAP_IDLE, 0, NULL);
    return status;
}

/* For the log of a test that fails. */
static int rank_fails(const struct program *program, uint64_t step, int code,
                      const struct sw_snap_error *error)
{
    fprintf(stderr, "rank %u, step %llu: %s\n", program->options.rank, (unsigned long long)step,
            error->text);
    return code;
}

/* Reads what all ranks have of the newest whole snapshot; its step, 0: there is none. */
static uint64_t compare_newest(struct job *job)
{
    struct sw_snap_options options = job->program.options;
    struct sw_snap_reader *reader;
    struct sw_snap_error error;
    struct sw_snap_entry entry;
    uint8_t *got = malloc(PROGRAM_BYTES_MAX);
    options.meet = NULL;
    enum sw_snap_status status = sw_snap_reader_open(&options, &error, &reader);
    if (status == SW_SNAP_NOT_FOUND) {
        free(got);
        return 0;
    }
    assert_int_equal(status, SW_SNAP_OK);
    status = sw_snap_choose(reader, NULL, &entry, &error);
    if (status) {
        assert_int_equal(status, SW_SNAP_NOT_FOUND);
        entry.step = 0;
    }
    for (uint32_t rank = 0; entry.step && rank < RANKS; rank++) {
        program_fill(&job->program, seed_of(rank, entry.step));
        for (uint32_t i = 0; i < PROGRAM_RANGES; i++) {
            const struct sw_snap_range *range = &job->program.ranges[i];
            struct sw_snap_piece piece = {.bytes = range->bytes, .into = got};
            assert_int_equal(sw_snap_find(reader, rank, range->name, &piece.number), SW_SNAP_OK);
            assert_int_equal(sw_snap_read(reader, &piece, 1, &error), SW_SNAP_OK);
            assert_memory_equal(got, range->data, range->bytes);
        }
    }
    sw_snap_reader_close(reader);
    free(got);
    return entry.step;
}

/* ---- all go on ---- */

static int save_all(struct program *program, uint64_t step)
{
    struct sw_snap_error error;
    return save_step(program, step, &error) ? rank_fails(program, step, 1, &error) : 0;
}

static void ranks__all_have_it(void **state)
{
    struct job job;
    (void)state;
    job_open(&job);
    job_start(&job, save_all);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(job_wait(&job, rank), 0);
    assert_int_equal(compare_newest(&job), STEPS);
    job_close(&job);
}

/* ---- one cannot ---- */

enum { CAPTURED_BEFORE = 42, TRIES_MAX = 8 };

/* Rank 2 gives up step 4 at its gate: nobody has it, all are told who, and step 5 is there. Where
 * rank 2 got no processor until its helper had captured all, there is nothing to give up: it ends,
 * and so does what the other ranks can say of step 4 or of a later one. */
static int skip_one(struct program *program, uint64_t step)
{
    struct sw_snap_error error = {0};
    const uint32_t rank = program->options.rank;
    if (rank == 2 && step == 4) {
        program_fill(program, seed_of(rank, step));
        if (sw_snap_begin(program->snap, &(struct sw_snap_point){.step = step}, &error))
            return 1;
        /* A deadline that has passed, where nothing was copied by then. */
        if (!sw_snap_gate(program->snap, SW_SNAP_WAIT, 1))
            return CAPTURED_BEFORE;
        sw_snap_wait(program->snap, SW_SNAP_IDLE, 0, NULL);
        return 0;
    }
    const enum sw_snap_status status = save_step(program, step, &error);
    if (step != 4)
        return status ? rank_fails(program, step, 3, &error) : 0;
    if (status != SW_SNAP_OTHER_RANK || !strstr(error.text, "rank 2"))
        return rank_fails(program, step, 4, &error);
    return 0;
}

static void ranks__one_fails_and_all_are_told(void **state)
{
    struct job job;
    int how[RANKS];
    uint32_t tries = 0;
    (void)state;
    do {
        if (tries)
            job_close(&job);
        job_open(&job);
        job_start(&job, skip_one);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            how[rank] = job_wait(&job, rank);
    } while (how[2] == CAPTURED_BEFORE && ++tries < TRIES_MAX);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(how[rank], 0);
    assert_int_equal(compare_newest(&job), STEPS);
    job_close(&job);
}

/* ---- one comes later ---- */

/* Rank 1 leaves step 6 out: the others lose that one, and all have step 7. */
static int leave_one_out(struct program *program, uint64_t step)
{
    struct sw_snap_error error = {0};
    if (program->options.rank == 1 && step == 6)
        return 0;
    const enum sw_snap_status status = save_step(program, step, &error);
    if (step == 6)
        return status == SW_SNAP_OTHER_RANK && strstr(error.text, "rank 1")
                   ? 0
                   : rank_fails(program, step, 1, &error);
    return status ? rank_fails(program, step, 2, &error) : 0;
}

static void ranks__one_is_at_a_later_step(void **state)
{
    struct job job;
    (void)state;
    job_open(&job);
    job_start(&job, leave_one_out);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(job_wait(&job, rank), 0);
    assert_int_equal(compare_newest(&job), STEPS);
    job_close(&job);
}

/* ---- one is killed ---- */

/* Rank 3 dies amid a step. The others are told who it is; what is there is of one step. */
static int die_amid(struct program *program, uint64_t step)
{
    struct sw_snap_error error = {0};
    if (program->options.rank == 3 && step == 5) {
        const struct sw_snap_point point = {
            .step = step, .small = &step, .small_bytes = sizeof(step)};
        program_fill(program, seed_of(3, step));
        if (sw_snap_begin(program->snap, &point, &error))
            return 1;
        sw_snap_gate(program->snap, SW_SNAP_HELP, 0);
        usleep((useconds_t)(getpid() % 8 * 2000));
        raise(SIGKILL);
    }
    const enum sw_snap_status status = save_step(program, step, &error);
    if (step < 5)
        return status ? rank_fails(program, step, 2, &error) : 0;
    if (!status)
        return 0; /* it died behind the second vote */
    return status == SW_SNAP_OTHER_RANK && strstr(error.text, "3")
               ? 77
               : rank_fails(program, step, 3, &error);
}

static void ranks__one_dies(void **state)
{
    struct job job;
    (void)state;
    job_open(&job);
    for (int round = 0; round < 3; round++) {
        job_start(&job, die_amid);
        for (uint32_t rank = 0; rank < RANKS - 1; rank++)
            assert_int_equal(job_wait(&job, rank), 77);
        assert_int_equal(job_wait(&job, 3), 1000 + SIGKILL);
        const uint64_t step = compare_newest(&job);
        assert_true(step == 4 || step == 5);
        find_port(job.meet, sizeof(job.meet));
    }
    job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks__all_have_it),
        cmocka_unit_test(ranks__one_fails_and_all_are_told),
        cmocka_unit_test(ranks__one_is_at_a_later_step),
        cmocka_unit_test(ranks__one_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
