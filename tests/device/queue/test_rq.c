/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/rq.h"

#include <stdlib.h>

#include "nic_rig.h"

enum { RING = 4, SGES = 2 };

static struct sw_rq new_rq(uint32_t pd, uint32_t position)
{
    struct sw_rq_shape shape = sw_rq_shape(RING, SGES);
    struct sw_rq rq = {
        .entries = shape.entries,
        .stride_bytes = shape.stride_bytes,
        .sge_max = SGES,
        .wr_max = shape.entries,
        .ring = calloc(shape.entries, shape.stride_bytes),
        .wr_ids = calloc(shape.entries, sizeof(uint64_t)),
        .posted = position,
        .consumed = position,
        .pd = pd,
    };
    assert_non_null(rq.ring);
    assert_non_null(rq.wr_ids);
    return rq;
}

static void free_rq(struct sw_rq *rq)
{
    free(rq->ring);
    free(rq->wr_ids);
}

static void sw_rq_shape__powers_of_two_and_whole_strides(void **state)
{
    (void)state;
    static const uint32_t wanted[] = {0, 1, 2, 3, 4, 5, 1000, 32768};
    static const uint32_t granted[] = {1, 1, 2, 4, 4, 8, 1024, 32768};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        assert_int_equal(sw_rq_shape(wanted[i], 1).entries, granted[i]);
    for (uint32_t sges = 0; sges <= 32; sges++) {
        uint32_t stride = sw_rq_shape(1, sges).stride_bytes;
        assert_true(stride >= sizeof(struct sw_pub_recv) + sges * sizeof(struct ibv_sge));
        assert_true(stride < sizeof(struct sw_pub_recv) + sges * sizeof(struct ibv_sge) + 32);
        assert_int_equal(stride % 32, 0);
    }
}

static int append(struct sw_rq *rq, uint64_t wr_id, struct ibv_sge *sges, int count,
                  uint32_t *len_bytes)
{
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = sges, .num_sge = count};
    int rc;
    rig_locked(&rq->lock, rc = sw_rq_append(rq, &wr, len_bytes));
    if (!rc)
        rq->posted++;
    return rc;
}

static void sw_rq_append__keeps_the_list(void **state)
{
    struct rig *rig = *state;
    uint8_t bytes[64];
    struct sw_mr *mr = rig_mr(rig, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);
    struct sw_rq rq = new_rq(rig->pd->id, 0);
    struct ibv_sge sges[] = {rig_sge(mr, bytes, 10), rig_sge(mr, bytes + 32, 32)};
    uint32_t len = 0;
    assert_int_equal(append(&rq, 42, sges, 2, &len), 0);
    assert_int_equal(len, 42);
    assert_int_equal(rq.wr_ids[0], 42);
    assert_int_equal(sw_rq_at(&rq, 0)->sge_count, 2);
    assert_int_equal(sw_rq_at(&rq, 0)->len_bytes, 42);
    assert_memory_equal(sw_rq_at(&rq, 0)->sges, sges, sizeof(sges));
    assert_int_equal(sw_rq_depth(&rq), 1);
    free_rq(&rq);
    sw_mr_dereg(mr);
}

static void sw_rq_append__full_also_past_the_wrap_of_positions(void **state)
{
    struct rig *rig = *state;
    struct sw_rq rq = new_rq(rig->pd->id, UINT32_MAX - 1);
    uint32_t len;
    for (uint64_t i = 0; i < RING; i++)
        assert_int_equal(append(&rq, i, NULL, 0, &len), 0);
    assert_int_equal(rq.posted, 2); /* wrapped */
    assert_int_equal(sw_rq_depth(&rq), RING);
    assert_int_equal(append(&rq, 9, NULL, 0, &len), -ENOMEM);
    for (uint64_t i = 0; i < RING; i++)
        assert_int_equal(rq.wr_ids[(UINT32_MAX - 1 + i) & (RING - 1)], i);
    rq.consumed++;
    assert_int_equal(append(&rq, 9, NULL, 0, &len), 0);
    assert_int_equal(append(&rq, 9, NULL, 0, &len), -ENOMEM);
    free_rq(&rq);
}

static void sw_rq_append__element_counts(void **state)
{
    struct rig *rig = *state;
    struct sw_rq rq = new_rq(rig->pd->id, 0);
    struct ibv_sge sges[SGES + 1] = {{0}};
    uint32_t len = 77;
    assert_int_equal(append(&rq, 1, sges, SGES + 1, &len), -EINVAL);
    assert_int_equal(append(&rq, 1, sges, -1, &len), -EINVAL);
    assert_int_equal(len, 77);
    assert_int_equal(append(&rq, 1, sges, SGES, &len), 0);
    free_rq(&rq);
}

/* The length tells a sender what it may send without asking: 0 where a key is not good. */
static void sw_rq_append__length_of_unusable_lists_is_zero(void **state)
{
    struct rig *rig = *state;
    uint8_t bytes[64];
    struct sw_mr *mr = rig_mr(rig, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);
    struct sw_mr *fixed = rig_mr(rig, bytes, sizeof(bytes), 0);
    struct sw_rq rq = new_rq(rig->pd->id, 0);
    struct ibv_sge good = rig_sge(mr, bytes, 8), read_only = rig_sge(fixed, bytes, 8);
    struct ibv_sge outside = rig_sge(mr, bytes + 60, 8), no_key = good;
    no_key.lkey ^= 1;
    struct ibv_sge empty_no_key = {0, 0, 0xdead00};
    struct ibv_sge *bad[] = {&read_only, &outside, &no_key};
    uint32_t len;
    for (size_t i = 0; i < 3; i++) {
        struct ibv_sge list[] = {good, *bad[i]};
        assert_int_equal(append(&rq, 1, list, 2, &len), 0);
        assert_int_equal(len, 0);
    }
    struct ibv_sge list[] = {good, empty_no_key}; /* an empty element's key is not looked at */
    assert_int_equal(append(&rq, 1, list, 2, &len), 0);
    assert_int_equal(len, 8);
    free_rq(&rq);
    sw_mr_dereg(mr);
    sw_mr_dereg(fixed);
}

static void sw_rq_append__length_saturates(void **state)
{
    struct rig *rig = *state;
    struct sw_rq rq = new_rq(rig->pd->id, 0);
    struct ibv_sge sges[] = {{0, UINT32_MAX, 0}, {0, UINT32_MAX, 0}};
    uint32_t len;
    assert_int_equal(append(&rq, 1, sges, 2, &len), 0);
    assert_int_equal(sw_rq_at(&rq, 0)->len_bytes, UINT32_MAX);
    free_rq(&rq);
}

struct scatter_rig {
    uint8_t bytes[64];
    struct sw_mr *mr;
    struct ibv_sge sges[3]; /* 5 bytes at 0, none, 7 bytes at 32 */
};

static void scatter_up(struct rig *rig, struct scatter_rig *s)
{
    memset(s->bytes, '.', sizeof(s->bytes));
    s->mr = rig_mr(rig, s->bytes, sizeof(s->bytes), IBV_ACCESS_LOCAL_WRITE);
    s->sges[0] = rig_sge(s->mr, s->bytes, 5);
    s->sges[1] = (struct ibv_sge){0};
    s->sges[2] = rig_sge(s->mr, s->bytes + 32, 7);
}

static void sw_recv_scatter__over_elements(void **state)
{
    struct rig *rig = *state;
    struct scatter_rig s;
    scatter_up(rig, &s);
    uint32_t pd = rig->pd->id;
    assert_int_equal(sw_recv_scatter(pd, s.sges, 3, 0, "abcdefghijkl", 12), IBV_WC_SUCCESS);
    assert_memory_equal(s.bytes, "abcde...", 8);
    assert_memory_equal(s.bytes + 28, "....fghijkl....", 15);
    /* In two pieces, the second from the middle of an element on. */
    assert_int_equal(sw_recv_scatter(pd, s.sges, 3, 0, "ABC", 3), IBV_WC_SUCCESS);
    assert_int_equal(sw_recv_scatter(pd, s.sges, 3, 3, "DEFG", 4), IBV_WC_SUCCESS);
    assert_memory_equal(s.bytes, "ABCDE...", 8);
    assert_memory_equal(s.bytes + 28, "....FGhijkl....", 15);
    assert_int_equal(sw_recv_scatter(pd, s.sges, 3, 11, "L", 1), IBV_WC_SUCCESS);
    assert_int_equal(s.bytes[38], 'L');
    assert_int_equal(sw_recv_scatter(pd, s.sges, 3, 12, "", 0), IBV_WC_SUCCESS);
    sw_mr_dereg(s.mr);
}

static void sw_recv_scatter__too_long(void **state)
{
    struct rig *rig = *state;
    struct scatter_rig s;
    scatter_up(rig, &s);
    assert_int_equal(sw_recv_scatter(rig->pd->id, s.sges, 3, 0, "abcdefghijklm", 13),
                     IBV_WC_LOC_LEN_ERR);
    assert_int_equal(s.bytes[39], '.');
    assert_int_equal(sw_recv_scatter(rig->pd->id, s.sges, 3, 12, "x", 1), IBV_WC_LOC_LEN_ERR);
    assert_int_equal(sw_recv_scatter(rig->pd->id, s.sges, 3, UINT64_MAX, "x", 1),
                     IBV_WC_LOC_LEN_ERR);
    assert_int_equal(sw_recv_scatter(rig->pd->id, s.sges, 0, 0, "x", 1), IBV_WC_LOC_LEN_ERR);
    sw_mr_dereg(s.mr);
}

static void sw_recv_scatter__keys_are_checked_again(void **state)
{
    struct rig *rig = *state;
    struct scatter_rig s;
    scatter_up(rig, &s);
    assert_int_equal(sw_recv_scatter(rig->pd->id + 1, s.sges, 3, 0, "abc", 3), IBV_WC_LOC_PROT_ERR);
    sw_mr_dereg(s.mr);
    assert_int_equal(sw_recv_scatter(rig->pd->id, s.sges, 3, 0, "abc", 3), IBV_WC_LOC_PROT_ERR);
    assert_memory_equal(s.bytes, "........", 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_rq_shape__powers_of_two_and_whole_strides),
        rig_test(sw_rq_append__keeps_the_list),
        rig_test(sw_rq_append__full_also_past_the_wrap_of_positions),
        rig_test(sw_rq_append__element_counts),
        rig_test(sw_rq_append__length_of_unusable_lists_is_zero),
        rig_test(sw_rq_append__length_saturates),
        rig_test(sw_recv_scatter__over_elements),
        rig_test(sw_recv_scatter__too_long),
        rig_test(sw_recv_scatter__keys_are_checked_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
