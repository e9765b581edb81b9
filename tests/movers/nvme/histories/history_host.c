/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host that tells all that it does to a few blocks, and when:
 * history_host ADDRESSES NQN HOST FIRST_BLOCK BLOCKS DEPTH GAP_US SEED
 *
 * It reads, writes and compares blocks at random, up to DEPTH at a time, each GAP_US after the last
 * one on average, until SIGTERM. Then it waits for what is under way. Each write has a value that
 * no other one has. Each line is written before the request is sent, or after it has ended, and
 * ends with CLOCK_MONOTONIC in nanoseconds: a host that is killed has told all that it began.
 *
 *   begin ID w|r|c BLOCK VALUE NS
 *   end ID ok|unequal|not-done|maybe-done|failed-CODE VALUE|torn NS
 *   again: writes under way here are perhaps sent, and done, once more
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nvme/host/addresses.h"
#include "sidewire/nvme.h"

enum {
    DEPTH_MAX = 64,
    BLOCKS_MAX = 64,
    BLOCK_BYTES = 4096,
    BLOCK_WORDS = BLOCK_BYTES / 8,
    KEEP_ALIVE_MS = 1000,
    COMPARE_FAILURE = 0x285, /* status code type 2, code 85h */
    CODE_MASK = 0x7ff,
    HOST_SHIFT = 48,
};

#define TELL_NS 10000000000u

struct slot {
    struct host *host;
    uint64_t *words; /* [BLOCK_WORDS] */
    uint64_t id, value, next_ns;
    uint32_t block;
    char kind;
    bool is_busy;
};

struct host {
    struct sw_nvme_controller *controller;
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem;
    struct slot slots[DEPTH_MAX];
    uint64_t seen[BLOCKS_MAX]; /* what was read or written last: worth comparing */
    uint64_t number, ids, seed, gap_ns, held;
    uint32_t first, blocks, depth;
};

static volatile sig_atomic_t ends;

static void end_soon(int number)
{
    (void)number;
    ends = 1;
}

static int history_fail(const char *what, const char *why)
{
    fprintf(stderr, "history_host: %s: %s\n", what, why);
    return 1;
}

static uint64_t history_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t history_random(struct host *host)
{
    host->seed = host->seed * 6364136223846793005u + 1442695040888963407u; /* Knuth, MMIX */
    return (uint32_t)(host->seed >> 33);
}

/* ---- what is told ---- */

/* Whether all of a block has the value of its first word. */
static bool is_whole(const uint64_t *words)
{
    for (uint32_t i = 1; i < BLOCK_WORDS; i++)
        if (words[i] != words[0])
            return false;
    return true;
}

static void tell_end(const struct slot *slot, const struct sw_nvme_result *result)
{
    char status[32] = "ok", value[32] = "torn";
    const uint16_t code = result->nvme_status & CODE_MASK;
    if (result->status == SW_NVME_FAILED && slot->kind == 'c' && code == COMPARE_FAILURE)
        strcpy(status, "unequal");
    else if (result->status == SW_NVME_NOT_DONE)
        strcpy(status, "not-done");
    else if (result->status == SW_NVME_MAYBE_DONE)
        strcpy(status, "maybe-done");
    else if (result->status)
        snprintf(status, sizeof(status), "failed-%d-%#x", (int)result->status, code);
    if (slot->kind != 'r')
        snprintf(value, sizeof(value), "%" PRIx64, slot->value);
    else if (is_whole(slot->words))
        snprintf(value, sizeof(value), "%" PRIx64, slot->words[0]);
    printf("end %" PRIu64 " %s %s %" PRIu64 "\n", slot->id, status, value, history_now());
}

/* Before their ends are told. */
static void tell_held(struct host *host)
{
    struct sw_nvme_path paths[SW_NVME_PATHS_MAX];
    const uint32_t count = sw_nvme_paths_of(host->controller, 1, paths, SW_NVME_PATHS_MAX);
    uint64_t held = 0;
    for (uint32_t i = 0; i < count; i++)
        held += paths[i].held;
    if (held != host->held)
        puts("again");
    host->held = held;
}

static void request_done(void *arg, const struct sw_nvme_result *result)
{
    struct slot *slot = arg;
    struct host *host = slot->host;
    tell_held(host);
    tell_end(slot, result);
    if (!result->status && slot->kind == 'r')
        host->seen[slot->block] = slot->words[0];
    slot->is_busy = false;
    slot->next_ns = history_now() + history_random(host) % (2 * host->gap_ns * host->depth);
}

/* ---- what is done ---- */

static void draw_request(struct host *host, struct slot *slot)
{
    const uint32_t drawn = history_random(host) % 10;
    slot->kind = drawn < 4 ? 'w' : drawn < 8 ? 'r' : 'c';
    slot->block = history_random(host) % host->blocks;
    slot->id = ++host->ids;
    slot->value = slot->kind == 'w'   ? host->number << HOST_SHIFT | slot->id
                  : slot->kind == 'c' ? host->seen[slot->block]
                                      : 0;
    if (slot->kind == 'w')
        host->seen[slot->block] = slot->value;
    for (uint32_t i = 0; i < BLOCK_WORDS; i++)
        slot->words[i] = slot->kind == 'r' ? ~0ull - i : slot->value;
}

static enum sw_nvme_status send_request(struct host *host, struct slot *slot)
{
    const struct sw_nvme_io io = {.nsid = 1,
                                  .blocks = 1,
                                  .lba = host->first + slot->block,
                                  .data = slot->words,
                                  .bytes = BLOCK_BYTES,
                                  .mem = host->mem,
                                  .done = request_done,
                                  .arg = slot};
    printf("begin %" PRIu64 " %c %u %" PRIx64 " %" PRIu64 "\n", slot->id, slot->kind,
           host->first + slot->block, slot->value, history_now());
    slot->is_busy = true;
    return slot->kind == 'w'   ? sw_nvme_write(host->queue, &io)
           : slot->kind == 'r' ? sw_nvme_read(host->queue, &io)
                               : sw_nvme_compare(host->queue, &io);
}

static enum sw_nvme_status send_some(struct host *host)
{
    for (uint32_t i = 0; i < host->depth; i++) {
        struct slot *slot = &host->slots[i];
        if (slot->is_busy || history_now() < slot->next_ns)
            continue;
        draw_request(host, slot);
        const enum sw_nvme_status status = send_request(host, slot);
        if (status)
            return status;
    }
    return SW_NVME_OK;
}

/* What has become of each path, for somebody who asks why requests do not end. */
static void tell_paths(struct host *host)
{
    struct sw_nvme_path paths[SW_NVME_PATHS_MAX];
    const uint32_t count = sw_nvme_paths_of(host->controller, 1, paths, SW_NVME_PATHS_MAX);
    for (uint32_t i = 0; i < count; i++)
        printf("path %s %s, %s: requests %" PRIu64 ", moved %" PRIu64 ", held %" PRIu64 " %s\n",
               paths[i].address, sw_nvme_path_state_text(paths[i].state),
               sw_nvme_ana_text(paths[i].ana), paths[i].requests, paths[i].moved, paths[i].held,
               paths[i].why);
}

/* Those under way at the end. */
static void await_requests(struct host *host)
{
    const uint64_t told_ns = history_now() + TELL_NS;
    bool is_told = false;
    while (sw_nvme_queue_used(host->queue)) {
        sw_nvme_queue_wait(host->queue, sw_nvme_deadline_ms(100));
        if (!is_told && history_now() > told_ns) {
            tell_paths(host);
            is_told = true;
        }
    }
}

static int run_requests(struct host *host)
{
    while (!ends) {
        const enum sw_nvme_status status = send_some(host);
        if (status)
            return history_fail("a request", sw_nvme_status_text(status));
        if (sw_nvme_queue_wait(host->queue, sw_nvme_deadline_ms(1)) == SW_NVME_AGAIN)
            nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL); /* nothing is under way */
        tell_held(host);
    }
    await_requests(host);
    return 0;
}

static bool open_host(struct host *host, char **argv, struct sw_nvme_error *error)
{
    static struct nvh_addresses addresses;
    static char nqn[96], id[48];
    struct sw_nvme_options options;
    const char *wrong = nvh_addresses_add(&addresses, argv[1]);
    if (wrong) {
        snprintf(error->text, sizeof(error->text), "%s", wrong);
        return false;
    }
    snprintf(id, sizeof(id), "51de0000-0000-4000-8000-%012" PRIx64, host->number);
    snprintf(nqn, sizeof(nqn), "nqn.2014-08.org.nvmexpress:uuid:%s", id);
    sw_nvme_options_init(&options);
    nvh_addresses_use(&addresses, &options);
    options.subsysnqn = argv[2];
    options.hostnqn = nqn;
    options.hostid = id;
    options.keep_alive_ms = KEEP_ALIVE_MS;
    options.ctrl_loss_tmo_s = -1;
    options.reconnect_delay_s = 1;
    options.connect_timeout_ms = 60000;
    if (sw_nvme_connect(&options, error,
                        &host->controller)) /* waits for members on their way back */
        return false;
    if (sw_nvme_queue_open(host->controller, 0, error, &host->queue))
        return false;
    if (sw_nvme_mem_alloc(host->controller, (size_t)host->depth * BLOCK_BYTES, &host->mem)) {
        snprintf(error->text, sizeof(error->text), "no memory");
        return false;
    }
    for (uint32_t i = 0; i < host->depth; i++)
        host->slots[i] = (struct slot){.host = host,
                                       .words = (uint64_t *)sw_nvme_mem_data(host->mem) +
                                                (size_t)i * BLOCK_WORDS};
    return true;
}

int main(int argc, char **argv)
{
    static struct host host;
    struct sw_nvme_error error = {.text = ""};
    if (argc != 9)
        return history_fail("usage", "ADDRESSES NQN HOST FIRST_BLOCK BLOCKS DEPTH GAP_US SEED");
    host.number = strtoull(argv[3], NULL, 0);
    host.first = (uint32_t)strtoul(argv[4], NULL, 0);
    host.blocks = (uint32_t)strtoul(argv[5], NULL, 0);
    host.depth = (uint32_t)strtoul(argv[6], NULL, 0);
    host.gap_ns = 1000 * strtoull(argv[7], NULL, 0);
    host.seed = 0x9e3779b97f4a7c15u * (strtoull(argv[8], NULL, 0) + host.number);
    if (!host.number || !host.blocks || host.blocks > BLOCKS_MAX || !host.depth ||
        host.depth > DEPTH_MAX || !host.gap_ns)
        return history_fail("usage", "a number is out of range");
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    signal(SIGTERM, end_soon);
    if (!open_host(&host, argv, &error))
        return history_fail("cannot connect", error.text);
    puts("ready");
    const int status = run_requests(&host);
    sw_nvme_queue_close(host.queue);
    sw_nvme_mem_release(host.mem);
    sw_nvme_disconnect(host.controller);
    return status;
}
