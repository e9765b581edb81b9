/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program like a trainer, and what snapshots cost it, for bench/lib/snapshot_rows.py:
 *
 *     snapshot_load steps BYTES SINK COMPUTE_MS ROUNDS FLOOR_FILE
 *     snapshot_load gate BYTES SINK ROUNDS
 *     snapshot_load save BYTES SINK ROUNDS
 *     snapshot_load pages|tensors BYTES SINK PART      changes 1/PART of them
 *     snapshot_load restore BYTES SINK [ROUNDS]
 *     snapshot_load commit BYTES SINK ROUNDS MEET FLOOR_FILE     by four ranks
 *
 * A step computes on numbers in its cache, and then writes all of its state. In turns of some steps
 * each, nothing goes on beside it, then the floor, then snapshots, one behind the other. Prints one
 * JSON object.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "endpoint.h"
#include "sidewire/snapshot.h"
#include "snapshot_floor.h"

enum { RANKS = 4, RING_LEAST = 8 << 20 };
enum { PAGE = 4096, TENSORS = 100, TURN_STEPS = 10, WAYS = 3, STEPS_MAX = 4000, CACHED = 4096 };
enum way { ALONE, FLOOR, SNAPSHOTS };

/* What it took, and what of that; the rest was computed. */
struct step {
    double all_s, begin_s, gate_s, update_s;
    long preempted, faults; /* how often another thread had its processor; pages that were new */
};

struct load {
    float *state;
    size_t bytes;
    uint64_t compute_rounds, step, step_bytes; /* that snapshots copy beside a step */
    struct sw_snap *snap;
    struct sw_snap_options options;
    struct sw_snap_error error;
    const char *sink, *meet; /* of several ranks */
    uint32_t rank;
    struct step steps[WAYS][STEPS_MAX];
    uint32_t steps_count[WAYS];
};

static struct load load;

static double seconds_since(uint64_t begun_ns)
{
    return (double)(bench_now_ns() - begun_ns) * 1e-9;
}

static void check_status(enum sw_snap_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "snapshot_load: %s: %s %s\n", what, sw_snap_status_text(status),
            load.error.text);
    exit(1);
}

static void stay_on_core(int core)
{
    cpu_set_t all, one;
    int found = -1;
    sched_getaffinity(0, sizeof(all), &all);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && found < core; cpu++)
        if (CPU_ISSET(cpu, &all) && ++found == core)
            CPU_SET(cpu, &one);
    if (found == core)
        sched_setaffinity(0, sizeof(one), &one);
}

/* ---- a step ---- */

static volatile float computed;

static void compute_numbers(uint64_t rounds)
{
    static float numbers[CACHED];
    for (uint64_t round = 0; round < rounds; round++)
        for (uint32_t i = 0; i < CACHED; i++)
            numbers[i] = numbers[i] * 0.999f + 0.5f;
    computed = numbers[1];
}

static void update_state(size_t bytes)
{
    const float change = 1.0f / (float)(load.step % 7 + 2);
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        load.state[i] = load.state[i] * 0.9f + change;
}

static void find_rounds(double compute_s)
{
    uint64_t rounds = 1000;
    const uint64_t begun = bench_now_ns();
    compute_numbers(rounds);
    load.compute_rounds = (uint64_t)((double)rounds * compute_s / seconds_since(begun)) + 1;
}

static void begin_snapshot(void)
{
    struct sw_snap_info info;
    sw_snap_info_of(load.snap, &info);
    if (info.stage == SW_SNAP_CAPTURING || info.stage == SW_SNAP_STAGED)
        return;
    const struct sw_snap_point point = {.step = ++load.step};
    const enum sw_snap_status status = sw_snap_begin(load.snap, &point, &load.error);
    if (status != SW_SNAP_BUSY)
        check_status(status, "begin");
}

static struct step take_step(bool saves)
{
    struct rusage before, after;
    struct step step;
    getrusage(RUSAGE_THREAD, &before);
    const uint64_t begun = bench_now_ns();
    if (saves)
        begin_snapshot();
    step.begin_s = seconds_since(begun);
    compute_numbers(load.compute_rounds);
    const uint64_t computed_ns = bench_now_ns();
    if (saves)
        check_status(sw_snap_gate(load.snap, SW_SNAP_HELP, 0), "gate");
    step.gate_s = seconds_since(computed_ns);
    load.step++;
    const uint64_t gated_ns = bench_now_ns();
    update_state(load.bytes);
    step.update_s = seconds_since(gated_ns);
    step.all_s = seconds_since(begun);
    getrusage(RUSAGE_THREAD, &after);
    step.preempted = after.ru_nivcsw - before.ru_nivcsw;
    step.faults = after.ru_minflt - before.ru_minflt;
    return step;
}

/* ---- a handle ---- */

/* Its threads stay on the other core, where the floor's is, too. */
static void open_snapshots(uint32_t ranges_count)
{
    static struct sw_snap_range ranges[TENSORS];
    static char names[TENSORS][16];
    const size_t each = load.bytes / ranges_count / PAGE * PAGE;
    for (uint32_t i = 0; i < ranges_count; i++) {
        snprintf(names[i], sizeof(names[i]), "tensor.%u", i);
        ranges[i] = (struct sw_snap_range){.name = names[i],
                                           .data = (char *)load.state + i * each,
                                           .bytes = each,
                                           .type = "F32",
                                           .dims = 1,
                                           .shape = {each / sizeof(float)}};
    }
    sw_snap_options_init(&load.options);
    load.options.sinks = &load.sink;
    load.options.sinks_count = 1;
    if (load.options.ring_bytes > load.bytes)
        load.options.ring_bytes = load.bytes > RING_LEAST ? load.bytes : RING_LEAST;
    if (load.meet) {
        load.options.meet = load.meet;
        load.options.rank = load.rank;
        load.options.world = RANKS;
    }
    cpu_set_t all;
    sched_getaffinity(0, sizeof(all), &all);
    stay_on_core(1);
    check_status(sw_snap_open(&load.options, &load.error, &load.snap), "open");
    check_status(sw_snap_describe(load.snap, ranges, ranges_count, &load.error), "describe");
    sched_setaffinity(0, sizeof(all), &all);
    stay_on_core(0);
}

/* Begun, captured and durable. */
static struct sw_snap_info save_once(void)
{
    struct sw_snap_info info;
    const struct sw_snap_point point = {.step = ++load.step};
    check_status(sw_snap_wait(load.snap, SW_SNAP_IDLE, 0, &load.error), "idle");
    check_status(sw_snap_begin(load.snap, &point, &load.error), "begin");
    check_status(sw_snap_gate(load.snap, SW_SNAP_HELP, 0), "gate");
    check_status(sw_snap_wait(load.snap, SW_SNAP_DURABLE, 0, &load.error), "durable");
    sw_snap_info_of(load.snap, &info);
    return info;
}

/* ---- what is measured ---- */

static int compare_steps(const void *one, const void *other)
{
    const double a = ((const struct step *)one)->all_s, b = ((const struct step *)other)->all_s;
    return (a > b) - (a < b);
}

static void load_print_steps(const char *name, enum way way)
{
    struct step *steps = load.steps[way];
    const uint32_t count = load.steps_count[way];
    double sum = 0;
    printf("\"%s_steps\": [", name);
    for (uint32_t i = 0; i < count; i++) {
        printf("%s%.6f", i ? ", " : "", steps[i].all_s);
        sum += steps[i].all_s;
    }
    qsort(steps, count, sizeof(*steps), compare_steps);
    const uint32_t slow = (uint32_t)((double)count * 0.999);
    const struct step *last = &steps[slow < count ? slow : count - 1];
    printf("], \"%s_s\": %.6f, \"%s_slow_s\": %.6f, \"%s_slow\": {\"begin_s\": %.6f, "
           "\"gate_s\": %.6f, \"update_s\": %.6f, \"preempted\": %ld, \"faults\": %ld}",
           name, sum / count, name, last->all_s, name, last->begin_s, last->gate_s, last->update_s,
           last->preempted, last->faults);
}

static void load_take_turn(enum way way, const char *floor_file)
{
    struct bench_floor *floor = NULL;
    if (way == FLOOR) {
        stay_on_core(1);
        floor = bench_floor_start(load.state, load.bytes, floor_file);
        stay_on_core(0);
    }
    for (int i = 0; i < TURN_STEPS && load.steps_count[way] < STEPS_MAX; i++) {
        if (floor)
            bench_floor_allow(floor, load.step_bytes);
        load.steps[way][load.steps_count[way]++] = take_step(way == SNAPSHOTS);
    }
    if (way == SNAPSHOTS)
        check_status(sw_snap_wait(load.snap, SW_SNAP_IDLE, 0, &load.error), "idle");
    if (floor)
        bench_floor_stop(floor);
}

static void measure_steps(double compute_ms, int rounds, const char *floor_file)
{
    struct sw_snap_info info;
    open_snapshots(1);
    find_rounds(compute_ms * 1e-3);
    load_take_turn(SNAPSHOTS, floor_file); /* the volume has all its blocks now */
    sw_snap_info_of(load.snap, &info);
    load.step_bytes = info.taken * load.bytes / TURN_STEPS;
    load.steps_count[SNAPSHOTS] = 0;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < WAYS; i++)
            load_take_turn((enum way)(round % 2 ? WAYS - 1 - i : i), floor_file);
    sw_snap_info_of(load.snap, &info);
    printf("{");
    load_print_steps("alone", ALONE);
    printf(", ");
    load_print_steps("floor", FLOOR);
    printf(", ");
    load_print_steps("snapshots", SNAPSHOTS);
    printf(", \"taken\": %llu, \"failed\": %llu}\n", (unsigned long long)info.taken,
           (unsigned long long)info.failed);
}

/* Nothing is computed, so that the gate has all to copy. */
static void measure_gate(int rounds)
{
    double longest_s = 0, floor_s = 1;
    open_snapshots(1);
    save_once();
    for (int round = 0; round < rounds; round++) {
        update_state(load.bytes);
        const double copy_s = bench_copy_s(load.state, load.bytes);
        const struct sw_snap_info info = save_once();
        const double gate_s = (double)info.gate_ns * 1e-9;
        const double least_s = copy_s * (double)info.gate_bytes / (double)load.bytes;
        if (gate_s * floor_s < longest_s * least_s)
            continue; /* beside its own floor */
        longest_s = gate_s;
        floor_s = least_s;
    }
    printf("{\"gate_s\": %.6f, \"floor_s\": %.6f}\n", longest_s, floor_s);
}

static double processor_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void measure_save(int rounds)
{
    double took_s = 0, cpu_s = 0, copy_s = 0, sum_s = 0;
    open_snapshots(1);
    save_once();
    for (int round = 0; round < rounds; round++) {
        load.step++;
        update_state(load.bytes);
        copy_s += bench_copy_s(load.state, load.bytes);
        sum_s += bench_sum_s(load.state, load.bytes);
        const double before_s = processor_s();
        const struct sw_snap_info info = save_once();
        cpu_s += processor_s() - before_s;
        took_s += (double)(info.durable_ns - info.begun_ns) * 1e-9;
    }
    const double bytes = (double)load.bytes * rounds, gib = bytes / (1 << 30);
    printf("{\"bandwidth\": %.0f, \"cpu_s\": %.6f, \"parts_s\": %.6f}\n", bytes / took_s,
           cpu_s / gib, (copy_s + 2 * sum_s) / gib);
}

/* Bytes that were moved for those that were changed. */
static void measure_changes(bool by_pages, size_t part)
{
    const size_t pages = load.bytes / PAGE, each = load.bytes / TENSORS / PAGE * PAGE;
    size_t changed = 0;
    open_snapshots(by_pages ? 1 : TENSORS);
    save_once();
    srand(7);
    if (by_pages)
        for (size_t i = 0; i < pages; i++) {
            if ((size_t)rand() % part)
                continue;
            load.state[i * (PAGE / sizeof(float))] += 1;
            changed += PAGE;
        }
    for (size_t i = 0; !by_pages && i < TENSORS; i += part, changed += each)
        for (size_t at = 0; at < each / sizeof(float); at++)
            load.state[i * each / sizeof(float) + at] += 1;
    const struct sw_snap_info info = save_once();
    printf("{\"moved\": %llu, \"changed\": %zu}\n", (unsigned long long)info.moved_bytes, changed);
}

static void measure_restore(int rounds)
{
    struct sw_snap_reader *reader;
    struct sw_snap_entry entry;
    open_snapshots(1);
    save_once();
    sw_snap_close(load.snap);
    load.snap = NULL;
    memset(load.state, 0, load.bytes);
    check_status(sw_snap_reader_open(&load.options, &load.error, &reader), "reader");
    check_status(sw_snap_choose(reader, NULL, &entry, &load.error), "choose");
    const struct sw_snap_piece piece = {.number = 0, .bytes = load.bytes, .into = load.state};
    const double bytes = (double)load.bytes * rounds, before_s = processor_s();
    const uint64_t begun = bench_now_ns();
    for (int round = 0; round < rounds; round++)
        check_status(sw_snap_read(reader, &piece, 1, &load.error), "read");
    const double took_s = seconds_since(begun), cpu_s = processor_s() - before_s;
    printf("{\"bandwidth\": %.0f, \"by_cpu\": %.0f}\n", bytes / took_s, bytes / cpu_s);
    sw_snap_reader_close(reader);
}

/* ---- a commit of several ranks ---- */

/* When it was so on each rank; the clock is the same for all. */
struct commit {
    uint64_t staged_ns, stored_ns, durable_ns;
};

/* The floor: a page is written and flushed. */
static double flush_s(const char *path, int rounds)
{
    void *page = aligned_alloc(PAGE, PAGE);
    const int fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (!page || fd < 0 || posix_fallocate(fd, 0, PAGE))
        bench_die("the floor has no file");
    const uint64_t begun = bench_now_ns();
    for (int i = 0; i < rounds; i++) {
        memset(page, i, PAGE);
        if (pwrite(fd, page, PAGE, 0) != PAGE || fdatasync(fd))
            bench_die("the floor cannot write");
    }
    const double took = seconds_since(begun) / rounds;
    close(fd);
    free(page);
    return took;
}

static uint64_t latest_ns(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* From the last rank that was so far, to the last rank that knows that it counts. */
static void print_commits(const struct commit *commits, uint32_t rounds, const char *floor_file)
{
    double commit_s = 0, whole_s = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        struct commit last = {0};
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            const struct commit *one = &commits[round * RANKS + rank];
            last.staged_ns = latest_ns(last.staged_ns, one->staged_ns);
            last.stored_ns = latest_ns(last.stored_ns, one->stored_ns);
            last.durable_ns = latest_ns(last.durable_ns, one->durable_ns);
        }
        commit_s += (double)(last.durable_ns - last.stored_ns) * 1e-9 / rounds;
        whole_s += (double)(last.durable_ns - last.staged_ns) * 1e-9 / rounds;
    }
    printf("{\"commit_s\": %.6f, \"whole_s\": %.6f, \"flush_s\": %.6f}\n", commit_s, whole_s,
           flush_s(floor_file, (int)rounds));
}

/* A page of each rank changes. */
static void measure_commit(uint32_t rounds, const char *meet, const char *floor_file)
{
    pid_t others[RANKS] = {0};
    struct commit *commits = mmap(NULL, rounds * RANKS * sizeof(*commits), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (commits == MAP_FAILED)
        bench_die("there is no memory for the times");
    load.rank = 0;
    for (uint32_t rank = 1; rank < RANKS && !load.rank; rank++)
        if (!(others[rank] = fork()))
            load.rank = rank;
    load.meet = meet;
    open_snapshots(1);
    save_once();
    for (uint32_t round = 0; round < rounds; round++) {
        load.state[0] += 1;
        const struct sw_snap_info info = save_once();
        commits[round * RANKS + load.rank] =
            (struct commit){info.staged_ns, info.stored_ns, info.durable_ns};
    }
    check_status(sw_snap_wait(load.snap, SW_SNAP_IDLE, 0, &load.error), "idle");
    if (load.rank)
        return;
    for (uint32_t rank = 1; rank < RANKS; rank++) {
        int how;
        if (waitpid(others[rank], &how, 0) < 0 || how)
            bench_die("a rank has failed");
    }
    print_commits(commits, rounds, floor_file);
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > 7)
        bench_die("usage: see the head of snapshot_load.c");
    load.bytes = strtoull(argv[2], NULL, 10) / TENSORS / PAGE * PAGE * TENSORS;
    load.sink = argv[3];
    if (!strcmp(argv[1], "steps"))
        load.bytes = load.bytes >> 21 << 21; /* the floor's units */
    const int number = argc > 4 ? atoi(argv[4]) : 1;
    load.state = mmap(NULL, load.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (load.state == MAP_FAILED)
        bench_die("there is no memory for the state");
    for (size_t i = 0; i < load.bytes / sizeof(float); i++)
        load.state[i] = (float)(i % 1000003);
    if (!strcmp(argv[1], "steps") && argc == 7)
        measure_steps(atof(argv[4]), atoi(argv[5]), argv[6]);
    else if (!strcmp(argv[1], "gate"))
        measure_gate(number);
    else if (!strcmp(argv[1], "save"))
        measure_save(number);
    else if (!strcmp(argv[1], "pages") || !strcmp(argv[1], "tensors"))
        measure_changes(*argv[1] == 'p', (size_t)number);
    else if (!strcmp(argv[1], "restore"))
        measure_restore(number);
    else if (!strcmp(argv[1], "commit") && argc == 7)
        measure_commit((uint32_t)number, argv[5], argv[6]);
    else
        bench_die("usage: see the head of snapshot_load.c");
    if (load.snap)
        sw_snap_close(load.snap);
    return 0;
}
