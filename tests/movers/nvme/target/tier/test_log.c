/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/tier/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct nvt_tier_super super = {.identity = "0123456789abcde",
                                            .copies = 3,
                                            .copy = 1,
                                            .ring_bytes = 64ull << 20,
                                            .stage_bytes = 1 << 20};

static void super__each_byte_matters(void **state)
{
    uint8_t bytes[NVT_TIER_HEAD_BYTES];
    struct nvt_tier_super read;
    (void)state;
    nvt_tier_super_encode(&super, bytes);
    assert_int_equal(nvt_tier_super_decode(bytes, &read), NVT_TIER_GOOD);
    assert_int_equal(read.ring_bytes, super.ring_bytes);
    assert_int_equal(read.copy, 1);
    for (uint32_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] ^= 0x10;
        assert_int_not_equal(nvt_tier_super_decode(bytes, &read), NVT_TIER_GOOD);
        bytes[i] ^= 0x10;
    }
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(nvt_tier_super_decode(bytes, &read), NVT_TIER_BLANK);
    bytes[0] = 'x';
    assert_int_equal(nvt_tier_super_decode(bytes, &read), NVT_TIER_FOREIGN);
}

static void super__impossible_sizes(void **state)
{
    uint8_t bytes[NVT_TIER_HEAD_BYTES];
    struct nvt_tier_super wrong = super, read;
    (void)state;
    wrong.stage_bytes = 3 << 18;
    nvt_tier_super_encode(&wrong, bytes);
    assert_int_equal(nvt_tier_super_decode(bytes, &read), NVT_TIER_DAMAGED);
    wrong = super;
    wrong.ring_bytes = 4 << 20;
    nvt_tier_super_encode(&wrong, bytes);
    assert_int_equal(nvt_tier_super_decode(bytes, &read), NVT_TIER_DAMAGED);
    wrong = super;
    wrong.copy = 3;
    nvt_tier_super_encode(&wrong, bytes);
    assert_int_equal(nvt_tier_super_decode(bytes, &read), NVT_TIER_DAMAGED);
}

static void slot__each_byte_matters(void **state)
{
    uint8_t bytes[NVT_TIER_SLOT_BYTES];
    const struct nvt_tier_slot slot = {.count = 7,
                                       .epoch = 3,
                                       .head = 6400,
                                       .check = 99,
                                       .head_epoch = 2,
                                       .stamp = {.size_bytes = 5, .mtime_ns = 17},
                                       .is_destaging = true};
    struct nvt_tier_slot read;
    struct nvt_tier_super other = super;
    (void)state;
    nvt_tier_slot_encode(&super, &slot, bytes);
    assert_int_equal(nvt_tier_slot_decode(&super, bytes, &read), NVT_TIER_GOOD);
    assert_memory_equal(&read, &slot, sizeof(slot));
    for (uint32_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] ^= 1;
        assert_int_equal(nvt_tier_slot_decode(&super, bytes, &read), NVT_TIER_DAMAGED);
        bytes[i] ^= 1;
    }
    other.identity[0]++;
    assert_int_equal(nvt_tier_slot_decode(&other, bytes, &read), NVT_TIER_DAMAGED);
}

static void record__each_byte_matters(void **state)
{
    uint8_t bytes[NVT_TIER_HEAD_BYTES];
    struct nvt_tier_record record = {.kind = NVT_TIER_WRITE,
                                     .payload_bytes = 512,
                                     .payload_sum = 5,
                                     .position = 640,
                                     .epoch = 9,
                                     .offset = 4096,
                                     .len_bytes = 512,
                                     .before = 77};
    struct nvt_tier_record read;
    (void)state;
    nvt_tier_record_encode(&super, &record, bytes);
    assert_true(nvt_tier_record_decode(&super, bytes, &read));
    assert_int_equal(read.check, record.check);
    assert_int_equal(read.before, 77);
    for (uint32_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] ^= 0x80;
        assert_false(nvt_tier_record_decode(&super, bytes, &read));
        bytes[i] ^= 0x80;
    }
    record.len_bytes = 1024;
    nvt_tier_record_encode(&super, &record, bytes);
    assert_false(nvt_tier_record_decode(&super, bytes, &read));
}

static void divide__fits(void **state)
{
    uint64_t ring;
    uint32_t stage;
    (void)state;
    assert_false(nvt_tier_divide(NVT_TIER_RING + (4 << 20) - 1, &ring, &stage));
    for (uint64_t bytes = NVT_TIER_RING + (4 << 20); bytes < 1ull << 42; bytes += bytes / 3) {
        struct nvt_tier_super made = super;
        uint8_t head[NVT_TIER_HEAD_BYTES];
        assert_true(nvt_tier_divide(bytes, &made.ring_bytes, &made.stage_bytes));
        assert_true(made.ring_bytes + NVT_TIER_RING <= bytes);
        nvt_tier_super_encode(&made, head);
        assert_int_equal(nvt_tier_super_decode(head, &made), NVT_TIER_GOOD);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(super__each_byte_matters),
        cmocka_unit_test(super__impossible_sizes),
        cmocka_unit_test(slot__each_byte_matters),
        cmocka_unit_test(record__each_byte_matters),
        cmocka_unit_test(divide__fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
