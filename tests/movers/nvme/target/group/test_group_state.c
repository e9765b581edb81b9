/* SPDX-License-Identifier: BSD-2-Clause */
/* Records of a group's log, and the state that is their sum. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "nvme/target/group/message.h"
#include "nvme/target/group/state.h"

static struct nvg_replica replica, other;
static struct nvg_record record;

static struct nvg_former process(const char *name, uint8_t slot, uint64_t incarnation)
{
    struct nvg_former former = {
        .slot = slot, .incarnation = incarnation, .pid = 100 + slot, .start_ticks = 7};
    strcpy(former.member, name);
    return former;
}

static enum nvg_verdict take_kind(enum nvg_record_kind kind)
{
    record.kind = kind;
    return nvg_replica_take(&replica, &record);
}

static enum nvg_verdict join(const char *name, uint8_t slot, uint64_t incarnation)
{
    memset(&record, 0, sizeof(record));
    record.join.who = process(name, slot, incarnation);
    record.join.is_here = true;
    return take_kind(NVG_JOIN);
}

static enum nvg_verdict assign(uint32_t nsid, const char *name, uint8_t slot, uint64_t incarnation,
                               uint64_t epoch)
{
    memset(&record, 0, sizeof(record));
    record.nsid = nsid;
    record.owner = process(name, slot, incarnation);
    record.owner.epoch = epoch;
    return take_kind(NVG_TAKING_IT);
}

static enum nvg_verdict tell_owner(enum nvg_record_kind kind, uint32_t nsid, uint64_t epoch,
                                   uint64_t id)
{
    memset(&record, 0, sizeof(record));
    record.nsid = nsid;
    record.epoch = epoch;
    record.id = id;
    record.reservation.generation = (uint32_t)id;
    return take_kind(kind);
}

/* A group of a and b, with namespace 1 of 1 MiB. */
static int make_group(void **state)
{
    (void)state;
    memset(&replica, 0, sizeof(replica));
    memset(&record, 0, sizeof(record));
    for (uint8_t i = 0; i < 16; i++)
        record.identity[i] = (uint8_t)(0xa0 + i);
    strcpy(record.nqn, "nqn.a");
    assert_int_equal(take_kind(NVG_GROUP), NVG_FITS);
    assert_int_equal(join("a", 0, 11), NVG_FITS);
    assert_int_equal(join("b", 1, 22), NVG_FITS);
    memset(&record, 0, sizeof(record));
    record.about = (struct nvg_namespace){
        .nsid = 1, .block_bytes = 512, .size_bytes = 1 << 20, .medium = "file 1 2"};
    assert_int_equal(take_kind(NVG_NAMESPACE), NVG_FITS);
    return 0;
}

static const struct nvg_hold *hold(void)
{
    return &replica.now.places[1].hold;
}

static void take__makes_the_former_owner_one_to_be_fenced(void **state)
{
    (void)state;
    assert_int_equal(assign(1, "a", 0, 11, 1), NVG_FITS);
    assert_int_equal(hold()->former_count, 0);
    assert_int_equal(tell_owner(NVG_OWN, 1, 1, 0), NVG_FITS);
    assert_int_equal(assign(1, "b", 1, 22, 2), NVG_FITS);
    assert_int_equal(hold()->former_count, 1);
    assert_string_equal(hold()->formers[0].member, "a");
    assert_int_equal(hold()->formers[0].pid, 100);
    assert_int_equal(tell_owner(NVG_OWN, 1, 2, 0), NVG_FITS);
    assert_int_equal(hold()->former_count, 0);
}

static void take__one_that_did_not_end_is_fenced_too(void **state)
{
    (void)state;
    assign(1, "a", 0, 11, 1);
    tell_owner(NVG_OWN, 1, 1, 0);
    assign(1, "b", 1, 22, 2);
    assert_int_equal(join("b", 1, 33), NVG_FITS);
    assert_int_equal(assign(1, "b", 1, 33, 3), NVG_FITS);
    assert_int_equal(hold()->former_count, 2);
    /* One that gives up has fenced nobody for sure; it holds nothing itself. */
    assert_int_equal(tell_owner(NVG_RELEASED_IT, 1, 3, 0), NVG_FITS);
    assert_int_equal(hold()->phase, NVG_FREE);
    assert_int_equal(assign(1, "a", 0, 11, 4), NVG_FITS);
    assert_int_equal(hold()->former_count, 2);
}

static void take__of_a_clean_release_fences_nobody(void **state)
{
    (void)state;
    assign(1, "a", 0, 11, 1);
    tell_owner(NVG_OWN, 1, 1, 0);
    assert_int_equal(tell_owner(NVG_RELEASED_IT, 1, 1, 0), NVG_FITS);
    assert_int_equal(assign(1, "b", 1, 22, 2), NVG_FITS);
    assert_int_equal(hold()->former_count, 0);
}

static void take__is_refused_out_of_turn(void **state)
{
    (void)state;
    assert_int_equal(assign(1, "a", 0, 11, 2), NVG_STALE);
    assert_int_equal(assign(1, "a", 0, 12, 1), NVG_STALE); /* another process */
    assert_int_equal(assign(2, "a", 0, 11, 1), NVG_WRONG);
    for (uint64_t i = 0; i < NVG_FORMERS_MAX; i++) {
        assert_int_equal(join("b", 1, 100 + i), NVG_FITS);
        assert_int_equal(assign(1, "b", 1, 100 + i, i + 1), NVG_FITS);
    }
    join("b", 1, 200);
    assert_int_equal(assign(1, "b", 1, 200, NVG_FORMERS_MAX + 1), NVG_FITS);
    join("b", 1, 201);
    assert_int_equal(assign(1, "b", 1, 201, NVG_FORMERS_MAX + 2), NVG_NO_ROOM);
}

static void own__only_by_the_newest_epoch(void **state)
{
    (void)state;
    assign(1, "a", 0, 11, 1);
    assign(1, "b", 1, 22, 2);
    assert_int_equal(tell_owner(NVG_OWN, 1, 1, 0), NVG_STALE);
    assert_int_equal(tell_owner(NVG_RESERVATION, 1, 2, 1), NVG_STALE); /* it does not serve yet */
    assert_int_equal(tell_owner(NVG_OWN, 1, 2, 0), NVG_FITS);
    assert_int_equal(tell_owner(NVG_OWN, 1, 2, 0), NVG_STALE);
    assert_int_equal(tell_owner(NVG_RESERVATION, 1, 1, 1), NVG_STALE);
    assert_int_equal(tell_owner(NVG_RESERVATION, 1, 2, 1), NVG_FITS);
    assert_int_equal(tell_owner(NVG_RESERVATION, 1, 2, 1), NVG_STALE); /* the same once more */
    assert_int_equal(replica.now.places[1].reservation.generation, 1);
}

static enum nvg_verdict calm(enum nvg_record_kind kind, uint64_t incarnation, uint64_t id)
{
    memset(&record, 0, sizeof(record));
    record.slot = 1;
    record.incarnation = incarnation;
    record.id = id;
    return take_kind(kind);
}

static void calm__nothing_is_owned_before_it(void **state)
{
    (void)state;
    assert_int_equal(calm(NVG_CALM, 21, 5), NVG_STALE); /* another process */
    assert_int_equal(calm(NVG_CALMED, 22, 5), NVG_STALE);
    assert_int_equal(calm(NVG_CALM, 22, 5), NVG_FITS);
    assert_int_equal(nvg_state_calm(&replica.now, 1, 22), 5);
    assert_int_equal(assign(1, "b", 1, 22, 1), NVG_STALE);
    assert_int_equal(calm(NVG_CALM, 22, 6), NVG_FITS);
    assert_int_equal(calm(NVG_CALMED, 22, 5), NVG_STALE); /* controllers may have come since */
    assert_int_equal(assign(1, "b", 1, 22, 1), NVG_STALE);
    assert_int_equal(calm(NVG_CALMED, 22, 6), NVG_FITS);
    assert_int_equal(calm(NVG_CALMED, 22, 6), NVG_STALE);
    assert_int_equal(assign(1, "b", 1, 22, 1), NVG_FITS);
    /* The next process of that name has no old controllers. */
    assert_int_equal(calm(NVG_CALM, 22, 7), NVG_FITS);
    assert_int_equal(join("b", 1, 33), NVG_FITS);
    assert_int_equal(nvg_state_calm(&replica.now, 1, 33), 0);
    assert_int_equal(assign(1, "b", 1, 33, 2), NVG_FITS);
}

static void join__a_name_keeps_its_slot(void **state)
{
    (void)state;
    assert_int_equal(nvg_state_slot_for(&replica.now, "b"), 1);
    assert_int_equal(nvg_state_slot_for(&replica.now, "c"), 2);
    assert_int_equal(join("b", 2, 33), NVG_WRONG);
    assert_int_equal(join("c", 0, 33), NVG_NO_ROOM);
    for (uint8_t i = 2; i < NVG_SLOTS; i++) {
        const char name[2] = {(char)('a' + i), 0};
        assert_int_equal(join(name, i, i), NVG_FITS);
    }
    assert_int_equal(nvg_state_slot_for(&replica.now, "z"), -1);
    memset(&record, 0, sizeof(record));
    record.slot = 4;
    record.incarnation = 4;
    assert_int_equal(take_kind(NVG_LEAVE), NVG_FITS);
    assert_int_equal(nvg_state_slot_for(&replica.now, "z"), 4);
}

static void differs__names_what_is_another(void **state)
{
    struct nvg_namespace ns = replica.now.places[1].about;
    (void)state;
    assert_null(nvg_state_differs(&replica.now, &ns));
    ns.size_bytes *= 2;
    assert_null(nvg_state_differs(&replica.now, &ns)); /* it has grown */
    ns.size_bytes = 512;
    assert_string_equal(nvg_state_differs(&replica.now, &ns), "a smaller size");
    ns = replica.now.places[1].about;
    ns.nguid[0]++;
    assert_string_equal(nvg_state_differs(&replica.now, &ns), "another NGUID");
    ns.medium[0]++;
    assert_string_equal(nvg_state_differs(&replica.now, &ns), "another medium");
    ns.nsid = 9;
    assert_null(nvg_state_differs(&replica.now, &ns));
}

static void copy_by_dump(void)
{
    uint8_t bytes[NVG_RECORD_MAX];
    uint32_t cursor = 0;
    static struct nvg_record dumped, got;
    while (nvg_state_dump(&replica.now, &cursor, &dumped)) {
        const size_t count = nvg_record_put(&dumped, bytes);
        assert_true(count);
        assert_true(nvg_record_get(bytes, count, &got));
        assert_int_equal(nvg_replica_take(&other, &got), NVG_FITS);
        /* Each byte counts. */
        assert_false(nvg_record_get(bytes, count - 1, &got));
    }
}

static enum nvg_verdict reserve(uint64_t incarnation, uint64_t number, uint8_t key)
{
    memset(&record, 0, sizeof(record));
    record.nsid = 1;
    record.incarnation = incarnation;
    record.id = number;
    record.change = (struct nvt_reservation_change){
        .host.bytes[0] = key, .opcode = nvme_cmd_resv_register, .data[8] = key};
    return take_kind(NVG_RESERVE);
}

/* Two members may know the same change as the last one: the first one's is the next. */
static void reserve__fits_once(void **state)
{
    (void)state;
    assert_int_equal(reserve(11, 1, 7), NVG_WRONG); /* one member is active */
    replica.now.is_all_active = true;
    assert_int_equal(reserve(11, 1, 7), NVG_FITS);
    assert_int_equal(reserve(22, 1, 8), NVG_STALE);
    assert_int_equal(reserve(22, 3, 8), NVG_STALE);
    assert_int_equal(reserve(22, 2, 8), NVG_FITS);
    assert_int_equal(tell_owner(NVG_RESERVATION, 1, 0, 9), NVG_STALE);
    assert_int_equal(replica.now.places[1].reservation.count, 2);
    assert_int_equal(replica.now.places[1].hold.reservation_id, 2);
    memset(&other, 0, sizeof(other));
    copy_by_dump();
    assert_int_equal(other.now.places[1].reserved_by, 22);
    assert_int_equal(other.now.places[1].hold.reservation_id, 2);
    assert_int_equal(other.now.places[1].reservation.registrants[1].key, 8);
}

/* What is known of a disk: two members may say it at once, and one of them is first. */
static enum nvg_verdict tell_of_disk(uint64_t number, uint32_t error)
{
    memset(&record, 0, sizeof(record));
    record.nsid = 1;
    record.id = number;
    record.error = error;
    return take_kind(NVG_DISK);
}

static void disk__is_known_until_it_is_sound(void **state)
{
    (void)state;
    assert_int_equal(tell_of_disk(2, EIO), NVG_STALE);
    assert_int_equal(tell_of_disk(1, EIO), NVG_FITS);
    assert_int_equal(tell_of_disk(1, ENOSPC), NVG_STALE);
    memset(&other, 0, sizeof(other));
    copy_by_dump();
    assert_int_equal(other.now.places[1].disk.error, EIO);
    assert_int_equal(other.now.places[1].disk.number, 1);
    assert_int_equal(tell_of_disk(2, 0), NVG_FITS);
    assert_int_equal(replica.now.places[1].disk.error, 0);
    record.nsid = 9;
    assert_int_equal(take_kind(NVG_DISK), NVG_WRONG);
    record.error = 4096; /* no errno */
    assert_int_equal(nvg_record_put(&record, (uint8_t[NVG_RECORD_MAX]){0}), 0);
}

static void dump__makes_the_same_state(void **state)
{
    (void)state;
    assign(1, "a", 0, 11, 1);
    tell_owner(NVG_OWN, 1, 1, 0);
    tell_owner(NVG_RESERVATION, 1, 1, 5);
    assign(1, "b", 1, 22, 2);
    calm(NVG_CALM, 22, 8);
    memset(&other, 0, sizeof(other));
    copy_by_dump();
    assert_int_equal(nvg_state_calm(&other.now, 1, 22), 8);
    assert_memory_equal(&other.now.places[1].hold, hold(), sizeof(*hold()));
    assert_int_equal(other.now.places[1].reservation.generation, 5);
    assert_memory_equal(other.now.members, replica.now.members, sizeof(replica.now.members));
    copy_by_dump(); /* and once more, in its place */
    assert_false(other.is_filling);
}

static void checkpoint__counts_as_a_whole_or_not_at_all(void **state)
{
    (void)state;
    memset(&record, 0, sizeof(record));
    assert_int_equal(take_kind(NVG_BEGIN), NVG_FITS);
    assert_int_equal(take_kind(NVG_END), NVG_WRONG); /* without a group */
    assert_true(replica.now.has_member[0]);
    assert_int_equal(join("x", 5, 55), NVG_FITS);
    assert_false(replica.now.has_member[5]);
    memset(&record, 0, sizeof(record));
    assert_int_equal(take_kind(NVG_ABANDON), NVG_FITS);
    assert_false(replica.now.has_member[5]);
    assert_int_equal(assign(1, "a", 0, 11, 1), NVG_FITS);
}

static void get__refuses_what_no_member_writes(void **state)
{
    (void)state;
    uint8_t bytes[NVG_RECORD_MAX];
    struct nvg_record got;
    memset(&record, 0, sizeof(record));
    record.kind = NVG_TAKING_IT;
    record.nsid = 1;
    record.owner = process("a b", 0, 1);
    assert_int_equal(nvg_record_put(&record, bytes), 0); /* a name with a space */
    record.owner = process("a", 0, 1);
    const size_t count = nvg_record_put(&record, bytes);
    assert_true(nvg_record_get(bytes, count, &got));
    bytes[0]++;
    assert_false(nvg_record_get(bytes, count, &got));
    bytes[0]--;
    bytes[1] = 99;
    assert_false(nvg_record_get(bytes, count, &got));
    bytes[1] = NVG_TAKING_IT;
    bytes[2] = NVG_PLACES_MAX + 1;
    assert_false(nvg_record_get(bytes, count, &got));
    memset(&record, 0, sizeof(record));
    record.kind = NVG_HOST;
    record.nsid = NVG_NSID_MAX;
    strcpy(record.host.nqn, "nqn.host");
    assert_int_equal(nvg_record_put(&record, bytes), 0); /* the number of a namespace */
    record.nsid = NVG_PLACES_MAX;
    const size_t of_host = nvg_record_put(&record, bytes);
    assert_true(nvg_record_get(bytes, of_host, &got));
    memset(bytes + of_host - NVG_NQN_BYTES, 'a', NVG_NQN_BYTES);
    assert_false(nvg_record_get(bytes, of_host, &got)); /* a name without an end */
}

static void message__is_the_same_there(void **state)
{
    (void)state;
    static struct nvg_message message, got;
    uint8_t bytes[NVG_MESSAGE_MAX];
    for (int kind = NVG_HELLO; kind <= NVG_PLACELESS; kind++) {
        memset(&message, 0, sizeof(message));
        message.kind = (enum nvg_message_kind)kind;
        if (kind == NVG_HELLO)
            message.join.who = process("a", 3, 9);
        if (kind == NVG_MOVE || kind == NVG_APPLIED || kind == NVG_SETTLED)
            message.nsid = NVG_NSID_MAX;
        if (kind == NVG_REFUSE)
            message.status = -11;
        if (kind == NVG_PUSH || kind == NVG_PROPOSE)
            message.record_bytes = 7;
        if (kind == NVG_ASK_QUIET || kind == NVG_TELL_QUIET)
            message.controller.lost.instance = (struct nvt_instance){65535, 255, 1};
        if (kind == NVG_ASK_QUIET) /* any characters that an NQN may have */
            strcpy(message.controller.lost.host_nqn, "nqn.2026-01.test:h\xc3\xb6st");
        const size_t count = nvg_message_put(&message, bytes);
        assert_true(nvg_message_get(bytes, count, &got));
        assert_memory_equal(&message, &got, sizeof(got));
        bytes[1] = 77;
        assert_false(nvg_message_get(bytes, count, &got));
    }
}

/* Members of before do not say where a host comes from. */
static void message__of_a_host_may_lack_its_origin(void **state)
{
    (void)state;
    static struct nvg_message message, got;
    uint8_t bytes[NVG_MESSAGE_MAX];
    memset(&message, 0, sizeof(message));
    message.kind = NVG_HOST_HERE;
    strcpy(message.host.nqn, "nqn.host");
    message.has_origin = true;
    memset(message.origin, 7, sizeof(message.origin));
    const size_t count = nvg_message_put(&message, bytes);
    assert_true(nvg_message_get(bytes, count, &got));
    assert_memory_equal(got.origin, message.origin, sizeof(got.origin));
    assert_true(nvg_message_get(bytes, count - NVG_ORIGIN_BYTES, &got));
    assert_int_equal(got.origin[0], 0);
    assert_string_equal(got.host.nqn, "nqn.host");
    assert_false(nvg_message_get(bytes, count - 1, &got));
}

static void message__of_a_controller_is_checked(void **state)
{
    (void)state;
    enum { SLOT = 2, CNTLID = 3, CIRN = 8, QUIET = 16 };
    static struct nvg_message message, got;
    uint8_t bytes[NVG_MESSAGE_MAX];
    memset(&message, 0, sizeof(message));
    message.kind = NVG_TELL_QUIET;
    message.controller.lost.instance = (struct nvt_instance){7, 1, 1};
    const size_t count = nvg_message_put(&message, bytes);
    assert_int_equal(count, QUIET + 1);
    bytes[SLOT] = NVG_SLOTS;
    assert_false(nvg_message_get(bytes, count, &got));
    bytes[SLOT] = 0;
    bytes[CNTLID + 2] = 1;
    assert_false(nvg_message_get(bytes, count, &got));
    bytes[CNTLID + 2] = 0;
    bytes[QUIET] = NVT_QUIET_LATER;
    assert_false(nvg_message_get(bytes, count, &got));
    bytes[QUIET] = NVT_QUIET_REFUSED;
    assert_true(nvg_message_get(bytes, count, &got));
    bytes[CIRN] = 0;
    assert_false(nvg_message_get(bytes, count, &got));
}

int main(void)
{
#define IN_GROUP(test) cmocka_unit_test_setup(test, make_group)
    const struct CMUnitTest tests[] = {
        IN_GROUP(take__makes_the_former_owner_one_to_be_fenced),
        IN_GROUP(take__one_that_did_not_end_is_fenced_too),
        IN_GROUP(take__of_a_clean_release_fences_nobody),
        IN_GROUP(take__is_refused_out_of_turn),
        IN_GROUP(own__only_by_the_newest_epoch),
        IN_GROUP(calm__nothing_is_owned_before_it),
        IN_GROUP(join__a_name_keeps_its_slot),
        IN_GROUP(differs__names_what_is_another),
        IN_GROUP(reserve__fits_once),
        IN_GROUP(disk__is_known_until_it_is_sound),
        IN_GROUP(dump__makes_the_same_state),
        IN_GROUP(checkpoint__counts_as_a_whole_or_not_at_all),
        IN_GROUP(get__refuses_what_no_member_writes),
        IN_GROUP(message__is_the_same_there),
        IN_GROUP(message__of_a_host_may_lack_its_origin),
        IN_GROUP(message__of_a_controller_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
