/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether `bench` has read what was never written. A file's holes come from no disk, and their
 * figures are of none. */
#include <string.h>

#include "nvme/command/bench.h"

enum { SAMPLES = 32, PATIENCE_MS = 10000 };

struct sample {
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem;
    bool is_over, is_good;
};

static void sample_done(void *arg, const struct sw_nvme_result *result)
{
    struct sample *sample = arg;
    sample->is_over = true;
    sample->is_good = !result->status;
}

/* False: it has other bytes, or cannot be read. */
static bool reads_zeroes(const struct nv_bench *bench, struct sample *sample, uint64_t lba)
{
    const uint64_t deadline_ns = sw_nvme_deadline_ms(PATIENCE_MS);
    uint8_t *data = sw_nvme_mem_data(sample->mem);
    const struct sw_nvme_io io = {.nsid = bench->ns.nsid,
                                  .lba = lba,
                                  .blocks = 1,
                                  .data = data,
                                  .bytes = bench->ns.block_bytes,
                                  .mem = sample->mem,
                                  .done = sample_done,
                                  .arg = sample};
    sample->is_over = sample->is_good = false;
    if (sw_nvme_read(sample->queue, &io))
        return false;
    while (!sample->is_over && sw_nvme_deadline_ms(0) < deadline_ns)
        sw_nvme_queue_wait(sample->queue, deadline_ns);
    return sample->is_good && !data[0] && !memcmp(data, data + 1, bench->ns.block_bytes - 1);
}

bool nv_bench_is_blank(struct nv_bench *bench)
{
    struct sample sample = {0}; /* until the queue is closed */
    const uint32_t block = bench->ns.block_bytes;
    const uint64_t first = bench->offset_bytes / block, blocks = bench->span_bytes / block;
    bool is_blank = !sw_nvme_mem_alloc(bench->host.controller, block, &sample.mem) &&
                    !sw_nvme_queue_open(bench->host.controller, 0, NULL, &sample.queue);
    for (uint64_t i = 0; i < SAMPLES && is_blank; i++)
        is_blank = reads_zeroes(bench, &sample, first + blocks * i / SAMPLES);
    sw_nvme_queue_close(sample.queue);
    sw_nvme_mem_release(sample.mem);
    return is_blank;
}
