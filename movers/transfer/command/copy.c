/* SPDX-License-Identifier: BSD-2-Clause */
/* read and write: the file is mapped, so its pages are what the device reads or writes. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/command/progress.h"
#include "transfer/command/command.h"

enum { TICK_MS = 100 };

struct copy {
    struct xf_remote remote;
    const char *path, *notice;
    uint64_t offset, bytes, block_bytes; /* bytes: MOVER_NOT_GIVEN at first */
    uint32_t deadline_ms;
    bool is_write, has_sums;
    int fd;
    struct sw_xfer_memory *memory;
    struct sw_xfer_blocks *local, *there;
    struct sw_xfer_transfer *transfer;
};

static void copy_check(struct argp_state *state, void *arguments)
{
    const struct copy *copy = arguments;
    if (!copy->block_bytes)
        argp_error(state, "a block has at least one byte");
    if (copy->notice && strlen(copy->notice) > SW_XFER_NOTICE_MAX)
        argp_error(state, "a notice has up to %d bytes", SW_XFER_NOTICE_MAX);
}

static const struct mover_option options[] = {
    {"offset", 'f', "BYTES", 0, "Where in the region (0)", 1, MOVER_TO(struct copy, offset)},
    {"bytes", 'b', "BYTES", 0, "How many (read: to the region's end; write: the file's)", 1,
     MOVER_TO(struct copy, bytes)},
    {"bs", 0, "BYTES", 0, "Bytes of a block (1M)", 2, MOVER_TO(struct copy, block_bytes)},
    {.name = "block", .flags = MOVER_OLD},
    {"notice", 0, "TEXT", 0, "What the peer is told when all is there", 2,
     MOVER_TO(struct copy, notice)},
    {"sums", 0, NULL, 0, "Compares the sums of all blocks at the end", 2,
     MOVER_TO(struct copy, has_sums)},
    {"deadline", 0, "MS", 0, "Ends it when it is not done by then (none)", 2,
     MOVER_TO(struct copy, deadline_ms)},
    {0},
};

/* How many bytes, and the file with room for them. */
static int command_copy_open_file(struct copy *copy)
{
    const struct xf_remote *remote = &copy->remote;
    const uint64_t region = remote->about.bytes;
    struct stat st;
    copy->fd = open(copy->path,
                    copy->is_write ? O_RDONLY | O_CLOEXEC : O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (copy->fd < 0 || fstat(copy->fd, &st))
        return mover_fail("%s: %s", copy->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return mover_fail("%s is no regular file; it could not be mapped", copy->path);
    if (copy->offset >= region)
        return mover_fail("the region ends at %" PRIu64 " bytes", region);
    if (copy->bytes == MOVER_NOT_GIVEN)
        copy->bytes = copy->is_write ? (uint64_t)st.st_size : region - copy->offset;
    if (!copy->bytes || copy->bytes > region - copy->offset ||
        (copy->is_write && copy->bytes > (uint64_t)st.st_size))
        return mover_fail("%" PRIu64 " bytes cannot be moved: the region ends at %" PRIu64
                          ", the file at %" PRIu64,
                          copy->bytes, region, (uint64_t)st.st_size);
    /* Blocks of the disk now: a full disk found later would be a SIGBUS. */
    if (!copy->is_write && (ftruncate(copy->fd, (off_t)copy->bytes) ||
                            (errno = posix_fallocate(copy->fd, 0, (off_t)copy->bytes))))
        return mover_fail("%s: %s", copy->path, strerror(errno));
    return MOVER_DONE;
}

static enum sw_xfer_status prepare_copy(struct copy *copy, struct sw_xfer_error *error)
{
    struct xf_remote *remote = &copy->remote;
    const uint64_t whole = copy->bytes / copy->block_bytes, rest = copy->bytes % copy->block_bytes;
    struct sw_xfer_extent extents[2] = {
        {.bytes = copy->block_bytes, .stride = copy->block_bytes, .count = whole},
        {.offset = copy->bytes - rest, .bytes = rest, .count = 1}};
    const struct sw_xfer_extent *first = whole ? extents : extents + 1;
    const uint32_t count = (whole != 0) + (rest != 0);
    enum sw_xfer_status status = sw_xfer_memory_file(remote->agent, copy->fd, 0, copy->bytes,
                                                     !copy->is_write, error, &copy->memory);
    if (status)
        return status;
    status = sw_xfer_blocks_local(remote->agent, &copy->memory, 1, first, count, &copy->local);
    for (int i = 0; i < 2; i++) {
        extents[i].offset += copy->offset;
        extents[i].part = remote->region_index;
    }
    if (!status)
        status = sw_xfer_blocks_remote(remote->peer, remote->card, remote->card_bytes, first, count,
                                       &copy->there);
    if (status) {
        error->status = status;
        snprintf(error->text, sizeof(error->text), "%s", sw_xfer_status_text(status));
        return status;
    }
    return (copy->has_sums ? sw_xfer_prepare_summed : sw_xfer_prepare)(
        remote->peer, copy->is_write ? SW_XFER_WRITE : SW_XFER_READ, copy->local, copy->there,
        error, &copy->transfer);
}

static int transfer_tell_progress(const struct copy *copy)
{
    struct sw_xfer_info info;
    sw_xfer_info_of(copy->transfer, &info);
    const double seconds = (double)(info.ended_ns - info.posted_ns) / 1e9;
    if (copy->remote.is_json)
        return mover_print_json(json_pack("{sI sI sI sf so}", "bytes", (json_int_t)info.bytes_done,
                                          "blocks", (json_int_t)info.blocks_done, "requests",
                                          (json_int_t)info.requests, "seconds", seconds, "rails",
                                          xf_rails_json(&copy->remote)));
    fprintf(stderr, "%" PRIu64 " bytes in %u request%s, %.1f ms, %.2f GB/s\n", info.bytes_done,
            info.requests, info.requests == 1 ? "" : "s", seconds * 1e3,
            (double)info.bytes_done / seconds / 1e9);
    return MOVER_DONE;
}

static int move_all(struct copy *copy)
{
    struct sw_xfer_error error;
    struct sw_xfer_info info;
    struct mover_progress progress;
    enum sw_xfer_status status;
    if (prepare_copy(copy, &error))
        return mover_fail("%s", error.text);
    const struct sw_xfer_post_options post = {
        .notice = copy->notice,
        .notice_bytes = copy->notice ? (uint32_t)strlen(copy->notice) : 0,
        .deadline_ns = copy->deadline_ms ? sw_xfer_deadline_ms(copy->deadline_ms) : 0};
    status = sw_xfer_post(copy->transfer, &post);
    if (status)
        return mover_fail("%s", sw_xfer_status_text(status));
    mover_progress_begin(&progress, copy->bytes, !copy->remote.is_json && isatty(STDERR_FILENO));
    do {
        status = sw_xfer_wait(copy->transfer, sw_xfer_deadline_ms(TICK_MS));
        sw_xfer_info_of(copy->transfer, &info);
        mover_progress_at(&progress, info.bytes_done);
    } while (status == SW_XFER_TIMEOUT);
    mover_progress_end(&progress);
    return status ? xf_fail_transfer(&copy->remote, copy->transfer) : transfer_tell_progress(copy);
}

static int transfer_run_copy(struct copy *copy)
{
    int code = xf_remote_open(&copy->remote);
    if (!code)
        code = command_copy_open_file(copy);
    if (!code)
        code = move_all(copy);
    if (copy->remote.agent)
        sw_xfer_agent_close(copy->remote.agent);
    if (copy->fd >= 0 && close(copy->fd) && !code)
        code = mover_fail("%s: %s", copy->path, strerror(errno));
    return code;
}

int xf_read(int argc, char **argv)
{
    static const struct mover_usage usage = {.words = "FILE",
                                             .about = "Reads bytes of a region into FILE.",
                                             .own = {.rows = options,
                                                     .only_word = "file",
                                                     .only_word_at = offsetof(struct copy, path),
                                                     .check = copy_check},
                                             .shared = &xf_remote_options};
    static struct copy copy = {.bytes = MOVER_NOT_GIVEN, .fd = -1, .block_bytes = 1 << 20};
    xf_remote_parse(&usage, argc, argv, &copy);
    return transfer_run_copy(&copy);
}

int xf_write(int argc, char **argv)
{
    static const struct mover_usage usage = {.words = "FILE",
                                             .about = "Writes FILE into a region.",
                                             .own = {.rows = options,
                                                     .only_word = "file",
                                                     .only_word_at = offsetof(struct copy, path),
                                                     .check = copy_check},
                                             .shared = &xf_remote_options};
    static struct copy copy = {
        .is_write = true, .bytes = MOVER_NOT_GIVEN, .fd = -1, .block_bytes = 1 << 20};
    xf_remote_parse(&usage, argc, argv, &copy);
    return transfer_run_copy(&copy);
}
