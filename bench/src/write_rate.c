/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rate of small one-sided operations: lists of requests per post, one or more threads with a queue
 * pair and a completion queue each, against a target that sleeps in recv() from start to end.
 * Prints one JSON object.
 */
#include "endpoint.h"
#include "gate.h"
#include "options.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIST_MAX 128
#define THREADS_MAX 16
#define LANE_BYTES (1u << 20)

struct options {
    enum ibv_wr_opcode opcode;
    const char *op_name;
    const char *device;
    const char *gate_path;
    unsigned long ops; /* of each thread */
    uint32_t size_bytes;
    int list;
    int threads;
    bool gather;   /* from a registered buffer instead of inline */
    bool cpu_time; /* also count the threads' processor time; takes system calls */
    int cpus[THREADS_MAX + 1];
    int cpu_count;
};

struct worker {
    struct bench_endpoint *endpoint;
    struct bench_lane *lane;
    struct bench_gate *gate;
    const struct options *options;
    struct ibv_send_wr wrs[LIST_MAX];
    struct ibv_sge sges[LIST_MAX];
    int index;
    int cpu;
    uint64_t started_ns, ended_ns, cpu_ns;
    _Atomic bool warm, finished;
    pthread_t thread;
};

static void build_list(struct worker *worker, char *memory)
{
    const struct options *options = worker->options;
    bool atomic = options->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
                  options->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    bool inlined = options->opcode == IBV_WR_RDMA_WRITE && !options->gather &&
                   worker->endpoint->inline_ok && options->size_bytes <= 64;
    /* Each request of the list has its own cache lines at both ends. */
    size_t stride = (options->size_bytes + 63u) & ~(size_t)63;
    size_t base = (size_t)worker->index * LANE_BYTES;

    for (int i = 0; i < options->list; i++) {
        struct ibv_send_wr *wr = &worker->wrs[i];
        size_t offset = base + ((size_t)i * stride) % (LANE_BYTES - options->size_bytes);
        uint64_t remote = worker->endpoint->remote_addr + offset;

        worker->sges[i] = (struct ibv_sge){.addr = (uintptr_t)memory + offset,
                                           .length = options->size_bytes,
                                           .lkey = worker->endpoint->mr->lkey};
        *wr = (struct ibv_send_wr){.next = i + 1 < options->list ? wr + 1 : NULL,
                                   .sg_list = &worker->sges[i],
                                   .num_sge = 1,
                                   .opcode = options->opcode,
                                   .send_flags = inlined ? IBV_SEND_INLINE : 0};
        if (atomic) {
            wr->wr.atomic.remote_addr = remote;
            wr->wr.atomic.rkey = worker->endpoint->remote_key;
            wr->wr.atomic.compare_add = 1;
            wr->wr.atomic.swap = 2;
        } else {
            wr->wr.rdma.remote_addr = remote;
            wr->wr.rdma.rkey = worker->endpoint->remote_key;
        }
    }
    worker->wrs[options->list - 1].send_flags |= IBV_SEND_SIGNALED;
}

static void run_lists(struct worker *worker, unsigned long lists)
{
    unsigned long posted = 0, done = 0;
    unsigned long window = BENCH_DEPTH / (unsigned long)worker->options->list;

    while (done < lists) {
        struct ibv_send_wr *bad;

        if (posted < lists && posted - done < window) {
            int failed = ibv_post_send(worker->lane->qp, worker->wrs, &bad);

            if (failed)
                bench_die("ibv_post_send: %s", strerror(failed));
            posted++;
        }
        if (posted == lists || posted - done == window) {
            bench_lane_wait(worker->lane, 1);
            done++;
        }
    }
}

static unsigned long lists_of(const struct options *options, unsigned long ops)
{
    unsigned long list = (unsigned long)options->list;

    return (ops + list - 1) / list;
}

static void write_rate_warm_up(struct worker *worker)
{
    bench_pin(worker->cpu);
    run_lists(worker, lists_of(worker->options, 1000));
    worker->warm = true;
}

static uint64_t cpu_now_ns(const struct options *options)
{
    struct timespec now = {0};

    if (options->cpu_time)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void run_phase(struct worker *worker)
{
    uint64_t cpu_started_ns;

    bench_gate_await(worker->gate, BENCH_PHASE_GO);
    cpu_started_ns = cpu_now_ns(worker->options);
    worker->started_ns = bench_now_ns();
    run_lists(worker, lists_of(worker->options, worker->options->ops));
    worker->ended_ns = bench_now_ns();
    worker->cpu_ns = cpu_now_ns(worker->options) - cpu_started_ns;
    worker->finished = true;
}

static void *write_rate_work(void *arg)
{
    struct worker *worker = arg;

    write_rate_warm_up(worker);
    run_phase(worker);
    /* Not a system call before the phase is over for all. */
    bench_gate_await(worker->gate, BENCH_PHASE_LEAVE);
    return NULL;
}

static void write_rate_report(const struct worker *workers, const struct options *options)
{
    uint64_t first = UINT64_MAX, last = 0, cpu_ns = 0;
    unsigned long ops = lists_of(options, options->ops) * (unsigned long)options->list *
                        (unsigned long)options->threads;
    double seconds;

    for (int i = 0; i < options->threads; i++) {
        first = workers[i].started_ns < first ? workers[i].started_ns : first;
        last = workers[i].ended_ns > last ? workers[i].ended_ns : last;
        cpu_ns += workers[i].cpu_ns;
    }
    seconds = (double)(last - first) / 1e9;
    printf("{\"op\": \"%s\", \"size_bytes\": %u, \"list\": %d, \"threads\": %d, \"ops\": %lu, "
           "\"seconds\": %.6f, \"mops_per_s\": %.4f",
           options->op_name, options->size_bytes, options->list, options->threads, ops, seconds,
           (double)ops / seconds / 1e6);
    if (options->cpu_time)
        printf(", \"mops_per_cpu_s\": %.4f", (double)ops * 1e3 / (double)cpu_ns);
    printf("}\n");
}

static void write_rate_initiate(const struct options *options, struct bench_endpoint *endpoint,
                                char *memory, struct bench_gate *gate)
{
    static struct worker workers[THREADS_MAX];

    for (int i = 0; i < options->threads; i++) {
        struct worker *worker = &workers[i];

        *worker = (struct worker){.endpoint = endpoint,
                                  .lane = &endpoint->lanes[i],
                                  .gate = gate,
                                  .options = options,
                                  .index = i,
                                  .cpu = i < options->cpu_count - 1 ? options->cpus[i] : -1};
        build_list(worker, memory);
        if (i && pthread_create(&worker->thread, NULL, write_rate_work, worker))
            bench_die("pthread_create failed");
    }
    for (int i = 1; i < options->threads; i++) {
        while (!workers[i].warm)
            usleep(1000);
    }
    write_rate_warm_up(&workers[0]); /* this thread's own */
    gate->initiator_pid = (uint32_t)getpid();
    bench_gate_set(gate, BENCH_PHASE_READY);
    run_phase(&workers[0]);
    for (int i = 1; i < options->threads; i++) {
        while (!workers[i].finished)
            __builtin_ia32_pause();
    }
    bench_gate_set(gate, BENCH_PHASE_DONE);
    bench_gate_await(gate, BENCH_PHASE_LEAVE);
    for (int i = 1; i < options->threads; i++)
        pthread_join(workers[i].thread, NULL);
    write_rate_report(workers, options);
}

static void parse_op(struct options *options, const char *name)
{
    static const struct {
        const char *name;
        enum ibv_wr_opcode opcode;
    } ops[] = {{"write", IBV_WR_RDMA_WRITE},
               {"read", IBV_WR_RDMA_READ},
               {"fadd", IBV_WR_ATOMIC_FETCH_AND_ADD},
               {"cswap", IBV_WR_ATOMIC_CMP_AND_SWP}};

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (!strcmp(name, ops[i].name)) {
            options->op_name = ops[i].name;
            options->opcode = ops[i].opcode;
            return;
        }
    }
    bench_die("unknown operation '%s': write, read, fadd or cswap", name);
}

static void parse_cpus(struct options *options, const char *list)
{
    while (list && options->cpu_count <= THREADS_MAX) {
        options->cpus[options->cpu_count++] = atoi(list);
        list = strchr(list, ',');
        list += list != NULL;
    }
}

static void write_rate_parse(int argc, char **argv, struct options *options)
{
    const char *op = "write", *cpus = NULL;
    const struct bench_option table[] = {
        BENCH_TEXT_OPTION("op", 'o', op),
        BENCH_NUMBER_OPTION("size", 's', options->size_bytes),
        BENCH_NUMBER_OPTION("list", 'l', options->list),
        BENCH_NUMBER_OPTION("threads", 't', options->threads),
        BENCH_NUMBER_OPTION("ops", 'n', options->ops),
        BENCH_TEXT_OPTION("device", 'd', options->device),
        BENCH_TEXT_OPTION("gate", 'g', options->gate_path),
        BENCH_TEXT_OPTION("cpus", 'c', cpus),
        BENCH_FLAG_OPTION("gather", 'G', options->gather),
        BENCH_FLAG_OPTION("cpu-time", 'C', options->cpu_time),
    };
    if (!bench_parse_options(argc, argv, table, sizeof(table) / sizeof(table[0])))
        bench_die("usage: write_rate [--op write|read|fadd|cswap] [--size BYTES] [--list N] "
                  "[--threads N] [--ops N] [--gather] [--cpu-time] [--cpus INITIATOR,...,TARGET] "
                  "[--device NAME] [--gate FILE]");
    parse_op(options, op);
    parse_cpus(options, cpus);
    if (options->list < 1 || options->list > LIST_MAX || options->threads < 1 ||
        options->threads > THREADS_MAX || !options->size_bytes ||
        options->size_bytes > LANE_BYTES / 2 || !options->ops)
        bench_die("list 1..%d, threads 1..%d, size 1..%u, ops from 1", LIST_MAX, THREADS_MAX,
                  LANE_BYTES / 2);
}

int main(int argc, char **argv)
{
    struct options options = {.ops = 1000000, .size_bytes = 8, .list = 32, .threads = 1};
    static struct bench_endpoint endpoint;
    struct bench_gate *gate;
    size_t len_bytes;
    char *memory;
    pid_t peer;
    int socket;
    char word;

    write_rate_parse(argc, argv, &options);
    gate = bench_gate_open(options.gate_path);
    socket = bench_pair(&peer);
    len_bytes = (size_t)options.threads * LANE_BYTES;
    memory = aligned_alloc(4096, len_bytes);
    if (!memory)
        bench_die("no memory");
    memset(memory, 0, len_bytes);
    if (!peer && options.cpu_count)
        bench_pin(options.cpus[options.cpu_count - 1]);
    bench_endpoint_join(&endpoint, options.device, &(struct bench_shape){.lanes = options.threads},
                        memory, len_bytes, socket);
    if (peer) {
        gate->target_pid = (uint32_t)peer;
        write_rate_initiate(&options, &endpoint, memory, gate);
        close(socket);
        waitpid(peer, NULL, 0);
    } else {
        (void)bench_receive(socket, &word, 1); /* asleep until the initiator closes */
    }
    bench_endpoint_close(&endpoint);
    free(memory);
    return 0;
}
