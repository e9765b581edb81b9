/* SPDX-License-Identifier: BSD-2-Clause */
/* A namespace of a group of targets: it stands by, is taken and given up, while hosts are there.
 * Its reservations change when the group has committed them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/time/units.h"
#include "nvme/target/backend/standby.h"
#include "nvme/target/config/config.h"
#include "nvme/target/model/commit.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/discovery.h"
#include "test_model_host.h"

enum { DATA = 1 << 20, BLOCK = 4096, GROUP = 1, EPOCH = 7 };
enum { INACCESSIBLE = NVF_PATH(NVME_SC_ANA_INACCESSIBLE) };
enum { CONFLICT = NVME_SC_RESERVATION_CONFLICT | NVME_SC_DNR };
enum { AER_ANA = NVME_AER_NOTICE | NVME_AER_NOTICE_ANA << 8 | NVME_LOG_LID_ANA << 16 };

static int rests, proposals, propose_rc;
static uint64_t proposed_id;

static struct nvt_backend *open_ram(uint64_t bytes)
{
    const struct nvt_backend_setup with = {.size_bytes = bytes};
    struct nvt_backend *backend;
    char error[128];
    assert_int_equal(nvt_backend_find("ram")->open(&with, &backend, error, sizeof(error)), 0);
    return backend;
}

static struct nvt_namespace *first_namespace(void)
{
    return subsystem->namespaces[1];
}

static void note_rest(struct nvt_namespace *ns)
{
    assert_ptr_equal(ns, first_namespace());
    rests++;
}

static void give_up(void)
{
    nvt_subsystem_set_ana(subsystem, GROUP, NVME_ANA_STATE_INACCESSIBLE, EPOCH);
    nvt_namespace_rest(first_namespace(), nvt_standby_open(DATA, BLOCK, false));
}

static int begin_test(void **state)
{
    setup(state);
    begin();
    first_namespace()->rested = note_rest;
    rests = proposals = propose_rc = 0;
    return 0;
}

static uint16_t move(uint8_t opcode)
{
    const struct nvf_sqe sqe = transfer(opcode, 0, 1, DATA);
    return say(&io_queue, &sqe);
}

static struct nvme_ana_group_desc read_ana(void)
{
    struct nvme_ana_group_desc descriptor;
    struct nvf_sqe sqe = command(nvme_admin_get_log_page, 0, DATA, BLOCK);
    sqe.cdw10 = htole32(NVME_LOG_LID_ANA | (BLOCK / 4 - 1) << 16);
    assert_int_equal(say(&admin, &sqe), 0);
    memcpy(&descriptor, host + DATA + sizeof(struct nvme_ana_log), sizeof(descriptor));
    return descriptor;
}

static void ana__is_as_the_group_says(void **state)
{
    (void)state;
    struct nvf_sqe sqe = command(nvme_admin_set_features, 0, 0, 0);
    sqe.cdw10 = htole32(NVME_FEAT_FID_ASYNC_EVENT);
    sqe.cdw11 = htole32(1 << 11);
    assert_int_equal(say(&admin, &sqe), 0);
    assert_int_equal(read_ana().state, NVME_ANA_STATE_OPTIMIZED);
    sqe = command(nvme_admin_async_event, 0, 0, 0);
    assert_int_equal(say(&admin, &sqe), WAITS);
    nvt_subsystem_set_ana(subsystem, GROUP, NVME_ANA_STATE_INACCESSIBLE, EPOCH);
    assert_int_equal(le64toh(response.result), AER_ANA);
    assert_int_equal(read_ana().state, NVME_ANA_STATE_INACCESSIBLE);
    assert_int_equal(le64toh(read_ana().chgcnt), EPOCH);
    assert_int_equal(move(nvme_cmd_read), INACCESSIBLE);
    assert_int_equal(nvt_namespace_sum(first_namespace()).users, 0);
    nvt_subsystem_set_ana(subsystem, GROUP, NVME_ANA_STATE_CHANGE, EPOCH + 1);
    assert_int_equal(move(nvme_cmd_write), NVF_PATH(NVME_SC_ANA_TRANSITION));
    nvt_subsystem_set_ana(subsystem, GROUP, NVME_ANA_STATE_OPTIMIZED, EPOCH + 1);
    assert_int_equal(move(nvme_cmd_write), 0);
    assert_int_equal(le64toh(read_ana().chgcnt), EPOCH + 1);
}

static void rest__comes_behind_the_last_request(void **state)
{
    (void)state;
    memset(host + DATA, 0x5a, BLOCK);
    holds = true;
    assert_int_equal(move(nvme_cmd_write), WAITS);
    struct nvt_request *writing = fetching;
    give_up();
    assert_int_equal(rests, 0);
    assert_int_equal(target.serial, 1);
    assert_int_equal(move(nvme_cmd_read), INACCESSIBLE);
    assert_int_equal(rests, 0);
    holds = false;
    nvt_request_fetched(writing, true);
    assert_int_equal(le16toh(response.status) >> 1, 0);
    assert_int_equal(rests, 1);
    assert_int_equal(target.serial, 0);
    assert_int_equal(move(nvme_cmd_write), INACCESSIBLE);
}

static void wake__serves_another_backend(void **state)
{
    (void)state;
    give_up();
    assert_int_equal(rests, 1);
    const uint64_t blocks = first_namespace()->blocks;
    nvt_namespace_wake(first_namespace(), open_ram(DATA));
    assert_int_equal(move(nvme_cmd_read), INACCESSIBLE); /* not before the group says so */
    nvt_subsystem_set_ana(subsystem, GROUP, NVME_ANA_STATE_OPTIMIZED, EPOCH + 1);
    assert_int_equal(move(nvme_cmd_read), 0);
    assert_int_equal(first_namespace()->blocks, blocks);
    give_up();
    nvt_namespace_wake(first_namespace(), open_ram(2 * DATA)); /* it has grown elsewhere */
    assert_int_equal(first_namespace()->blocks, 2 * blocks);
}

/* What rests goes with its requests. */
static void remove__of_one_that_comes_to_rest(void **state)
{
    (void)state;
    holds = true;
    assert_int_equal(move(nvme_cmd_write), WAITS);
    struct nvt_request *writing = fetching;
    give_up();
    nvt_namespace_remove(first_namespace());
    assert_int_equal(target.serial, 2);
    holds = false;
    nvt_request_fetched(writing, true);
    assert_int_equal(rests, 0);
    assert_int_equal(target.serial, 0);
}

/* A fence ends this process: nobody else may be writing to the medium. */
static void write__of_a_group_is_this_process_alone(void **state)
{
    (void)state;
    const struct mover_region *region = &first_namespace()->region;
    memset(host + DATA, 0x5a, BLOCK);
    holds = true;
    assert_int_equal(move(nvme_cmd_write), WAITS);
    assert_ptr_equal(fetching->region, region);
    nvt_request_fetched(fetching, true);
    subsystem->is_grouped = true;
    memset(host + DATA, 0xa5, BLOCK);
    assert_int_equal(move(nvme_cmd_write), WAITS);
    assert_ptr_not_equal(fetching->region, region);
    nvt_request_fetched(fetching, true);
    holds = false;
    assert_int_equal(move(nvme_cmd_write), 0);
    host[DATA] = 0;
    assert_int_equal(move(nvme_cmd_read), 0);
    assert_int_equal(host[DATA], 0xa5);
}

static void identify__says_that_the_medium_fences(void **state)
{
    (void)state;
    struct nvf_sqe sqe = command(nvme_admin_identify, 0, DATA, 4096);
    sqe.cdw10 = htole32(NVME_IDENTIFY_CNS_CTRL);
    assert_int_equal(say(&admin, &sqe), 0);
    assert_int_not_equal(memcmp(host + DATA + 3072, "SWFENCED", 8), 0);
    subsystem->is_grouped = true;
    subsystem->slot = 3;
    assert_int_equal(say(&admin, &sqe), 0);
    assert_memory_equal(host + DATA + 3072, "SWFENCED\3", 9);
}

static uint64_t records_of_discovery(struct nvt_queue *queue)
{
    struct nvf_sqe sqe = command(nvme_admin_get_log_page, 0, DATA, BLOCK);
    sqe.cdw10 = htole32(NVME_LOG_LID_DISCOVER | (BLOCK / 4 - 1) << 16);
    assert_int_equal(say(queue, &sqe), 0);
    return le64toh(((const struct nvmf_discovery_log *)(host + DATA))->numrec);
}

static void discovery__lists_other_targets(void **state)
{
    (void)state;
    struct nvt_queue queue;
    make_queue(&queue, 0);
    assert_int_equal(connect_as_host(&queue, NVF_DISCOVERY_NQN, 0xffff), 0);
    assert_int_equal(set_config(&queue, CC_ENABLED), 0);
    const uint64_t before = records_of_discovery(&queue), changes = target.genctr;
    struct nvt_referral peer = {.trtype = NVMF_TRTYPE_RDMA,
                                .adrfam = NVMF_ADDR_FAMILY_IP4,
                                .traddr = "192.0.2.7",
                                .trsvcid = "4420",
                                .subsysnqn.text = NQN};
    assert_int_equal(nvt_discovery_set_peers(&target, &peer, 1), 0);
    assert_int_equal(nvt_discovery_set_peers(&target, &peer, 1), 0);
    assert_int_equal(target.genctr, changes + 1);
    assert_int_equal(records_of_discovery(&queue), before + 1);
    const struct nvmf_disc_log_entry *entry =
        (const struct nvmf_disc_log_entry *)(host + DATA + 1024 * (before + 1));
    assert_memory_equal(entry->traddr, "192.0.2.7 ", 10);
    assert_string_equal(entry->subnqn, NQN);
    strcpy(peer.subsysnqn.text, "nqn.2026-01.test:other");
    assert_int_equal(nvt_discovery_set_peers(&target, &peer, 1), 0);
    assert_int_equal(records_of_discovery(&queue), before);
    assert_true(nvt_queue_gone(&queue));
}

/* ---- reservations ---- */

static int propose(struct nvt_commits *commits, const struct nvt_reservation *proposed, uint64_t id)
{
    assert_true(proposed->persists);
    assert_ptr_equal(commits->context, &proposals);
    proposals++;
    proposed_id = id;
    return propose_rc;
}

static int begin_commits(void **state)
{
    begin_test(state);
    return nvt_commits_open(first_namespace(), propose, &proposals);
}

static uint16_t register_key(uint64_t key, uint32_t cdw10)
{
    const __le64 keys[2] = {0, htole64(key)};
    struct nvf_sqe sqe = command(nvme_cmd_resv_register, 1, 0, sizeof(keys));
    sqe.cdw10 = htole32(cdw10);
    memcpy(capsule, keys, sizeof(keys));
    nvf_sgl_set_in_capsule(&sqe, sizeof(keys));
    return say_with(&io_queue, &sqe, sizeof(keys));
}

static void register__is_answered_when_it_is_committed(void **state)
{
    (void)state;
    struct nvt_commits *commits = first_namespace()->commits;
    assert_int_equal(register_key(10, 0), WAITS);
    assert_int_equal(first_namespace()->reservation.count, 0);
    nvt_commits_done(commits, proposed_id + 1, 0); /* an old one */
    assert_int_equal(first_namespace()->reservation.count, 0);
    nvt_commits_done(commits, proposed_id, 0);
    assert_int_equal(le16toh(response.status) >> 1, 0);
    assert_int_equal(first_namespace()->reservation.count, 1);
    assert_int_equal(first_namespace()->reservation.registrants[0].key, 10);
    nvt_commits_done(commits, proposed_id, 0);
    assert_int_equal(proposals, 1);
}

static void register__waits_for_its_turn(void **state)
{
    (void)state;
    struct nvt_commits *commits = first_namespace()->commits;
    assert_int_equal(register_key(10, 0), WAITS);
    assert_int_equal(register_key(11, 0), WAITS); /* conflicts once the first is there */
    assert_int_equal(proposals, 1);
    nvt_commits_done(commits, proposed_id, 0);
    assert_int_equal(proposals, 1);
    assert_int_equal(status_before(1), 0);
    assert_int_equal(status_before(0), CONFLICT);
}

static void register__refused_by_the_group_changes_nothing(void **state)
{
    (void)state;
    struct nvt_commits *commits = first_namespace()->commits;
    assert_int_equal(register_key(10, 0), WAITS);
    assert_int_equal(register_key(11, 0), WAITS);
    const uint64_t id = proposed_id;
    nvt_commits_done(commits, id, -EAGAIN);
    assert_int_equal(le16toh(response.status) >> 1,
                     NVME_SC_NS_NOT_READY); /* it may be said again */
    assert_int_equal(first_namespace()->reservation.count, 0);
    assert_int_equal(proposals, 2);
    nvt_commits_done(commits, proposed_id, 0);
    assert_int_equal(first_namespace()->reservation.registrants[0].key, 11);
    propose_rc = -EAGAIN;
    assert_int_equal(register_key(12, 1 << 3 | 2), NVME_SC_NS_NOT_READY);
    assert_int_equal(first_namespace()->reservation.registrants[0].key, 11);
}

static void register__of_a_namespace_that_is_given_up(void **state)
{
    (void)state;
    struct nvt_commits *commits = first_namespace()->commits;
    assert_int_equal(register_key(10, 0), WAITS);
    give_up();
    assert_int_equal(le16toh(response.status) >> 1, INACCESSIBLE);
    assert_int_equal(rests, 1);
    nvt_commits_done(commits, proposed_id, 0); /* comes late */
    assert_int_equal(first_namespace()->reservation.count, 0);
    assert_int_equal(register_key(10, 0), INACCESSIBLE);
    assert_int_equal(proposals, 1);
}

static void register__of_a_host_that_has_gone(void **state)
{
    (void)state;
    struct nvt_commits *commits = first_namespace()->commits;
    assert_int_equal(register_key(10, 0), WAITS);
    assert_int_equal(register_key(11, 0), WAITS);
    assert_false(nvt_queue_gone(&io_queue));
    nvt_commits_done(commits, proposed_id, 0); /* it is in the log, so it counts */
    assert_int_equal(first_namespace()->reservation.count, 1);
    assert_int_equal(proposals, 1);
    assert_int_equal(io_queue.under_way, 0);
    make_queue(&io_queue, 1);
}

/* The group's log hangs. The command is answered in time, and what became of it counts when the log
 * goes on. */
static void register__is_answered_though_the_log_hangs(void **state)
{
    (void)state;
    struct nvt_namespace *ns = first_namespace();
    assert_int_equal(register_key(10, 0), WAITS);
    const uint64_t begun_ns = ns->target->now_ns, id = proposed_id;
    nvt_commits_tick(ns->commits, begun_ns + 4 * NS_PER_S);
    assert_int_equal(register_key(11, 0), WAITS);
    nvt_commits_tick(ns->commits, begun_ns + 6 * NS_PER_S);
    assert_int_equal(status_before(1), NVME_SC_NS_NOT_READY);
    assert_int_equal(status_before(0), NVME_SC_NS_NOT_READY);
    assert_int_equal(register_key(10, 0), NVME_SC_NS_NOT_READY); /* at once */
    assert_int_equal(proposals, 1);
    assert_int_equal(ns->reservation.count, 0);
    nvt_commits_done(ns->commits, id, 0);
    assert_int_equal(ns->reservation.registrants[0].key, 10);
    assert_int_equal(register_key(10, 0), WAITS); /* as the host tries again */
    nvt_commits_done(ns->commits, proposed_id, 0);
    assert_int_equal(le16toh(response.status) >> 1, 0);
}

static uint16_t persistence(uint8_t opcode, uint32_t value)
{
    struct nvf_sqe sqe = command(opcode, 1, DATA, 16);
    sqe.cdw10 = htole32(NVME_FEAT_FID_RESV_PERSIST);
    sqe.cdw11 = htole32(value);
    return say(&admin, &sqe);
}

static void reservations__persist(void **state)
{
    (void)state;
    assert_int_equal(persistence(nvme_admin_get_features, 0), 0);
    assert_int_equal(le64toh(response.result), 1);
    assert_int_equal(persistence(nvme_admin_set_features, 1), 0);
    assert_int_equal(persistence(nvme_admin_set_features, 0),
                     NVF_SPECIFIC(NVME_SC_FEATURE_NOT_CHANGEABLE) | NVME_SC_DNR);
    struct nvf_sqe sqe = command(nvme_admin_identify, 1, DATA, 4096);
    assert_int_equal(say(&admin, &sqe), 0);
    assert_true(((const struct nvme_id_ns *)(host + DATA))->rescap & 1);
    assert_int_equal(register_key(10, (uint32_t)NVME_RESERVATION_CPTPL_PERSIST << 30), WAITS);
    nvt_commits_done(first_namespace()->commits, proposed_id, 0);
    assert_int_equal(le16toh(response.status) >> 1, 0);
    assert_int_equal(register_key(11, (uint32_t)NVME_RESERVATION_CPTPL_CLEAR << 30 | 1 << 3 | 2),
                     NVME_SC_INVALID_FIELD | NVME_SC_DNR);
}

/* ---- reservations of a namespace that all targets serve ---- */

static struct nvt_reservation_change asked;
static uint64_t held;

static int ask(struct nvt_commits *commits, const struct nvt_reservation_change *change,
               uint64_t id)
{
    assert_ptr_equal(commits->context, &proposals);
    asked = *change;
    proposals++;
    proposed_id = id;
    return propose_rc;
}

static void note_held(struct nvt_commits *commits, uint64_t number)
{
    assert_ptr_equal(commits->context, &proposals);
    held = number;
}

static int begin_shared(void **state)
{
    begin_test(state);
    held = 0;
    return nvt_commits_share(first_namespace(), ask, note_held, &proposals);
}

/* `change` NULL: nobody knows it any more, and all that were registered are not. */
static void apply_change(uint64_t number, uint64_t id, const struct nvt_reservation_change *change)
{
    struct nvt_applied applied = {.number = number, .id = id, .is_next = change};
    struct nvt_reservation_effect effect;
    if (change) {
        applied.change = *change;
        applied.after = first_namespace()->reservation;
        (void)nvt_reservation_change(&applied.after, change, &effect);
    }
    nvt_commits_apply(first_namespace()->commits, &applied);
}

static void register__of_all_is_answered_when_it_holds_everywhere(void **state)
{
    (void)state;
    struct nvt_commits *commits = first_namespace()->commits;
    assert_int_equal(register_key(10, 0), WAITS);
    assert_int_equal(asked.opcode, nvme_cmd_resv_register);
    assert_int_equal(first_namespace()->reservation.count, 0);
    apply_change(1, proposed_id, &asked);
    assert_int_equal(first_namespace()->reservation.registrants[0].key, 10);
    assert_int_equal(held, 1);
    assert_int_equal(nvt_namespace_sum(first_namespace()).users, 1); /* it waits for others */
    apply_change(1, 0, &asked);
    nvt_commits_done(commits, proposed_id, 0);
    assert_int_equal(le16toh(response.status) >> 1, 0);
    assert_int_equal(nvt_namespace_sum(first_namespace()).users, 0);
}

static void register__of_all_meets_another_one(void **state)
{
    (void)state;
    assert_int_equal(register_key(10, 0), WAITS);
    struct nvt_reservation_change first = asked;
    first.data[8] = 11; /* the host did that by another target */
    apply_change(1, 0, &first);
    apply_change(2, proposed_id, &asked);
    assert_int_equal(first_namespace()->reservation.registrants[0].key, 11);
    assert_int_equal(held, 2);
    nvt_commits_done(first_namespace()->commits, proposed_id, 0);
    assert_int_equal(le16toh(response.status) >> 1, CONFLICT);
    assert_int_equal(register_key(12, 0), CONFLICT); /* nobody is asked */
    assert_int_equal(proposals, 1);
}

/* Preempt and abort by the other target's host: what came before is over when it holds. */
static void preempt__of_all_holds_behind_earlier_commands(void **state)
{
    (void)state;
    struct nvt_reservation_change other = {
        .host.bytes[0] = 0x77, .opcode = nvme_cmd_resv_register, .data[8] = 7};
    assert_int_equal(register_key(10, 0), WAITS);
    apply_change(1, proposed_id, &asked);
    nvt_commits_done(first_namespace()->commits, proposed_id, 0);
    apply_change(2, 0, &other);
    assert_int_equal(held, 2);
    holds = true;
    assert_int_equal(move(nvme_cmd_write), WAITS);
    struct nvt_request *writing = fetching;
    holds = false;
    assert_int_equal(register_key(11, 1 << 3 | 2), WAITS); /* comes later, and is not waited for */
    other.opcode = nvme_cmd_resv_acquire;
    other.cdw10 = NVME_RESERVATION_RTYPE_WE << 8 | NVME_RESERVATION_RACQA_PREEMPT_AND_ABORT;
    other.data[0] = 7;
    other.data[8] = 10;
    apply_change(3, 0, &other);
    assert_int_equal(held, 2);
    assert_int_equal(target.serial, 1);
    assert_int_equal(first_namespace()->reservation.count, 1);
    nvt_request_fetched(writing, true);
    assert_int_equal(le16toh(response.status) >> 1, NVME_SC_CMD_ABORTED_PREMEPT);
    assert_int_equal(held, 3);
    assert_int_equal(target.serial, 0);
    nvt_commits_done(first_namespace()->commits, proposed_id, -EAGAIN);
    assert_int_equal(le16toh(response.status) >> 1, NVME_SC_NS_NOT_READY);
}

/* Nobody tells what a target has missed: a host that is not registered any more was preempted. */
static void changes__that_were_missed(void **state)
{
    (void)state;
    assert_int_equal(register_key(10, 0), WAITS);
    apply_change(1, proposed_id, &asked);
    nvt_commits_done(first_namespace()->commits, proposed_id, 0);
    holds = true;
    assert_int_equal(move(nvme_cmd_write), WAITS);
    struct nvt_request *writing = fetching;
    holds = false;
    apply_change(4, 0, NULL);
    apply_change(6, 0, NULL);
    assert_int_equal(first_namespace()->reservation.count, 0);
    assert_int_equal(held, 1);
    nvt_request_fetched(writing, true);
    assert_int_equal(le16toh(response.status) >> 1, NVME_SC_CMD_ABORTED_PREMEPT);
    assert_int_equal(held, 6);
    assert_int_equal(target.serial, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_test, teardown)
#define SHARED(name) cmocka_unit_test_setup_teardown(name, begin_shared, teardown)
#define COMMITS(name) cmocka_unit_test_setup_teardown(name, begin_commits, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ana__is_as_the_group_says),
        CASE(rest__comes_behind_the_last_request),
        CASE(wake__serves_another_backend),
        CASE(remove__of_one_that_comes_to_rest),
        CASE(write__of_a_group_is_this_process_alone),
        CASE(identify__says_that_the_medium_fences),
        CASE(discovery__lists_other_targets),
        COMMITS(register__is_answered_when_it_is_committed),
        COMMITS(register__is_answered_though_the_log_hangs),
        COMMITS(register__waits_for_its_turn),
        COMMITS(register__refused_by_the_group_changes_nothing),
        COMMITS(register__of_a_namespace_that_is_given_up),
        COMMITS(register__of_a_host_that_has_gone),
        COMMITS(reservations__persist),
        SHARED(register__of_all_is_answered_when_it_holds_everywhere),
        SHARED(register__of_all_meets_another_one),
        SHARED(preempt__of_all_holds_behind_earlier_commands),
        SHARED(changes__that_were_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
