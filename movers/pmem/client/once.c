/* SPDX-License-Identifier: BSD-2-Clause */
/* Local memory, and operations one at a time. */
#include <errno.h>
#include <stdlib.h>

#include "common/rdma/memory.h"
#include "pmem/client/client.h"

enum sw_pmem_status sw_pmem_mem_register(struct sw_pmem *p, void *data, size_t bytes,
                                         struct sw_pmem_mem **mem)
{
    struct pmc_client *c = pmc_client_of(p);
    struct ibv_pd *pd = c->pd;
    struct mover_memory host = mover_memory_host(data, bytes);
    if (mover_is_forked(&p->guard))
        return SW_PMEM_FORKED;
    if (!pd || !bytes)
        return SW_PMEM_INVALID;
    struct sw_pmem_mem *made = calloc(1, sizeof(*made));
    if (!made)
        return SW_PMEM_NO_MEMORY;
    *made = (struct sw_pmem_mem){
        .next = c->mems, .at = &c->mems, .guard = &p->guard, .data = data, .bytes = bytes};
    made->mr = mover_memory_register(&host, pd, 0);
    if (!made->mr) {
        free(made);
        return errno == ENOMEM ? SW_PMEM_NO_MEMORY : SW_PMEM_SYSTEM;
    }
    if (made->next)
        made->next->at = &made->next;
    c->mems = *mem = made;
    return SW_PMEM_OK;
}

void sw_pmem_mem_release(struct sw_pmem_mem *mem)
{
    if (!mem)
        return;
    *mem->at = mem->next;
    if (mem->next)
        mem->next->at = mem->at;
    if (!mover_is_forked(mem->guard))
        ibv_dereg_mr(mem->mr);
    free(mem);
}

struct once {
    struct sw_pmem_result result;
    bool is_over;
};

static void op_done(void *arg, const struct sw_pmem_result *result)
{
    struct once *once = arg;
    once->result = *result;
    once->is_over = true;
}

static enum sw_pmem_status run_ops(struct sw_pmem *p, const struct sw_pmem_op *ops, uint32_t count,
                                   uint64_t deadline_ns)
{
    struct once once = {.is_over = false};
    if (mover_is_forked(&p->guard))
        return SW_PMEM_FORKED;
    if (p->tail != p->ended)
        return SW_PMEM_INVALID;
    const struct sw_pmem_chain chain = {.ops = ops, .count = count, .done = op_done, .arg = &once};
    const enum sw_pmem_status status = sw_pmem_post(p, &chain);
    if (status)
        return status;
    while (!once.is_over && sw_pmem_wait(p, deadline_ns) == SW_PMEM_OK)
        ;
    if (once.is_over)
        return once.result.status;
    if (p->stage != PMC_NONE)
        pmc_lost(p, SW_PMEM_TIMEOUT, "%s did not answer in time", p->where);
    pmc_end_all(p, SW_PMEM_NOT_DONE);
    return SW_PMEM_TIMEOUT;
}

static struct sw_pmem_op transfer_op(enum sw_pmem_opcode opcode, uint64_t offset, const void *data,
                                     uint32_t bytes, struct sw_pmem_mem *mem)
{
    return (struct sw_pmem_op){.opcode = opcode,
                               .offset = offset,
                               .pieces = {{(void *)(uintptr_t)data, bytes, mem}},
                               .pieces_count = 1};
}

enum sw_pmem_status sw_pmem_read(struct sw_pmem *p, uint64_t offset, void *data, uint32_t bytes,
                                 struct sw_pmem_mem *mem, uint64_t deadline_ns)
{
    const struct sw_pmem_op op = transfer_op(SW_PMEM_OP_READ, offset, data, bytes, mem);
    return run_ops(p, &op, 1, deadline_ns);
}

enum sw_pmem_status sw_pmem_write(struct sw_pmem *p, uint64_t offset, const void *data,
                                  uint32_t bytes, struct sw_pmem_mem *mem, uint64_t deadline_ns)
{
    const struct sw_pmem_op op = transfer_op(SW_PMEM_OP_WRITE, offset, data, bytes, mem);
    return run_ops(p, &op, 1, deadline_ns);
}

static struct sw_pmem_op flush_of(uint64_t offset, uint64_t bytes, enum sw_pmem_flush flush)
{
    return (struct sw_pmem_op){
        .opcode = SW_PMEM_OP_FLUSH, .flush = flush, .offset = offset, .bytes = bytes};
}

enum sw_pmem_status sw_pmem_write_flush(struct sw_pmem *p, uint64_t offset, const void *data,
                                        uint32_t bytes, struct sw_pmem_mem *mem,
                                        enum sw_pmem_flush flush, uint64_t deadline_ns)
{
    const struct sw_pmem_op ops[] = {transfer_op(SW_PMEM_OP_WRITE, offset, data, bytes, mem),
                                     flush_of(offset, bytes, flush)};
    return run_ops(p, ops, 2, deadline_ns);
}

enum sw_pmem_status sw_pmem_publish(struct sw_pmem *p, uint64_t offset, uint64_t value,
                                    enum sw_pmem_flush flush, uint64_t deadline_ns)
{
    const struct sw_pmem_op ops[] = {
        {.opcode = SW_PMEM_OP_PUBLISH, .offset = offset, .value = value},
        flush_of(offset, 8, flush)};
    return run_ops(p, ops, 2, deadline_ns);
}
