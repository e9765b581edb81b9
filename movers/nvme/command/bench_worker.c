/* SPDX-License-Identifier: BSD-2-Clause */
/* The threads of `bench`: each has a queue, and keeps its depth of requests in flight. */
#include "common/time/clock.h"
#include "nvme/command/bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WAIT_MS = 100 };

struct worker;

struct slot {
    struct worker *worker;
    uint8_t *data;
    uint64_t start_ns, unit; /* which unit of the span */
    bool is_write, is_checked;
};

/* What the threads of one measurement share. */
struct run {
    struct nv_bench *bench;
    struct nv_measure *measure;
    uint64_t units;
    _Atomic bool has_failed, measures, ends;
    _Atomic uint64_t ticket; /* of sequential access, and of rounds of verification */
    uint64_t sequence;       /* round of verification; 0: none */
    bool round_writes;
    pthread_mutex_t lock; /* of messages and of the measure */
    _Atomic uint32_t running;
};

struct worker {
    struct run *run;
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem;
    struct slot *slots;
    struct mover_histogram latency[2];
    uint64_t errors, seed;
    uint32_t in_flight;
    pthread_t thread;
};

static uint64_t next_random(struct worker *worker)
{
    uint64_t x = worker->seed;
    x ^= x << 13;
    x ^= x >> 7;
    return worker->seed = x ^ x << 17;
}

static void bench_worker_submit_slot(struct slot *slot, uint64_t now_ns);

static void report_failure(struct run *run, const char *what, const struct sw_nvme_result *result)
{
    pthread_mutex_lock(&run->lock);
    if (!atomic_exchange(&run->has_failed, true))
        nv_fail_result(what, result);
    pthread_mutex_unlock(&run->lock);
}

static void check_slot(struct slot *slot)
{
    struct run *run = slot->worker->run;
    const uint32_t block = run->bench->ns.block_bytes, bytes = run->measure->block_bytes;
    const uint64_t base = run->bench->offset_bytes / block;
    for (uint32_t at = 0; at < bytes; at += block) {
        const uint64_t lba = base + slot->unit * (bytes / block) + at / block;
        const char *wrong = nv_pattern_check(slot->data + at, block, lba, run->sequence);
        if (!wrong)
            continue;
        pthread_mutex_lock(&run->lock);
        slot->worker->errors++;
        if (!atomic_exchange(&run->has_failed, true))
            mover_fail("verification: block %llu is %s (round %llu)", (unsigned long long)lba,
                       wrong, (unsigned long long)run->sequence);
        pthread_mutex_unlock(&run->lock);
    }
}

static void slot_done(void *arg, const struct sw_nvme_result *result)
{
    struct slot *slot = arg;
    struct worker *worker = slot->worker;
    struct run *run = worker->run;
    const uint64_t now_ns = mover_now_ns(), ns = now_ns - slot->start_ns;
    worker->in_flight--;
    if (result->status) {
        worker->errors++;
        report_failure(run, slot->is_write ? "write" : "read", result);
        return;
    }
    if (atomic_load_explicit(&run->measures, memory_order_relaxed))
        mover_histogram_add(&worker->latency[slot->is_write], ns);
    if (run->sequence && !slot->is_write)
        check_slot(slot);
    bench_worker_submit_slot(slot, now_ns);
}

/* The next unit of the span; false: there is none, the run ends. */
static bool choose_unit(struct slot *slot)
{
    struct worker *worker = slot->worker;
    struct run *run = worker->run;
    const struct nv_bench *bench = run->bench;
    if (run->sequence) {
        const uint64_t ticket = atomic_fetch_add(&run->ticket, 1);
        slot->is_write = run->round_writes;
        /* A stride that has no factor with a power of two walks the odd way through the span. */
        slot->unit = ticket < run->units ? (ticket * 2654435761u) & (run->units - 1) : 0;
        return ticket < run->units;
    }
    slot->is_write = bench->read_percent < 100 &&
                     (!bench->read_percent || next_random(worker) % 100 >= bench->read_percent);
    slot->unit = bench->is_random ? next_random(worker) % run->units
                                  : atomic_fetch_add(&run->ticket, 1) % run->units;
    return true;
}

/* To look at the clock takes as long as half a request: one look ends one and begins the next. */
static void bench_worker_submit_slot(struct slot *slot, uint64_t now_ns)
{
    struct worker *worker = slot->worker;
    struct run *run = worker->run;
    const struct nv_bench *bench = run->bench;
    const uint32_t bytes = run->measure->block_bytes, block = bench->ns.block_bytes;
    if (atomic_load_explicit(&run->ends, memory_order_relaxed) ||
        atomic_load_explicit(&run->has_failed, memory_order_relaxed) || !choose_unit(slot))
        return;
    const struct sw_nvme_io io = {
        .nsid = bench->ns.nsid,
        .lba = bench->offset_bytes / block + slot->unit * (bytes / block),
        .blocks = bytes / block,
        .data = slot->data,
        .bytes = bytes,
        .mem = worker->mem,
        .done = slot_done,
        .arg = slot,
    };
    if (run->sequence && slot->is_write)
        for (uint32_t at = 0; at < bytes; at += block)
            nv_pattern_fill(slot->data + at, block, io.lba + at / block, run->sequence);
    slot->start_ns = now_ns;
    const enum sw_nvme_status status =
        slot->is_write ? sw_nvme_write(worker->queue, &io) : sw_nvme_read(worker->queue, &io);
    if (status) {
        const struct sw_nvme_result result = {.status = status};
        return report_failure(run, "submit", &result);
    }
    worker->in_flight++;
}

static int open_worker(struct worker *worker)
{
    struct run *run = worker->run;
    struct nv_bench *bench = run->bench;
    struct sw_nvme_error error;
    const uint32_t depth = run->measure->depth, bytes = run->measure->block_bytes;
    enum sw_nvme_status status =
        sw_nvme_mem_alloc(bench->host.controller, (size_t)depth * bytes, &worker->mem);
    if (status)
        return mover_fail("buffers of %u x %u bytes: %s", depth, bytes,
                          sw_nvme_status_text(status));
    if (sw_nvme_queue_open(bench->host.controller, bench->polls ? SW_NVME_SPIN_FOREVER : 0, &error,
                           &worker->queue))
        return nv_fail_error(&error);
    if (depth > sw_nvme_queue_depth(worker->queue))
        return mover_fail("depth %u is more than a queue holds: %u (see --queue-size)", depth,
                          sw_nvme_queue_depth(worker->queue));
    worker->slots = calloc(depth, sizeof(*worker->slots));
    if (!worker->slots)
        return mover_fail("no memory");
    for (uint32_t i = 0; i < depth; i++) {
        worker->slots[i] = (struct slot){
            .worker = worker, .data = (uint8_t *)sw_nvme_mem_data(worker->mem) + (size_t)i * bytes};
        memset(worker->slots[i].data, (int)i + 1, bytes);
    }
    return 0;
}

static void close_worker(struct worker *worker)
{
    sw_nvme_queue_close(worker->queue);
    sw_nvme_mem_release(worker->mem);
    free(worker->slots);
}

static void *run_worker(void *arg)
{
    struct worker *worker = arg;
    for (uint32_t i = 0; i < worker->run->measure->depth; i++)
        bench_worker_submit_slot(&worker->slots[i], mover_now_ns());
    while (worker->in_flight)
        sw_nvme_queue_wait(worker->queue, sw_nvme_deadline_ms(WAIT_MS));
    atomic_fetch_sub(&worker->run->running, 1);
    return NULL;
}

static void sleep_ns(struct run *run, uint64_t ns)
{
    const uint64_t end = mover_now_ns() + ns;
    while (mover_now_ns() < end && !atomic_load(&run->has_failed)) {
        const uint64_t left = end - mover_now_ns(), slice = 50000000;
        const struct timespec nap = {.tv_nsec = (long)(left < slice ? left : slice)};
        nanosleep(&nap, NULL);
        nv_host_watch(&run->bench->host);
    }
}

static void watch_once(struct run *run)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    nanosleep(&nap, NULL);
    nv_host_watch(&run->bench->host);
}

static int bench_worker_start_threads(struct run *run, struct worker *workers, uint32_t count)
{
    uint32_t started = 0;
    atomic_store(&run->running, count);
    while (started < count &&
           !pthread_create(&workers[started].thread, NULL, run_worker, &workers[started]))
        started++;
    if (started < count)
        atomic_store(&run->has_failed, true);
    if (!run->sequence) {
        sleep_ns(run, run->bench->ramp_ns);
        const uint64_t start = mover_now_ns();
        atomic_store(&run->measures, true);
        sleep_ns(run, run->bench->runtime_ns);
        atomic_store(&run->measures, false);
        run->measure->seconds = (double)(mover_now_ns() - start) / 1e9;
        atomic_store(&run->ends, true);
    }
    const uint32_t never_ran = count - started;
    while (atomic_load(&run->running) > never_ran)
        watch_once(run);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    return started < count ? mover_fail("a thread cannot be started") : 0;
}

static int run_rounds(struct run *run, struct worker *workers, uint32_t count)
{
    const uint64_t start = mover_now_ns();
    const uint64_t limit = start + run->bench->runtime_ns;
    int failed = 0;
    atomic_store(&run->measures, true);
    /* The first sequence is of this run, so that no older one can pass for it. */
    const uint64_t first = (uint64_t)time(NULL) << 20;
    for (uint64_t round = 0; !failed; round++) {
        if (run->bench->has_runtime ? mover_now_ns() > limit : round >= run->bench->loops)
            break;
        run->sequence = first + round;
        for (int phase = 0; phase < 2 && !failed; phase++) {
            run->round_writes = phase == 0;
            atomic_store(&run->ticket, 0);
            failed =
                bench_worker_start_threads(run, workers, count) || atomic_load(&run->has_failed);
        }
    }
    run->measure->seconds = (double)(mover_now_ns() - start) / 1e9;
    return failed;
}

static int run_all(struct nv_bench *bench, struct nv_measure *measure, bool verifies)
{
    struct run run = {.bench = bench, .measure = measure, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct worker *workers = calloc(bench->threads, sizeof(*workers));
    run.units = bench->span_bytes / measure->block_bytes;
    if (verifies) /* a power of two, so that an odd stride meets each unit once */
        run.units = run.units ? 1ull << (63 - __builtin_clzll(run.units)) : 0;
    if (!workers || !run.units) {
        free(workers);
        return mover_fail(workers ? "the span is smaller than a block" : "no memory");
    }
    int failed = 0;
    uint32_t open = 0;
    for (; open < bench->threads && !failed; open++) {
        workers[open].run = &run;
        workers[open].seed = 0x9e3779b97f4a7c15u * (open + 1);
        failed = open_worker(&workers[open]);
    }
    if (!failed)
        failed = verifies ? run_rounds(&run, workers, open)
                          : bench_worker_start_threads(&run, workers, open);
    for (uint32_t i = 0; i < open; i++) {
        for (unsigned j = 0; j < 2; j++)
            mover_histogram_merge(&measure->latency[j], &workers[i].latency[j]);
        measure->errors += workers[i].errors;
        close_worker(&workers[i]);
    }
    free(workers);
    return failed || atomic_load(&run.has_failed);
}

int nv_bench_measure(struct nv_bench *bench, struct nv_measure *measure)
{
    return run_all(bench, measure, false);
}

int nv_bench_verify(struct nv_bench *bench, struct nv_measure *measure)
{
    return run_all(bench, measure, true);
}
