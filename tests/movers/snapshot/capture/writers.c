/* SPDX-License-Identifier: BSD-2-Clause */
#include "writers.h"

#include <assert.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { JUMP = 0x9e35 | 1, SLOT_MAX = 4096 };

static uint32_t slot_of(const struct writer *writer, uint64_t number)
{
    return (uint32_t)(number * JUMP) & (writer->slots - 1);
}

/* The number whose slot this is, up to `newest`: the jump is odd, and slots a power of two. */
static uint64_t number_in(const struct writer *writer, uint32_t slot, uint64_t newest)
{
    uint32_t inverse = JUMP;
    for (int i = 0; i < 5; i++)
        inverse *= 2 - JUMP * inverse;
    const uint64_t back = (newest - slot * (uint64_t)inverse) & (writer->slots - 1);
    return newest - back;
}

static void fill_slot(uint64_t *words, uint32_t bytes, uint64_t number)
{
    for (uint32_t i = 0; i < bytes / sizeof(*words); i++)
        words[i] = number;
}

struct writers *writers_make(void)
{
    struct writers *all =
        mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(all != MAP_FAILED);
    all->clock = 1;
    return all;
}

struct writer *writers_add(struct writers *all, enum writer_kind kind, uint8_t *region)
{
    assert(all->count < WRITERS_MAX);
    struct writer *writer = &all->writers[all->count++];
    writer->kind = kind;
    writer->region = region;
    writer->slot_bytes = kind == WRITER_STORES ? 8 : SLOT_MAX;
    writer->stride = kind == WRITER_STORES ? 64 : SLOT_MAX;
    writer->slots = WRITER_REGION / writer->stride;
    writer->seed = all->count * 7919u;
    const int opened = pipe(writer->pipe);
    assert(opened == 0);
    for (uint64_t n = 0; n < writer->slots; n++)
        fill_slot((uint64_t *)(void *)(region + (size_t)slot_of(writer, n) * writer->stride),
                  writer->slot_bytes, n);
    writer->count = writer->slots;
    return writer;
}

static void rest_us(uint64_t us)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

static uint64_t draw_below(struct writer *writer, uint64_t limit)
{
    writer->seed = writer->seed * 6364136223846793005ull + 1442695040888963407ull;
    return (writer->seed >> 33) % limit;
}

static void obey_pause(struct writers *all, struct writer *writer)
{
    while (all->should_pause && !all->should_end) {
        writer->is_paused = true;
        rest_us(20);
    }
    writer->is_paused = false;
}

void writer_run(struct writers *all, struct writer *writer,
                void (*write_slot)(void *context, uint32_t offset, uint64_t number), void *context)
{
    writer->has_started = true;
    while (!all->should_end) {
        for (uint64_t burst = 1 + draw_below(writer, WRITER_BURST); burst-- > 0;) {
            if (all->should_pause)
                break;
            const uint64_t number = writer->count;
            writer->before[number % WRITER_LOG] = all->clock++;
            write_slot(context, slot_of(writer, number) * writer->stride, number);
            writer->after[number % WRITER_LOG] = all->clock++;
            writer->count = number + 1;
        }
        obey_pause(all, writer);
        if (writer->pause_us)
            rest_us(draw_below(writer, writer->pause_us));
    }
    writer->is_paused = true;
}

/* ---- threads of this process ---- */

static void write_by_store(void *context, uint32_t offset, uint64_t number)
{
    const struct writer *writer = context;
    *(volatile uint64_t *)(void *)(writer->region + offset) = number;
}

static void write_by_read(void *context, uint32_t offset, uint64_t number)
{
    const struct writer *writer = context;
    uint64_t words[SLOT_MAX / 8];
    fill_slot(words, SLOT_MAX, number);
    const ssize_t sent = write(writer->pipe[1], words, SLOT_MAX);
    const ssize_t got = read(writer->pipe[0], writer->region + offset, SLOT_MAX);
    assert(sent == SLOT_MAX && got == SLOT_MAX);
}

struct uring_writer {
    struct writer *writer;
    struct io_uring ring;
    int file;
};

static void write_by_uring(void *context, uint32_t offset, uint64_t number)
{
    struct uring_writer *by = context;
    struct io_uring_cqe *cqe;
    uint64_t words[SLOT_MAX / 8];
    fill_slot(words, SLOT_MAX, number);
    const ssize_t written = pwrite(by->file, words, SLOT_MAX, 0);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&by->ring);
    io_uring_prep_read(sqe, by->file, by->writer->region + offset, SLOT_MAX, 0);
    io_uring_submit(&by->ring);
    const int waited = io_uring_wait_cqe(&by->ring, &cqe);
    assert(written == SLOT_MAX && waited == 0 && cqe->res == SLOT_MAX);
    io_uring_cqe_seen(&by->ring, cqe);
}

/* Where io_uring is refused, read() writes. */
static void run_by_uring(struct writers *all, struct writer *writer)
{
    struct uring_writer by = {.writer = writer,
                              .file = memfd_create("snapshot-storm", MFD_CLOEXEC)};
    if (io_uring_queue_init(4, &by.ring, 0)) {
        writer_run(all, writer, write_by_read, writer);
    } else {
        writer_run(all, writer, write_by_uring, &by);
        io_uring_queue_exit(&by.ring);
    }
    close(by.file);
}

void *writer_thread(void *arg)
{
    const struct writer_thread *own = arg;
    if (own->writer->kind == WRITER_URING)
        run_by_uring(own->all, own->writer);
    else
        writer_run(own->all, own->writer,
                   own->writer->kind == WRITER_STORES ? write_by_store : write_by_read,
                   own->writer);
    return NULL;
}

void writers_pause(struct writers *all)
{
    all->should_pause = true;
    for (uint32_t i = 0; i < all->count; i++)
        while (!all->writers[i].is_paused)
            rest_us(20);
}

void writers_resume(struct writers *all)
{
    all->should_pause = false;
    for (uint32_t i = 0; i < all->count; i++)
        while (all->writers[i].is_paused && !all->should_end)
            rest_us(20);
}

/* ---- images ---- */

/* How many words of a slot have this number. */
static uint32_t count_words(const struct writer *writer, const uint8_t *image, uint32_t slot,
                            uint64_t number)
{
    const uint64_t *words = (const uint64_t *)(const void *)(image + (size_t)slot * writer->stride);
    uint32_t count = 0;
    for (uint32_t i = 0; i < writer->slot_bytes / 8; i++)
        count += words[i] == number;
    return count;
}

static uint64_t newest_in(const struct writer *writer, const uint8_t *image)
{
    uint64_t newest = 0;
    for (uint32_t slot = 0; slot < writer->slots; slot++) {
        const uint64_t *words =
            (const uint64_t *)(const void *)(image + (size_t)slot * writer->stride);
        for (uint32_t i = 0; i < writer->slot_bytes / 8; i++)
            if (words[i] > newest)
                newest = words[i];
    }
    return newest;
}

struct image_span writer_span(const struct writer *writer, const uint8_t *image)
{
    const uint32_t words = writer->slot_bytes / 8;
    const uint64_t newest = newest_in(writer, image), count = writer->count;
    struct image_span span = {.number = newest + 1, .last = UINT64_MAX};
    for (uint32_t slot = 0; slot < writer->slots; slot++) {
        const uint64_t number = number_in(writer, slot, newest);
        const uint32_t right = count_words(writer, image, slot, number);
        if (right == words)
            continue;
        if (number != newest ||
            right + count_words(writer, image, slot, newest - writer->slots) != words)
            return span;
        span.is_partial = true;
    }
    /* An image that is older than the log is of no use to anybody. */
    span.is_instant = count - newest < WRITER_LOG / 2 || newest < writer->slots;
    if (newest >= writer->slots)
        span.first = writer->before[newest % WRITER_LOG];
    if (span.is_partial && newest < count)
        span.last = writer->after[newest % WRITER_LOG];
    else if (!span.is_partial && newest + 1 < count)
        span.last = writer->after[(newest + 1) % WRITER_LOG];
    return span;
}
