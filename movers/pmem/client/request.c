/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations: whether they may be done, and the requests that they become. */
#include "pmem/client/machine.h"

/* The first range that covers it all and has the right. */
static const struct pmf_range *request_find_range(const struct sw_pmem *p,
                                                  const struct sw_pmem_op *op, uint64_t bytes)
{
    uint32_t rights = op->opcode == SW_PMEM_OP_READ ? SW_PMEM_READ : SW_PMEM_WRITE;
    if (op->opcode == SW_PMEM_OP_FLUSH && p->info.flush == SW_PMEM_BY_READ)
        rights |= SW_PMEM_READ;
    for (uint32_t i = 0; i < p->info.ranges_count; i++) {
        const struct pmf_range *r = &p->ranges[i];
        if ((r->rights & rights) == rights && op->offset >= r->offset && bytes <= r->bytes &&
            op->offset - r->offset <= r->bytes - bytes)
            return r;
    }
    return NULL;
}

static enum sw_pmem_status check_pieces(const struct sw_pmem_op *op, uint64_t *bytes)
{
    *bytes = 0;
    if (!op->pieces_count || op->pieces_count > SW_PMEM_PIECES_MAX)
        return SW_PMEM_INVALID;
    for (uint32_t i = 0; i < op->pieces_count; i++) {
        const struct sw_pmem_piece *piece = &op->pieces[i];
        const char *data = piece->data;
        if (!piece->mem || data < piece->mem->data || piece->bytes > piece->mem->bytes ||
            (size_t)(data - piece->mem->data) > piece->mem->bytes - piece->bytes)
            return SW_PMEM_NOT_REGISTERED;
        *bytes += piece->bytes;
    }
    return *bytes && *bytes <= SW_PMEM_OP_BYTES_MAX ? SW_PMEM_OK : SW_PMEM_INVALID;
}

enum sw_pmem_status pmc_check_op(const struct sw_pmem *p, const struct sw_pmem_op *op,
                                 struct pmf_range *range)
{
    uint64_t bytes = 8;
    enum sw_pmem_status status = SW_PMEM_OK;
    switch (op->opcode) {
    case SW_PMEM_OP_READ:
    case SW_PMEM_OP_WRITE:
        status = check_pieces(op, &bytes);
        break;
    case SW_PMEM_OP_FLUSH:
        bytes = op->bytes;
        if (!bytes || (op->flush != SW_PMEM_FLUSH_VISIBLE && op->flush != SW_PMEM_FLUSH_PERSISTENT))
            status = SW_PMEM_INVALID;
        else if (!(op->flush == SW_PMEM_FLUSH_VISIBLE ? p->info.visible : p->info.persistent))
            status = SW_PMEM_UNSUPPORTED;
        break;
    case SW_PMEM_OP_PUBLISH:
        status = op->offset % 8 ? SW_PMEM_INVALID : SW_PMEM_OK;
        break;
    default:
        status = SW_PMEM_INVALID;
    }
    const struct pmf_range *found = status ? NULL : request_find_range(p, op, bytes);
    if (!status && !found)
        return SW_PMEM_DENIED;
    if (found)
        *range = *found;
    return status;
}

/* READs and WRITEs take the place of what the device lacks. */
static void choose_verb(const struct sw_pmem *p, struct pmc_request *r)
{
    const struct sw_pmem_op *op = r->op;
    r->local = PMC_PIECES;
    switch (op->opcode) {
    case SW_PMEM_OP_READ:
    case SW_PMEM_OP_WRITE:
        r->verb = op->opcode == SW_PMEM_OP_READ ? PMC_READ : PMC_WRITE;
        for (uint32_t i = 0; i < op->pieces_count; i++)
            r->bytes += op->pieces[i].bytes;
        return;
    case SW_PMEM_OP_FLUSH:
        r->verb = p->has_flush ? PMC_FLUSH : PMC_READ;
        r->local = p->has_flush ? PMC_NOWHERE : PMC_SINK;
        r->remote += p->has_flush ? 0 : op->bytes - 1;
        r->bytes = p->has_flush ? op->bytes : 1;
        return;
    case SW_PMEM_OP_PUBLISH:
        r->verb = p->has_atomic ? PMC_ATOMIC_WRITE : PMC_WRITE;
        r->local = PMC_VALUE;
        r->bytes = sizeof(op->value);
        return;
    }
}

/* A later WRITE might pass a FLUSH or a READ; a fence holds it back until that is answered. An
 * ATOMIC WRITE cannot pass a FLUSH (IBTA Vol 1 A19), so it follows at once: one round trip. A word
 * that is published as a WRITE waits for the FLUSHes of earlier chains, too: it says that they are
 * done. */
static bool needs_fence(const struct sw_pmem *p, const struct pmc_slot *slot, uint32_t index,
                        enum pmc_verb verb)
{
    bool flushed = !p->has_flush;
    for (uint32_t i = 0; i < index; i++)
        flushed |= slot->ops[i].opcode == SW_PMEM_OP_FLUSH;
    if (verb == PMC_ATOMIC_WRITE)
        return !p->has_flush;
    if (slot->ops[index].opcode == SW_PMEM_OP_PUBLISH)
        flushed |= p->flushed;
    return verb == PMC_WRITE && flushed;
}

void pmc_make_requests(const struct sw_pmem *p, const struct pmc_slot *slot,
                       struct pmc_request requests[SW_PMEM_CHAIN_MAX])
{
    for (uint32_t i = 0; i < slot->count; i++) {
        const struct pmf_range *range = &slot->ranges[i];
        struct pmc_request *r = &requests[i];
        *r = (struct pmc_request){
            .key = range->key,
            .remote = range->address + (slot->ops[i].offset - range->offset),
            .id = (uint64_t)(slot - p->slots) << 3 | i,
            .signals = i + 1 == slot->count,
            .op = &slot->ops[i],
        };
        choose_verb(p, r);
        r->is_fenced = needs_fence(p, slot, i, r->verb);
    }
}
