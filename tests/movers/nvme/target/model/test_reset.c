/* SPDX-License-Identifier: BSD-2-Clause */
/* Cross-controller reset: a host has a lost controller ended by another one, and hears when no
 * command of it is under way any more. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/reset.h"
#include "test_model_host.h"

enum { DATA = 1 << 20, PAGE = 4096, INVALID = NVME_SC_INVALID_FIELD | NVME_SC_DNR };
enum {
    AER_RESET = NVME_AER_NOTICE | NVF_NOTICE_CCR_COMPLETED << 8 | NVF_LOG_CROSS_CTRL_RESET << 16
};

/* The same host by another path. */
static struct nvt_queue other_admin, other_io;
static int asks, ask_rc;
static struct nvt_lost asked;

static int begin_two(void **state)
{
    setup(state);
    begin();
    make_queue_from(&other_admin, 0, "198.51.100.2");
    make_queue_from(&other_io, 1, "198.51.100.2");
    begin_as(&other_admin, &other_io, 1);
    asks = ask_rc = 0;
    return 0;
}

static int end_two(void **state)
{
    assert_true(nvt_queue_gone(&other_io));
    assert_true(nvt_queue_gone(&other_admin));
    return teardown(state);
}

static uint16_t say_reset(struct nvt_queue *queue, const struct nvt_instance *of)
{
    struct nvf_sqe sqe = {.opcode = NVF_ADMIN_CROSS_CTRL_RESET};
    nvf_sgl_set_none(&sqe);
    sqe.cdw10 = htole32(nvf_ccr_cdw10(of->cntlid, of->ciu));
    sqe.cdw12 = htole32((uint32_t)of->cirn);
    sqe.cdw13 = htole32((uint32_t)(of->cirn >> 32));
    return say(queue, &sqe);
}

static bool was_immediate(void)
{
    return le64toh(response.result) & NVF_CCR_IMMEDIATE;
}

/* How the log page of the other controller has it; -1: it is not there. */
static int state_of(const struct nvt_instance *of)
{
    struct nvf_ccr_log header;
    struct nvf_sqe sqe = command(nvme_admin_get_log_page, 0, DATA, PAGE);
    sqe.cdw10 = htole32(NVF_LOG_CROSS_CTRL_RESET | (PAGE / 4 - 1) << 16);
    assert_int_equal(say(&other_admin, &sqe), 0);
    memcpy(&header, host + DATA, sizeof(header));
    for (uint32_t i = 0; i < le16toh(header.entries_count); i++) {
        struct nvf_ccr_entry entry;
        memcpy(&entry, host + DATA + sizeof(header) + i * sizeof(entry), sizeof(entry));
        assert_int_equal(le16toh(entry.acid), other_admin.ctrl->instance.cntlid);
        if (le64toh(entry.cirn) == of->cirn && le16toh(entry.icid) == of->cntlid &&
            entry.ciu == of->ciu)
            return entry.ccrs;
    }
    return -1;
}

static void lose(struct nvt_queue *queue)
{
    assert_true(nvt_queue_gone(queue));
    nvt_queue_forget(queue);
    make_queue(queue, queue->qid);
}

static void identify__names_the_instance(void **state)
{
    (void)state;
    const struct nvt_instance *of = &admin.ctrl->instance;
    __le64 cirn;
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, DATA, PAGE);
    sqe.cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL);
    assert_int_equal(say(&admin, &sqe), 0);
    memcpy(&cirn, host + DATA + NVF_ID_CIRN, sizeof(cirn));
    assert_true(cirn && le64toh(cirn) == of->cirn);
    assert_int_equal(host[DATA + NVF_ID_CIU], of->ciu);
    assert_int_equal(host[DATA + NVF_ID_CCRL], NVT_RESETS_AT_ONCE);
    assert_int_equal(host[DATA + NVF_ID_CQT] | host[DATA + NVF_ID_CQT + 1], 0);
    assert_true(le32toh(((const struct nvme_id_ctrl *)(host + DATA))->oaes) &
                NVF_OAES_CCR_COMPLETED);
    assert_int_not_equal(of->cirn, other_admin.ctrl->instance.cirn);
    assert_int_not_equal(of->ciu, other_admin.ctrl->instance.ciu);
}

static void watch_events(void)
{
    struct nvf_sqe sqe = command(nvme_admin_set_features, 0, 0, 0);
    sqe.cdw10 = htole32(NVME_FEAT_FID_ASYNC_EVENT);
    sqe.cdw11 = htole32(NVF_OAES_CCR_COMPLETED);
    assert_int_equal(say(&other_admin, &sqe), 0);
    sqe = command(nvme_admin_async_event, 0, 0, 0);
    assert_int_equal(say(&other_admin, &sqe), WAITS);
}

/* Behind the last command, not behind the last connection. */
static void reset__waits_for_the_last_command(void **state)
{
    (void)state;
    const struct nvt_instance of = admin.ctrl->instance;
    const struct nvf_sqe write = transfer(nvme_cmd_write, 0, 1, DATA);
    watch_events();
    holds = true;
    assert_int_equal(say(&io_queue, &write), WAITS);
    struct nvt_request *writing = fetching;
    assert_int_equal(say_reset(&other_admin, &of), 0);
    assert_false(was_immediate());
    assert_int_equal(drops, 2);
    assert_int_equal(state_of(&of), NVF_CCR_IN_PROGRESS);
    assert_int_equal(say_reset(&other_admin, &of), NVF_SC_CCR_IN_PROGRESS | NVME_SC_DNR);
    lose(&admin);
    assert_int_equal(state_of(&of), NVF_CCR_IN_PROGRESS);
    assert_false(nvt_queue_gone(&io_queue));
    assert_int_equal(state_of(&of), NVF_CCR_IN_PROGRESS);
    nvt_target_tick(&target, target.now_ns);
    assert_int_equal(state_of(&of), NVF_CCR_IN_PROGRESS);
    holds = false;
    nvt_request_fetched(writing, false);
    nvt_queue_forget(&io_queue);
    assert_int_equal(le64toh(response.result), AER_RESET);
    assert_int_equal(state_of(&of), NVF_CCR_SUCCESS);
    assert_int_equal(target.resets_under_way, 0);
    assert_int_equal(say_reset(&other_admin, &of), 0);
    assert_true(was_immediate());
    make_queue(&io_queue, 1);
}

static void reset__of_one_that_has_gone(void **state)
{
    (void)state;
    const struct nvt_instance of = admin.ctrl->instance;
    lose(&io_queue);
    lose(&admin);
    assert_int_equal(say_reset(&other_admin, &of), 0);
    assert_true(was_immediate());
    assert_int_equal(state_of(&of), -1);
    struct nvt_queue queue;
    for (int i = 0; i < NVT_GONE_KEPT; i++) {
        make_queue(&queue, 0);
        assert_int_equal(connect_as_host(&queue, NQN, 0xffff), 0);
        lose(&queue);
    }
    assert_int_equal(say_reset(&other_admin, &of), INVALID); /* nobody knows any more */
}

static void reset__is_for_hosts_of_their_own(void **state)
{
    (void)state;
    const struct nvt_instance of = admin.ctrl->instance;
    struct nvt_queue stranger, stranger_io;
    make_queue(&stranger, 0);
    make_queue(&stranger_io, 1);
    begin_as(&stranger, &stranger_io, 2);
    assert_int_equal(say_reset(&stranger, &of), INVALID);
    struct nvt_instance wrong = of;
    wrong.cirn++;
    assert_int_equal(say_reset(&other_admin, &wrong), INVALID);
    wrong = of;
    wrong.ciu++;
    assert_int_equal(say_reset(&other_admin, &wrong), INVALID);
    wrong = of;
    wrong.cntlid += 100;
    assert_int_equal(say_reset(&other_admin, &wrong), INVALID);
    wrong = (struct nvt_instance){.cntlid = of.cntlid, .ciu = of.ciu};
    assert_int_equal(say_reset(&other_admin, &wrong), INVALID);
    assert_int_equal(say_reset(&admin, &of), INVALID); /* itself */
    assert_int_equal(drops, 0);
    assert_true(nvt_queue_gone(&stranger_io));
    assert_true(nvt_queue_gone(&stranger));
}

/* ---- a group of targets ---- */

static int ask_group(struct nvt_subsystem *of, const struct nvt_lost *lost)
{
    assert_ptr_equal(of, subsystem);
    asked = *lost;
    asks++;
    return ask_rc;
}

static const struct nvt_instance elsewhere = {.cntlid = 9000, .ciu = 3, .cirn = 77};

static void join_group(void)
{
    subsystem->cntlid_max = 4080;
    subsystem->resets.ask = ask_group;
}

/* All that were there when the group said so, and none that has come since. */
static void calm__ends_what_was_there(void **state)
{
    (void)state;
    const struct nvf_sqe write = transfer(nvme_cmd_write, 0, 1, DATA);
    const uint64_t serial = admin.ctrl->serial;
    holds = true;
    assert_int_equal(say(&io_queue, &write), WAITS);
    struct nvt_request *writing = fetching;
    assert_false(nvt_ctrls_calm(subsystem, serial));
    assert_int_equal(drops, 2);
    assert_false(nvt_queue_gone(&io_queue));
    lose(&admin);
    assert_false(nvt_ctrls_calm(subsystem, serial));
    holds = false;
    nvt_request_fetched(writing, false);
    nvt_queue_forget(&io_queue);
    assert_true(nvt_ctrls_calm(subsystem, serial));
    assert_int_equal(drops, 2);
    assert_false(nvt_ctrls_calm(subsystem, target.ctrl_serial));
    make_queue(&io_queue, 1);
}

static void elsewhere__the_group_is_asked(void **state)
{
    (void)state;
    const struct nvt_instance before = {.cntlid = 12, .ciu = 1, .cirn = 5};
    join_group();
    assert_int_equal(say_reset(&other_admin, &elsewhere), 0);
    assert_false(was_immediate());
    assert_true(asks == 1 && nvt_instance_is(&asked.instance, &elsewhere));
    assert_string_equal(asked.host_nqn, HOST_NQN);
    assert_int_equal(asked.host_id.bytes[15], 1);
    nvt_target_tick(&target, target.now_ns);
    assert_int_equal(state_of(&elsewhere), NVF_CCR_IN_PROGRESS);
    nvt_reset_elsewhere_done(subsystem, &before, NVT_QUIET); /* nobody has asked for that */
    assert_int_equal(state_of(&elsewhere), NVF_CCR_IN_PROGRESS);
    nvt_reset_elsewhere_done(subsystem, &elsewhere, NVT_QUIET);
    assert_int_equal(state_of(&elsewhere), NVF_CCR_SUCCESS);
    /* One that an earlier process of this member had. */
    assert_int_equal(say_reset(&other_admin, &before), 0);
    assert_int_equal(asks, 2);
    nvt_reset_elsewhere_done(subsystem, &before, NVT_QUIET_REFUSED);
    assert_int_equal(state_of(&before), NVF_CCR_FAILED);
    assert_int_equal(say_reset(&other_admin, &before), 0); /* it may be tried again */
    assert_int_equal(asks, 3);
    assert_int_equal(state_of(&before), NVF_CCR_IN_PROGRESS);
}

static void elsewhere__without_an_answer(void **state)
{
    (void)state;
    join_group();
    ask_rc = -EAGAIN;
    assert_int_equal(say_reset(&other_admin, &elsewhere), INVALID);
    ask_rc = 0;
    assert_int_equal(say_reset(&other_admin, &elsewhere), 0);
    target.now_ns += 61000000000u;
    nvt_resets_look(&target);
    assert_int_equal(state_of(&elsewhere), NVF_CCR_FAILED);
    nvt_reset_elsewhere_done(subsystem, &elsewhere, NVT_QUIET); /* too late */
    assert_int_equal(state_of(&elsewhere), NVF_CCR_FAILED);
}

static void elsewhere__not_too_many(void **state)
{
    (void)state;
    struct nvt_instance of = elsewhere;
    join_group();
    for (int i = 0; i < NVT_RESETS_AT_ONCE; i++, of.cirn++)
        assert_int_equal(say_reset(&other_admin, &of), 0);
    assert_int_equal(say_reset(&other_admin, &of), NVF_SC_CCR_LIMIT);
    assert_int_equal(asks, NVT_RESETS_AT_ONCE);
    for (int i = 0; i < 3 * NVT_RESETS_KEPT; i++, of.cirn++) {
        nvt_reset_elsewhere_done(
            subsystem, &(struct nvt_instance){of.cntlid, of.ciu, of.cirn - NVT_RESETS_AT_ONCE},
            NVT_QUIET);
        target.now_ns++;
        assert_int_equal(say_reset(&other_admin, &of), 0);
        assert_int_equal(state_of(&of), NVF_CCR_IN_PROGRESS);
    }
    assert_int_equal(target.resets_under_way, NVT_RESETS_AT_ONCE);
    /* With who has asked they go. */
    assert_true(nvt_queue_gone(&other_io));
    assert_true(nvt_queue_gone(&other_admin));
    assert_int_equal(target.resets_under_way, 0);
    nvt_reset_elsewhere_done(subsystem, &of, NVT_QUIET);
    make_queue(&other_admin, 0);
    make_queue(&other_io, 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_two, end_two)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(identify__names_the_instance), CASE(reset__waits_for_the_last_command),
        CASE(reset__of_one_that_has_gone),  CASE(reset__is_for_hosts_of_their_own),
        CASE(calm__ends_what_was_there),    CASE(elsewhere__the_group_is_asked),
        CASE(elsewhere__without_an_answer), CASE(elsewhere__not_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
