/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host that keeps a journal outside of itself:
 * crash_host write|verify|verify-bytes ADDR PORT NQN JOURNAL
 *
 * The journal has two numbers for each block of the namespace: of the last write that was begun,
 * and of the last one that was acknowledged. It is a file that is mapped, so that it says what must
 * be on the disk, whoever is killed. `verify` reads each block, and takes what is whole, no older
 * than the acknowledged write, and no younger than the one begun.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nvme/command/bench.h"

enum { DEPTH = 16, BLOCKS = 2048, BLOCK_BYTES = 4096, SPAN_MAX = 4 };

struct entry {
    uint64_t begun, acknowledged;
};

struct slot {
    struct host *host;
    uint8_t *data; /* [SPAN_MAX] blocks */
    uint32_t first, count;
    bool is_busy;
};

struct host {
    struct sw_nvme_controller *controller;
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem;
    struct entry *journal; /* [BLOCKS] */
    struct slot slots[DEPTH];
    bool is_busy[BLOCKS];
    uint64_t seed;
    enum sw_nvme_status failed;
};

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "crash_host: %s: %s\n", what, why);
    return 1;
}

static bool open_journal(struct host *host, const char *path)
{
    const size_t bytes = BLOCKS * sizeof(struct entry);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        return false;
    host->journal = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return host->journal != MAP_FAILED;
}

static bool connect_host(struct host *host, char **argv, struct sw_nvme_error *error)
{
    struct sw_nvme_options options;
    sw_nvme_options_init(&options);
    options.traddr = argv[2];
    options.trsvcid = argv[3];
    options.subsysnqn = argv[4];
    options.ctrl_loss_tmo_s = 20;
    options.reconnect_delay_s = 1;
    if (sw_nvme_connect(&options, error, &host->controller) ||
        sw_nvme_queue_open(host->controller, SW_NVME_SPIN_FOREVER, error, &host->queue))
        return false;
    if (sw_nvme_mem_alloc(host->controller, (size_t)DEPTH * SPAN_MAX * BLOCK_BYTES, &host->mem)) {
        snprintf(error->text, sizeof(error->text), "no memory");
        return false;
    }
    for (int i = 0; i < DEPTH; i++)
        host->slots[i] = (struct slot){.host = host,
                                       .data = (uint8_t *)sw_nvme_mem_data(host->mem) +
                                               (size_t)i * SPAN_MAX * BLOCK_BYTES};
    return true;
}

static uint32_t next_random(struct host *host)
{
    host->seed = host->seed * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
    return (uint32_t)(host->seed >> 33);
}

/* ---- writing ---- */

static void written(void *arg, const struct sw_nvme_result *result)
{
    struct slot *slot = arg;
    struct host *host = slot->host;
    for (uint32_t i = 0; i < slot->count; i++) {
        struct entry *entry = &host->journal[slot->first + i];
        if (!result->status)
            entry->acknowledged = entry->begun;
        host->is_busy[slot->first + i] = false;
    }
    slot->is_busy = false;
    if (result->status)
        host->failed = result->status;
}

/* Blocks that nobody writes now: which of two writes at once comes last is not known. */
static bool choose(struct host *host, struct slot *slot)
{
    slot->count = 1 + next_random(host) % SPAN_MAX;
    slot->first = next_random(host) % (BLOCKS - SPAN_MAX);
    for (uint32_t i = 0; i < slot->count; i++)
        if (host->is_busy[slot->first + i])
            return false;
    return true;
}

static enum sw_nvme_status write_some(struct host *host, struct slot *slot)
{
    if (slot->is_busy || !choose(host, slot))
        return SW_NVME_OK;
    for (uint32_t i = 0; i < slot->count; i++) {
        const uint64_t lba = slot->first + i;
        nv_pattern_fill(slot->data + (size_t)i * BLOCK_BYTES, BLOCK_BYTES, lba,
                        ++host->journal[lba].begun);
        host->is_busy[lba] = true;
    }
    slot->is_busy = true;
    const struct sw_nvme_io io = {.nsid = 1,
                                  .blocks = slot->count,
                                  .lba = slot->first,
                                  .data = slot->data,
                                  .bytes = slot->count * BLOCK_BYTES,
                                  .flags = next_random(host) % 4 ? 0 : SW_NVME_FUA,
                                  .mem = host->mem,
                                  .done = written,
                                  .arg = slot};
    return sw_nvme_write(host->queue, &io);
}

/* Until it is killed. */
static int write_all(struct host *host)
{
    puts("writing");
    fflush(stdout);
    while (!host->failed) {
        for (int i = 0; i < DEPTH && !host->failed; i++)
            host->failed = write_some(host, &host->slots[i]);
        sw_nvme_queue_poll(host->queue);
    }
    return fail("a write", "failed");
}

/* ---- verifying ---- */

static void has_read(void *arg, const struct sw_nvme_result *result)
{
    *(struct sw_nvme_result *)arg = *result;
}

static bool is_empty(const uint8_t *data)
{
    for (uint32_t i = 0; i < BLOCK_BYTES; i++)
        if (data[i])
            return false;
    return true;
}

/* Which of the writes that may be there is; UINT64_MAX: none. */
static uint64_t content(const uint8_t *data, uint64_t lba, const struct entry *entry)
{
    if (!entry->acknowledged && is_empty(data))
        return 0;
    for (uint64_t sequence = entry->acknowledged; sequence <= entry->begun; sequence++)
        if (sequence && !nv_pattern_check(data, BLOCK_BYTES, lba, sequence))
            return sequence;
    return UINT64_MAX;
}

/* Each byte is of one of the writes that may be there. */
static bool is_mixture(const uint8_t *data, uint64_t lba, const struct entry *entry)
{
    static uint8_t pattern[BLOCK_BYTES];
    static bool is_known[BLOCK_BYTES];
    uint32_t known = 0;
    memset(is_known, 0, sizeof(is_known));
    for (uint64_t sequence = entry->acknowledged; sequence <= entry->begun; sequence++) {
        memset(pattern, 0, sizeof(pattern));
        if (sequence)
            nv_pattern_fill(pattern, BLOCK_BYTES, lba, sequence);
        for (uint32_t i = 0; i < BLOCK_BYTES; i++)
            is_known[i] |= data[i] == pattern[i];
    }
    for (uint32_t i = 0; i < BLOCK_BYTES; i++)
        known += is_known[i];
    return known == BLOCK_BYTES;
}

static int verify_all(struct host *host, bool by_bytes)
{
    uint64_t writes = 0, open = 0;
    uint8_t *data = sw_nvme_mem_data(host->mem);
    for (uint64_t lba = 0; lba < BLOCKS; lba++) {
        struct entry *entry = &host->journal[lba];
        struct sw_nvme_result result = {.status = SW_NVME_AGAIN};
        const struct sw_nvme_io io = {.nsid = 1,
                                      .blocks = 1,
                                      .lba = lba,
                                      .data = data,
                                      .bytes = BLOCK_BYTES,
                                      .mem = host->mem,
                                      .done = has_read,
                                      .arg = &result};
        if (sw_nvme_read(host->queue, &io))
            return fail("a read", "refused");
        while (sw_nvme_queue_used(host->queue))
            sw_nvme_queue_poll(host->queue);
        if (result.status)
            return fail("a read", "failed");
        const uint64_t found = content(data, lba, entry);
        if (found == UINT64_MAX && by_bytes && is_mixture(data, lba, entry)) {
            open++;
            continue;
        }
        if (found == UINT64_MAX) {
            fprintf(stderr, "crash_host: block %llu: %s; write %llu was acknowledged, %llu begun\n",
                    (unsigned long long)lba,
                    nv_pattern_check(data, BLOCK_BYTES, lba, entry->acknowledged),
                    (unsigned long long)entry->acknowledged, (unsigned long long)entry->begun);
            return 1;
        }
        open += entry->acknowledged != entry->begun;
        entry->acknowledged = entry->begun = found; /* this is what it holds now */
        writes += found;
    }
    printf("%llu writes are there, %llu were on their way\n", (unsigned long long)writes,
           (unsigned long long)open);
    return 0;
}

int main(int argc, char **argv)
{
    static struct host host;
    struct sw_nvme_error error = {.text = ""};
    if (argc != 6)
        return fail("usage", "crash_host write|verify|verify-bytes ADDR PORT NQN JOURNAL");
    host.seed = (uint64_t)getpid();
    if (!open_journal(&host, argv[5]))
        return fail(argv[5], strerror(errno));
    if (!connect_host(&host, argv, &error))
        return fail("connecting", error.text);
    const int status =
        !strcmp(argv[1], "write") ? write_all(&host) : verify_all(&host, strcmp(argv[1], "verify"));
    sw_nvme_mem_release(host.mem);
    sw_nvme_queue_close(host.queue);
    sw_nvme_disconnect(host.controller);
    return status;
}
