/* SPDX-License-Identifier: BSD-2-Clause */
/* get and put: a piece at a time, each written and flushed before the next. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/command/progress.h"
#include "pmem/command/command.h"

enum { PIECE_BYTES = 1 << 20, PATIENCE_MS = 60000 };

struct copy {
    struct pm_remote remote;
    const char *path;
    uint64_t offset, bytes; /* bytes: MOVER_NOT_GIVEN at first */
    bool is_put;
    int fd;
    char *buffer;
    struct sw_pmem_mem *mem;
    struct sw_pmem_info info;
};

static const struct mover_option options[] = {
    {"offset", 'f', "BYTES", 0, "Where in the region (0)", 1, MOVER_TO(struct copy, offset)},
    {"bytes", 'b', "BYTES", 0, "How many (get: to the region's end; put: to the file's)", 1,
     MOVER_TO(struct copy, bytes)},
    {0},
};

static int pmem_open_file(struct copy *copy)
{
    if (!strcmp(copy->path, "-"))
        copy->fd = copy->is_put ? STDIN_FILENO : STDOUT_FILENO;
    else
        copy->fd = open(
            copy->path,
            copy->is_put ? O_RDONLY | O_CLOEXEC : O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return copy->fd < 0 ? mover_fail("%s: %s", copy->path, strerror(errno)) : MOVER_DONE;
}

/* A full piece, or what is left before the end. */
static ssize_t read_piece(int fd, char *to, size_t bytes)
{
    size_t got = 0;
    while (got < bytes) {
        const ssize_t n = read(fd, to + got, bytes - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (!n)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

static bool write_piece(int fd, const char *from, size_t bytes)
{
    while (bytes) {
        const ssize_t n = write(fd, from, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        bytes -= (size_t)n;
    }
    return true;
}

static enum sw_pmem_status put_piece(struct copy *copy, uint32_t bytes)
{
    const enum sw_pmem_flush flush =
        copy->info.persistent ? SW_PMEM_FLUSH_PERSISTENT : SW_PMEM_FLUSH_VISIBLE;
    enum sw_pmem_status status;
    do { /* the same bytes again do no harm, and their flush comes with them */
        status = sw_pmem_write_flush(copy->remote.pmem, copy->offset, copy->buffer, bytes,
                                     copy->mem, flush, sw_pmem_deadline_ms(PATIENCE_MS));
    } while (status == SW_PMEM_MAYBE_DONE && sw_pmem_state_of(copy->remote.pmem) != SW_PMEM_DEAD);
    return status;
}

static int pmem_copy_all(struct copy *copy, uint64_t *done)
{
    struct mover_progress progress;
    mover_progress_begin(&progress, copy->bytes, !copy->remote.is_json && isatty(STDERR_FILENO));
    while (*done < copy->bytes) {
        const uint64_t left = copy->bytes - *done;
        uint32_t bytes = left < PIECE_BYTES ? (uint32_t)left : PIECE_BYTES;
        enum sw_pmem_status status;
        if (copy->is_put) {
            const ssize_t got = read_piece(copy->fd, copy->buffer, bytes);
            if (got < 0)
                return mover_fail("%s: %s", copy->path, strerror(errno));
            if (!got)
                break;
            bytes = (uint32_t)got;
            status = put_piece(copy, bytes);
        } else {
            status = sw_pmem_read(copy->remote.pmem, copy->offset, copy->buffer, bytes, copy->mem,
                                  sw_pmem_deadline_ms(PATIENCE_MS));
        }
        if (status)
            return pm_fail_status(&copy->remote, copy->is_put ? "write" : "read", status);
        if (!copy->is_put && !write_piece(copy->fd, copy->buffer, bytes))
            return mover_fail("%s: %s", copy->path, strerror(errno));
        *done += bytes;
        copy->offset += bytes;
        mover_progress_at(&progress, *done);
    }
    mover_progress_end(&progress);
    return MOVER_DONE;
}

static int settle_bytes(struct copy *copy)
{
    const bool has_bytes = copy->bytes != MOVER_NOT_GIVEN;
    sw_pmem_info_of(copy->remote.pmem, &copy->info);
    if (copy->offset > copy->info.bytes ||
        (has_bytes && copy->bytes > copy->info.bytes - copy->offset))
        return mover_fail("the region ends at %" PRIu64 " bytes", copy->info.bytes);
    if (has_bytes)
        return MOVER_DONE;
    copy->bytes = copy->info.bytes - copy->offset;
    if (!copy->is_put)
        return MOVER_DONE;
    const off_t length = lseek(copy->fd, 0, SEEK_END);
    if (length < 0)
        return MOVER_DONE; /* a pipe: until its end, or that of the region */
    lseek(copy->fd, 0, SEEK_SET);
    if ((uint64_t)length > copy->bytes)
        return mover_fail("%s has %jd bytes, but the region ends at %" PRIu64, copy->path,
                          (intmax_t)length, copy->info.bytes);
    copy->bytes = (uint64_t)length;
    return MOVER_DONE;
}

static int pmem_tell_progress(const struct copy *copy, uint64_t done)
{
    if (copy->remote.is_json)
        return mover_print_json(json_pack("{sI sb}", "bytes", (json_int_t)done, "persistent",
                                          copy->is_put && copy->info.persistent));
    if (copy->is_put)
        fprintf(stderr, "%" PRIu64 " bytes are %s there\n", done,
                copy->info.persistent ? "persistent" : "visible, but would not outlive the power");
    return MOVER_DONE;
}

static int pmem_run_copy(struct copy *copy)
{
    uint64_t done = 0;
    int code = pm_remote_open(&copy->remote);
    if (code)
        return code;
    code = pmem_open_file(copy);
    if (!code)
        code = settle_bytes(copy);
    copy->buffer = aligned_alloc(4096, PIECE_BYTES);
    if (!code && (!copy->buffer ||
                  sw_pmem_mem_register(copy->remote.pmem, copy->buffer, PIECE_BYTES, &copy->mem)))
        code = mover_fail("there is no memory for the buffer");
    if (!code)
        code = pmem_copy_all(copy, &done);
    if (!code && copy->fd > STDERR_FILENO && close(copy->fd))
        code = mover_fail("%s: %s", copy->path, strerror(errno));
    if (!code && (copy->is_put || copy->fd != STDOUT_FILENO))
        code = pmem_tell_progress(copy, done);
    sw_pmem_mem_release(copy->mem);
    sw_pmem_close(copy->remote.pmem);
    free(copy->buffer);
    return code;
}

int pm_get(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .words = "FILE",
        .about = "Reads bytes of a region into FILE; - is the standard output.",
        .own = {.rows = options, .only_word = "file", .only_word_at = offsetof(struct copy, path)},
        .shared = &pm_remote_options};
    struct copy copy = {.bytes = MOVER_NOT_GIVEN, .fd = -1};
    pm_remote_parse(&usage, argc, argv, &copy);
    return pmem_run_copy(&copy);
}

int pm_put(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .words = "FILE",
        .about = "Writes FILE into a region, persistently; - is the standard input.",
        .own = {.rows = options, .only_word = "file", .only_word_at = offsetof(struct copy, path)},
        .shared = &pm_remote_options};
    struct copy copy = {.bytes = MOVER_NOT_GIVEN, .is_put = true, .fd = -1};
    pm_remote_parse(&usage, argc, argv, &copy);
    return pmem_run_copy(&copy);
}
