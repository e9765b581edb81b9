/* SPDX-License-Identifier: BSD-2-Clause */
/* Each verb that is not built says so, in its own convention, and touches nothing. */
#include <dlfcn.h>
#include <string.h>

#include "rig.h"

#define assert_null_unsupported(call)        \
    do {                                     \
        errno = 0;                           \
        assert_null(call);                   \
        assert_int_equal(errno, EOPNOTSUPP); \
    } while (0)

static void creators__null_and_errno(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    rig_add_qp(&rig, NULL);
    struct ibv_counters_init_attr counters = {0};
    struct ibv_wq_init_attr wq_attr = {.wq_type = IBV_WQT_RQ, .pd = rig.pd, .cq = rig.cq};
    struct ibv_rwq_ind_table_init_attr table = {0};
    struct ibv_flow_attr flow = {0};
    struct ibv_flow_action_esp_attr esp = {0};
    assert_null_unsupported(ibv_reg_dmabuf_mr(rig.pd, 0, 64, 0, 0, IBV_ACCESS_LOCAL_WRITE));
    assert_null_unsupported(ibv_create_counters(rig.ctx, &counters));
    assert_null_unsupported(ibv_create_wq(rig.ctx, &wq_attr));
    assert_null_unsupported(ibv_create_rwq_ind_table(rig.ctx, &table));
    assert_null_unsupported(ibv_create_flow(rig.qp, &flow));
    assert_null_unsupported(ibv_create_flow_action_esp(rig.ctx, &esp));
    assert_null_unsupported(ibv_import_pd(rig.ctx, UINT32_MAX));
    assert_null_unsupported(ibv_import_mr(rig.pd, UINT32_MAX));
    assert_null_unsupported(ibv_import_dm(rig.ctx, UINT32_MAX));
    rig_teardown(&rig);
}

static void others__positive_errno(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    rig_add_qp(&rig, NULL);

    struct ibv_counters counters = {.context = rig.ctx};
    struct ibv_flow flow = {.context = rig.ctx};
    struct ibv_wq wq = {.context = rig.ctx};
    struct ibv_rwq_ind_table table = {.context = rig.ctx};
    struct ibv_srq srq = {.context = rig.ctx};
    struct ibv_ops_wr op = {0}, *bad_op = NULL;
    struct ibv_wq_attr wq_attr = {0};
    uint64_t count;
    assert_int_equal(ibv_destroy_counters(&counters), EOPNOTSUPP);
    assert_int_equal(ibv_read_counters(&counters, &count, 1, 0), EOPNOTSUPP);
    assert_int_equal(ibv_attach_counters_point_flow(&counters, NULL, &flow), EOPNOTSUPP);
    assert_int_equal(ibv_destroy_flow(&flow), EOPNOTSUPP);
    assert_int_equal(ibv_modify_wq(&wq, &wq_attr), EOPNOTSUPP);
    assert_int_equal(ibv_destroy_wq(&wq), EOPNOTSUPP);
    assert_int_equal(ibv_destroy_rwq_ind_table(&table), EOPNOTSUPP);
    assert_int_equal(ibv_post_srq_ops(&srq, &op, &bad_op), EOPNOTSUPP);
    assert_ptr_equal(bad_op, &op);
    rig_teardown(&rig);
}

static void *find(const char *name, const char *version)
{
    void *symbol = dlvsym(RTLD_DEFAULT, name, version);
    if (!symbol)
        fail_msg("%s@%s: %s", name, version, dlerror());
    return symbol;
}

static void newer__functions_past_our_headers(void **state)
{
    (void)state;
    struct rig rig;
    rig_setup(&rig, NULL);
    rig_add_qp(&rig, NULL);
    void *(*alloc_dmah)(void *, void *) = find("ibv_alloc_dmah", "IBVERBS_1.15");
    void *(*alloc_buf)(void *, size_t, void **) = find("ibv_alloc_buf", "IBVERBS_1.17");
    void *(*create_counter)(void *, void *) = find("ibv_create_comp_cntr", "IBVERBS_1.18");
    int (*port_speed)(void *, uint32_t, uint64_t *) = find("ibv_query_port_speed", "IBVERBS_1.16");
    int (*caps)(void *, void *, size_t) = find("_ibv_query_comp_cntr_caps", "IBVERBS_1.18");
    int (*attach)(void *, void *, void *) = find("ibv_qp_attach_comp_cntr", "IBVERBS_1.18");
    uint64_t room[8];
    void *buf;
    assert_null_unsupported(alloc_dmah(rig.ctx, room));
    assert_null_unsupported(alloc_buf(rig.pd, 64, &buf));
    assert_null_unsupported(create_counter(rig.ctx, room));
    assert_int_equal(port_speed(rig.ctx, 1, room), EOPNOTSUPP);
    assert_int_equal(caps(rig.ctx, room, sizeof(room)), EOPNOTSUPP);
    assert_int_equal(attach(rig.qp, NULL, NULL), EOPNOTSUPP);

    /* ibv_reg_mr_ex is built: struct ibv_mr_init_attr as newer headers have it. */
    struct {
        size_t length;
        int access;
        uint64_t comp_mask, iova;
        void *addr;
        int fd;
        uint64_t fd_offset;
        void *dmah;
    } attr = {.length = 64, .access = IBV_ACCESS_LOCAL_WRITE, .addr = rig.buf, .comp_mask = 1 << 1};
    struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, void *) = find("ibv_reg_mr_ex", "IBVERBS_1.15");
    struct ibv_mr *mr = reg_mr_ex(rig.pd, &attr);
    assert_non_null(mr);
    assert_ptr_equal(mr->addr, rig.buf);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    attr.comp_mask = 1 << 1 | 1 << 2; /* a descriptor */
    assert_null_unsupported(reg_mr_ex(rig.pd, &attr));
    attr.comp_mask = 0;
    errno = 0;
    assert_null(reg_mr_ex(rig.pd, &attr));
    assert_int_equal(errno, EINVAL);
    rig_teardown(&rig);
}

/* The first interface of libibverbs: such a program finds no device of ours, and does not crash. */
static void compat__a_program_of_2006(void **state)
{
    (void)state;
    void **(*get_list)(int *) = find("ibv_get_device_list", "IBVERBS_1.0");
    void (*free_list)(void **) = find("ibv_free_device_list", "IBVERBS_1.0");
    int count = 0;
    void **list = get_list(&count);
    if (list) {
        assert_null(list[count]);
        free_list(list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creators__null_and_errno),
        cmocka_unit_test(others__positive_errno),
        cmocka_unit_test(newer__functions_past_our_headers),
        cmocka_unit_test(compat__a_program_of_2006),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
