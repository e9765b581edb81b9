/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The extended polling interface: a cursor over a small batch of completions taken from the device
 * at once. Between ibv_start_poll and ibv_end_poll the calling thread owns the cursor (cache_lock),
 * unless the CQ was made single-threaded.
 *
 * Completions that the program leaves in the batch stay there for the next poll of either kind, and
 * a destroyed QP's entries are taken out.
 */
#include "verbs/cq.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

static struct sw_verbs_cq *cq_of(struct ibv_cq_ex *ex)
{
    return (struct sw_verbs_cq *)ex;
}

static const struct ibv_wc *current_wc(struct ibv_cq_ex *ex)
{
    const struct sw_verbs_cq *cq = cq_of(ex);
    return &cq->cache[cq->cache_at - 1];
}

static void lock_cache(struct sw_verbs_cq *cq)
{
    if (!cq->single_threaded)
        sw_lock_acquire(&cq->cache_lock);
}

static void unlock_cache(struct sw_verbs_cq *cq)
{
    if (!cq->single_threaded)
        sw_lock_release(&cq->cache_lock);
}

/* Moves to the next completion: 0, ENOENT when there is none, EIO after an overflow. */
static int advance_batch(struct sw_verbs_cq *cq)
{
    if (cq->cache_at == cq->cache_count) {
        const int count = SW_UNLIKELY(cq->timed) ? sw_cq_poll_timed(cq->dev, SW_CQ_CACHE_LEN,
                                                                    cq->cache, cq->cache_times_ns)
                                                 : sw_cq_poll(cq->dev, SW_CQ_CACHE_LEN, cq->cache);
        cq->cache_at = 0;
        cq->cache_count = count > 0 ? (uint32_t)count : 0;
        if (count <= 0)
            return count < 0 ? EIO : ENOENT;
    }
    const struct ibv_wc *wc = &cq->cache[cq->cache_at++];
    cq->ex.wr_id = wc->wr_id;
    cq->ex.status = wc->status;
    return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
    struct sw_verbs_cq *cq = cq_of(ex);
    if (SW_UNLIKELY(attr->comp_mask))
        return EINVAL;
    lock_cache(cq);
    const int rc = advance_batch(cq);
    if (rc)
        unlock_cache(cq); /* the program does not call ibv_end_poll then */
    return rc;
}

static int next_poll(struct ibv_cq_ex *ex)
{
    return advance_batch(cq_of(ex));
}

static void end_poll(struct ibv_cq_ex *ex)
{
    unlock_cache(cq_of(ex));
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
    return current_wc(ex)->opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
    return current_wc(ex)->vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
    return current_wc(ex)->byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
    return current_wc(ex)->imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
    return current_wc(ex)->qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
    return current_wc(ex)->src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
    return current_wc(ex)->wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
    return current_wc(ex)->slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
    return current_wc(ex)->sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
    return current_wc(ex)->dlid_path_bits;
}

/* In cycles of hca_core_clock, which are nanoseconds. 0 without the flag. */
static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
    const struct sw_verbs_cq *cq = cq_of(ex);
    return cq->cache_times_ns[cq->cache_at - 1];
}

/* The same moment on the wall's clock as it goes now: one that was set since does not mislead. */
static uint64_t read_completion_wallclock(struct ibv_cq_ex *ex)
{
    const struct sw_verbs_cq *cq = cq_of(ex);
    if (!cq->timed)
        return 0;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    const uint64_t age_ns = sw_clock_ns() - cq->cache_times_ns[cq->cache_at - 1];
    return (uint64_t)wall.tv_sec * SW_NS_PER_S + (uint64_t)wall.tv_nsec - age_ns;
}

/* Fields that no CQ of ours can be created with. A program that reads them all the same gets zero
 * and not a jump to NULL. */

static uint16_t read_no_cvlan(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

static uint32_t read_no_flow_tag(struct ibv_cq_ex *ex)
{
    (void)ex;
    return 0;
}

static void read_no_tm_info(struct ibv_cq_ex *ex, struct ibv_wc_tm_info *info)
{
    (void)ex;
    memset(info, 0, sizeof(*info));
}

void sw_cq_ex_init(struct sw_verbs_cq *cq)
{
    struct ibv_cq_ex *ex = &cq->ex;
    cq->is_ex = true;
    ex->start_poll = start_poll;
    ex->next_poll = next_poll;
    ex->end_poll = end_poll;
    ex->read_opcode = read_opcode;
    ex->read_vendor_err = read_vendor_err;
    ex->read_byte_len = read_byte_len;
    ex->read_imm_data = read_imm_data;
    ex->read_qp_num = read_qp_num;
    ex->read_src_qp = read_src_qp;
    ex->read_wc_flags = read_wc_flags;
    ex->read_slid = read_slid;
    ex->read_sl = read_sl;
    ex->read_dlid_path_bits = read_dlid_path_bits;
    ex->read_completion_ts = read_completion_ts;
    ex->read_completion_wallclock_ns = read_completion_wallclock;
    ex->read_cvlan = read_no_cvlan;
    ex->read_flow_tag = read_no_flow_tag;
    ex->read_tm_info = read_no_tm_info;
}

int sw_cq_ex_drain(struct sw_verbs_cq *cq, int max, struct ibv_wc *wc)
{
    int count = 0;
    lock_cache(cq);
    while (count < max && cq->cache_at != cq->cache_count)
        wc[count++] = cq->cache[cq->cache_at++];
    unlock_cache(cq);
    return count;
}

void sw_cq_ex_purge(struct sw_verbs_cq *cq, uint32_t qp_num)
{
    if (!cq->is_ex)
        return;
    lock_cache(cq);
    uint32_t kept = cq->cache_at;
    for (uint32_t i = cq->cache_at; i < cq->cache_count; i++) {
        if (cq->cache[i].qp_num == qp_num && !sw_cq_has_received(&cq->cache[i]))
            continue;
        cq->cache_times_ns[kept] = cq->cache_times_ns[i];
        cq->cache[kept++] = cq->cache[i];
    }
    cq->cache_count = kept;
    unlock_cache(cq);
}
