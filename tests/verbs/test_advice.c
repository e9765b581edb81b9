/* SPDX-License-Identifier: BSD-2-Clause */
/* Advice about regions: their pages are there afterwards, with what was in them. ibv_advise_mr(3).
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rig.h"

#define AREA_BYTES ((size_t)64 << 10)
#define READ_ADVICE IBV_ADVISE_MR_ADVICE_PREFETCH
#define WRITE_ADVICE IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* How many of the area's pages are in memory. */
static size_t count_present(void *area)
{
    unsigned char present[AREA_BYTES / 4096];
    size_t count = 0;
    assert_int_equal(mincore(area, AREA_BYTES, present), 0);
    for (size_t i = 0; i < sizeof(present); i++)
        count += present[i] & 1;
    return count;
}

static int advise(struct rig *rig, const struct ibv_mr *mr, enum ibv_advise_mr_advice advice)
{
    struct ibv_sge sge = {(uintptr_t)mr->addr, (uint32_t)mr->length, mr->lkey};
    return ibv_advise_mr(rig->pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
}

static void advice__populates_a_file(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), AREA_BYTES), 0);
    assert_int_equal(pwrite(fileno(file), "first", 5, 0), 5);
    char *area = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    assert_true(area != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(rig.pd, area, AREA_BYTES, RIGHTS);
    assert_non_null(mr);
    assert_int_equal(advise(&rig, mr, READ_ADVICE), 0);
    assert_int_equal(count_present(area), AREA_BYTES / 4096);
    assert_int_equal(advise(&rig, mr, WRITE_ADVICE), 0);
    assert_int_equal(advise(&rig, mr, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT), 0);
    assert_string_equal(area, "first");
    ibv_dereg_mr(mr);
    munmap(area, AREA_BYTES);
    fclose(file);
    rig_teardown(&rig);
}

static void advice__keeps_what_is_in_private_memory(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    char *area = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(area != MAP_FAILED);
    memset(area, 'x', AREA_BYTES / 2);
    struct ibv_mr *mr = ibv_reg_mr(rig.pd, area, AREA_BYTES, RIGHTS);
    assert_non_null(mr);
    assert_int_equal(advise(&rig, mr, WRITE_ADVICE), 0);
    assert_int_equal(count_present(area), AREA_BYTES / 4096);
    for (size_t i = 0; i < AREA_BYTES; i++)
        assert_int_equal(area[i], i < AREA_BYTES / 2 ? 'x' : 0);
    ibv_dereg_mr(mr);
    munmap(area, AREA_BYTES);
    rig_teardown(&rig);
}

static void advice__refuses_bad_arguments(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    struct ibv_pd *other_pd = ibv_alloc_pd(rig.ctx);
    struct ibv_mr *readable = ibv_reg_mr(rig.pd, rig.buf, RIG_BUF_BYTES, IBV_ACCESS_REMOTE_READ);
    assert_true(other_pd && readable);
    struct ibv_sge sge = rig_sge(&rig, 0, RIG_BUF_BYTES), past = sge, unknown = sge, two[2];
    assert_int_equal(ibv_advise_mr(rig.pd, READ_ADVICE, 0, &sge, 1), 0);
    past.addr += 1;
    assert_int_equal(ibv_advise_mr(rig.pd, READ_ADVICE, 0, &past, 1), EFAULT);
    unknown.lkey ^= 1;
    assert_int_equal(ibv_advise_mr(rig.pd, READ_ADVICE, 0, &unknown, 1), ENOENT);
    two[0] = sge;
    two[1] = unknown;
    assert_int_equal(ibv_advise_mr(rig.pd, READ_ADVICE, 0, two, 2), ENOENT);
    assert_int_equal(ibv_advise_mr(other_pd, READ_ADVICE, 0, &sge, 1), EPERM);
    assert_int_equal(ibv_advise_mr(rig.pd, READ_ADVICE, 1u << 5, &sge, 1), EINVAL);
    assert_int_equal(ibv_advise_mr(rig.pd, READ_ADVICE, 0, &sge, 0), EINVAL);
    assert_int_equal(ibv_advise_mr(rig.pd, (enum ibv_advise_mr_advice)9, 0, &sge, 1), ENOTSUP);
    assert_int_equal(advise(&rig, readable, READ_ADVICE), 0);
    assert_int_equal(advise(&rig, readable, WRITE_ADVICE), EPERM);
    ibv_dereg_mr(readable);
    ibv_dealloc_pd(other_pd);
    rig_teardown(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advice__populates_a_file),
        cmocka_unit_test(advice__keeps_what_is_in_private_memory),
        cmocka_unit_test(advice__refuses_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
