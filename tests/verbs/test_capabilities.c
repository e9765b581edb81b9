/* SPDX-License-Identifier: BSD-2-Clause */
/* The device's verbs do what it says it can do, and what a software NIC is not is neither announced
 * nor half there. */
#include <dlfcn.h>
#include <fcntl.h>
#include <sidewire/flush.h>
#include <string.h>

#include "rig.h"

struct offer {
    struct rig rig;
    struct ibv_device_attr_ex attr;
};

static void offer_setup(struct offer *offer)
{
    rig_setup(&offer->rig, NULL);
    memset(&offer->attr, 0, sizeof(offer->attr));
    assert_int_equal(ibv_query_device_ex(offer->rig.ctx, NULL, &offer->attr), 0);
}

static bool announces(const struct offer *offer, unsigned int bit)
{
    return offer->attr.orig_attr.device_cap_flags & bit;
}

/* Either the object comes, or the verb says that there is no such thing. */
#define assert_offered(object, announced)              \
    do {                                               \
        if ((object) == NULL)                          \
            assert_int_equal(errno, EOPNOTSUPP);       \
        assert_int_equal((object) != NULL, announced); \
    } while (0)

static void windows__announced(void **state)
{
    (void)state;
    struct offer offer;
    offer_setup(&offer);
    struct ibv_mw *one = ibv_alloc_mw(offer.rig.pd, IBV_MW_TYPE_1);
    assert_offered(one, announces(&offer, IBV_DEVICE_MEM_WINDOW));
    struct ibv_mw *two = ibv_alloc_mw(offer.rig.pd, IBV_MW_TYPE_2);
    assert_offered(
        two, announces(&offer, IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B));
    /* One kind of type 2 or the other: 10.6.7.2.1 */
    assert_false(announces(&offer, IBV_DEVICE_MEM_WINDOW_TYPE_2A) &&
                 announces(&offer, IBV_DEVICE_MEM_WINDOW_TYPE_2B));
    assert_int_equal(offer.attr.orig_attr.max_mw > 0, one || two);
    if (one)
        assert_int_equal(ibv_dealloc_mw(one), 0);
    if (two)
        assert_int_equal(ibv_dealloc_mw(two), 0);
    rig_teardown(&offer.rig);
}

static void xrc__announced(void **state)
{
    (void)state;
    struct offer offer;
    offer_setup(&offer);
    struct ibv_xrcd_init_attr init = {.comp_mask =
                                          IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
                                      .fd = -1,
                                      .oflags = O_CREAT};
    struct ibv_xrcd *xrcd = ibv_open_xrcd(offer.rig.ctx, &init);
    assert_offered(xrcd, announces(&offer, IBV_DEVICE_XRC));
    if (xrcd)
        assert_int_equal(ibv_close_xrcd(xrcd), 0);
    rig_teardown(&offer.rig);
}

static void memory__announced(void **state)
{
    (void)state;
    struct offer offer;
    offer_setup(&offer);
    struct ibv_alloc_dm_attr init = {.length = 64};
    struct ibv_dm *dm = ibv_alloc_dm(offer.rig.ctx, &init);
    assert_offered(dm, offer.attr.max_dm_size > 0);
    if (dm) {
        struct ibv_dm *again = ibv_import_dm(offer.rig.ctx, dm->handle);
        assert_non_null(again);
        ibv_unimport_dm(again);
        assert_int_equal(ibv_free_dm(dm), 0);
    }
    struct ibv_mr *mr =
        ibv_reg_mr(offer.rig.pd, offer.rig.buf, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    bool odp = offer.attr.odp_caps.general_caps & IBV_ODP_SUPPORT;
    assert_offered(mr, odp);
    /* A request does the same over XRC as over RC. */
    assert_int_equal(offer.attr.xrc_odp_caps, offer.attr.odp_caps.per_transport_caps.rc_odp_caps);
    assert_int_equal(offer.attr.xrc_odp_caps & IBV_ODP_SUPPORT_READ ? 1 : 0, odp);
    if (mr)
        assert_int_equal(ibv_dereg_mr(mr), 0);
    mr = ibv_reg_mr(offer.rig.pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    bool implicit = offer.attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT;
    assert_int_equal(mr != NULL, implicit);
    if (mr)
        assert_int_equal(ibv_dereg_mr(mr), 0);
    rig_teardown(&offer.rig);
}

/* Persistence is announced, but this memory has none. */
static void flush__announced(void **state)
{
    (void)state;
    struct offer offer;
    offer_setup(&offer);
    uint64_t flags = offer.attr.device_cap_flags_ex;
    void *bytes = offer.rig.buf;
    struct ibv_mr *mr = ibv_reg_mr(offer.rig.pd, bytes, 64, IBV_ACCESS_FLUSH_GLOBAL);
    assert_int_equal(mr != NULL, (flags & IB_UVERBS_DEVICE_FLUSH_GLOBAL) != 0);
    if (mr)
        assert_int_equal(ibv_dereg_mr(mr), 0);
    assert_true(flags & IB_UVERBS_DEVICE_FLUSH_PERSISTENT);
    assert_null(ibv_reg_mr(offer.rig.pd, bytes, 64, IBV_ACCESS_FLUSH_PERSISTENT));
    assert_int_equal(errno, EINVAL);
    rig_teardown(&offer.rig);
}

static void cqs__announced(void **state)
{
    (void)state;
    struct offer offer;
    offer_setup(&offer);
    struct ibv_modify_cq_attr moderate = {.attr_mask = IBV_CQ_ATTR_MODERATE,
                                          .moderate = {.cq_count = 1, .cq_period = 1}};
    int rc = ibv_modify_cq(offer.rig.cq, &moderate);
    assert_int_equal(rc, offer.attr.cq_mod_caps.max_cq_count ? 0 : EOPNOTSUPP);
    struct ibv_cq_init_attr_ex init = {.cqe = 4, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(offer.rig.ctx, &init);
    assert_offered(cq, offer.attr.completion_timestamp_mask != 0);
    if (cq)
        assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    assert_true(announces(&offer, IBV_DEVICE_PORT_ACTIVE_EVENT));
    assert_true(announces(&offer, IBV_DEVICE_RC_RNR_NAK_GEN));
    assert_true(announces(&offer, IBV_DEVICE_SYS_IMAGE_GUID));
    assert_true(announces(&offer, IBV_DEVICE_CURR_QP_STATE_MOD));
    rig_teardown(&offer.rig);
}

/* Raw packets, and what stands on them; tag matching. */
static void raw_packets__refused(void **state)
{
    (void)state;
    struct offer offer;
    offer_setup(&offer);
    assert_false(announces(&offer, IBV_DEVICE_RAW_MULTI | IBV_DEVICE_RAW_IP_CSUM |
                                       IBV_DEVICE_UD_IP_CSUM | IBV_DEVICE_MANAGED_FLOW_STEERING));
    assert_int_equal(offer.attr.raw_packet_caps, 0);
    assert_int_equal(offer.attr.rss_caps.supported_qpts, 0);
    assert_int_equal(offer.attr.tso_caps.max_tso, 0);
    assert_int_equal(offer.attr.tm_caps.max_num_tags, 0);
    assert_int_equal(offer.attr.max_wq_type_rq, 0);
    struct ibv_qp_init_attr init = rig_qp_attr(offer.rig.cq);
    init.qp_type = IBV_QPT_RAW_PACKET;
    errno = 0;
    assert_null(ibv_create_qp(offer.rig.pd, &init));
    assert_int_equal(errno, EOPNOTSUPP);
    struct ibv_flow_action_esp_attr esp = {0};
    assert_int_equal(ibv_modify_flow_action_esp((struct ibv_flow_action *)&offer, &esp),
                     EOPNOTSUPP);
    assert_int_equal(ibv_destroy_flow_action((struct ibv_flow_action *)&offer), EOPNOTSUPP);
    rig_teardown(&offer.rig);
}

/* The fields of completions that only raw packets and tags have. */
static void raw_packets__fields_unsupported(void **state)
{
    (void)state;
    struct offer offer;
    offer_setup(&offer);
    static const uint64_t fields[] = {IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG,
                                      IBV_WC_EX_WITH_TM_INFO};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        struct ibv_cq_init_attr_ex init = {.cqe = 4, .wc_flags = fields[i]};
        errno = 0;
        assert_null(ibv_create_cq_ex(offer.rig.ctx, &init));
        assert_int_equal(errno, EOPNOTSUPP);
    }
    struct ibv_cq_init_attr_ex init = {.cqe = 4};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(offer.rig.ctx, &init);
    assert_non_null(cq);
    struct ibv_wc_tm_info info = {.tag = 1};
    assert_int_equal(ibv_wc_read_cvlan(cq), 0);
    assert_int_equal(ibv_wc_read_flow_tag(cq), 0);
    ibv_wc_read_tm_info(cq, &info);
    assert_int_equal(info.tag, 0);
    assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    rig_teardown(&offer.rig);
}

static void *find(const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (!symbol)
        fail_msg("%s: %s", name, dlerror());
    return symbol;
}

/* Completion counters and buffers came after our headers. */
static void newer__counters_and_buffers_unsupported(void **state)
{
    (void)state;
    struct offer offer;
    offer_setup(&offer);
    uint64_t object[64] = {(uintptr_t)offer.rig.ctx}, value = 7;
    int (*destroy)(void *) = find("ibv_destroy_comp_cntr");
    int (*set)(void *, uint64_t) = find("ibv_set_comp_cntr");
    int (*set_err)(void *, uint64_t) = find("ibv_set_err_comp_cntr");
    int (*inc)(void *, uint64_t) = find("ibv_inc_comp_cntr");
    int (*inc_err)(void *, uint64_t) = find("ibv_inc_err_comp_cntr");
    int (*read)(void *, uint64_t *) = find("ibv_read_comp_cntr");
    int (*read_err)(void *, uint64_t *) = find("ibv_read_err_comp_cntr");
    int (*dealloc)(void *) = find("ibv_dealloc_dmah");
    void *(*reg)(void *, void *, void *, size_t, int) = find("ibv_reg_buf_mr");
    int (*export_buf)(void *) = find("ibv_export_buf_dmabuf_fd");
    int (*export_dm)(void *) = find("ibv_dm_export_dmabuf_fd");
    void (*free_buf)(void *) = find("ibv_free_buf");
    assert_int_equal(destroy(object), EOPNOTSUPP);
    assert_int_equal(set(object, 1), EOPNOTSUPP);
    assert_int_equal(set_err(object, 1), EOPNOTSUPP);
    assert_int_equal(inc(object, 1), EOPNOTSUPP);
    assert_int_equal(inc_err(object, 1), EOPNOTSUPP);
    assert_int_equal(read(object, &value), EOPNOTSUPP);
    assert_int_equal(read_err(object, &value), EOPNOTSUPP);
    assert_int_equal(value, 7);
    assert_int_equal(dealloc(object), EOPNOTSUPP);
    assert_null(reg(offer.rig.pd, object, object, 8, 0));
    assert_int_equal(errno, EOPNOTSUPP);
    errno = 0;
    assert_int_equal(export_buf(object), -1);
    assert_int_equal(errno, EOPNOTSUPP);
    errno = 0;
    assert_int_equal(export_dm(object), -1);
    assert_int_equal(errno, EOPNOTSUPP);
    free_buf(NULL); /* unsupported: there is none to free */
    rig_teardown(&offer.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows__announced),
        cmocka_unit_test(xrc__announced),
        cmocka_unit_test(memory__announced),
        cmocka_unit_test(flush__announced),
        cmocka_unit_test(cqs__announced),
        cmocka_unit_test(raw_packets__refused),
        cmocka_unit_test(raw_packets__fields_unsupported),
        cmocka_unit_test(newer__counters_and_buffers_unsupported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
