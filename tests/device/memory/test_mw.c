/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/mw.h"

#include <pthread.h>
#include <sched.h>
#include <sidewire/flush.h>
#include <stdlib.h>

#include "device/memory/mr_impl.h"
#include "device/memory/persist.h"
#include "nic_rig.h"

#define BYTES (64u * 1024)

struct bench {
    uint8_t *bytes;
    struct sw_mr *mr;
    struct sw_mw *mw;
    struct sw_qp *qp;
    struct sw_pub_mr *entry;
};

static struct bench bench_up(struct rig *rig, enum ibv_mw_type type)
{
    struct bench b = {.bytes = aligned_alloc(4096, BYTES)};
    assert_non_null(b.bytes);
    b.mr = rig_mr(rig, b.bytes, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    b.qp = rig_qp(rig, 4, 1, NULL);
    assert_int_equal(sw_mw_alloc(rig->pd, type, &b.mw), 0);
    b.entry = &sw_nic.pub->mrs[sw_key_index(sw_mw_key(b.mw))];
    return b;
}

static void bench_down(struct bench *b)
{
    sw_mw_dealloc(b->mw);
    sw_qp_destroy(b->qp);
    assert_int_equal(sw_mr_dereg(b->mr), 0);
    free(b->bytes);
}

static struct sw_wqe bind_of(const struct bench *b, uint64_t offset, uint64_t len_bytes)
{
    uint32_t key = sw_mw_key(b->mw);
    return (struct sw_wqe){.opcode = IBV_WR_BIND_MW,
                           .rkey = (key & ~0xffu) | ((key + 1) & 0xff),
                           .imm = sw_mr_key(b->mr),
                           .remote_addr = (uintptr_t)b->bytes + offset,
                           .compare_add = len_bytes,
                           .swap = IBV_ACCESS_REMOTE_WRITE};
}

/* As the queue pair's own turn does it. */
static enum ibv_wc_status execute_locked(struct sw_qp *qp, const struct sw_wqe *wqe)
{
    sw_lock_acquire(&qp->lock);
    const enum ibv_wc_status status = sw_mw_execute(qp, wqe);
    sw_lock_release(&qp->lock);
    return status;
}

static void sw_mw_alloc__types(void **state)
{
    struct rig *rig = *state;
    struct sw_mw *mw = NULL;
    assert_int_equal(sw_mw_alloc(rig->pd, (enum ibv_mw_type)3, &mw), -EINVAL);
    assert_int_equal(sw_mw_alloc(rig->pd, (enum ibv_mw_type)0, &mw), -EINVAL);
    assert_null(mw);
    assert_int_equal(sw_mw_alloc(rig->pd, IBV_MW_TYPE_1, &mw), 0);
    assert_int_equal(sw_pd_dealloc(rig->pd), -EBUSY);
    sw_mw_dealloc(mw);
}

/* Peers can map of a window what they can map of its region, cut to it. */
static void sw_mw_execute__cuts_extents(void **state)
{
    struct rig *rig = *state;
    struct bench b = bench_up(rig, IBV_MW_TYPE_2);
    struct sw_pub_mr *region = &sw_nic.pub->mrs[sw_key_index(sw_mr_key(b.mr))];
    struct sw_wqe wqe = bind_of(&b, 5000, 9000);
    uint64_t low = (uintptr_t)b.bytes + 5000, high = low + 9000, seen = 0;
    assert_int_equal(execute_locked(b.qp, &wqe), IBV_WC_SUCCESS);
    assert_int_equal((uint32_t)b.entry->key_word, wqe.rkey);
    assert_int_equal(b.entry->va, low);
    assert_int_equal(b.entry->access, IBV_ACCESS_REMOTE_WRITE);
    assert_int_equal(b.entry->extent_count, region->extent_count ? 1 : 0);
    for (uint32_t i = 0; i < b.entry->extent_count; i++) {
        const struct sw_pub_extent *part = &b.entry->extents[i], *whole = &region->extents[i];
        assert_true(part->va >= low && part->va + part->len_bytes <= high);
        assert_int_equal(part->file_offset - whole->file_offset, part->va - whole->va);
        assert_int_equal(part->segment, whole->segment);
        seen += part->len_bytes;
    }
    assert_int_equal(seen, region->extent_count ? 9000 : 0);
    bench_down(&b);
}

/* A window may give peers no right to flush that its region does not have: only with that was the
 * region's memory looked at. */
static void sw_mw_execute__flush_rights_are_the_regions(void **state)
{
    struct rig *rig = *state;
    struct bench b = bench_up(rig, IBV_MW_TYPE_2);
    struct sw_pub_mr *region = &sw_nic.pub->mrs[sw_key_index(sw_mr_key(b.mr))];
    struct sw_wqe wqe = bind_of(&b, 0, 4096);
    wqe.swap = IBV_ACCESS_FLUSH_GLOBAL;
    assert_int_equal(execute_locked(b.qp, &wqe), IBV_WC_MW_BIND_ERR);
    region->access |= IBV_ACCESS_FLUSH_PERSISTENT;
    region->persist = SW_PERSIST_BY_SYNC;
    assert_int_equal(execute_locked(b.qp, &wqe), IBV_WC_MW_BIND_ERR);
    wqe.swap = IBV_ACCESS_FLUSH_PERSISTENT;
    assert_int_equal(execute_locked(b.qp, &wqe), IBV_WC_SUCCESS);
    assert_int_equal(b.entry->access, IBV_ACCESS_FLUSH_PERSISTENT);
    assert_int_equal(b.entry->persist, SW_PERSIST_BY_SYNC);
    bench_down(&b);
}

/* The word changes with every bind, also to the same key: peers remember mappings by it. */
static void sw_mw_execute__new_word_each_time(void **state)
{
    struct rig *rig = *state;
    struct bench b = bench_up(rig, IBV_MW_TYPE_1);
    struct sw_wqe wqe = bind_of(&b, 0, 4096);
    assert_int_equal(execute_locked(b.qp, &wqe), IBV_WC_SUCCESS);
    uint64_t first = b.entry->key_word;
    int quiesces = rig_log.quiesces;
    assert_int_equal(execute_locked(b.qp, &wqe), IBV_WC_SUCCESS);
    assert_int_equal((uint32_t)first, (uint32_t)b.entry->key_word);
    assert_true(first != b.entry->key_word);
    assert_int_equal(rig_log.quiesces, quiesces + 1); /* the old binding was waited out */
    assert_int_equal(sw_mr_dereg(b.mr), -EBUSY);
    bench_down(&b);
}

static void sw_mw_execute__window_of_another_pd(void **state)
{
    struct rig *rig = *state;
    struct bench b = bench_up(rig, IBV_MW_TYPE_1);
    struct sw_pd *other = NULL;
    struct sw_mw *foreign = NULL;
    assert_int_equal(sw_pd_alloc(rig->ctx, &other), 0);
    assert_int_equal(sw_mw_alloc(other, IBV_MW_TYPE_1, &foreign), 0);
    struct sw_wqe wqe = bind_of(&b, 0, 4096);
    wqe.rkey = sw_mw_key(foreign);
    assert_int_equal(execute_locked(b.qp, &wqe), IBV_WC_MW_BIND_ERR);
    wqe.rkey = sw_mr_key(b.mr); /* no window at all */
    assert_int_equal(execute_locked(b.qp, &wqe), IBV_WC_MW_BIND_ERR);
    wqe.rkey = UINT32_MAX;
    assert_int_equal(execute_locked(b.qp, &wqe), IBV_WC_MW_BIND_ERR);
    sw_mw_dealloc(foreign);
    assert_int_equal(sw_pd_dealloc(other), 0);
    bench_down(&b);
}

/* A window's key is not for local elements. */
static void sw_sge_resolve__window(void **state)
{
    struct rig *rig = *state;
    struct bench b = bench_up(rig, IBV_MW_TYPE_1);
    struct sw_wqe wqe = bind_of(&b, 0, 4096);
    assert_int_equal(execute_locked(b.qp, &wqe), IBV_WC_SUCCESS);
    struct ibv_sge sge = {(uintptr_t)b.bytes, 8, wqe.rkey};
    uint8_t *va;
    assert_false(sw_sge_resolve(rig->pd->id, &sge, 0, &va));
    bench_down(&b);
}

static void sw_mw_forget_qp__unbinds_type2_only(void **state)
{
    struct rig *rig = *state;
    struct bench b = bench_up(rig, IBV_MW_TYPE_1), c = bench_up(rig, IBV_MW_TYPE_2);
    struct sw_qp *qp = rig_qp(rig, 1, 1, NULL);
    struct sw_wqe first = bind_of(&b, 0, 4096), second = bind_of(&c, 0, 4096);
    assert_int_equal(execute_locked(qp, &first), IBV_WC_SUCCESS);
    assert_int_equal(execute_locked(qp, &second), IBV_WC_SUCCESS);
    sw_qp_destroy(qp);
    assert_int_equal((uint32_t)b.entry->key_word, first.rkey);
    assert_int_equal(c.entry->key_word, 0);
    bench_down(&c);
    bench_down(&b);
}

struct unbinder {
    struct sw_qp *qp;
    struct sw_wqe invalidate;
    enum ibv_wc_status status;
};

static void *invalidate_own(void *arg)
{
    struct unbinder *unbinder = arg;
    unbinder->status = execute_locked(unbinder->qp, &unbinder->invalidate);
    return NULL;
}

/* One thread invalidates a window and waits for what is served; what is served is a message that
 * invalidates another window. Without the way out both wait for ever. */
static void sw_mw_invalidate_for_peer__while_another_window_goes(void **state)
{
    struct rig *rig = *state;
    struct bench b = bench_up(rig, IBV_MW_TYPE_2), c = bench_up(rig, IBV_MW_TYPE_2);
    const struct sw_wqe first = bind_of(&b, 0, 4096), second = bind_of(&c, 0, 4096);
    struct unbinder unbinder = {.qp = b.qp,
                                .invalidate = {.opcode = IBV_WR_LOCAL_INV, .imm = first.rkey}};
    pthread_t thread;
    assert_int_equal(execute_locked(b.qp, &first), IBV_WC_SUCCESS);
    assert_int_equal(execute_locked(c.qp, &second), IBV_WC_SUCCESS);
    sw_lock_acquire(&c.qp->lock);
    sw_mr_serve_begin(c.qp->index);
    assert_int_equal(pthread_create(&thread, NULL, invalidate_own, &unbinder), 0);
    while (atomic_load(&b.entry->key_word)) /* then it has the table, and waits */
        sched_yield();
    assert_int_equal(sw_mw_invalidate_for_peer(c.qp, second.rkey), SW_ACK);
    assert_int_equal(atomic_load(&sw_mr_serving[c.qp->index]) & 1, 1);
    sw_mr_serve_end(c.qp->index);
    sw_lock_release(&c.qp->lock);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(unbinder.status, IBV_WC_SUCCESS);
    assert_int_equal(c.entry->key_word, 0);
    bench_down(&c);
    bench_down(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_mw_alloc__types),
        rig_test(sw_mw_execute__cuts_extents),
        rig_test(sw_mw_execute__flush_rights_are_the_regions),
        rig_test(sw_mw_execute__new_word_each_time),
        rig_test(sw_mw_execute__window_of_another_pd),
        rig_test(sw_sge_resolve__window),
        rig_test(sw_mw_forget_qp__unbinds_type2_only),
        rig_test(sw_mw_invalidate_for_peer__while_another_window_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
