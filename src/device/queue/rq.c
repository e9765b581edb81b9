/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/rq.h"

#include <errno.h>
#include <string.h>

#include "base/guarded_copy.h"
#include "base/minmax.h"
#include "device/memory/mr_impl.h"

struct sw_rq_shape sw_rq_shape(uint32_t wr_max, uint32_t sge_max)
{
    struct sw_rq_shape shape = {.entries = 1, .stride_bytes = 32};
    while (shape.entries < wr_max)
        shape.entries <<= 1;
    while (shape.stride_bytes < sizeof(struct sw_pub_recv) + sge_max * sizeof(struct ibv_sge))
        shape.stride_bytes += 32;
    return shape;
}

/* The sender places the message itself, so its process maps the region. */
static void let_place(uint32_t key)
{
    const struct sw_pub_mr *entry = &sw_nic.pub->mrs[sw_key_index(key)];
    if (__builtin_expect(atomic_load_explicit(&entry->handed, memory_order_relaxed) !=
                                 SW_HANDED_OUT_WRITE &&
                             entry->kind == SW_PUB_REGION,
                         0))
        sw_mr_receive_into(key);
}

int sw_rq_append(struct sw_rq *rq, const struct ibv_recv_wr *wr, uint32_t *len_bytes)
{
    sw_lock_assert_held(&rq->lock);
    uint32_t posted = atomic_load_explicit(&rq->posted, memory_order_relaxed);
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->sge_max)
        return -EINVAL;
    if (posted - atomic_load_explicit(&rq->consumed, memory_order_acquire) +
            atomic_load_explicit(&rq->claimed, memory_order_relaxed) >=
        rq->wr_max)
        return -ENOMEM;
    struct sw_pub_recv *recv = sw_rq_at(rq, posted);
    uint64_t total = 0;
    bool usable = true;
    for (int i = 0; i < wr->num_sge; i++) {
        uint8_t *va;
        recv->sges[i] = wr->sg_list[i];
        total += wr->sg_list[i].length;
        if (wr->sg_list[i].length &&
            sw_sge_resolve(rq->pd, &wr->sg_list[i], IBV_ACCESS_LOCAL_WRITE, &va))
            let_place(wr->sg_list[i].lkey);
        else if (wr->sg_list[i].length)
            usable = false;
    }
    recv->sge_count = (uint32_t)wr->num_sge;
    recv->len_bytes = total > UINT32_MAX ? UINT32_MAX : (uint32_t)total;
    rq->wr_ids[posted & (rq->entries - 1)] = wr->wr_id;
    *len_bytes = usable ? recv->len_bytes : 0;
    return 0;
}

enum ibv_wc_status sw_recv_scatter(uint32_t pd, const struct ibv_sge *sges, uint32_t count,
                                   uint64_t offset, const void *from, uint32_t len_bytes)
{
    const uint8_t *source = from;
    for (uint32_t i = 0; i < count && len_bytes; i++) {
        if (offset >= sges[i].length) {
            offset -= sges[i].length;
            continue;
        }
        uint8_t *va;
        if (!sw_sge_resolve(pd, &sges[i], IBV_ACCESS_LOCAL_WRITE, &va))
            return IBV_WC_LOC_PROT_ERR;
        uint32_t room = sges[i].length - (uint32_t)offset;
        uint32_t step = sw_min_u32(len_bytes, room);
        if (!sw_guarded_copy(va + offset, source, step, va + offset))
            return IBV_WC_LOC_PROT_ERR;
        source += step;
        len_bytes -= step;
        offset = 0;
    }
    return len_bytes ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}
