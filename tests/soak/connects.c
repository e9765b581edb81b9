/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An NVMe host that connects, reads a block and leaves, many times:
 * connects ADDR PORT NQN COUNT
 *
 * The last time it does not leave: it ends by SIGKILL with a read on its way. With a COUNT of 0 it
 * connects once without a keep-alive time, says so, and is idle for ever.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sidewire/nvme.h"

enum { BLOCK_BYTES = 4096, PATIENCE_MS = 20000 };

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "connects: %s: %s\n", what, why);
    return 1;
}

static void has_read(void *arg, const struct sw_nvme_result *result)
{
    *(struct sw_nvme_result *)arg = *result;
}

/* The result of a read that has none yet has SW_NVME_AGAIN. */
static enum sw_nvme_status read_block(struct sw_nvme_queue *queue, struct sw_nvme_mem *mem,
                                      struct sw_nvme_result *result, uint32_t nsid)
{
    const struct sw_nvme_io io = {.nsid = nsid,
                                  .blocks = 1,
                                  .data = sw_nvme_mem_data(mem),
                                  .bytes = BLOCK_BYTES,
                                  .mem = mem,
                                  .done = has_read,
                                  .arg = result};
    *result = (struct sw_nvme_result){.status = SW_NVME_AGAIN};
    return sw_nvme_read(queue, &io);
}

static int visit_once(const struct sw_nvme_options *options, bool is_last)
{
    struct sw_nvme_controller *controller;
    struct sw_nvme_queue *queue;
    struct sw_nvme_error error;
    struct sw_nvme_mem *mem;
    struct sw_nvme_result result;
    if (sw_nvme_connect(options, &error, &controller))
        return fail("connect", error.text);
    if (sw_nvme_queue_open(controller, 0, &error, &queue))
        return fail("queue", error.text);
    if (sw_nvme_mem_alloc(controller, BLOCK_BYTES, &mem))
        return fail("memory", "none");
    if (read_block(queue, mem, &result, 1))
        return fail("read", "refused");
    if (is_last)
        raise(SIGKILL);
    const uint64_t by_ns = sw_nvme_deadline_ms(PATIENCE_MS);
    while (result.status == SW_NVME_AGAIN && sw_nvme_queue_wait(queue, by_ns) == SW_NVME_OK)
        sw_nvme_queue_poll(queue);
    if (result.status)
        return fail("read", sw_nvme_status_text(result.status));
    sw_nvme_mem_release(mem);
    sw_nvme_queue_close(queue);
    return sw_nvme_disconnect(controller) ? fail("disconnect", "refused") : 0;
}

static int stay_idle(struct sw_nvme_options *options)
{
    struct sw_nvme_controller *controller;
    struct sw_nvme_error error;
    options->keep_alive_ms = 0;
    if (sw_nvme_connect(options, &error, &controller))
        return fail("connect", error.text);
    puts("idle");
    fflush(stdout);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return fail("usage", "connects ADDR PORT NQN COUNT");
    struct sw_nvme_options options;
    sw_nvme_options_init(&options);
    options.traddr = argv[1];
    options.trsvcid = argv[2];
    options.subsysnqn = argv[3];
    options.queue_size = 16;
    const long count = atol(argv[4]);
    if (!count)
        return stay_idle(&options);
    for (long i = 0; i < count; i++)
        if (visit_once(&options, i == count - 1))
            return 1;
    return 0;
}
