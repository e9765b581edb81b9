/* SPDX-License-Identifier: BSD-2-Clause */
/* Real devices beside ours, played by fake_stock.c: both are in the list, and each function serves
 * whose object it is given. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

enum { MARK = 4242 };

static struct ibv_device *find(struct ibv_device **list, const char *name)
{
    struct ibv_device *found = NULL;
    for (int i = 0; list[i]; i++) {
        if (!strcmp(ibv_get_device_name(list[i]), name)) {
            assert_null(found); /* no name twice */
            found = list[i];
        }
    }
    return found;
}

static void device_list__real_ones_first(void **state)
{
    (void)state;
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    assert_non_null(list);
    assert_null(list[count]);
    assert_ptr_equal(find(list, "mlx9_0"), list[0]);
    assert_non_null(find(list, RIG_DEVICE));
    assert_true(ibv_get_device_guid(find(list, RIG_DEVICE)) != MARK);
    assert_true(ibv_get_device_guid(list[0]) == MARK);
    assert_int_equal(ibv_get_device_index(list[0]), MARK + 1); /* one list of stock's is out */
    struct ibv_device *real = list[0];
    ibv_free_device_list(list);
    assert_int_equal(ibv_get_device_index(real), MARK); /* and back */
}

/* Stock itself frees lists it made by our function. */
static void free_device_list__of_stocks_own(void **state)
{
    (void)state;
    struct ibv_device **(*stock)(void) =
        (struct ibv_device * *(*)(void)) dlsym(RTLD_DEFAULT, "fake_stock_list");
    assert_non_null(stock);
    struct ibv_device **list = stock();
    struct ibv_device *real = list[0];
    assert_int_equal(ibv_get_device_index(real), MARK + 1);
    ibv_free_device_list(list);
    assert_int_equal(ibv_get_device_index(real), MARK);
}

static struct ibv_context *open_real(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    assert_non_null(list);
    struct ibv_context *ctx = ibv_open_device(find(list, "mlx9_0"));
    ibv_free_device_list(list);
    assert_non_null(ctx);
    return ctx;
}

static void objects__go_to_their_library(void **state)
{
    (void)state;
    struct ibv_context *ctx = open_real();
    struct rig ours;
    rig_setup(&ours, NULL);
    struct ibv_device_attr device_attr;
    struct ibv_port_attr port;
    union ibv_gid gid;
    __be16 pkey;
    assert_int_equal(ibv_query_device(ctx, &device_attr), MARK);
    assert_int_equal(ibv_query_port(ctx, 1, &port), MARK); /* no query_port op: the function */
    assert_int_equal(ibv_query_gid(ctx, 1, 0, &gid), MARK);
    assert_int_equal(ibv_query_pkey(ctx, 1, 0, &pkey), MARK);

    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, channel, 0), *event_cq;
    struct ibv_mr *mr = ibv_reg_mr(pd, &gid, sizeof(gid), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp_init_attr init = rig_qp_attr(cq);
    struct ibv_srq_init_attr srq_init = {0};
    struct ibv_qp_attr attr = {0};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
    void *cq_context;
    assert_true(pd && channel && cq && mr && qp && srq);
    assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), MARK);
    assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), MARK);
    assert_int_equal(ibv_get_cq_event(channel, &event_cq, &cq_context), MARK);
    ibv_ack_cq_events(cq, 1);
    assert_int_equal(cq->comp_events_completed, MARK + 1);
    struct ibv_async_event event = {.event_type = IBV_EVENT_QP_FATAL, .element.qp = qp};
    assert_int_equal(ibv_get_async_event(ctx, &event), MARK);
    ibv_ack_async_event(&event);
    assert_int_equal(qp->events_completed, MARK);

    assert_int_equal(ibv_destroy_srq(srq), MARK);
    assert_int_equal(ibv_destroy_qp(qp), MARK);
    assert_int_equal(ibv_dereg_mr(mr), MARK);
    assert_int_equal(ibv_destroy_cq(cq), MARK);
    assert_int_equal(ibv_destroy_comp_channel(channel), MARK);
    assert_int_equal(ibv_dealloc_pd(pd), MARK);
    assert_int_equal(ibv_close_device(ctx), MARK);
    rig_teardown(&ours);
}

static void fork__is_stocks_affair_then(void **state)
{
    (void)state;
    assert_int_equal(ibv_fork_init(), MARK);
    assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_ENABLED);
}

/* Functions that this stock library does not have (it is a small one) fail as their kind does. */
static void missing_in_stock__fails_cleanly(void **state)
{
    (void)state;
    struct ibv_context *ctx = open_real();
    struct ibv_pd *pd = ibv_alloc_pd(ctx);
    int (*get_pkey_index)(struct ibv_context *, uint8_t, __be16) =
        (int (*)(struct ibv_context *, uint8_t, __be16))dlvsym(RTLD_DEFAULT, "ibv_get_pkey_index",
                                                               "IBVERBS_1.5");
    struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int) =
        (struct ibv_mr * (*)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int))
            dlvsym(RTLD_DEFAULT, "ibv_reg_mr_iova2", "IBVERBS_1.8");
    int (*dealloc_ah)(struct ibv_ah *) =
        (int (*)(struct ibv_ah *))dlvsym(RTLD_DEFAULT, "ibv_destroy_ah", "IBVERBS_1.1");
    assert_true(get_pkey_index && reg_mr_iova2 && dealloc_ah);
    errno = 0;
    assert_int_equal(get_pkey_index(ctx, 1, 0), -1);
    assert_int_equal(errno, EOPNOTSUPP);
    errno = 0;
    assert_null(reg_mr_iova2(pd, &errno, 1, 0, 0));
    assert_int_equal(errno, EOPNOTSUPP);
    struct ibv_ah ah = {.context = ctx};
    assert_int_equal(dealloc_ah(&ah), EOPNOTSUPP);
    assert_int_equal(ibv_dealloc_pd(pd), MARK);
    assert_int_equal(ibv_close_device(ctx), MARK);
}

/* Where the kernel has no RDMA at all, stock's list fails and ours are still there. */
static void device_list__stock_fails(void **state)
{
    (void)state;
    int count = 0;
    assert_int_equal(setenv("FAKE_STOCK", "none", 1), 0);
    struct ibv_device **list = ibv_get_device_list(&count);
    assert_non_null(list);
    assert_true(count > 0);
    assert_non_null(find(list, RIG_DEVICE));
    ibv_free_device_list(list);
    assert_int_equal(ibv_fork_init(), 0);
    unsetenv("FAKE_STOCK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_list__real_ones_first),
        cmocka_unit_test(free_device_list__of_stocks_own),
        cmocka_unit_test(objects__go_to_their_library),
        cmocka_unit_test(fork__is_stocks_affair_then),
        cmocka_unit_test(missing_in_stock__fails_cleanly),
        cmocka_unit_test(device_list__stock_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
