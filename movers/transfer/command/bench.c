/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Size against bandwidth and latency: for each size of a block, transfers of one block one after
 * the other, then transfers of many. Both sides' blocks can be in an order of their own.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/command/histogram.h"
#include "common/command/table.h"
#include "common/time/clock.h"
#include "transfer/command/command.h"

enum { SINGLES = 200, SIZES_MAX = 32, LEAST_MS = 200 };

struct bench {
    struct xf_remote remote;
    enum sw_xfer_op op;
    uint64_t bytes, size; /* moved by one transfer of many blocks; of a block, 0: several sizes */
    uint64_t blocks;
    bool is_random, has_sums;
    void *data;
    struct sw_xfer_memory *memory;
    struct sw_xfer_blocks *local, *there;
    struct sw_xfer_transfer *transfer;
    struct mover_histogram latency;
    struct mover_table table;
};

struct row {
    uint64_t block_bytes, blocks;
    uint32_t requests;
    double latency_us, prepare_us, post_us, seconds, gb_per_s;
};

static void take_operation(struct argp_state *state, void *place, char *text)
{
    enum sw_xfer_op *op = place;
    *op = !strcmp(text, "read") ? SW_XFER_READ : SW_XFER_WRITE;
    if (*op == SW_XFER_WRITE && strcmp(text, "write"))
        argp_error(state, "\"%s\" is none of write and read", text);
}

#define BENCH(member) offsetof(struct bench, member)

static const struct mover_option options[] = {
    {"bytes", 'b', "BYTES", 0, "How many one transfer has (the region's, 64M at most)", 1,
     MOVER_TO(struct bench, bytes)},
    {"blocks", 0, "N", 0, "One row: so many blocks of together --bytes", 1,
     MOVER_TO(struct bench, blocks)},
    {.letter = 'n', .flags = MOVER_OLD},
    {"bs", 0, "BYTES", 0, "One row: bytes of a block", 1, MOVER_TO(struct bench, size)},
    {.name = "size", .flags = MOVER_OLD},
    {"rw", 0, "KIND", 0, "write or read (write)", 1, take_operation, BENCH(op)},
    {.name = "operation", .flags = MOVER_OLD},
    {"random", 0, NULL, 0, "The peer's blocks in another order than those here", 2,
     MOVER_TO(struct bench, is_random)},
    {"sums", 0, NULL, 0, "Compares the sums of all blocks", 2, MOVER_TO(struct bench, has_sums)},
    {0},
};

static const struct mover_column columns[] = {
    {"BLOCK", "block_bytes", .width = 10},
    {"BLOCKS", "blocks", .width = 8},
    {"REQUESTS", "requests", .width = 8},
    {"LATENCY(us)", "p50_us", .width = 11, .digits = 1},
    {"PREPARE(us)", "prepare_us", .width = 11, .digits = 1},
    {"POST(us)", "post_us", .width = 9, .digits = 1},
    {"GB/s", "gb_per_s", .width = 8, .digits = 2},
    {0}};

static double now_us(void)
{
    return (double)mover_now_ns() / 1e3;
}

/* The same for each run: Fisher and Yates with a small generator. */
static void shuffle_blocks(struct sw_xfer_extent *extents, uint64_t count)
{
    uint64_t state = 88172645463325252;
    for (uint64_t i = count; i > 1; i--) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const struct sw_xfer_extent last = extents[i - 1];
        extents[i - 1] = extents[state % i];
        extents[state % i] = last;
    }
}

static enum sw_xfer_status describe_blocks(struct bench *bench, const struct row *row)
{
    struct xf_remote *remote = &bench->remote;
    struct sw_xfer_extent *extents = calloc(row->blocks, sizeof(*extents));
    if (!extents)
        return SW_XFER_NO_MEMORY;
    for (uint64_t i = 0; i < row->blocks; i++)
        extents[i] = (struct sw_xfer_extent){
            .offset = i * row->block_bytes, .bytes = row->block_bytes, .count = 1};
    enum sw_xfer_status status = sw_xfer_blocks_local(remote->agent, &bench->memory, 1, extents,
                                                      (uint32_t)row->blocks, &bench->local);
    if (bench->is_random)
        shuffle_blocks(extents, row->blocks);
    for (uint64_t i = 0; i < row->blocks; i++)
        extents[i].part = remote->region_index;
    if (!status)
        status = sw_xfer_blocks_remote(remote->peer, remote->card, remote->card_bytes, extents,
                                       (uint32_t)row->blocks, &bench->there);
    free(extents);
    return status;
}

/* The median of one block at a time. */
static enum sw_xfer_status measure_latency(struct bench *bench, struct row *row)
{
    memset(&bench->latency, 0, sizeof(bench->latency));
    for (int i = 0; i < SINGLES; i++) {
        const uint32_t at = (uint32_t)((uint64_t)i % row->blocks);
        const uint64_t start_ns = mover_now_ns();
        enum sw_xfer_status status = sw_xfer_post(
            bench->transfer,
            &(struct sw_xfer_post_options){.local_index = &at, .remote_index = &at, .count = 1});
        if (!status)
            status = sw_xfer_wait(bench->transfer, SW_XFER_NEVER);
        if (status)
            return status;
        mover_histogram_add(&bench->latency, mover_now_ns() - start_ns);
    }
    row->latency_us = (double)mover_histogram_at(&bench->latency, 0.5) / 1e3;
    return SW_XFER_OK;
}

/* The best of several: others use the machine, too. */
static enum sw_xfer_status measure_bandwidth(struct bench *bench, struct row *row)
{
    const double end = now_us() + LEAST_MS * 1e3;
    row->seconds = 0;
    do {
        const double start = now_us();
        enum sw_xfer_status status =
            sw_xfer_post(bench->transfer, &(struct sw_xfer_post_options){.count = 0});
        const double posted = now_us();
        if (!status)
            status = sw_xfer_wait(bench->transfer, SW_XFER_NEVER);
        if (status)
            return status;
        const double seconds = (now_us() - start) / 1e6;
        if (row->seconds <= 0 || seconds < row->seconds) {
            row->seconds = seconds;
            row->post_us = posted - start;
        }
    } while (now_us() < end);
    row->gb_per_s = (double)(row->blocks * row->block_bytes) / row->seconds / 1e9;
    return SW_XFER_OK;
}

static int measure_posts(struct bench *bench, struct row *row)
{
    struct sw_xfer_error error = {.status = SW_XFER_OK};
    struct sw_xfer_info info;
    enum sw_xfer_status status = describe_blocks(bench, row);
    if (status)
        return mover_fail("%s", sw_xfer_status_text(status));
    const double start = now_us();
    if ((bench->has_sums ? sw_xfer_prepare_summed : sw_xfer_prepare)(
            bench->remote.peer, bench->op, bench->local, bench->there, &error, &bench->transfer))
        return mover_fail("%s", error.text);
    row->prepare_us = now_us() - start;
    sw_xfer_info_of(bench->transfer, &info);
    row->requests = info.requests;
    /* Bandwidth first: a post by index makes the plan anew. */
    status = measure_bandwidth(bench, row);
    if (!status)
        status = measure_latency(bench, row);
    if (status)
        return xf_fail_transfer(&bench->remote, bench->transfer);
    sw_xfer_release(bench->transfer);
    sw_xfer_blocks_release(bench->local);
    sw_xfer_blocks_release(bench->there);
    return MOVER_DONE;
}

static void show_result(struct bench *bench, const struct row *row)
{
    mover_table_add(&bench->table, NULL,
                    json_pack("{sI sI sI sf sf sf sf sf sf sf}", "block_bytes",
                              (json_int_t)row->block_bytes, "blocks", (json_int_t)row->blocks,
                              "requests", (json_int_t)row->requests, "p50_us", row->latency_us,
                              "prepare_us", row->prepare_us, "post_us", row->post_us, "seconds",
                              row->seconds, "mb_per_s", row->gb_per_s * 1e3, "latency_us",
                              row->latency_us, "gb_per_s", row->gb_per_s));
}

static int run_bench(struct bench *bench)
{
    const uint64_t region = bench->remote.about.bytes;
    if (!bench->bytes)
        bench->bytes = region < 64 << 20 ? region : 64 << 20;
    if (bench->bytes > region)
        return mover_fail("the region has %" PRIu64 " bytes", region);
    if (bench->blocks > bench->bytes || bench->size > bench->bytes)
        return mover_fail("%" PRIu64 " bytes are not enough for that", bench->bytes);
    struct sw_xfer_error error;
    bench->data = mmap(NULL, bench->bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (bench->data == MAP_FAILED)
        return mover_fail("%s", strerror(errno));
    if (sw_xfer_memory_host(bench->remote.agent, bench->data, bench->bytes, &error, &bench->memory))
        return mover_fail("%s", error.text);
    mover_table_open(&bench->table, columns, bench->remote.is_json);
    const bool is_one = bench->blocks || bench->size;
    uint64_t size = bench->size ? bench->size : is_one ? bench->bytes / bench->blocks : 4096;
    int code = MOVER_DONE;
    for (int i = 0; !code && size <= bench->bytes && i < (is_one ? 1 : SIZES_MAX); i++) {
        struct row row = {.block_bytes = size, .blocks = bench->bytes / size};
        if (bench->blocks && row.blocks > bench->blocks)
            row.blocks = bench->blocks;
        code = measure_posts(bench, &row);
        if (!code)
            show_result(bench, &row);
        size *= 4;
    }
    return code;
}

int xf_bench(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Draws the size of blocks against bandwidth and latency.",
        .own = {.rows = options},
        .shared = &xf_remote_options};
    static struct bench bench = {.op = SW_XFER_WRITE};
    xf_remote_parse(&usage, argc, argv, &bench);
    int code = xf_remote_open(&bench.remote);
    if (!code)
        code = run_bench(&bench);
    if (bench.remote.agent)
        sw_xfer_agent_close(bench.remote.agent);
    const char *kind = bench.op == SW_XFER_READ ? "read" : "write";
    if (!code)
        return mover_table_close(&bench.table, json_pack("{ss so ss}", "rw", kind, "rows",
                                                         bench.table.rows, "operation", kind));
    json_decref(bench.table.rows);
    return code;
}
