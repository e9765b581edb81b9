/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rate of short WRITEs over many connections at once: posted one by one, in turn over all queue
 * pairs, with the same number on their way in all however many there are. Two processes that are
 * started apart: the target listens and sleeps. The initiator prints one JSON object.
 */
#include "endpoint.h"
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOT_BYTES 64u /* of each queue pair, at both ends */

struct options {
    const char *device, *address;
    uint16_t port;
    int qps;
    unsigned long ops, window;
    uint32_t size_bytes;
};

struct job {
    struct bench_endpoint endpoint;
    const struct options *options;
    char *memory;
    unsigned long per_qp;                  /* that one queue pair may have on its way */
    unsigned long flying[BENCH_LANES_MAX]; /* on their way */
};

static void qp_rate_post_one(struct job *job, int lane)
{
    size_t offset = (size_t)lane * SLOT_BYTES;
    struct ibv_sge sge = {.addr = (uintptr_t)job->memory + offset,
                          .length = job->options->size_bytes,
                          .lkey = job->endpoint.mr->lkey};
    struct ibv_send_wr *bad, wr = {
                                 .wr_id = (uint64_t)lane,
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_SIGNALED,
                             };
    int failed;

    if (job->endpoint.inline_ok)
        wr.send_flags |= IBV_SEND_INLINE;
    wr.wr.rdma.remote_addr = job->endpoint.remote_addr + offset;
    wr.wr.rdma.rkey = job->endpoint.remote_key;
    failed = ibv_post_send(job->endpoint.lanes[lane].qp, &wr, &bad);
    if (failed)
        bench_die("ibv_post_send: %s", strerror(failed));
    job->flying[lane]++;
}

/* Returns how many have come. */
static unsigned long qp_rate_reap(struct job *job)
{
    struct ibv_wc wc[64];
    int got = ibv_poll_cq(job->endpoint.lanes[0].cq, 64, wc);

    if (got < 0)
        bench_die("ibv_poll_cq failed");
    for (int i = 0; i < got; i++) {
        if (wc[i].status != IBV_WC_SUCCESS)
            bench_die("a request failed: %s", ibv_wc_status_str(wc[i].status));
        job->flying[wc[i].wr_id]--;
    }
    return (unsigned long)got;
}

static void qp_rate_run(struct job *job, unsigned long ops)
{
    unsigned long posted = 0, done = 0;
    int turn = 0, qps = job->options->qps;

    while (done < ops) {
        /* Ends at a queue pair that is full: its turn comes when it has room. */
        while (posted < ops && posted - done < job->options->window &&
               job->flying[turn] < job->per_qp) {
            qp_rate_post_one(job, turn);
            posted++;
            turn = turn + 1 == qps ? 0 : turn + 1;
        }
        done += qp_rate_reap(job);
    }
}

static void qp_rate_initiate(struct job *job)
{
    const struct options *options = job->options;
    uint64_t started_ns;
    double seconds;

    qp_rate_run(job, options->ops / 10 + (unsigned long)options->qps);
    started_ns = bench_now_ns();
    qp_rate_run(job, options->ops);
    seconds = (double)(bench_now_ns() - started_ns) / 1e9;
    printf("{\"qps\": %d, \"size_bytes\": %u, \"window\": %lu, \"ops\": %lu, \"seconds\": %.6f, "
           "\"mops_per_s\": %.4f}\n",
           options->qps, options->size_bytes, options->window, options->ops, seconds,
           (double)options->ops / seconds / 1e6);
}

static void qp_rate_parse(int argc, char **argv, struct options *options)
{
    const struct bench_option table[] = {
        BENCH_TEXT_OPTION("device", 'd', options->device),
        BENCH_NUMBER_OPTION("port", 'p', options->port),
        BENCH_NUMBER_OPTION("qps", 'q', options->qps),
        BENCH_NUMBER_OPTION("ops", 'n', options->ops),
        BENCH_NUMBER_OPTION("window", 'w', options->window),
        BENCH_NUMBER_OPTION("size", 's', options->size_bytes),
    };
    if (!bench_parse_options(argc, argv, table, sizeof(table) / sizeof(table[0])))
        bench_die("usage: qp_rate --port N [--qps N] [--ops N] [--window N] [--size BYTES] "
                  "[--device NAME] [ADDRESS OF THE TARGET]");
    options->address = argv[optind];
    if (options->qps < 1 || options->qps > BENCH_LANES_MAX || !options->size_bytes ||
        options->size_bytes > SLOT_BYTES || !options->window || !options->ops || !options->port)
        bench_die("qps 1..%d, size 1..%u, ops and window from 1, a port", BENCH_LANES_MAX,
                  SLOT_BYTES);
}

int main(int argc, char **argv)
{
    struct options options = {.ops = 200000, .size_bytes = 8, .qps = 1, .window = 256};
    static struct job job;
    struct bench_shape shape = {.one_cq = true};
    size_t len_bytes = 4096;
    int socket;
    char word;

    qp_rate_parse(argc, argv, &options);
    job.options = &options;
    job.per_qp = (options.window + (unsigned long)options.qps - 1) / (unsigned long)options.qps;
    shape.lanes = options.qps;
    shape.depth = (uint32_t)job.per_qp;
    while (len_bytes < (size_t)options.qps * SLOT_BYTES)
        len_bytes += 4096;
    job.memory = aligned_alloc(4096, len_bytes);
    if (!job.memory)
        bench_die("no memory");
    memset(job.memory, 0, len_bytes);
    socket =
        options.address ? bench_connect(options.address, options.port) : bench_listen(options.port);
    bench_endpoint_join(&job.endpoint, options.device, &shape, job.memory, len_bytes, socket);
    if (options.address)
        qp_rate_initiate(&job);
    else
        (void)bench_receive(socket, &word, 1); /* asleep until the initiator closes */
    close(socket);
    bench_endpoint_close(&job.endpoint);
    free(job.memory);
    return 0;
}
