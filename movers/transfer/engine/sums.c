/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/sums.h"

#include "transfer/core/sum.h"

#include "transfer/engine/agent.h"
#include "transfer/engine/blocks.h"
#include "transfer/engine/lease.h"
#include "transfer/engine/memory.h"
#include "transfer/engine/transfer.h"

_Static_assert((int)XFC_SUMS_PER_MESSAGE == (int)XFW_SUMS_MAX, "a message is full of sums");

uint32_t xfe_sums_ask(const struct sw_xfer_transfer *transfer, const struct xfc_step *step,
                      uint32_t lane, uint8_t *message)
{
    const struct xfw_message header = {
        .type = XFW_SUM, .tag = step->tag, .bytes = step->count * XFW_SUM_BYTES};
    for (uint32_t i = 0; i < step->count; i++) {
        const struct xfc_sum *sum = &transfer->plan.sums[step->first + i];
        xfw_put_sum(message, i,
                    &(struct xfw_sum){.address = sum->remote,
                                      .key = transfer->remote->keys[sum->key][lane],
                                      .bytes = sum->bytes});
    }
    return xfw_put_message(message, &header);
}

enum sw_xfer_status xfe_sums_compare(struct xfc_plan *plan, const struct xfc_out *out,
                                     const uint8_t *message, uint32_t bytes)
{
    bool is_alike = true;
    if (bytes != out->count * 4)
        return SW_XFER_DENIED;
    for (uint32_t i = 0; i < out->count; i++) {
        const struct xfc_sum *sum = &plan->sums[out->first + i];
        const uint32_t here = xfc_sum(0, (const void *)(uintptr_t)sum->local, sum->bytes);
        is_alike &= xfc_plan_mark(plan, out->first + i, here == xfw_get_sums(message, i));
    }
    return is_alike ? SW_XFER_OK : SW_XFER_CORRUPT;
}

/* Where this side sees what a lease lets that visitor read; NULL: it lets it not. */
static const uint8_t *find_leased(const struct sw_xfer_agent *agent, uint64_t visitor,
                                  uint32_t rail, const struct xfw_sum *sum)
{
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        const struct sw_xfer_lease *lease = xfe_lease_at(at);
        const struct sw_xfer_memory *memory = lease->memory;
        if (!sw_xfer_lease_is_granted(lease) || xfe_lease_key(lease, rail) != sum->key ||
            (lease->visitor && lease->visitor != visitor) || !(lease->rights & SW_XFER_MAY_READ) ||
            sum->address < lease->address || sum->bytes > lease->bytes ||
            sum->address - lease->address > lease->bytes - sum->bytes || !memory->at.data)
            continue;
        return (const uint8_t *)memory->at.data + (sum->address - memory->at.address);
    }
    return NULL;
}

uint32_t xfe_sums_answer(struct sw_xfer_agent *agent, uint64_t visitor, uint32_t rail,
                         const uint8_t *message, const struct xfw_message *header, uint32_t *at,
                         uint64_t *left_bytes, uint8_t *answer)
{
    struct xfw_message said = {.type = XFW_SUMS, .tag = header->tag, .bytes = 0};
    const uint32_t count = header->bytes / XFW_SUM_BYTES;
    for (; *at < count; (*at)++) {
        struct xfw_sum sum;
        if (!*left_bytes)
            return 0;
        xfw_get_sum(message, *at, &sum);
        const uint8_t *data = find_leased(agent, visitor, rail, &sum);
        if (!data || !sum.bytes || sum.bytes > XFC_REQUEST_BYTES_MAX)
            return xfw_put_message(answer, &said);
        xfw_put_sums(answer, *at, xfc_sum(0, data, sum.bytes));
        *left_bytes -= *left_bytes < sum.bytes ? *left_bytes : sum.bytes;
    }
    said.bytes = 4 * count;
    return xfw_put_message(answer, &said);
}
