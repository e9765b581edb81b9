/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A medium that is told what to do by lines, and answers each by one.
 *
 *     open TEXT r|w|t BYTES [TIMEOUT_MS]      t: takes over
 *     do KIND OFFSET BYTES SEED               an io, until it has ended
 *     begin KIND OFFSET BYTES SEED            one that goes on meanwhile
 *     wait                                    until all have ended
 *     odd KIND OFFSET BYTES SHIFT             with memory that is SHIFT bytes beside; -1: unknown
 *     storm KIND FIRST BYTES IO_BYTES DEPTH SEED   one after another, some at a time
 *     fork                                    what a child may do
 *     close
 *
 * Bytes are drawn from the seed and their place, so that what is read can be compared.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/time/clock.h"
#include "snapshot/core/medium.h"

enum { SLOTS = 16 };

struct slot {
    struct snap_io io;
    uint64_t seed;
    bool is_busy;
};

static struct snap_medium *medium;
static struct slot slots[SLOTS];
static uint8_t *memory;
static uint32_t busy;
static int first_failure;
static uint64_t differing, ended, canceled;

static uint64_t drawn_word(uint64_t seed, uint64_t place)
{
    uint64_t x = (place + seed * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
    return (x ^ x >> 29) * 0x94d049bb133111ebull;
}

/* True: it was so already. */
static bool draw_bytes(uint64_t seed, uint64_t offset, void *data, uint32_t bytes, bool writes)
{
    uint64_t *words = data;
    bool is_same = true;
    for (uint32_t i = 0; i < bytes / 8; i++) {
        const uint64_t word = drawn_word(seed, offset / 8 + i);
        is_same = is_same && words[i] == word;
        if (writes)
            words[i] = word;
    }
    return is_same;
}

static void count_done(struct snap_io *io, int result)
{
    struct slot *slot = io->context;
    slot->is_busy = false;
    busy--;
    ended++;
    canceled += result == -ECANCELED;
    if (result && !first_failure)
        first_failure = result;
    if (!result && io->kind == SNAP_IO_READ && slot->seed)
        differing += !draw_bytes(slot->seed, io->offset, io->data, io->bytes, false);
}

static void look_once(int timeout_ms)
{
    const uint64_t before = ended;
    medium->ops->poll(medium);
    struct pollfd ready = {.fd = medium->fd, .events = POLLIN};
    if (ended == before && medium->ops->arm(medium))
        poll(&ready, medium->fd >= 0, medium->fd >= 0 ? timeout_ms : 1);
}

static enum snap_io_kind kind_of(const char *name)
{
    return *name == 'w'   ? SNAP_IO_WRITE
           : *name == 'r' ? SNAP_IO_READ
           : *name == 'f' ? SNAP_IO_FLUSH
                          : SNAP_IO_CHECK;
}

static struct slot *free_slot(void)
{
    while (busy == SLOTS)
        look_once(10);
    struct slot *slot = slots;
    while (slot->is_busy)
        slot++;
    return slot;
}

static void begin_io(const char *kind, uint64_t offset, uint32_t bytes, uint64_t seed, bool drawn)
{
    struct slot *slot = free_slot();
    slot->seed = seed;
    slot->is_busy = true;
    slot->io = (struct snap_io){.kind = kind_of(kind),
                                .offset = offset,
                                .bytes = bytes,
                                .data = memory + (slot - slots) * (size_t)SNAP_IO_BYTES_MAX,
                                .done = count_done,
                                .context = slot};
    if (drawn && *kind == 'w')
        draw_bytes(seed, offset, slot->io.data, bytes, true);
    busy++;
    medium->ops->submit(medium, &slot->io);
}

static void await_all(void)
{
    while (busy)
        look_once(10);
}

static void answer_done(void)
{
    printf("done %d %" PRIu64 " %d %s\n", first_failure, differing, medium ? medium->error : 0,
           medium && medium->error ? medium->why : "-");
    first_failure = 0;
    differing = 0;
}

static void open_one(const char *text, const char *mode, uint64_t bytes, uint32_t timeout_ms)
{
    char error[512];
    const struct snap_medium_options options = {.is_writable = *mode != 'r',
                                                .take_over = *mode == 't',
                                                .bytes = bytes,
                                                .writer = "drive",
                                                .connect_timeout_ms = timeout_ms,
                                                .stall_timeout_ms = timeout_ms};
    const int code = snap_medium_open(text, &options, error, sizeof(error), &medium);
    if (code) {
        medium = NULL;
        printf("refused %d %s\n", code, error);
        return;
    }
    const int used = medium->ops->use(medium, memory, SLOTS * (size_t)SNAP_IO_BYTES_MAX);
    printf("open %" PRIu64 " %s %s %s %" PRIu64 " %d %s\n", medium->bytes,
           medium->is_new ? "new" : "old", medium->is_volatile ? "volatile" : "durable",
           medium->name, medium->epoch, used, *medium->note ? medium->note : "-");
}

static void close_one(void)
{
    const uint64_t before = ended;
    canceled = 0;
    const uint32_t under_way = busy;
    medium->ops->close(medium);
    medium = NULL;
    printf("closed %u %" PRIu64 " %" PRIu64 " %u\n", under_way, ended - before, canceled, busy);
    first_failure = 0;
}

/* Without its bytes being drawn: what is measured is the medium. */
static void storm(const char *kind, uint64_t first, uint64_t bytes, uint32_t io_bytes,
                  uint32_t depth, uint64_t seed)
{
    const uint64_t begun = mover_now_ns();
    for (uint64_t at = 0; at < bytes && !first_failure; at += io_bytes) {
        while (busy >= depth)
            look_once(10);
        begin_io(kind, first + at, io_bytes, seed, seed != 0);
    }
    await_all();
    if (*kind == 'w' && !first_failure) {
        begin_io("f", 0, 0, 0, false);
        await_all();
    }
    printf("stormed %" PRIu64 " ", mover_now_ns() - begun);
    answer_done();
}

static void odd(const char *kind, uint64_t offset, uint32_t bytes, int shift)
{
    static uint8_t unknown[SNAP_BLOCK_BYTES] __attribute__((aligned(SNAP_BLOCK_BYTES)));
    struct slot *slot = free_slot();
    slot->is_busy = true;
    slot->seed = 0;
    slot->io = (struct snap_io){.kind = kind_of(kind),
                                .offset = offset,
                                .bytes = bytes,
                                .data = shift < 0 ? unknown : memory + shift,
                                .done = count_done,
                                .context = slot};
    busy++;
    medium->ops->submit(medium, &slot->io);
    if (!slot->is_busy)
        printf("told within submit ");
    await_all();
    answer_done();
}

static void fork_once(void)
{
    fflush(stdout);
    const pid_t child = fork();
    if (!child) {
        begin_io("w", 0, SNAP_BLOCK_BYTES, 99, true);
        for (int i = 0; busy && i < 1000; i++)
            medium->ops->poll(medium);
        const int code = first_failure;
        medium->ops->close(medium);
        _exit(busy ? 1 : code == -EPERM ? 42 : 2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("forked %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void take_line(char *line)
{
    char word[16] = "", text[256] = "";
    uint64_t a = 0, b = 0, c = 0, d = 0, e = 0;
    sscanf(line, "%15s %255s", word, text);
    if (!strcmp(word, "open")) {
        char mode[4] = "r";
        uint32_t timeout_ms = 5000;
        sscanf(line, "%*s %*s %3s %" SCNu64 " %" SCNu32, mode, &a, &timeout_ms);
        return open_one(text, mode, a, timeout_ms);
    }
    if (!medium) {
        printf("none\n");
        return;
    }
    sscanf(line, "%*s %*s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c, &d,
           &e);
    if (!strcmp(word, "storm"))
        return storm(text, a, b, (uint32_t)c, (uint32_t)d, e);
    if (!strcmp(word, "odd"))
        return odd(text, a, (uint32_t)b, (int)c);
    if (!strcmp(word, "fork"))
        return fork_once();
    if (!strcmp(word, "close"))
        return close_one();
    if (strcmp(word, "wait"))
        begin_io(text, a, (uint32_t)b, c, true);
    if (!strcmp(word, "begin")) {
        printf("begun\n");
        return;
    }
    await_all();
    answer_done();
}

int main(void)
{
    char line[512];
    memory = mmap(NULL, SLOTS * (size_t)SNAP_IO_BYTES_MAX, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (;;) {
        struct pollfd ready[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                  {.fd = medium ? medium->fd : -1, .events = POLLIN}};
        if (medium)
            medium->ops->poll(medium);
        if (!medium || medium->ops->arm(medium))
            poll(ready, 2, medium && medium->fd < 0 ? 1 : 100);
        if (!(ready[0].revents & (POLLIN | POLLHUP)))
            continue;
        if (!fgets(line, sizeof(line), stdin))
            break;
        take_line(line);
    }
    if (medium)
        close_one();
    return 0;
}
