/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/memory/mr.h"

#include <sys/mman.h>
#include <unistd.h>

#include "apart.h"
#include "base/fault.h"
#include "device/memory/view.h"
#include "nic_rig.h"

#define PAGE 4096u

static uint8_t *pages(int count, int prot)
{
    uint8_t *at = mmap(NULL, (size_t)count * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static int try_reg(struct rig *rig, void *addr, uint64_t len_bytes, uint64_t iova,
                   unsigned int access)
{
    struct sw_mr *mr = NULL;
    int rc = sw_mr_reg(rig->pd, addr, len_bytes, iova, access, &mr);
    if (rc)
        assert_null(mr);
    else
        assert_int_equal(sw_mr_dereg(mr), 0);
    return rc;
}

static void sw_mr_reg__access_flags(void **state)
{
    struct rig *rig = *state;
    uint8_t bytes[16];
    static const struct {
        unsigned int access;
        int rc;
    } cases[] = {
        {0, 0},
        {IBV_ACCESS_LOCAL_WRITE, 0},
        {IBV_ACCESS_REMOTE_READ, 0},
        {RIG_RIGHTS, 0},
        {IBV_ACCESS_REMOTE_WRITE, -EINVAL},
        {IBV_ACCESS_REMOTE_ATOMIC, -EINVAL},
        {RIG_RIGHTS | IBV_ACCESS_RELAXED_ORDERING, 0},
        {RIG_RIGHTS | IBV_ACCESS_HUGETLB, 0},
        {RIG_RIGHTS | 1u << 28, 0}, /* unknown, but in the range to be ignored */
        {IBV_ACCESS_ON_DEMAND, 0},
        {IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE, 0},
        {1u << 31, -EINVAL},
        {1u << 12, -EINVAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(try_reg(rig, bytes, 16, (uintptr_t)bytes, cases[i].access), cases[i].rc);
}

static void sw_mr_reg__ranges_that_wrap(void **state)
{
    struct rig *rig = *state;
    uint8_t bytes[16];
    assert_int_equal(try_reg(rig, bytes, UINT64_MAX, 0, 0), -EINVAL);
    assert_int_equal(try_reg(rig, bytes, 16, UINT64_MAX - 8, 0), -EINVAL);
    assert_int_equal(try_reg(rig, bytes, 16, UINT64_MAX - 16, 0), 0);
}

static void sw_mr_reg__memory_that_is_not_there(void **state)
{
    struct rig *rig = *state;
    uint8_t *at = apart_map(4 * PAGE);
    assert_int_equal(try_reg(rig, at, 4 * PAGE, 0, RIG_RIGHTS), 0);
    assert_int_equal(munmap(at + 2 * PAGE, PAGE), 0);
    assert_int_equal(try_reg(rig, at, 4 * PAGE, 0, RIG_RIGHTS), -EFAULT);
    assert_int_equal(try_reg(rig, at + PAGE, PAGE + 1, 0, 0), -EFAULT);
    assert_int_equal(try_reg(rig, at + 2 * PAGE, 1, 0, 0), -EFAULT);
    assert_int_equal(try_reg(rig, at, 2 * PAGE, 0, RIG_RIGHTS), 0);
    assert_int_equal(try_reg(rig, at + 3 * PAGE, PAGE, 0, RIG_RIGHTS), 0);
    assert_int_equal(try_reg(rig, NULL, 1, 0, 0), -EFAULT);
    assert_int_equal(munmap(at, 4 * PAGE), 0);
}

static void sw_mr_reg__protection_of_the_memory(void **state)
{
    struct rig *rig = *state;
    uint8_t *at = pages(2, PROT_READ);
    assert_int_equal(try_reg(rig, at, PAGE, 0, IBV_ACCESS_REMOTE_READ), 0);
    assert_int_equal(try_reg(rig, at, PAGE, 0, IBV_ACCESS_LOCAL_WRITE), -EFAULT);
    assert_int_equal(mprotect(at, PAGE, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(try_reg(rig, at, PAGE, 0, IBV_ACCESS_LOCAL_WRITE), 0);
    assert_int_equal(try_reg(rig, at, 2 * PAGE, 0, IBV_ACCESS_LOCAL_WRITE), -EFAULT);
    assert_int_equal(munmap(at, 2 * PAGE), 0);
}

static void sw_mr_reg__publishes(void **state)
{
    struct rig *rig = *state;
    uint8_t bytes[100];
    struct sw_mr *mr = NULL;
    assert_int_equal(sw_mr_reg(rig->pd, bytes, 100, 0x5000, RIG_RIGHTS, &mr), 0);
    const struct sw_pub_mr *entry = &sw_nic.pub->mrs[sw_key_index(sw_mr_key(mr))];
    assert_int_equal((uint32_t)atomic_load(&entry->key_word), sw_mr_key(mr));
    assert_int_equal(entry->access, RIG_RIGHTS | SW_PUB_LOCAL_USE | SW_PUB_STEADY);
    assert_int_equal(entry->pd, rig->pd->id);
    assert_int_equal(entry->iova, 0x5000);
    assert_int_equal(entry->va, (uintptr_t)bytes);
    assert_int_equal(entry->len_bytes, 100);
    sw_mr_dereg(mr);
}

static void sw_mr_reg__zero_based_and_empty(void **state)
{
    struct rig *rig = *state;
    uint8_t bytes[8], *va;
    struct sw_mr *mr = NULL;
    assert_int_equal(sw_mr_reg(rig->pd, bytes, 8, (uintptr_t)bytes, IBV_ACCESS_ZERO_BASED, &mr), 0);
    struct ibv_sge sge = {4, 4, sw_mr_key(mr)};
    assert_true(sw_sge_resolve(rig->pd->id, &sge, 0, &va));
    assert_ptr_equal(va, bytes + 4);
    sw_mr_dereg(mr);
    assert_int_equal(sw_mr_reg(rig->pd, bytes, 0, (uintptr_t)bytes, 0, &mr), 0);
    sge = rig_sge(mr, bytes, 0);
    assert_true(sw_sge_resolve(rig->pd->id, &sge, 0, &va));
    sge.length = 1;
    assert_false(sw_sge_resolve(rig->pd->id, &sge, 0, &va));
    sw_mr_dereg(mr);
}

/* Nobody foresees a key: of 1,000 that are drawn each bit but those of the index is set in a half,
 * and one in 65,536 of the pairs differs in the index alone. */
static void sw_mr_draw_key__cannot_be_foreseen(void **state)
{
    enum { COUNT = 1000 };
    struct rig *rig = *state;
    uint8_t bytes[8];
    static uint32_t keys[COUNT];
    int set[32] = {0}, alike = 0, counting = 0;
    for (int i = 0; i < COUNT; i++) {
        struct sw_mr *mr = rig_mr(rig, bytes, 8, 0);
        keys[i] = sw_mr_key(mr);
        for (int bit = 0; bit < 32; bit++)
            set[bit] += keys[i] >> bit & 1;
        for (int j = 0; j < i; j++)
            alike += sw_key_make(0, keys[i]) == sw_key_make(0, keys[j]);
        counting += i && sw_key_index(keys[i]) == sw_key_index(keys[i - 1]) + 1;
        sw_mr_dereg(mr);
    }
    for (int bit = 0; bit < 32; bit++) /* 8 times the standard deviation to either side */
        assert_true((bit >= 8 && bit < 24) || (set[bit] > 370 && set[bit] < 630));
    assert_true(alike < 60);     /* 7.6 are expected */
    assert_true(counting < 130); /* 1 of 32: 31 */
}

/* As few pages as when they are counted, and none twice before all were there. */
static void sw_draw__goes_from_block_to_block(void **state)
{
    (void)state;
    enum { LIMIT = 1024 };
    static uint8_t seen[LIMIT];
    struct sw_draw draw;
    uint32_t first = 0, same_start = 0;
    memset(seen, 0, sizeof(seen));
    for (int round = 0; round < 20; round++) {
        sw_draw_start(&draw, LIMIT);
        same_start += round && draw.next == first;
        first = draw.next;
    }
    assert_true(same_start < 12); /* 0.6 of 19 are expected */
    for (uint32_t i = 0; i < LIMIT; i++) {
        uint32_t index = sw_draw(&draw);
        assert_true(index < LIMIT);
        assert_int_equal(index / SW_DRAW_BLOCK, (first + i) % LIMIT / SW_DRAW_BLOCK);
        assert_int_equal(seen[index]++, 0);
    }
}

/* Also when it begins within a block. */
static void sw_draw_all__brings_each_index(void **state)
{
    (void)state;
    static uint8_t seen[64];
    struct sw_draw draw;
    memset(seen, 0, sizeof(seen));
    sw_draw_start(&draw, 64);
    for (int i = 0; i < 7; i++)
        sw_draw(&draw);
    for (uint32_t i = 0; i < sw_draw_all(&draw); i++)
        seen[sw_draw(&draw)] = 1;
    for (int i = 0; i < 64; i++)
        assert_int_equal(seen[i], 1);
}

/* Each registration has a key of its own, also of the same memory; a key does not come back soon,
 * and the first table entry stays free so that 0 is never one. */
static void sw_mr_reg__keys(void **state)
{
    struct rig *rig = *state;
    uint8_t bytes[8];
    uint32_t before = 0;
    struct sw_mr *kept = rig_mr(rig, bytes, 8, 0);
    for (int i = 0; i < 1000; i++) {
        struct sw_mr *mr = rig_mr(rig, bytes, 8, 0);
        uint32_t key = sw_mr_key(mr);
        assert_true(sw_key_index(key) >= 1);
        assert_int_not_equal(key, before);
        assert_int_not_equal(key >> 8, sw_mr_key(kept) >> 8);
        before = key;
        sw_mr_dereg(mr);
    }
    sw_mr_dereg(kept);
}

static void sw_mr_reg__the_table_goes_round(void **state)
{
    struct rig *rig = *state;
    uint8_t bytes[8];
    /* At the table's end, in the last of its blocks. */
    sw_nic.mr_draw.next = UINT32_MAX;
    struct sw_mr *last = rig_mr(rig, bytes, 8, 0), *first = rig_mr(rig, bytes, 8, 0);
    assert_int_equal(last->index / SW_DRAW_BLOCK, SW_MAX_MR / SW_DRAW_BLOCK - 1);
    assert_int_equal(first->index / SW_DRAW_BLOCK, 0);
    assert_int_not_equal(first->index, 0);
    uint32_t stale = sw_mr_key(last), word = (uint32_t)last->index;
    sw_mr_dereg(last);
    rig_draw_next(&sw_nic.mr_draw, word); /* the same entry again */
    last = rig_mr(rig, bytes, 8, 0);
    assert_int_equal(last->index, word);
    assert_int_not_equal(sw_mr_key(last), stale);
    struct ibv_sge sge = {(uintptr_t)bytes, 8, stale};
    uint8_t *va;
    assert_false(sw_sge_resolve(rig->pd->id, &sge, 0, &va));
    sw_mr_dereg(last);
    sw_mr_dereg(first);
}

static uint64_t word_at_quiesce;
static struct sw_mr *quiesced;
static void (*real_quiesce)(void);

static void watch_quiesce(void)
{
    word_at_quiesce = atomic_load(&sw_nic.pub->mrs[quiesced->index].key_word);
    real_quiesce();
}

/* The key is gone before accesses are waited for: nobody can begin one afterwards. */
static void sw_mr_dereg__clears_then_waits(void **state)
{
    struct rig *rig = *state;
    uint8_t bytes[64];
    struct sw_link_ops ops = *sw_nic.link;
    const struct sw_link_ops *before = sw_nic.link;
    real_quiesce = ops.quiesce;
    ops.quiesce = watch_quiesce;
    sw_nic.link = &ops;
    quiesced = rig_mr(rig, bytes, 64, RIG_RIGHTS);
    word_at_quiesce = 1;
    sw_mr_dereg(quiesced);
    assert_int_equal(word_at_quiesce, 0);
    assert_int_equal(rig_log.quiesces, 1);
    sw_nic.link = before;
    assert_int_equal(atomic_load(&rig->pd->refs), 0);
}

/* A sender may have been told that receives are good up to some length: not any more. */
static void sw_mr_dereg__distrusts_posted_receives(void **state)
{
    struct rig *rig = *state;
    uint8_t bytes[64];
    struct sw_mr *mr = rig_mr(rig, bytes, 64, RIG_RIGHTS);
    struct sw_qp *qp = rig_qp(rig, 1, 4, NULL);
    rig_take_to(qp, IBV_QPS_INIT);
    struct ibv_sge sge = rig_sge(mr, bytes, 64);
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    assert_int_equal(sw_qp_post_recv(qp, &wr, &bad), 0);
    assert_int_equal(qp->pub->rq_len_min_bytes, 64);
    struct sw_pd *other = NULL;
    assert_int_equal(sw_pd_alloc(rig->ctx, &other), 0);
    struct sw_mr *others = NULL;
    assert_int_equal(sw_mr_reg(other, bytes, 64, 0, RIG_RIGHTS, &others), 0);
    sw_mr_dereg(others); /* of another PD: none of this QP's business */
    assert_int_equal(qp->pub->rq_len_min_bytes, 64);
    sw_mr_dereg(mr);
    assert_int_equal(qp->pub->rq_len_min_bytes, 0);
    sw_qp_destroy(qp);
    assert_int_equal(sw_pd_dealloc(other), 0);
}

static void sw_sge_resolve__checks(void **state)
{
    struct rig *rig = *state;
    uint8_t around[72], *bytes = around + 8, *va = NULL;
    struct sw_mr *mr = rig_mr(rig, bytes, 64, IBV_ACCESS_REMOTE_READ);
    struct ibv_sge sge = rig_sge(mr, bytes + 8, 56);
    assert_true(sw_sge_resolve(rig->pd->id, &sge, 0, &va));
    assert_ptr_equal(va, bytes + 8);
    assert_false(sw_sge_resolve(rig->pd->id, &sge, IBV_ACCESS_LOCAL_WRITE, &va));
    assert_false(sw_sge_resolve(rig->pd->id + 1, &sge, 0, &va));
    sge.length = 57;
    assert_false(sw_sge_resolve(rig->pd->id, &sge, 0, &va));
    sge = rig_sge(mr, bytes - 1, 1);
    assert_false(sw_sge_resolve(rig->pd->id, &sge, 0, &va));
    sge = rig_sge(mr, bytes, 1);
    sge.lkey ^= SW_MAX_MR << 8; /* beyond the table, same entry if cut */
    assert_false(sw_sge_resolve(rig->pd->id, &sge, 0, &va));
    sge.lkey = 0;
    assert_false(sw_sge_resolve(rig->pd->id, &sge, 0, &va));
    sw_mr_dereg(mr);
}

static uint8_t *map_file(void *at, int count, int *fd)
{
    *fd = memfd_create("file", MFD_CLOEXEC);
    assert_int_equal(ftruncate(*fd, (off_t)count * PAGE), 0);
    uint8_t *base = mmap(at, (size_t)count * PAGE, PROT_READ | PROT_WRITE,
                         MAP_SHARED | (at ? MAP_FIXED : 0), *fd, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    return base;
}

static bool has_view(struct rig *rig, uint8_t *at, uint64_t len_bytes)
{
    struct sw_mr *mr = NULL;
    uint8_t *va;
    assert_int_equal(sw_mr_reg(rig->pd, at, len_bytes, (uintptr_t)at, RIG_RIGHTS, &mr), 0);
    struct ibv_sge sge = rig_sge(mr, at, (uint32_t)len_bytes);
    assert_true(sw_sge_resolve(rig->pd->id, &sge, IBV_ACCESS_LOCAL_WRITE, &va));
    memset(va, 0x5a, len_bytes); /* the same memory, wherever it is */
    assert_int_equal(at[0], 0x5a);
    assert_int_equal(at[len_bytes - 1], 0x5a);
    at[0] = 1;
    assert_int_equal(va[0], 1);
    sw_mr_dereg(mr);
    return va != at;
}

static void sw_view_make__of_files_alone(void **state)
{
    struct rig *rig = *state;
    int fd, second;
    uint8_t *file = map_file(NULL, 4, &fd), *own = pages(8, PROT_READ | PROT_WRITE);
    assert_true(has_view(rig, file, 4 * PAGE));
    assert_true(has_view(rig, file + 100, PAGE + 17));
    assert_false(has_view(rig, own, 8 * PAGE));
    struct sw_mr *mr = NULL;
    assert_int_equal(sw_mr_reg(rig->pd, own, 8 * PAGE, 0, RIG_RIGHTS, &mr), 0);
    assert_false(has_view(rig, own + PAGE, 2 * PAGE)); /* adopted, if that is possible */
    sw_mr_dereg(mr);
    map_file(own + 2 * PAGE, 2, &second);
    assert_false(has_view(rig, own, 8 * PAGE)); /* of both kinds */
    map_file(own + 4 * PAGE, 2, &fd);
    assert_true(has_view(rig, own + 2 * PAGE + 8, 4 * PAGE - 16)); /* of two files */
    munmap(own, 8 * PAGE);
    munmap(file, 4 * PAGE);
}

static void sw_view_at__memory_that_is_taken_away(void **state)
{
    struct rig *rig = *state;
    int fd;
    uint8_t *file = map_file(NULL, 4, &fd), *va;
    struct sw_mr *mr = NULL;
    assert_int_equal(sw_mr_reg(rig->pd, file, 4 * PAGE, (uintptr_t)file, RIG_RIGHTS, &mr), 0);
    struct ibv_sge sge = rig_sge(mr, file + PAGE, 64);
    const uint8_t bytes[64] = {0};
    assert_true(sw_sge_resolve(rig->pd->id, &sge, IBV_ACCESS_LOCAL_WRITE, &va));
    assert_int_equal(sw_recv_scatter(rig->pd->id, &sge, 1, 0, bytes, 64), IBV_WC_SUCCESS);
    assert_true(sw_fault_probe(va, 64));
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_false(sw_fault_probe(va, 64));
    assert_int_equal(sw_recv_scatter(rig->pd->id, &sge, 1, 0, bytes, 64), IBV_WC_LOC_PROT_ERR);
    sw_mr_dereg(mr);
    assert_int_equal(ftruncate(fd, 4 * PAGE), 0);
    assert_true(has_view(rig, file, 4 * PAGE)); /* of what is there now */
    munmap(file, 4 * PAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_mr_reg__access_flags),
        rig_test(sw_mr_reg__ranges_that_wrap),
        rig_test(sw_mr_reg__memory_that_is_not_there),
        rig_test(sw_mr_reg__protection_of_the_memory),
        rig_test(sw_mr_reg__publishes),
        rig_test(sw_mr_reg__zero_based_and_empty),
        rig_test(sw_mr_draw_key__cannot_be_foreseen),
        rig_test(sw_draw__goes_from_block_to_block),
        rig_test(sw_draw_all__brings_each_index),
        rig_test(sw_mr_reg__keys),
        rig_test(sw_mr_reg__the_table_goes_round),
        rig_test(sw_mr_dereg__clears_then_waits),
        rig_test(sw_mr_dereg__distrusts_posted_receives),
        rig_test(sw_sge_resolve__checks),
        /* The first with a view: cmocka sets a handler for SIGBUS before each. */
        rig_test(sw_view_at__memory_that_is_taken_away),
        rig_test(sw_view_make__of_files_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
