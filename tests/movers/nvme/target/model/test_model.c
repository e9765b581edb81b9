/* SPDX-License-Identifier: BSD-2-Clause */
/* The target's model: connecting, data, events, what changes meanwhile, memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/memory.h"
#include "test_model_host.h"

static void command__before_connect_is_out_of_sequence(void **state)
{
    (void)state;
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, 0, 4096);
    assert_int_equal(say(&admin, &sqe), NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
    assert_int_equal(set_config(&admin, CC_ENABLED), NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
}

static void connect__names_what_is_wrong(void **state)
{
    (void)state;
    const uint16_t invalid = NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_PARAM) | NVME_SC_DNR;
    assert_int_equal(connect_as_host(&admin, "nqn.2026-01.test:none", 0xffff), invalid);
    assert_int_equal(response.result, htole64(1 << 16 | 256)); /* the data, subsysnqn */
    assert_int_equal(connect_as_host(&admin, NQN, 7), invalid);
    assert_int_equal(response.result, htole64(1 << 16 | 16));
    assert_int_equal(connect_as_host(&io_queue, NQN, 7), invalid);
    struct nvt_nqn allowed = {HOST_NQN};
    struct nvt_config_subsystem config = {.nqn.text = NQN};
    assert_int_equal(nvt_subsystem_update(subsystem, &config), 0);
    assert_int_equal(connect_as_host(&admin, NQN, 0xffff),
                     NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_HOST) | NVME_SC_DNR);
    config.hosts = &allowed;
    config.host_count = 1;
    assert_int_equal(nvt_subsystem_update(subsystem, &config), 0);
    assert_int_equal(connect_as_host(&admin, NQN, 0xffff), 0);
    assert_int_equal(connect_as_host(&admin, NQN, 0xffff), NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
}

static void connect__again_is_refused(void **state)
{
    (void)state;
    begin();
    const uint16_t cntlid = admin.ctrl->instance.cntlid;
    assert_int_equal(connect_as_host(&admin, NQN, 0xffff), NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
    assert_int_equal(connect_as_host(&io_queue, NQN, cntlid), NVME_SC_INVALID_OPCODE | NVME_SC_DNR);
    struct nvf_sqe sqe = transfer(nvme_cmd_read, 0, 1, 0); /* it stays what it was */
    assert_int_equal(say(&io_queue, &sqe), 0);
}

/* SPDK's programs have none by default. */
static void connect__needs_no_host_nqn(void **state)
{
    (void)state;
    assert_int_equal(connect_named(&admin, NQN, 0xffff, 1, ""), 0);
    const uint16_t cntlid = (uint16_t)le64toh(response.result);
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    assert_int_equal(connect_named(&io_queue, NQN, cntlid, 1, ""), 0);
    assert_true(nvt_queue_gone(&io_queue));
    assert_true(nvt_queue_gone(&admin));
    make_queue(&admin, 0);
    make_queue(&io_queue, 1);
    struct nvt_nqn allowed = {HOST_NQN};
    const struct nvt_config_subsystem config = {
        .nqn.text = NQN, .hosts = &allowed, .host_count = 1};
    assert_int_equal(nvt_subsystem_update(subsystem, &config), 0);
    assert_int_equal(connect_named(&admin, NQN, 0xffff, 1, ""),
                     NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_HOST) | NVME_SC_DNR);
}

/* A name that cannot be shown is none: bytes that are no UTF-8, or would steer a terminal. */
static void connect__takes_names_in_utf8_alone(void **state)
{
    (void)state;
    static const char *const wrong[] = {"nqn.\xff",
                                        "nqn.\xc3",
                                        "nqn.\xc0\xaf",
                                        "nqn.\xe0\x80\xaf",
                                        "nqn.\xed\xa0\x80",
                                        "nqn.\xf4\x90\x80\x80",
                                        "nqn.\xc2\x9b\x33\x31m",
                                        "nqn.\x1b[31m",
                                        "nqn.\n",
                                        "nqn.\x7f"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_int_equal(connect_named(&admin, NQN, 0xffff, 1, wrong[i]),
                         NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_PARAM) | NVME_SC_DNR);
        assert_int_equal(response.result, htole64(1 << 16 | 512)); /* the data, hostnqn */
    }
    assert_int_equal(
        connect_named(&admin, NQN, 0xffff, 1, "nqn.\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), 0);
}

static void io__needs_a_ready_controller(void **state)
{
    (void)state;
    assert_int_equal(connect_as_host(&admin, NQN, 0xffff), 0);
    const uint16_t cntlid = (uint16_t)le64toh(response.result);
    assert_int_equal(connect_as_host(&io_queue, NQN, cntlid), NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
    assert_int_equal(set_config(&admin, 3 << 20 | 6 << 16 | 1), 0); /* CQ entries of 8 bytes */
    struct nvf_sqe sqe = command(NVF_OPCODE, NVF_PROPERTY_GET, 0, 0);
    sqe.cdw11 = htole32(NVME_REG_CSTS);
    assert_int_equal(say(&admin, &sqe), 0);
    assert_int_equal(le64toh(response.result), NVF_CSTS_FATAL);
}

static void io__what_is_written_is_read(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 8192; i++)
        host[i] = (uint8_t)(i * 7);
    struct nvf_sqe sqe = transfer(nvme_cmd_write, 3, 2, 0);
    assert_int_equal(say(&io_queue, &sqe), 0);
    sqe = transfer(nvme_cmd_read, 3, 2, 65536);
    assert_int_equal(say(&io_queue, &sqe), 0);
    assert_memory_equal(host, host + 65536, 8192);
    sqe = transfer(nvme_cmd_compare, 3, 2, 0);
    assert_int_equal(say(&io_queue, &sqe), 0);
    host[5000]++;
    assert_int_equal(say(&io_queue, &sqe), NVF_MEDIA(NVME_SC_COMPARE_FAILED) | NVME_SC_DNR);
    memset(capsule, 0x5a, sizeof(capsule));
    sqe = transfer(nvme_cmd_write, 9, 1, 0);
    nvf_sgl_set_in_capsule(&sqe, 4096);
    assert_int_equal(say_with(&io_queue, &sqe, 4096), 0);
    sqe = transfer(nvme_cmd_read, 9, 1, 65536);
    assert_int_equal(say(&io_queue, &sqe), 0);
    assert_memory_equal(capsule, host + 65536, 4096);
    sqe = transfer(nvme_cmd_write_zeroes, 9, 1, 0);
    assert_int_equal(say(&io_queue, &sqe), 0);
    sqe = transfer(nvme_cmd_read, 9, 1, 65536);
    assert_int_equal(say(&io_queue, &sqe), 0);
    assert_int_equal(host[65536], 0);
}

static void io__out_of_range_is_refused(void **state)
{
    (void)state;
    begin();
    struct nvf_sqe sqe = transfer(nvme_cmd_read, 255, 2, 0);
    assert_int_equal(say(&io_queue, &sqe), NVME_SC_LBA_RANGE | NVME_SC_DNR);
    sqe = transfer(nvme_cmd_write, 0, 1, 0);
    sqe.cdw11 = htole32(0xffffffff);
    sqe.cdw10 = htole32(0xffffffff);
    assert_int_equal(say(&io_queue, &sqe), NVME_SC_LBA_RANGE | NVME_SC_DNR);
    sqe = transfer(nvme_cmd_read, 0, 1, 0);
    sqe.nsid = htole32(2);
    assert_int_equal(say(&io_queue, &sqe), NVME_SC_INVALID_NS | NVME_SC_DNR);
    sqe = transfer(nvme_cmd_read, 0, 2, 0);
    nvf_sgl_set_keyed(&sqe, 0, 4096, 1, false);
    assert_int_equal(say(&io_queue, &sqe), NVME_SC_SGL_INVALID_DATA | NVME_SC_DNR);
    sqe = transfer(0xee, 0, 1, 0);
    assert_int_equal(say(&io_queue, &sqe), NVME_SC_INVALID_OPCODE | NVME_SC_DNR);
    sqe = transfer(nvme_cmd_write, 0, 1, 0);
    nvf_sgl_set_in_capsule(&sqe, 4096);
    assert_int_equal(say_with(&io_queue, &sqe, 100), NVME_SC_SGL_INVALID_DATA | NVME_SC_DNR);
}

static void event__is_told_once_until_it_is_read(void **state)
{
    (void)state;
    begin();
    struct nvf_sqe sqe = command(nvme_admin_set_features, 0, 0, 0);
    sqe.cdw10 = htole32(NVME_FEAT_FID_ASYNC_EVENT);
    sqe.cdw11 = htole32(1 << 8);
    assert_int_equal(say(&admin, &sqe), 0);
    sqe = command(nvme_admin_async_event, 0, 0, 0);
    assert_int_equal(say(&admin, &sqe), WAITS);
    assert_int_equal(say(&admin, &sqe), WAITS);
    int before = answers;
    add_ram(8192);
    assert_int_equal(answers, before + 1);
    assert_int_equal(le64toh(response.result), 2 | NVME_LOG_LID_CHANGED_NS << 16);
    add_ram(8192);
    assert_int_equal(answers, before + 1);
    sqe = command(nvme_admin_get_log_page, 0, 0, 4096);
    sqe.cdw10 = htole32(NVME_LOG_LID_CHANGED_NS | 1023u << 16);
    before = answers;
    assert_int_equal(say(&admin, &sqe) & 0xff, 0);
    assert_int_equal(answers, before + 2); /* the page, and the event that came meanwhile */
    assert_int_equal(host[0] + host[4], 2 + 3);
}

/* The controller lives on by its I/O queue, and events come; those requests' memory is gone. */
static void event__has_no_request_of_a_queue_that_has_ended(void **state)
{
    (void)state;
    struct nvf_sqe sqe = command(nvme_admin_async_event, 0, 0, 0);
    begin();
    struct nvt_ctrl *ctrl = io_queue.ctrl;
    ctrl->async_config = 1 << 8;
    assert_int_equal(say(&admin, &sqe), WAITS);
    assert_true(nvt_queue_gone(&admin));
    free_unanswered();
    const int before = answers;
    add_ram(8192);
    assert_int_equal(answers, before);
    assert_int_equal(ctrl->events, NVT_EVENT_NAMESPACES);
}

static void event__requests_end_with_a_reset(void **state)
{
    (void)state;
    struct nvf_sqe sqe = command(nvme_admin_async_event, 0, 0, 0);
    begin();
    for (int i = 0; i < 2 * NVT_AER_MAX; i++) {
        assert_int_equal(say(&admin, &sqe), WAITS);
        const int before = answers;
        assert_int_equal(set_config(&admin, 0), NVME_SC_ABORT_REQ); /* the last answer */
        assert_int_equal(answers, before + 2);
        assert_int_equal(status_before(1), 0);
        assert_int_equal(admin.under_way, 0);
        assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    }
}

static void namespace__removed_goes_after_its_last_request(void **state)
{
    (void)state;
    begin();
    holds = true;
    struct nvf_sqe sqe = transfer(nvme_cmd_write, 0, 1, 0);
    assert_int_equal(say(&io_queue, &sqe), WAITS);
    nvt_namespace_remove(subsystem->namespaces[1]);
    struct nvt_request *request = fetching;
    memset(request->data, 1, 4096); /* is still there */
    nvt_request_fetched(request, true);
    assert_int_equal(le16toh(response.status) >> 1, 0);
    holds = false;
    assert_int_equal(say(&io_queue, &sqe), NVME_SC_INVALID_NS | NVME_SC_DNR);
}

static uint64_t grown_bytes;

static uint64_t size_of_grown(struct nvt_backend *backend)
{
    (void)backend;
    return grown_bytes;
}

static void close_nothing(struct nvt_backend *backend)
{
    (void)backend;
}

/* Without anybody who reads a configuration. */
static void namespace__that_has_grown_is_told_in_time(void **state)
{
    (void)state;
    const struct nvt_config_namespace config = {.nsid = 2};
    const struct nvt_backend_ops ops = {.close = close_nothing, .size_bytes = size_of_grown};
    const struct nvt_backend_ops far = {
        .close = close_nothing, .size_bytes = size_of_grown, .is_size_far = true};
    struct nvt_backend backend = {.ops = &ops, .size_bytes = 8192, .block_bytes = 4096};
    struct nvt_namespace *ns;
    grown_bytes = 8192;
    begin();
    assert_int_equal(nvt_namespace_add(subsystem, &config, &backend, &ns), 0);
    struct nvf_sqe sqe = command(nvme_admin_set_features, 0, 0, 0);
    sqe.cdw10 = htole32(NVME_FEAT_FID_ASYNC_EVENT);
    sqe.cdw11 = htole32(1 << 8);
    assert_int_equal(say(&admin, &sqe), 0);
    sqe = command(nvme_admin_get_log_page, 0, 0, 4096);
    sqe.cdw10 = htole32(NVME_LOG_LID_CHANGED_NS | 1023u << 16);
    assert_int_equal(say(&admin, &sqe), 0); /* that it was added */
    sqe = command(nvme_admin_async_event, 0, 0, 0);
    assert_int_equal(say(&admin, &sqe), WAITS);
    const int before = answers;
    const uint64_t now_ns = 1000000000;
    nvt_target_tick(&target, now_ns);
    assert_int_equal(answers, before);
    grown_bytes = 16384;
    nvt_target_tick(&target, now_ns + 1);
    assert_int_equal(ns->blocks, 2); /* it is not looked at each time */
    nvt_target_tick(&target, now_ns + 1000000001);
    assert_int_equal(ns->blocks, 4);
    assert_int_equal(answers, before + 1);
    assert_int_equal(le64toh(response.result), 2 | NVME_LOG_LID_CHANGED_NS << 16);
    backend.ops = &far;
    grown_bytes = 32768;
    nvt_target_tick(&target, now_ns + 3000000000);
    assert_int_equal(ns->blocks, 4); /* it may not stop hosts */
    nvt_target_refresh(&target, true);
    assert_int_equal(ns->blocks, 8);
    nvt_namespace_remove(ns);
}

static void subsystem__a_host_that_is_no_longer_allowed_is_cut(void **state)
{
    (void)state;
    struct nvt_nqn other = {"nqn.2026-01.test:other"};
    const struct nvt_config_subsystem config = {.nqn.text = NQN, .host_count = 1, .hosts = &other};
    begin();
    assert_int_equal(nvt_subsystem_update(subsystem, &config), 0);
    assert_int_equal(cuts, 2);
}

static void subsystem__removed_goes_with_its_last_controller(void **state)
{
    (void)state;
    begin();
    nvt_subsystem_remove(subsystem);
    assert_int_equal(cuts, 2);
    assert_null(nvt_subsystem_find(&target, NQN));
    struct nvf_sqe sqe = transfer(nvme_cmd_read, 0, 1, 4096);
    assert_int_equal(say(&io_queue, &sqe), NVME_SC_INVALID_NS | NVME_SC_DNR);
}

static void port__serves_what_it_is_told(void **state)
{
    (void)state;
    const struct nvt_config_port none = {.portid = 1};
    begin();
    assert_int_equal(nvt_port_update(port, &none), 0);
    assert_int_equal(cuts, 2); /* who came by it */
    assert_true(nvt_queue_gone(&io_queue));
    assert_true(nvt_queue_gone(&admin));
    make_queue(&admin, 0);
    assert_int_equal(connect_as_host(&admin, NQN, 0xffff),
                     NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_PARAM) | NVME_SC_DNR);
    assert_int_equal(connect_as_host(&admin, NVF_DISCOVERY_NQN, 0xffff), 0);
}

/* What comes by a port of its own state, and what is told when that changes. */
static void port__ana_state_is_obeyed_and_told(void **state)
{
    (void)state;
    struct nvt_nqn served = {NQN};
    struct nvt_ana_group group = {.grpid = 1, .state = NVME_ANA_STATE_INACCESSIBLE};
    const struct nvt_config_port config = {.portid = 1,
                                           .subsystem_count = 1,
                                           .subsystems = &served,
                                           .ana_group_count = 1,
                                           .ana_groups = &group};
    begin();
    struct nvf_sqe sqe = command(nvme_admin_set_features, 0, 0, 0);
    sqe.cdw10 = htole32(NVME_FEAT_FID_ASYNC_EVENT);
    sqe.cdw11 = htole32(1u << 11);
    assert_int_equal(say(&admin, &sqe), 0);
    sqe = command(nvme_admin_async_event, 0, 0, 0);
    assert_int_equal(say(&admin, &sqe), WAITS);
    const int before = answers;
    assert_int_equal(nvt_port_update(port, &config), 0);
    assert_int_equal(answers, before + 1);
    assert_int_equal(le64toh(response.result) & 0xffffff,
                     NVME_AER_NOTICE | NVME_AER_NOTICE_ANA << 8 | NVME_LOG_LID_ANA << 16);
    sqe = transfer(nvme_cmd_read, 0, 1, 4096);
    assert_int_equal(say(&io_queue, &sqe) & ~NVME_SC_DNR, NVF_PATH(NVME_SC_ANA_INACCESSIBLE));
    sqe = command(nvme_admin_get_log_page, 0, 0, 4096);
    sqe.cdw10 = htole32(NVME_LOG_LID_ANA | 1023u << 16);
    assert_int_equal(say(&admin, &sqe), 0);
    const struct nvme_ana_log *log = (const struct nvme_ana_log *)host;
    assert_int_equal(le16toh(log->ngrps), 1);
    assert_int_equal(log->descs[0].state, NVME_ANA_STATE_INACCESSIBLE);
    assert_int_equal(le32toh(log->descs[0].nsids[0]), 1);
}

static void port__removed_stays_while_it_has_users(void **state)
{
    (void)state;
    begin();
    nvt_port_remove(port); /* the sanitizer tells if it goes too early, or not at all */
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, 0, 4096);
    sqe.cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL);
    assert_int_equal(say(&admin, &sqe), 0);
}

static void discovery__shows_referrals_that_are_enabled(void **state)
{
    (void)state;
    struct nvt_referral referrals[] = {
        {.name = "off", .trtype = NVMF_TRTYPE_RDMA, .traddr = "192.0.2.8"},
        {.name = "on",
         .enable = true,
         .trtype = NVMF_TRTYPE_TCP,
         .adrfam = NVMF_ADDR_FAMILY_IP4,
         .portid = 3,
         .traddr = "192.0.2.9",
         .trsvcid = "8009",
         .subsysnqn = {NVF_DISCOVERY_NQN}}};
    const struct nvt_config_port config = {
        .portid = 1, .referral_count = 2, .referrals = referrals};
    const uint64_t before = target.genctr;
    assert_int_equal(nvt_port_update(port, &config), 0);
    assert_true(target.genctr > before);
    assert_int_equal(connect_as_host(&admin, NVF_DISCOVERY_NQN, 0xffff), 0);
    assert_int_equal(set_config(&admin, CC_ENABLED), 0);
    struct nvf_sqe sqe = command(nvme_admin_get_log_page, 0, 0, 4096);
    sqe.cdw10 = htole32(NVME_LOG_LID_DISCOVER | 1023u << 16);
    assert_int_equal(say(&admin, &sqe), 0);
    const struct nvmf_discovery_log *log = (const struct nvmf_discovery_log *)host;
    assert_int_equal(le64toh(log->numrec), 2); /* itself, and the one that is on */
    assert_int_equal(log->entries[0].subtype, NVME_NQN_CURR);
    assert_int_equal(log->entries[1].subtype, NVME_NQN_DISC);
    assert_int_equal(log->entries[1].trtype, NVMF_TRTYPE_TCP);
    assert_memory_equal(log->entries[1].traddr, "192.0.2.9 ", 10);
}

static void ctrl__numbers_keep_to_their_range(void **state)
{
    (void)state;
    const struct nvt_config_subsystem config = {
        .nqn.text = NQN, .allow_any_host = true, .cntlid_min = 7, .cntlid_max = 7, .qid_max = 1};
    struct nvt_queue other;
    assert_int_equal(nvt_subsystem_update(subsystem, &config), 0);
    begin();
    assert_int_equal(admin.ctrl->instance.cntlid, 7);
    make_queue(&other, 0);
    assert_int_equal(connect_as_host(&other, NQN, 0xffff),
                     NVF_SPECIFIC(NVME_SC_CONNECT_CTRL_BUSY)); /* there is no other number */
    make_queue(&other, 2);
    assert_int_equal(connect_as_host(&other, NQN, 7),
                     NVF_SPECIFIC(NVME_SC_CONNECT_INVALID_PARAM) | NVME_SC_DNR);
}

static void keep_alive__silence_ends_the_controller(void **state)
{
    (void)state;
    begin();
    struct nvf_sqe sqe = command(nvme_admin_set_features, 0, 0, 0);
    sqe.cdw10 = htole32(NVME_FEAT_FID_KATO);
    sqe.cdw11 = htole32(1000);
    assert_int_equal(say(&admin, &sqe), 0);
    target.threads[0].now_ns = 1000000000;
    sqe = transfer(nvme_cmd_flush, 0, 1, 0);
    assert_int_equal(say(&io_queue, &sqe), 0); /* any command counts */
    nvt_target_tick(&target, 2400000000);
    assert_int_equal(cuts, 0);
    nvt_target_tick(&target, 2600000000);
    assert_int_equal(cuts, 2);
}

static void keep_alive__what_came_by_a_queue_that_has_ended_counts(void **state)
{
    (void)state;
    begin();
    struct nvf_sqe sqe = command(nvme_admin_set_features, 0, 0, 0);
    sqe.cdw10 = htole32(NVME_FEAT_FID_KATO);
    sqe.cdw11 = htole32(1000);
    assert_int_equal(say(&admin, &sqe), 0);
    target.threads[0].now_ns = 1000000000;
    sqe = transfer(nvme_cmd_flush, 0, 1, 0);
    assert_int_equal(say(&io_queue, &sqe), 0);
    nvt_ctrl_lose_queue(admin.ctrl, &io_queue);
    nvt_target_tick(&target, 2400000000); /* the admin queue said its last at 0 */
    assert_int_equal(cuts, 0);
    nvt_target_tick(&target, 2600000000);
    assert_int_equal(cuts, 1);
}

enum { TRANSFERS = 3 }; /* of 1 MiB, that have all that one host may */

/* Writes of 1 MiB to a namespace that does not lie in memory: their data is on its way. */
static void hold_the_pool(struct nvt_request *held[TRANSFERS])
{
    const struct nvt_backend_setup backing = {.size_bytes = 8 << 20};
    struct nvt_backend *backend;
    char error[128];
    assert_int_equal(nvt_backend_find("null")->open(&backing, &backend, error, sizeof(error)), 0);
    const struct nvt_config_namespace second = {.nsid = 2};
    assert_int_equal(nvt_namespace_add(subsystem, &second, backend, NULL), 0);
    holds = true;
    struct nvf_sqe sqe = transfer(nvme_cmd_write, 0, 256, 0);
    sqe.nsid = htole32(2);
    for (int i = 0; i < TRANSFERS; i++) {
        assert_int_equal(say(&io_queue, &sqe), WAITS);
        held[i] = fetching;
    }
    fetching = NULL;
    assert_int_equal(say(&io_queue, &sqe), WAITS);
    assert_null(fetching);
}

static void memory__who_finds_none_waits_for_it(void **state)
{
    (void)state;
    struct nvt_request *held[TRANSFERS];
    begin();
    hold_the_pool(held);
    const int before = answers;
    nvt_request_fetched(held[0], true);
    assert_int_equal(answers, before + 1);
    assert_true(nvt_thread_feed(&target.threads[0], true));
    assert_non_null(fetching); /* it has the memory of the first */
    assert_false(nvt_thread_feed(&target.threads[0], true));
    nvt_request_fetched(fetching, true);
    for (int i = 1; i < TRANSFERS; i++)
        nvt_request_fetched(held[i], true);
    assert_int_equal(answers, before + 1 + TRANSFERS);
}

/* As the transport ends it: what is on its way first. fetch() fails if it is asked meanwhile. */
static void memory__of_a_queue_that_ends_feeds_none_of_its_requests(void **state)
{
    (void)state;
    struct nvt_request *held[TRANSFERS];
    begin();
    hold_the_pool(held);
    io_queue.is_gone = true;
    for (int i = 0; i < TRANSFERS; i++)
        nvt_request_fetched(held[i], false);
    assert_true(nvt_queue_gone(&io_queue));
    assert_false(nvt_thread_feed(&target.threads[0], true));
    assert_int_equal(target.threads[0].pool.free_bytes, 4 << 20);
}

/* While other threads serve, one that is not for them is left to when they stand still. */
static void memory__feeds_admin_commands_alone(void **state)
{
    (void)state;
    struct nvt_request *held[TRANSFERS];
    struct nvf_sqe sqe = command(nvme_admin_get_log_page, 0, 0, 8192); /* more than a place */
    begin();
    hold_the_pool(held);
    sqe.cdw10 = htole32(NVME_LOG_LID_ERROR | 2047u << 16);
    assert_int_equal(say(&admin, &sqe), WAITS);
    const int before = answers;
    for (int i = 0; i < TRANSFERS; i++)
        nvt_request_fetched(held[i], true);
    assert_true(nvt_thread_feed(&target.threads[0], false));
    assert_true(target.threads[0].is_fed_alone);
    assert_int_equal(answers, before + TRANSFERS);
    assert_true(nvt_thread_feed(&target.threads[0], true));
    assert_false(target.threads[0].is_fed_alone);
    assert_int_equal(answers, before + TRANSFERS + 1);
    nvt_request_fetched(fetching, true);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(command__before_connect_is_out_of_sequence),
        CASE(connect__names_what_is_wrong),
        CASE(connect__again_is_refused),
        CASE(connect__needs_no_host_nqn),
        CASE(connect__takes_names_in_utf8_alone),
        CASE(io__needs_a_ready_controller),
        CASE(io__what_is_written_is_read),
        CASE(io__out_of_range_is_refused),
        CASE(event__is_told_once_until_it_is_read),
        CASE(event__has_no_request_of_a_queue_that_has_ended),
        CASE(event__requests_end_with_a_reset),
        CASE(namespace__removed_goes_after_its_last_request),
        CASE(namespace__that_has_grown_is_told_in_time),
        CASE(subsystem__a_host_that_is_no_longer_allowed_is_cut),
        CASE(subsystem__removed_goes_with_its_last_controller),
        CASE(port__serves_what_it_is_told),
        CASE(port__ana_state_is_obeyed_and_told),
        CASE(port__removed_stays_while_it_has_users),
        CASE(discovery__shows_referrals_that_are_enabled),
        CASE(ctrl__numbers_keep_to_their_range),
        CASE(keep_alive__silence_ends_the_controller),
        CASE(keep_alive__what_came_by_a_queue_that_has_ended_counts),
        CASE(memory__who_finds_none_waits_for_it),
        CASE(memory__of_a_queue_that_ends_feeds_none_of_its_requests),
        CASE(memory__feeds_admin_commands_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
