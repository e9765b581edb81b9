/* SPDX-License-Identifier: BSD-2-Clause */
#include "fake_pmem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHAINS_MAX = 64 };

struct fake_chain {
    struct sw_pmem_op ops[SW_PMEM_CHAIN_MAX];
    uint32_t count;
    uint64_t session;
    sw_pmem_done *done;
    void *arg;
};

struct sw_pmem {
    unsigned region;
    uint64_t session, started; /* of the region, when it was connected last */
    struct fake_chain chains[CHAINS_MAX];
    unsigned first, count;
    struct sw_pmem_mem *mems;
};

struct sw_pmem_mem {
    struct sw_pmem_mem *next;
    struct sw_pmem *pmem;
    uint8_t *data;
    size_t bytes;
};

static struct {
    uint8_t bytes[FAKE_BYTES];
    bool is_up, is_held;
    unsigned chains; /* that end yet, where it is held */
    uint64_t starts;
} regions[FAKE_REGIONS];

void fake_reset(void)
{
    memset(regions, 0, sizeof(regions));
    for (unsigned i = 0; i < FAKE_REGIONS; i++)
        fake_start(i);
}

void fake_stop(unsigned region)
{
    regions[region].is_up = false;
}

void fake_start(unsigned region)
{
    regions[region].is_up = true;
    regions[region].starts++;
}

void fake_hold(unsigned region, unsigned chains)
{
    regions[region].is_held = true;
    regions[region].chains = chains;
}

void fake_release(unsigned region)
{
    regions[region].is_held = false;
}

uint8_t *fake_bytes(unsigned region)
{
    return regions[region].bytes;
}

uint64_t sw_pmem_deadline_ms(uint32_t from_now_ms)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec +
           (uint64_t)from_now_ms * 1000000;
}

enum sw_pmem_status sw_pmem_start(const struct sw_pmem_options *options,
                                  struct sw_pmem_error *error, struct sw_pmem **pmem)
{
    (void)error;
    *pmem = calloc(1, sizeof(**pmem));
    assert(*pmem);
    (*pmem)->region = (unsigned)atoi(options->address);
    sw_pmem_poll(*pmem);
    return SW_PMEM_OK;
}

enum sw_pmem_status sw_pmem_open(const struct sw_pmem_options *options, struct sw_pmem_error *error,
                                 struct sw_pmem **pmem)
{
    if (!regions[atoi(options->address)].is_up)
        return error->status = SW_PMEM_UNREACHABLE;
    return sw_pmem_start(options, error, pmem);
}

enum sw_pmem_state sw_pmem_state_of(const struct sw_pmem *pmem)
{
    const bool is_up = regions[pmem->region].is_up;
    return is_up && pmem->started == regions[pmem->region].starts ? SW_PMEM_LIVE : SW_PMEM_LOST;
}

enum sw_pmem_status sw_pmem_wait_live(struct sw_pmem *pmem, uint64_t deadline_ns)
{
    (void)deadline_ns;
    sw_pmem_poll(pmem);
    return sw_pmem_state_of(pmem) == SW_PMEM_LIVE ? SW_PMEM_OK : SW_PMEM_TIMEOUT;
}

void sw_pmem_last_error(const struct sw_pmem *pmem, struct sw_pmem_error *error)
{
    error->status = SW_PMEM_UNREACHABLE;
    snprintf(error->text, sizeof(error->text), "region %u is not there", pmem->region);
}

void sw_pmem_info_of(const struct sw_pmem *pmem, struct sw_pmem_info *info)
{
    memset(info, 0, sizeof(*info));
    info->bytes = FAKE_BYTES;
    info->persistent = true;
    info->session = pmem->session;
}

uint64_t sw_pmem_session(const struct sw_pmem *pmem)
{
    return pmem->session;
}

enum sw_pmem_status sw_pmem_mem_register(struct sw_pmem *pmem, void *data, size_t bytes,
                                         struct sw_pmem_mem **mem)
{
    *mem = malloc(sizeof(**mem));
    assert(*mem);
    **mem = (struct sw_pmem_mem){pmem->mems, pmem, data, bytes};
    pmem->mems = *mem;
    return SW_PMEM_OK;
}

void sw_pmem_mem_release(struct sw_pmem_mem *mem)
{
    struct sw_pmem_mem **at;
    if (!mem)
        return;
    for (at = &mem->pmem->mems; *at != mem; at = &(*at)->next)
        ;
    *at = mem->next;
    free(mem);
}

static void run_op(const struct sw_pmem *pmem, const struct sw_pmem_op *op)
{
    uint8_t *at = regions[pmem->region].bytes + op->offset;
    const struct sw_pmem_piece *piece = &op->pieces[0];
    assert(op->offset <= FAKE_BYTES && op->bytes <= FAKE_BYTES - op->offset);
    if (op->opcode == SW_PMEM_OP_READ || op->opcode == SW_PMEM_OP_WRITE) {
        const uint8_t *data = piece->data;
        assert(op->pieces_count == 1 && piece->bytes == op->bytes && data >= piece->mem->data &&
               data + piece->bytes <= piece->mem->data + piece->mem->bytes);
    }
    if (op->opcode == SW_PMEM_OP_READ)
        memcpy(piece->data, at, piece->bytes);
    else if (op->opcode == SW_PMEM_OP_WRITE)
        memcpy(at, piece->data, piece->bytes);
    else if (op->opcode == SW_PMEM_OP_PUBLISH)
        memcpy(at, &op->value, sizeof(op->value));
}

enum sw_pmem_status sw_pmem_post(struct sw_pmem *pmem, const struct sw_pmem_chain *chain)
{
    if (pmem->count == CHAINS_MAX)
        return SW_PMEM_AGAIN;
    struct fake_chain *to = &pmem->chains[(pmem->first + pmem->count++) % CHAINS_MAX];
    memcpy(to->ops, chain->ops, chain->count * sizeof(*chain->ops));
    to->count = chain->count;
    to->session = chain->session;
    to->done = chain->done;
    to->arg = chain->arg;
    return SW_PMEM_OK;
}

/* One chain at a time, so that copies are at different places. */
uint32_t sw_pmem_poll(struct sw_pmem *pmem)
{
    const bool is_live = sw_pmem_state_of(pmem) == SW_PMEM_LIVE;
    if (!pmem->count && !is_live && regions[pmem->region].is_up) {
        pmem->started = regions[pmem->region].starts;
        pmem->session++;
    }
    if (!pmem->count || (regions[pmem->region].is_held && !regions[pmem->region].chains))
        return 0;
    regions[pmem->region].chains -= regions[pmem->region].is_held;
    const struct fake_chain chain = pmem->chains[pmem->first];
    pmem->first = (pmem->first + 1) % CHAINS_MAX;
    pmem->count--;
    for (uint32_t i = 0; i < (is_live ? chain.count : 1); i++)
        run_op(pmem, &chain.ops[i]);
    const struct sw_pmem_result result = {is_live ? SW_PMEM_OK : SW_PMEM_MAYBE_DONE, 0,
                                          pmem->session, chain.arg};
    chain.done(chain.arg, &result);
    return 1;
}

enum sw_pmem_status sw_pmem_wait(struct sw_pmem *pmem, uint64_t deadline_ns)
{
    (void)deadline_ns;
    return sw_pmem_poll(pmem) ? SW_PMEM_OK : SW_PMEM_AGAIN;
}

void sw_pmem_close(struct sw_pmem *pmem)
{
    fake_release(pmem->region);
    while (pmem->count)
        sw_pmem_poll(pmem);
    while (pmem->mems) /* a chain that was under way used it till now */
        sw_pmem_mem_release(pmem->mems);
    free(pmem);
}

static enum sw_pmem_status run_once(struct sw_pmem *pmem, enum sw_pmem_opcode opcode,
                                    uint64_t offset, void *data, uint32_t bytes,
                                    struct sw_pmem_mem *mem)
{
    const struct sw_pmem_op op = {.opcode = opcode,
                                  .offset = offset,
                                  .bytes = bytes,
                                  .pieces = {{data, bytes, mem}},
                                  .pieces_count = 1};
    if (sw_pmem_state_of(pmem) != SW_PMEM_LIVE)
        return SW_PMEM_TIMEOUT;
    run_op(pmem, &op);
    return SW_PMEM_OK;
}

enum sw_pmem_status sw_pmem_read(struct sw_pmem *pmem, uint64_t offset, void *data, uint32_t bytes,
                                 struct sw_pmem_mem *mem, uint64_t deadline_ns)
{
    (void)deadline_ns;
    return run_once(pmem, SW_PMEM_OP_READ, offset, data, bytes, mem);
}

enum sw_pmem_status sw_pmem_write_flush(struct sw_pmem *pmem, uint64_t offset, const void *data,
                                        uint32_t bytes, struct sw_pmem_mem *mem,
                                        enum sw_pmem_flush flush, uint64_t deadline_ns)
{
    (void)flush;
    (void)deadline_ns;
    return run_once(pmem, SW_PMEM_OP_WRITE, offset, (void *)data, bytes, mem);
}
