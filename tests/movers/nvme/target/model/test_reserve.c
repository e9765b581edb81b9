/* SPDX-License-Identifier: BSD-2-Clause */
/* Reservations in the target's model: three hosts at one namespace. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "test_model_host.h"

enum { HOSTS = 3, DATA = 1 << 20 /* where commands have it */ };
enum { CONFLICT = NVME_SC_RESERVATION_CONFLICT | NVME_SC_DNR };
enum { WE = 1, EA = 2, WERO = 3 };
enum { ACQUIRE = 0, PREEMPT = 1, PREEMPT_AND_ABORT = 2 };
enum { AER_RESERVATION = 6 | NVME_LOG_LID_RESERVATION << 16 };

static struct nvt_queue admins[HOSTS], queues[HOSTS];

static int setup_hosts(void **state)
{
    setup(state);
    for (int i = 0; i < HOSTS; i++) {
        make_queue(&admins[i], 0);
        make_queue(&queues[i], 1);
        begin_as(&admins[i], &queues[i], (uint8_t)(i + 1));
    }
    return 0;
}

static int teardown_hosts(void **state)
{
    holds = false;
    for (int i = 0; i < HOSTS; i++) {
        assert_true(nvt_queue_gone(&queues[i]));
        assert_true(nvt_queue_gone(&admins[i]));
    }
    return teardown(state);
}

static uint16_t reserve(int n, uint8_t opcode, uint32_t cdw10, uint64_t key, uint64_t second)
{
    const __le64 keys[2] = {htole64(key), htole64(second)};
    struct nvf_sqe sqe = command(opcode, 1, 0, sizeof(keys));
    sqe.cdw10 = htole32(cdw10);
    memcpy(capsule, keys, sizeof(keys));
    nvf_sgl_set_in_capsule(&sqe, sizeof(keys));
    return say_with(&queues[n], &sqe, sizeof(keys));
}

static uint16_t register_key(int n, uint64_t key)
{
    return reserve(n, nvme_cmd_resv_register, 0, 0, key);
}

static uint16_t acquire(int n, uint32_t action, uint32_t rtype, uint64_t key, uint64_t preempted)
{
    return reserve(n, nvme_cmd_resv_acquire, action | rtype << 8, key, preempted);
}

static uint16_t release(int n, uint32_t rtype, uint64_t key)
{
    return reserve(n, nvme_cmd_resv_release, rtype << 8, key, 0);
}

static uint16_t move(int n, uint8_t opcode)
{
    const struct nvf_sqe sqe = transfer(opcode, 0, 1, DATA);
    return say(&queues[n], &sqe);
}

static uint16_t deallocate(int n)
{
    const struct nvme_dsm_range range = {.nlb = htole32(1)};
    struct nvf_sqe sqe = command(nvme_cmd_dsm, 1, DATA, sizeof(range));
    memcpy(host + DATA, &range, sizeof(range));
    sqe.cdw11 = htole32(4);
    return say(&queues[n], &sqe);
}

static uint16_t feature(int n, uint8_t opcode, uint8_t fid, uint32_t nsid, uint32_t value)
{
    struct nvf_sqe sqe = command(opcode, nsid, DATA, 16);
    sqe.cdw10 = htole32(fid);
    sqe.cdw11 = htole32(value);
    return say(&admins[n], &sqe);
}

static uint16_t await_event(int n)
{
    const struct nvf_sqe sqe = command(nvme_admin_async_event, 0, 0, 0);
    return say(&admins[n], &sqe);
}

static struct nvme_resv_notification_log read_log(int n)
{
    struct nvme_resv_notification_log page;
    struct nvf_sqe sqe = command(nvme_admin_get_log_page, 0, DATA, sizeof(page));
    sqe.cdw10 = htole32(NVME_LOG_LID_RESERVATION | (sizeof(page) / 4 - 1) << 16);
    assert_int_equal(say(&admins[n], &sqe), 0);
    memcpy(&page, host + DATA, sizeof(page));
    return page;
}

static void controller__offers_reservations(void **state)
{
    (void)state;
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, DATA, 4096);
    sqe.cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL);
    assert_int_equal(say(&admins[0], &sqe), 0);
    const struct nvme_id_ctrl *ctrl = (const struct nvme_id_ctrl *)(host + DATA);
    assert_true(le16toh(ctrl->oncs) & NVME_CTRL_ONCS_RESERVATIONS);
    sqe = command(nvme_admin_identify, 1, DATA, 4096);
    assert_int_equal(say(&admins[0], &sqe), 0);
    const struct nvme_id_ns *ns = (const struct nvme_id_ns *)(host + DATA);
    assert_int_equal(ns->rescap, NVT_RESERVATION_CAPABILITIES);
    assert_true(ns->nmic & 1);
}

static void write__of_another_host_conflicts(void **state)
{
    (void)state;
    static const uint8_t reads[] = {nvme_cmd_read, nvme_cmd_compare, nvme_cmd_verify},
                         writes[] = {nvme_cmd_write, nvme_cmd_write_zeroes, nvme_cmd_flush};
    assert_int_equal(acquire(0, ACQUIRE, WE, 10, 0), CONFLICT); /* not registered */
    assert_int_equal(register_key(0, 10), 0);
    assert_int_equal(acquire(0, ACQUIRE, WE, 10, 0), 0);
    for (size_t i = 0; i < sizeof(reads); i++) {
        assert_int_equal(move(0, reads[i]), 0);
        assert_int_equal(move(1, reads[i]), 0);
        assert_int_equal(move(0, writes[i]), 0);
        assert_int_equal(move(1, writes[i]), CONFLICT);
    }
    assert_int_equal(deallocate(0), 0);
    assert_int_equal(deallocate(1), CONFLICT);
    assert_int_equal(register_key(1, 11), 0); /* who is not the holder may register */
    assert_int_equal(move(1, nvme_cmd_write), CONFLICT);
    assert_int_equal(release(0, WE, 10), 0);
    assert_int_equal(move(1, nvme_cmd_write), 0);
    assert_int_equal(acquire(1, ACQUIRE, EA, 11, 0), 0);
    assert_int_equal(move(0, nvme_cmd_read), CONFLICT);
}

static void flush__of_all_namespaces_meets_the_reserved_one(void **state)
{
    (void)state;
    add_ram(8192);
    assert_int_equal(register_key(0, 10), 0);
    assert_int_equal(acquire(0, ACQUIRE, WE, 10, 0), 0);
    const struct nvf_sqe all = command(nvme_cmd_flush, NVME_NSID_ALL, 0, 0),
                         second = command(nvme_cmd_flush, 2, 0, 0);
    assert_int_equal(say(&queues[0], &all), 0);
    assert_int_equal(say(&queues[1], &all), CONFLICT);
    assert_int_equal(say(&queues[1], &second), 0);
}

static void reservation__is_of_the_host_and_outlives_its_controllers(void **state)
{
    (void)state;
    struct nvt_queue other_admin, other;
    assert_int_equal(register_key(0, 10), 0);
    assert_int_equal(acquire(0, ACQUIRE, WE, 10, 0), 0);
    assert_true(nvt_queue_gone(&queues[0]));
    assert_true(nvt_queue_gone(&admins[0]));
    assert_int_equal(move(1, nvme_cmd_write), CONFLICT);
    make_queue(&other_admin, 0);
    make_queue(&other, 1);
    begin_as(&other_admin, &other, 1);
    const struct nvf_sqe sqe = transfer(nvme_cmd_write, 0, 1, DATA);
    assert_int_equal(say(&other, &sqe), 0);
    assert_true(nvt_queue_gone(&other));
    assert_true(nvt_queue_gone(&other_admin));
}

static void report__says_who_is_registered(void **state)
{
    (void)state;
    assert_int_equal(register_key(0, 10), 0);
    assert_int_equal(register_key(1, 11), 0);
    assert_int_equal(acquire(1, ACQUIRE, EA, 11, 0), 0);
    struct nvf_sqe sqe = command(nvme_cmd_resv_report, 1, DATA, 4096);
    sqe.cdw10 = htole32(4096 / 4 - 1);
    assert_int_equal(say(&queues[2], &sqe), NVME_SC_HOSTID_FORMAT | NVME_SC_DNR);
    sqe.cdw11 = htole32(1);
    memset(host + DATA, 0xff, 4096);
    assert_int_equal(say(&queues[2], &sqe), 0);
    const struct nvme_resv_status *status = (const struct nvme_resv_status *)(host + DATA);
    assert_int_equal(status->rtype, EA);
    assert_int_equal(status->regctl[0], 2);
    assert_int_equal(le64toh(status->regctl_eds[1].rkey), 11);
    assert_int_equal(status->regctl_eds[0].rcsts, 0);
    assert_int_equal(status->regctl_eds[1].rcsts, 1);
    assert_int_equal(status->regctl_eds[1].hostid[15], 2);
    assert_int_equal(host[DATA + 4095], 0);
    sqe.cdw10 = htole32(NVT_TRANSFER_MAX / 4);
    assert_int_equal(say(&queues[2], &sqe), NVME_SC_INVALID_FIELD | NVME_SC_DNR);
}

static void preempted_host__is_told(void **state)
{
    (void)state;
    assert_int_equal(register_key(0, 10), 0);
    assert_int_equal(register_key(1, 11), 0);
    assert_int_equal(acquire(1, ACQUIRE, WE, 11, 0), 0);
    assert_int_equal(await_event(0), WAITS);
    assert_int_equal(await_event(1), WAITS);
    const int before = answers;
    assert_int_equal(acquire(0, PREEMPT, WE, 10, 11), 0);
    assert_int_equal(answers, before + 2); /* the command and one event */
    const struct nvme_resv_notification_log page = read_log(1), none = read_log(1);
    assert_int_equal(page.rnlpt, NVME_RESV_NOTIFY_RNLPT_REGISTRATION_PREEMPTED);
    assert_int_equal(le32toh(page.nsid), 1);
    assert_int_equal(none.rnlpt, NVME_RESV_NOTIFY_RNLPT_EMPTY);
    assert_int_equal(read_log(0).rnlpt, NVME_RESV_NOTIFY_RNLPT_EMPTY);
    assert_int_equal(move(1, nvme_cmd_write), CONFLICT);
}

static void event__has_the_log_page_of_reservations(void **state)
{
    (void)state;
    assert_int_equal(register_key(0, 10), 0);
    assert_int_equal(register_key(1, 11), 0);
    assert_int_equal(acquire(0, ACQUIRE, WERO, 10, 0), 0);
    assert_int_equal(release(0, WERO, 10), 0);
    assert_int_equal(await_event(1), 0); /* it was there already */
    assert_int_equal(le64toh(response.result), AER_RESERVATION);
    assert_int_equal(await_event(1), WAITS); /* the page is not read yet */
    assert_int_equal(read_log(1).rnlpt, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED);
}

static void mask__keeps_notices_away(void **state)
{
    (void)state;
    enum { SET = nvme_admin_set_features, GET = nvme_admin_get_features };
    enum { INVALID_NS = NVME_SC_INVALID_NS | NVME_SC_DNR };
    const uint8_t fid = NVME_FEAT_FID_RESV_MASK;
    const uint32_t released = 1 << NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED;
    assert_int_equal(feature(1, SET, fid, 9, released), INVALID_NS);
    assert_int_equal(feature(1, SET, fid, 0, released), INVALID_NS);
    assert_int_equal(feature(1, GET, fid, NVME_NSID_ALL, 0), INVALID_NS);
    assert_int_equal(feature(1, SET, fid, 1, released), 0);
    assert_int_equal(feature(1, GET, fid, 1, 0), 0);
    assert_int_equal(le64toh(response.result), released);
    for (int i = 0; i < HOSTS; i++)
        assert_int_equal(register_key(i, (uint64_t)i + 10), 0);
    assert_int_equal(acquire(0, ACQUIRE, WERO, 10, 0), 0);
    assert_int_equal(release(0, WERO, 10), 0);
    assert_int_equal(read_log(1).rnlpt, NVME_RESV_NOTIFY_RNLPT_EMPTY);
    assert_int_equal(read_log(2).rnlpt, NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED);
    assert_int_equal(feature(1, SET, fid, NVME_NSID_ALL, 0), 0);
    assert_int_equal(feature(1, GET, fid, 1, 0), 0);
    assert_int_equal(le64toh(response.result), 0);
}

static void features__nothing_persists_and_connect_sets_the_host_id(void **state)
{
    (void)state;
    enum { SET = nvme_admin_set_features, GET = nvme_admin_get_features };
    assert_int_equal(feature(0, GET, NVME_FEAT_FID_RESV_PERSIST, 1, 0), 0);
    assert_int_equal(le64toh(response.result), 0);
    assert_int_equal(feature(0, SET, NVME_FEAT_FID_RESV_PERSIST, 1, 0), 0);
    assert_int_equal(feature(0, SET, NVME_FEAT_FID_RESV_PERSIST, 1, 1),
                     NVF_SPECIFIC(NVME_SC_FEATURE_NOT_CHANGEABLE) | NVME_SC_DNR);
    assert_int_equal(feature(0, GET, NVME_FEAT_FID_RESV_PERSIST, 9, 0),
                     NVME_SC_INVALID_NS | NVME_SC_DNR);
    assert_int_equal(feature(1, GET, NVME_FEAT_FID_HOST_ID, 0, 1), 0);
    assert_int_equal(host[DATA + 15], 2);
    assert_int_equal(feature(1, SET, NVME_FEAT_FID_HOST_ID, 0, 1),
                     NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
}

static void host__without_an_id_cannot_register(void **state)
{
    (void)state;
    begin_as(&admin, &io_queue, 0);
    struct nvf_sqe sqe = command(nvme_cmd_resv_register, 1, 0, 16);
    nvf_sgl_set_in_capsule(&sqe, 16);
    assert_int_equal(say_with(&io_queue, &sqe, 16), NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
}

/* Two hosts are registered, and the second has a write under way, whose data is on the way. */
static struct nvt_request *begin_write(void)
{
    assert_int_equal(register_key(0, 10), 0);
    assert_int_equal(register_key(1, 11), 0);
    holds = true;
    assert_int_equal(move(1, nvme_cmd_write), WAITS);
    holds = false;
    return fetching;
}

static void preempt_and_abort__ends_commands_of_the_other_host_first(void **state)
{
    (void)state;
    struct nvt_request *write = begin_write();
    assert_int_equal(acquire(0, PREEMPT_AND_ABORT, WE, 10, 11), WAITS);
    assert_int_equal(move(1, nvme_cmd_write),
                     0); /* nobody holds it: what came later is no matter */
    const int before = answers;
    nvt_request_fetched(write, true);
    assert_int_equal(answers, before + 2);
    assert_int_equal(status_before(1), NVME_SC_CMD_ABORTED_PREMEPT);
    assert_int_equal(status_before(0), 0);
}

static void preempt__waits_for_nothing(void **state)
{
    (void)state;
    struct nvt_request *write = begin_write();
    assert_int_equal(acquire(0, PREEMPT, WE, 10, 11), 0);
    nvt_request_fetched(write, true);
    assert_int_equal(le16toh(response.status) >> 1, 0);
}

static void preempt_and_abort__waits_for_a_connection_that_has_ended(void **state)
{
    (void)state;
    struct nvt_request *write = begin_write();
    assert_int_equal(acquire(0, PREEMPT_AND_ABORT, WE, 10, 11), WAITS);
    const int before = answers;
    assert_false(nvt_queue_gone(&queues[1]));
    assert_int_equal(answers, before); /* the device may write the data yet */
    nvt_request_fetched(write, false);
    assert_int_equal(answers, before + 1);
    assert_int_equal(le16toh(response.status) >> 1, 0);
}

static void preempt_and_abort__of_two_hosts_both_end(void **state)
{
    (void)state;
    struct nvt_request *write = begin_write();
    assert_int_equal(register_key(2, 12), 0);
    assert_int_equal(acquire(0, PREEMPT_AND_ABORT, WE, 10, 11), WAITS);
    assert_int_equal(acquire(2, PREEMPT_AND_ABORT, WE, 12, 10), WAITS);
    const int before = answers;
    nvt_request_fetched(write, true);
    assert_int_equal(answers, before + 3);
    assert_int_equal(status_before(2), NVME_SC_CMD_ABORTED_PREMEPT);
    assert_int_equal(status_before(1), 0);
    assert_int_equal(status_before(0), 0);
}

/* The pool has four pieces of 1 MiB, three of them for one host; the fourth write waits. */
static void preempt_and_abort__ends_what_waits_for_memory(void **state)
{
    (void)state;
    enum { WRITES = 3 };
    const struct nvt_backend_setup backing = {.size_bytes = 8 << 20};
    struct nvt_backend *backend;
    struct nvt_request *held[WRITES];
    char error[128];
    assert_int_equal(nvt_backend_find("null")->open(&backing, &backend, error, sizeof(error)), 0);
    nvt_namespace_remove(subsystem->namespaces[1]);
    const struct nvt_config_namespace config = {.nsid = 1};
    assert_int_equal(nvt_namespace_add(subsystem, &config, backend, NULL), 0);
    assert_int_equal(register_key(0, 10), 0);
    assert_int_equal(register_key(1, 11), 0);
    const struct nvf_sqe sqe = transfer(nvme_cmd_write, 0, 256, 0);
    holds = true;
    for (int i = 0; i < WRITES; i++) {
        assert_int_equal(say(&queues[1], &sqe), WAITS);
        held[i] = fetching;
    }
    assert_int_equal(say(&queues[1], &sqe), WAITS);
    int before = answers;
    assert_int_equal(acquire(0, PREEMPT_AND_ABORT, WE, 10, 11), NVME_SC_CMD_ABORTED_PREMEPT);
    assert_int_equal(answers, before + 1); /* not the preemption's: it waits for the three */
    before = answers;
    for (int i = 0; i < WRITES; i++)
        nvt_request_fetched(held[i], true);
    assert_int_equal(answers, before + WRITES + 1);
    assert_int_equal(le16toh(response.status) >> 1, 0);
    assert_int_equal(status_before(WRITES), NVME_SC_CMD_ABORTED_PREMEPT);
}

/* It takes nothing, and is let go when the others have waited for long enough. */
static void let_third_host_go(struct nvt_request *request)
{
    enum { WAIT_S = 5 };
    nvt_target_tick(&target, WAIT_S * 1000000000ull);
    assert_int_equal(cuts, 0);
    nvt_target_tick(&target, WAIT_S * 1000000000ull + 100000000);
    assert_int_equal(cuts, 1);
    assert_true(queues[2].is_cut);
    queues[2].is_gone = true;
    nvt_request_fetched(request, false);
    assert_true(nvt_queue_gone(&queues[2]));
    free_unanswered();
}

static void preempt_and_abort__waits_for_a_third_host_for_a_while(void **state)
{
    (void)state;
    assert_int_equal(register_key(0, 10), 0);
    assert_int_equal(register_key(1, 11), 0);
    holds = true;
    assert_int_equal(move(2, nvme_cmd_write), WAITS);
    assert_int_equal(acquire(0, PREEMPT_AND_ABORT, WE, 10, 11), WAITS);
    const int before = answers;
    let_third_host_go(fetching);
    assert_int_equal(answers, before + 1);
    assert_int_equal(le16toh(response.status) >> 1, 0);
    assert_int_equal(target.serial, 0);
}

static void namespace__removed_waits_for_a_host_for_a_while(void **state)
{
    (void)state;
    holds = true;
    assert_int_equal(move(2, nvme_cmd_write), WAITS);
    nvt_namespace_remove(subsystem->namespaces[1]);
    assert_int_equal(target.serial, 1);
    let_third_host_go(fetching);
    assert_int_equal(target.serial, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_hosts, teardown_hosts)
    const struct CMUnitTest tests[] = {
        CASE(controller__offers_reservations),
        CASE(write__of_another_host_conflicts),
        CASE(flush__of_all_namespaces_meets_the_reserved_one),
        CASE(reservation__is_of_the_host_and_outlives_its_controllers),
        CASE(report__says_who_is_registered),
        CASE(preempted_host__is_told),
        CASE(event__has_the_log_page_of_reservations),
        CASE(mask__keeps_notices_away),
        CASE(features__nothing_persists_and_connect_sets_the_host_id),
        CASE(host__without_an_id_cannot_register),
        CASE(preempt_and_abort__ends_commands_of_the_other_host_first),
        CASE(preempt__waits_for_nothing),
        CASE(preempt_and_abort__waits_for_a_connection_that_has_ended),
        CASE(preempt_and_abort__of_two_hosts_both_end),
        CASE(preempt_and_abort__ends_what_waits_for_memory),
        CASE(preempt_and_abort__waits_for_a_third_host_for_a_while),
        CASE(namespace__removed_waits_for_a_host_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
