/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs of verbs calls on a few processes, checked against the reference model (model.h):
 * random [--seed N] [--programs N] [--repeat N] [--seconds N] [--trace]
 * Program i of a run has seed N + i, so what fails is repeated alone with the seed it names; where
 * it also takes the right moment, --repeat carries out each program so many times. All processes
 * draw the same program; each carries out its part and expects exactly the completions, the states
 * and the memory that the model says: on one host, or (SIDEWIRE_LINK=roce) over packets that are
 * not lost.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "part.h"
#include "preload/namespace.h"

#define STALL_S 60
#define ROUNDS 5

static void run_program(struct part *part, uint64_t seed, const uint8_t *pattern)
{
    char name[64];
    memcpy(part->arena, pattern, ARENA_BYTES);
    draw_open(&part->draw, seed, &part->model, pattern);
    part_begin(part);
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(name, sizeof(name), "--seed %llu round %d process %d", (unsigned long long)seed,
                 round, part->proc);
        vu_set_side(name);
        memset(part->seen, 0, sizeof(part->seen));
        memset(part->ud_seen, 0, sizeof(part->ud_seen));
        part_change(part);
        part_post(part);
        part_settle(part);
    }
    part_finish(part);
}

static void open_ahs(struct part *part)
{
    for (int to = 0; to < PROCS; to++) {
        struct ibv_ah_attr attr = {.is_global = 1,
                                   .port_num = 1,
                                   .grh = {.dgid = part->board->procs[to].gid,
                                           .sgid_index = (uint8_t)part->dev.gid_index,
                                           .hop_limit = 64}};
        part->ahs[to] = ibv_create_ah(part->dev.pd, &attr);
        VU_TRUE(part->ahs[to]);
    }
}

static enum model_link chosen_link(void)
{
    const char *link = getenv("SIDEWIRE_LINK");
    return !link                        ? LINK_HOST
           : strcmp(link, "roce") == 0  ? LINK_PACKETS
           : strcmp(link, "iwarp") == 0 ? LINK_STREAM
                                        : LINK_HOST;
}

static void process(const struct run *run, struct board *board, int proc)
{
    struct part *part = calloc(1, sizeof(*part));
    uint8_t *pattern = malloc(ARENA_BYTES);
    VU_TRUE(part && pattern);
    if (run->trace)
        setvbuf(stderr, NULL, _IOLBF, 4096); /* whole lines, of several processes */
    part->run = run;
    part->board = board;
    part->proc = proc;
    part->arena =
        mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(part->arena != MAP_FAILED);
    part->draw.model = &part->model;
    model_open(&part->model);
    struct vu_random random = {.state = 1};
    vu_random_fill(&random, pattern, ARENA_BYTES);
    vu_dev_open(&part->dev);
    board->procs[proc].base = (uintptr_t)part->arena;
    board->procs[proc].gid = part->dev.gid;
    part->model.mtu_bytes = 128u << part->dev.mtu;
    part->model.link = chosen_link();
    part_meet(part);
    if (part->model.link != LINK_STREAM)
        open_ahs(part);
    uint64_t deadline = vu_now_ms() + (uint64_t)run->seconds * 1000;
    int done = 0;
    while (done < run->programs * run->repeat && !board->done) {
        run_program(part, run->seed + (uint64_t)(done / run->repeat), pattern);
        done++;
        if (proc == 0 && run->seconds && vu_now_ms() > deadline)
            board->done = true;
        part_meet(part);
    }
    if (proc == 0)
        printf("seeds %llu to %llu: %d programs\n", (unsigned long long)run->seed,
               (unsigned long long)run->seed + (uint64_t)((done - 1) / run->repeat), done);
    for (int to = 0; to < PROCS && part->ahs[to]; to++)
        VU_EQ(ibv_destroy_ah(part->ahs[to]), 0);
    vu_dev_close(&part->dev);
    model_close(&part->model);
    munmap(part->arena, ARENA_BYTES);
    free(pattern);
    free(part);
    fflush(NULL);
}

/* The first process to fail ends the others, which wait for it. */
static int reap(pid_t *pids, uint64_t deadline)
{
    int left = PROCS, rc = 0;
    while (left) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0 && vu_now_ms() < deadline) {
            vu_sleep_ms(2);
            continue;
        }
        int one = pid <= 0 ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        if (pid <= 0)
            fprintf(stderr, "  stuck: killed\n");
        else if (WIFSIGNALED(status) && !rc)
            fprintf(stderr, "  killed by signal %d\n", WTERMSIG(status));
        for (int i = 0; i < PROCS; i++)
            if (pids[i] == pid)
                pids[i] = 0;
        left -= pid > 0;
        if (!one || rc)
            continue;
        rc = one;
        for (int i = 0; i < PROCS; i++)
            if (pids[i])
                kill(pids[i], SIGKILL);
    }
    return rc;
}

static int run_all(const struct run *run)
{
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    VU_TRUE(board != MAP_FAILED);
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    VU_EQ(pthread_barrier_init(&board->barrier, &attr, PROCS), 0);
    pid_t pids[PROCS];
    fflush(NULL);
    for (int proc = 0; proc < PROCS; proc++) {
        pids[proc] = fork();
        VU_TRUE(pids[proc] >= 0);
        if (pids[proc] == 0) {
            process(run, board, proc);
            _exit(0);
        }
    }
    uint64_t allowed_s = run->seconds ? (uint64_t)run->seconds + STALL_S : 3600;
    return reap(pids, vu_now_ms() + allowed_s * 1000);
}

int main(int argc, char **argv)
{
    struct run run = {.seed = (uint64_t)time(NULL) * 100000, .programs = 1 << 20, .repeat = 1};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--trace") == 0)
            run.trace = true;
        else if (strcmp(argv[i], "--seed") == 0)
            run.seed = strtoull(value, NULL, 0), i++;
        else if (strcmp(argv[i], "--programs") == 0)
            run.programs = atoi(value), i++;
        else if (strcmp(argv[i], "--repeat") == 0)
            run.repeat = atoi(value), i++;
        else if (strcmp(argv[i], "--seconds") == 0)
            run.seconds = atoi(value), i++;
        else
            VU_FAIL("usage: random [--seed N] [--programs N] [--repeat N] [--seconds N] [--trace]");
    }
    VU_CHECK(run.programs > 0 && run.repeat > 0 && run.repeat <= 1 << 10, "too few or too many");
    /* Processes of other tests that end take along packets that came to them by the shared port:
     * datagrams are lost then, for which the model has no word. */
    const char *link = getenv("SIDEWIRE_LINK");
    if (link && strcmp(link, "roce") == 0)
        (void)namespace_own_network();
    int rc = run_all(&run);
    if (rc == VU_SKIPPED)
        vu_skip("see above");
    return rc ? 1 : 0;
}
