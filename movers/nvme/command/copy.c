/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `read` and `write`: blocks to or from a file, or a whole namespace, with many requests in
 * flight. Data of a file that is no multiple of a block is refused, not padded.
 */
#include "common/base/minmax.h"
#include "common/command/progress.h"
#include "common/time/clock.h"
#include "nvme/command/host_commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_BYTES = 256 * 1024, CHUNKS = 16, WAIT_MS = 100 };

struct copy;

struct chunk {
    struct copy *copy;
    uint8_t *data;
    uint64_t at; /* bytes from the start of the copy */
    uint32_t bytes;
    bool is_busy, is_done;
};

struct copy {
    struct nv_host host;
    bool is_write, shows_latency, shows_progress, fua;
    const char *path; /* NULL: standard input or output */
    uint64_t start_block, bytes;
    uint32_t block_count; /* 0's based */
    bool has_count, has_bytes;

    int fd;
    bool is_stream;
    struct sw_nvme_namespace ns;
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem;
    struct chunk chunks[CHUNKS];
    uint32_t chunk_bytes;
    uint64_t next, written, done;
    bool has_failed;
};

static void take_start(struct argp_state *state, void *place, char *text)
{
    if (!nv_parse_size(text, UINT64_MAX, place))
        argp_error(state, "\"%s\" is not a block", text);
}

static void take_block_count(struct argp_state *state, void *place, char *text)
{
    struct copy *copy = place;
    uint64_t value = 0;
    if (!nv_parse_size(text, 65535, &value))
        argp_error(state, "\"%s\" is not a number of blocks less one (0 to 65535)", text);
    copy->block_count = (uint32_t)value;
    copy->has_count = true;
}

static void take_data_size(struct argp_state *state, void *place, char *text)
{
    struct copy *copy = place;
    if (!nv_parse_size(text, INT64_MAX, &copy->bytes) || !copy->bytes)
        argp_error(state, "\"%s\" is not a size", text);
    copy->has_bytes = true;
}

#define COPY(member) offsetof(struct copy, member)

static const struct mover_option options[] = {
    {"start-block", 0, "LBA", 0, "The first block (0)", 0, take_start, COPY(start_block)},
    {"block-count", 0, "N", 0, "Blocks, less one, as nvme-cli counts them", 0, take_block_count, 0},
    {"data-size", 'z', "BYTES", 0, "How many; without this and --block-count: all", 0,
     take_data_size, 0},
    {"data", 'd', "FILE", 0, "The file (standard input or output)", 0, MOVER_TO(struct copy, path)},
    {"force-unit-access", 'f', NULL, 0, "Writes are durable when they end", 0,
     MOVER_TO(struct copy, fua)},
    {"latency", 0, NULL, 0, "Say how long it took", 0, MOVER_TO(struct copy, shows_latency)},
    {"progress", 0, NULL, 0, "Show progress though standard error is no terminal", 0,
     MOVER_TO(struct copy, shows_progress)},
    {0},
};

static int nvme_open_file(struct copy *copy)
{
    const int flags = copy->is_write ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC;
    copy->fd = copy->is_write ? STDIN_FILENO : STDOUT_FILENO;
    if (copy->path)
        copy->fd = open(copy->path, flags | O_CLOEXEC, 0666);
    struct stat stat;
    if (copy->fd < 0 || fstat(copy->fd, &stat))
        return mover_fail("%s: %s", copy->path, strerror(errno));
    copy->is_stream = !S_ISREG(stat.st_mode) && !S_ISBLK(stat.st_mode);
    if (copy->is_write && !copy->has_bytes && !copy->has_count) {
        const off_t end = copy->is_stream ? -1 : lseek(copy->fd, 0, SEEK_END);
        if (end < 0)
            return mover_fail("the input has no size: give --data-size");
        if (lseek(copy->fd, 0, SEEK_SET))
            return mover_fail("%s: %s", copy->path, strerror(errno));
        copy->bytes = (uint64_t)end;
        copy->has_bytes = true;
    }
    return 0;
}

/* How much to copy, and whether the namespace has it. */
static int plan_copy(struct copy *copy)
{
    const struct sw_nvme_namespace *ns = &copy->ns;
    if (copy->start_block > ns->blocks)
        return mover_fail("block %llu is behind the end: namespace %u has %llu blocks",
                          (unsigned long long)copy->start_block, ns->nsid,
                          (unsigned long long)ns->blocks);
    const uint64_t room = (ns->blocks - copy->start_block) * ns->block_bytes;
    const uint64_t counted = ((uint64_t)copy->block_count + 1) * ns->block_bytes;
    if (copy->has_count && copy->has_bytes && copy->bytes > counted)
        return mover_fail("--data-size %llu is more than --block-count %u holds",
                          (unsigned long long)copy->bytes, copy->block_count);
    if (copy->has_count)
        copy->bytes = counted;
    else if (!copy->has_bytes)
        copy->bytes = room;
    if (copy->bytes % ns->block_bytes)
        return mover_fail("%llu bytes are no multiple of a block of %u",
                          (unsigned long long)copy->bytes, ns->block_bytes);
    if (copy->bytes > room)
        return mover_fail("%llu bytes do not fit: %llu are left from block %llu on",
                          (unsigned long long)copy->bytes, (unsigned long long)room,
                          (unsigned long long)copy->start_block);
    return 0;
}

static bool move_file(struct copy *copy, struct chunk *chunk)
{
    uint32_t at = 0;
    while (at < chunk->bytes) {
        const off_t offset = (off_t)(chunk->at + at);
        uint8_t *data = chunk->data + at;
        const size_t left = chunk->bytes - at;
        ssize_t moved;
        if (copy->is_write)
            moved =
                copy->is_stream ? read(copy->fd, data, left) : pread(copy->fd, data, left, offset);
        else
            moved = copy->is_stream ? write(copy->fd, data, left)
                                    : pwrite(copy->fd, data, left, offset);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0) {
            copy->has_failed = true;
            mover_fail("%s: %s", copy->path ? copy->path : "standard input or output",
                       moved ? strerror(errno) : "it ends too early");
            return false;
        }
        at += (uint32_t)moved;
    }
    return true;
}

static void chunk_done(void *arg, const struct sw_nvme_result *result)
{
    struct chunk *chunk = arg;
    struct copy *copy = chunk->copy;
    chunk->is_done = true;
    if (result->status && !copy->has_failed) {
        char what[64];
        snprintf(what, sizeof(what), "block %llu",
                 (unsigned long long)(copy->start_block + chunk->at / copy->ns.block_bytes));
        nv_fail_result(what, result);
        copy->has_failed = true;
    }
}

static void start_chunk(struct copy *copy, struct chunk *chunk)
{
    const uint64_t left = copy->bytes - copy->next;
    chunk->at = copy->next;
    chunk->bytes = left < copy->chunk_bytes ? (uint32_t)left : copy->chunk_bytes;
    chunk->is_done = false;
    if (copy->is_write && !move_file(copy, chunk))
        return;
    const struct sw_nvme_io io = {
        .nsid = copy->ns.nsid,
        .lba = copy->start_block + chunk->at / copy->ns.block_bytes,
        .blocks = chunk->bytes / copy->ns.block_bytes,
        .data = chunk->data,
        .bytes = chunk->bytes,
        .mem = copy->mem,
        .flags = copy->fua && copy->is_write ? SW_NVME_FUA : 0,
        .done = chunk_done,
        .arg = chunk,
    };
    const enum sw_nvme_status status =
        copy->is_write ? sw_nvme_write(copy->queue, &io) : sw_nvme_read(copy->queue, &io);
    if (status) {
        mover_fail("%s", sw_nvme_status_text(status));
        copy->has_failed = true;
        return;
    }
    chunk->is_busy = true;
    copy->next += chunk->bytes;
}

/* Streams are written in order: the chunk that is due, or none. */
static void finish_chunks(struct copy *copy)
{
    for (unsigned found = 1; found;) {
        found = 0;
        for (unsigned i = 0; i < CHUNKS; i++) {
            struct chunk *chunk = &copy->chunks[i];
            if (!chunk->is_busy || !chunk->is_done ||
                (copy->is_stream && !copy->is_write && chunk->at != copy->written))
                continue;
            if (!copy->is_write && !copy->has_failed && !move_file(copy, chunk))
                return;
            chunk->is_busy = false;
            copy->written += chunk->bytes;
            found = 1;
        }
    }
}

static void run_chunks(struct copy *copy)
{
    struct mover_progress progress;
    bool is_busy;
    mover_progress_begin(&progress, copy->bytes, copy->shows_progress);
    do {
        for (unsigned i = 0; i < CHUNKS && !copy->has_failed && copy->next < copy->bytes; i++) {
            if (!copy->chunks[i].is_busy)
                start_chunk(copy, &copy->chunks[i]);
        }
        sw_nvme_queue_wait(copy->queue, sw_nvme_deadline_ms(WAIT_MS));
        nv_host_watch(&copy->host);
        finish_chunks(copy);
        is_busy = copy->written < copy->next;
        mover_progress_at(&progress, copy->written);
    } while (!copy->has_failed && (is_busy || copy->next < copy->bytes));
    mover_progress_end(&progress);
}

static void copy_flush_done(void *arg, const struct sw_nvme_result *result)
{
    struct copy *copy = arg;
    copy->done = 1;
    if (result->status) {
        nv_fail_result("Flush", result);
        copy->has_failed = true;
    }
}

/* Written data is durable when the command says that it is done. */
static void flush_target(struct copy *copy)
{
    const struct sw_nvme_io io = {.nsid = copy->ns.nsid, .done = copy_flush_done, .arg = copy};
    const enum sw_nvme_status status = sw_nvme_flush(copy->queue, &io);
    if (status) {
        mover_fail("Flush: %s", sw_nvme_status_text(status));
        copy->has_failed = true;
        return;
    }
    while (!copy->done)
        sw_nvme_queue_wait(copy->queue, sw_nvme_deadline_ms(WAIT_MS));
}

static int prepare_queue(struct copy *copy)
{
    struct sw_nvme_error error;
    struct sw_nvme_info info;
    sw_nvme_info_of(copy->host.controller, &info);
    copy->chunk_bytes = mover_min_u32(info.transfer_max_bytes, CHUNK_BYTES);
    const enum sw_nvme_status status =
        sw_nvme_mem_alloc(copy->host.controller, (size_t)copy->chunk_bytes * CHUNKS, &copy->mem);
    if (status)
        return mover_fail("%s", sw_nvme_status_text(status));
    for (unsigned i = 0; i < CHUNKS; i++)
        copy->chunks[i] = (struct chunk){.copy = copy,
                                         .data = (uint8_t *)sw_nvme_mem_data(copy->mem) +
                                                 (size_t)i * copy->chunk_bytes};
    if (sw_nvme_queue_open(copy->host.controller, 0, &error, &copy->queue))
        return nv_fail_error(&error);
    return 0;
}

static int finish_copy(struct copy *copy, uint64_t start_ns)
{
    const double us = (double)(mover_now_ns() - start_ns) / 1e3;
    const char *name = copy->is_write ? "write" : "read";
    FILE *out = copy->is_write || copy->path ? stdout : stderr;
    if (!copy->is_write && copy->path && fsync(copy->fd) && errno != EINVAL && errno != EROFS)
        return mover_fail("%s: %s", copy->path, strerror(errno));
    if (copy->host.format == NV_JSON && out == stdout)
        return mover_print_json(json_pack("{s:s, s:I, s:f, s:f}", "command", name, "bytes",
                                          (json_int_t)copy->written, "seconds", us / 1e6, "us",
                                          us));
    if (copy->shows_latency)
        fprintf(out, " latency: %s: %.0f us\n", name, us);
    fprintf(out, "%s: Success\n", name);
    return 0;
}

static int nvme_run_copy(struct copy *copy)
{
    copy->shows_progress = copy->shows_progress || isatty(STDERR_FILENO);
    if (nvme_open_file(copy) || nv_host_connect(&copy->host))
        return 1;
    int failed =
        nv_host_namespace(&copy->host, &copy->ns) || plan_copy(copy) || prepare_queue(copy);
    const uint64_t start = mover_now_ns();
    if (!failed) {
        if (copy->bytes)
            run_chunks(copy);
        if (copy->is_write && !copy->has_failed)
            flush_target(copy);
        failed = copy->has_failed || finish_copy(copy, start);
    }
    sw_nvme_queue_close(copy->queue);
    sw_nvme_mem_release(copy->mem);
    nv_host_close(&copy->host);
    return failed;
}

int nv_read(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Copies blocks of a namespace to a file, or all of it.",
        .own = {.rows = options},
        .shared = &nv_host_options_below};
    struct copy copy = {.is_write = false};
    nv_host_parse(&usage, argc, argv, &copy);
    return nvme_run_copy(&copy);
}

int nv_write(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Copies a file to blocks of a namespace, and flushes it.",
        .own = {.rows = options},
        .shared = &nv_host_options_below};
    struct copy copy = {.is_write = true};
    nv_host_parse(&usage, argc, argv, &copy);
    return nvme_run_copy(&copy);
}
