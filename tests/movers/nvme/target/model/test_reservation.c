/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/reservation.h"

#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nvme/wire/fabrics.h"

enum { CONFLICT = NVME_SC_RESERVATION_CONFLICT | NVME_SC_DNR };
enum { INVALID = NVME_SC_INVALID_FIELD | NVME_SC_DNR };
enum { WE = 1, EA, WERO, EARO, WEAR, EAAR };
enum { IEKEY = 1 << 3 };
#define PREEMPTED_REGISTRATION NVME_RESV_NOTIFY_RNLPT_REGISTRATION_PREEMPTED
#define RELEASED NVME_RESV_NOTIFY_RNLPT_RESERVATION_RELEASED
#define PREEMPTED NVME_RESV_NOTIFY_RNLPT_RESERVATION_PREEMPTED

static struct nvt_reservation r;
static struct nvt_reservation_effect effect;

static struct nvt_host_id host(int n)
{
    struct nvt_host_id id = {{0}};
    id.bytes[15] = (uint8_t)n;
    return id;
}

static void put_key(uint8_t *at, uint64_t key)
{
    key = htole64(key);
    memcpy(at, &key, sizeof(key));
}

static uint16_t do_register(int n, uint32_t cdw10, uint64_t current, uint64_t new)
{
    uint8_t data[NVT_REGISTER_BYTES];
    const struct nvt_host_id id = host(n);
    put_key(data, current);
    put_key(data + 8, new);
    return nvt_reservation_register(&r, &id, cdw10, data, &effect);
}

static uint16_t do_acquire(int n, uint32_t action, uint32_t rtype, uint64_t key, uint64_t preempt)
{
    uint8_t data[NVT_ACQUIRE_BYTES];
    const struct nvt_host_id id = host(n);
    put_key(data, key);
    put_key(data + 8, preempt);
    return nvt_reservation_acquire(&r, &id, action | rtype << 8, data, &effect);
}

static uint16_t do_release(int n, uint32_t action, uint32_t rtype, uint64_t key)
{
    uint8_t data[NVT_RELEASE_BYTES];
    const struct nvt_host_id id = host(n);
    put_key(data, key);
    return nvt_reservation_release(&r, &id, action | rtype << 8, data, &effect);
}

static bool holds(int n)
{
    const struct nvt_host_id id = host(n);
    return nvt_reservation_is_holder(&r, &id);
}

static bool is_registered(int n)
{
    const struct nvt_host_id id = host(n);
    return nvt_reservation_is_registrant(&r, &id);
}

/* Hosts 1, 2, 3 with keys 10, 20, 30. */
static int set_up(void **state)
{
    (void)state;
    memset(&r, 0, sizeof(r));
    for (int n = 1; n <= 3; n++)
        assert_int_equal(do_register(n, 0, 0, 10U * (unsigned)n), 0);
    return 0;
}

static void expect_notice(size_t i, int n, enum nvme_resv_notify_rnlpt type)
{
    const struct nvt_host_id id = host(n);
    assert_true(i < effect.notice_count);
    assert_memory_equal(&effect.notices[i].host, &id, sizeof(id));
    assert_int_equal(effect.notices[i].type, type);
}

static void register__key_and_generation(void **state)
{
    (void)state;
    assert_int_equal(r.generation, 3);
    assert_int_equal(do_register(1, 0, 0, 10), 0); /* the same again */
    assert_int_equal(r.generation, 4);
    assert_int_equal(do_register(1, 0, 0, 11), CONFLICT);
    assert_int_equal(do_register(1, 0 | IEKEY, 10, 11), CONFLICT); /* that is what replace is for */
    assert_int_equal(do_register(1, 2, 99, 11), CONFLICT);
    assert_int_equal(do_register(9, 2 | IEKEY, 0, 11), CONFLICT);
    assert_int_equal(r.generation, 4);
    assert_int_equal(do_register(1, 2, 10, 11), 0);
    assert_int_equal(do_register(1, 2 | IEKEY, 99, 12), 0);
    assert_int_equal(r.registrants[0].key, 12);
    assert_int_equal(r.generation, 6);
    assert_int_equal(do_register(1, 3, 12, 12), INVALID);
    assert_int_equal(r.count, 3);
}

static void register__persistence(void **state)
{
    (void)state;
    assert_int_equal(do_register(4, 2U << 30, 0, 40), 0);
    assert_int_equal(do_register(5, 3U << 30, 0, 50), INVALID);
    assert_int_equal(do_register(5, 1U << 30, 0, 50), INVALID);
    assert_false(is_registered(5));
}

static void register__is_bounded(void **state)
{
    (void)state;
    for (int n = 4; n <= NVT_REGISTRANTS_MAX; n++)
        assert_int_equal(do_register(n, 0, 0, 1), 0);
    assert_int_equal(do_register(200, 0, 0, 1), NVME_SC_INTERNAL | NVME_SC_DNR);
    assert_int_equal(r.count, NVT_REGISTRANTS_MAX);
    assert_int_equal(do_register(7, 1, 1, 0), 0);
    assert_int_equal(do_register(200, 0, 0, 1), 0);
}

static void unregister__of_holder(void **state)
{
    (void)state;
    for (uint32_t rtype = WE; rtype <= EARO; rtype++) {
        set_up(state);
        assert_int_equal(do_acquire(2, 0, rtype, 20, 0), 0);
        assert_int_equal(do_register(2, 1, 21, 0), CONFLICT);
        assert_true(holds(2));
        assert_int_equal(do_register(2, 1, 20, 0), 0);
        assert_int_equal(r.rtype, 0);
        assert_int_equal(r.count, 2);
        assert_int_equal(effect.notice_count, rtype >= WERO ? 2 : 0);
        if (rtype >= WERO) {
            expect_notice(0, 1, RELEASED);
            expect_notice(1, 3, RELEASED);
        }
        assert_int_equal(do_register(2, 1 | IEKEY, 0, 0), CONFLICT); /* no longer one */
    }
}

static void unregister__all_registrants_until_the_last(void **state)
{
    (void)state;
    assert_int_equal(do_acquire(1, 0, WEAR, 10, 0), 0);
    assert_true(holds(1) && holds(2) && holds(3) && !holds(4));
    assert_int_equal(do_register(1, 1, 10, 0), 0);
    assert_int_equal(r.rtype, WEAR);
    assert_int_equal(do_register(3, 1, 30, 0), 0);
    assert_int_equal(r.rtype, WEAR);
    assert_int_equal(do_register(2, 1, 20, 0), 0);
    assert_int_equal(r.rtype, 0);
    assert_int_equal(effect.notice_count, 0);
}

static void acquire__only_one(void **state)
{
    (void)state;
    assert_int_equal(do_acquire(1, 0, EA, 11, 0), CONFLICT);
    assert_int_equal(do_acquire(9, 0, EA, 0, 0), CONFLICT);
    assert_int_equal(do_acquire(1, 0, 0, 10, 0), INVALID);
    assert_int_equal(do_acquire(1, 0, 7, 10, 0), INVALID);
    assert_int_equal(do_acquire(1, 3, EA, 10, 0), INVALID);
    assert_int_equal(do_acquire(1, 0 | IEKEY, EA, 10, 0), INVALID);
    assert_int_equal(r.rtype, 0);
    const uint32_t generation = r.generation;
    assert_int_equal(do_acquire(1, 0, EA, 10, 0), 0);
    assert_int_equal(do_acquire(1, 0, EA, 10, 0), 0);
    assert_int_equal(do_acquire(1, 0, WE, 10, 0), CONFLICT);
    assert_int_equal(do_acquire(2, 0, EA, 20, 0), CONFLICT);
    assert_int_equal(r.generation, generation);
    assert_true(holds(1) && !holds(2));
}

static void preempt__without_reservation(void **state)
{
    (void)state;
    const uint32_t generation = r.generation;
    assert_int_equal(do_acquire(1, 1, WE, 10, 99), CONFLICT);
    assert_int_equal(r.generation, generation);
    assert_int_equal(do_acquire(1, 1, WE, 10, 30), 0);
    assert_int_equal(r.generation, generation + 1);
    assert_int_equal(r.rtype, 0); /* only registrations go */
    assert_false(is_registered(3));
    assert_int_equal(effect.notice_count, 1);
    expect_notice(0, 3, PREEMPTED_REGISTRATION);
    assert_int_equal(effect.abort_count, 0);
}

static void preempt__holder(void **state)
{
    (void)state;
    assert_int_equal(do_acquire(2, 0, WERO, 20, 0), 0);
    assert_int_equal(do_acquire(1, 2, EARO, 10, 20), 0);
    assert_true(holds(1) && !is_registered(2) && is_registered(3));
    assert_int_equal(r.rtype, EARO);
    assert_int_equal(effect.notice_count, 2);
    expect_notice(0, 2, PREEMPTED_REGISTRATION);
    expect_notice(1, 3, RELEASED); /* the type is another */
    const struct nvt_host_id two = host(2);
    assert_int_equal(effect.abort_count, 1);
    assert_memory_equal(&effect.aborts[0], &two, sizeof(two));
}

static void preempt__same_type_keeps_quiet(void **state)
{
    (void)state;
    assert_int_equal(do_acquire(2, 0, WERO, 20, 0), 0);
    assert_int_equal(do_acquire(1, 1, WERO, 10, 20), 0);
    assert_int_equal(effect.notice_count, 1);
    expect_notice(0, 2, PREEMPTED_REGISTRATION);
}

static void preempt__own_reservation_changes_type(void **state)
{
    (void)state;
    assert_int_equal(do_register(4, 0, 0, 10), 0); /* who shares the key of 1 */
    assert_int_equal(do_acquire(1, 0, WE, 10, 0), 0);
    assert_int_equal(do_acquire(1, 1, EA, 10, 10), 0);
    assert_true(holds(1) && !is_registered(4));
    assert_int_equal(r.rtype, EA);
    assert_int_equal(effect.notice_count, 3);
    expect_notice(0, 4, PREEMPTED_REGISTRATION);
    expect_notice(1, 2, RELEASED);
    expect_notice(2, 3, RELEASED);
}

static void preempt__registrant_of_a_held_one(void **state)
{
    (void)state;
    assert_int_equal(do_acquire(2, 0, WERO, 20, 0), 0);
    assert_int_equal(do_acquire(1, 1, EA, 10, 30), 0);
    assert_true(holds(2) && !is_registered(3));
    assert_int_equal(r.rtype, WERO);
    assert_int_equal(do_acquire(1, 1, EA, 10, 0), INVALID);
    assert_int_equal(do_acquire(1, 1, EA, 10, 77), CONFLICT);
    assert_int_equal(do_acquire(1, 1, EA, 10, 10), 0); /* itself */
    assert_false(is_registered(1));
    assert_int_equal(effect.notice_count, 0);
    assert_true(holds(2));
}

static void preempt__all_registrants(void **state)
{
    (void)state;
    assert_int_equal(do_acquire(2, 0, EAAR, 20, 0), 0);
    assert_int_equal(do_acquire(1, 1, WE, 10, 30), 0); /* one key: the reservation stays */
    assert_int_equal(r.rtype, EAAR);
    assert_false(is_registered(3));
    assert_int_equal(do_acquire(1, 1, WE, 10, 30), CONFLICT);
    assert_int_equal(do_acquire(1, 2, WE, 10, 0), 0);
    assert_int_equal(r.rtype, WE);
    assert_true(holds(1) && r.count == 1);
    assert_int_equal(effect.notice_count, 1);
    expect_notice(0, 2, PREEMPTED_REGISTRATION);
    assert_int_equal(effect.abort_count, 1);
}

static void release__by_type(void **state)
{
    (void)state;
    for (uint32_t rtype = WE; rtype <= EAAR; rtype++) {
        set_up(state);
        assert_int_equal(do_release(1, 0, rtype, 10), 0); /* there is none */
        assert_int_equal(do_acquire(1, 0, rtype, 10, 0), 0);
        assert_int_equal(do_release(1, 0, rtype, 11), CONFLICT);
        assert_int_equal(do_release(1, 0, rtype % 6 + 1, 10), INVALID);
        assert_int_equal(do_release(1, 0 | IEKEY, rtype, 10), INVALID);
        assert_int_equal(do_release(1, 2, rtype, 10), INVALID);
        assert_int_equal(r.rtype, rtype);
        const uint32_t generation = r.generation;
        assert_int_equal(do_release(2, 0, rtype, 20), 0);
        assert_int_equal(r.rtype, rtype >= WEAR ? 0 : rtype); /* not its own: nothing happens */
        assert_int_equal(do_release(1, 0, rtype, 10), 0);
        assert_int_equal(r.rtype, 0);
        assert_int_equal(r.generation, generation);
        assert_int_equal(effect.notice_count, rtype == WERO || rtype == EARO ? 2 : 0);
    }
}

static void release__clear(void **state)
{
    (void)state;
    const uint32_t generation = r.generation;
    assert_int_equal(do_acquire(1, 0, EA, 10, 0), 0);
    assert_int_equal(do_release(9, 1, 0, 0), CONFLICT);
    assert_int_equal(do_release(2, 1, 0, 20), 0);
    assert_int_equal(r.count, 0);
    assert_int_equal(r.rtype, 0);
    assert_int_equal(r.generation, generation + 1);
    assert_int_equal(effect.notice_count, 2);
    expect_notice(0, 1, PREEMPTED);
    expect_notice(1, 3, PREEMPTED);
}

/* Base 2.0 s8.19, "Command Behavior in the Presence of a Reservation". */
static void allows__truth_table(void **state)
{
    (void)state;
    enum { HOLDER = 1, REGISTRANT = 2, OTHER = 9 };
    static const struct {
        uint32_t rtype;
        bool registrant_reads, registrant_writes, other_reads, other_writes;
    } rows[] = {
        {WE, true, false, true, false},  {EA, false, false, false, false},
        {WERO, true, true, true, false}, {EARO, true, true, false, false},
        {WEAR, true, true, true, false}, {EAAR, true, true, false, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        set_up(state);
        assert_int_equal(do_acquire(HOLDER, 0, rows[i].rtype, 10, 0), 0);
        const struct nvt_host_id holder = host(HOLDER), registrant = host(REGISTRANT),
                                 other = host(OTHER);
        assert_int_equal(nvt_reservation_allows(&r, &holder, NVT_ACCESS_READ), 0);
        assert_int_equal(nvt_reservation_allows(&r, &holder, NVT_ACCESS_WRITE), 0);
        assert_int_equal(nvt_reservation_allows(&r, &registrant, NVT_ACCESS_READ),
                         rows[i].registrant_reads ? 0 : CONFLICT);
        assert_int_equal(nvt_reservation_allows(&r, &registrant, NVT_ACCESS_WRITE),
                         rows[i].registrant_writes ? 0 : CONFLICT);
        assert_int_equal(nvt_reservation_allows(&r, &other, NVT_ACCESS_READ),
                         rows[i].other_reads ? 0 : CONFLICT);
        assert_int_equal(nvt_reservation_allows(&r, &other, NVT_ACCESS_WRITE),
                         rows[i].other_writes ? 0 : CONFLICT);
        assert_int_equal(nvt_reservation_allows(&r, &other, NVT_ACCESS_OTHER), 0);
        assert_int_equal(do_release(HOLDER, 0, rows[i].rtype, 10), 0);
        assert_int_equal(nvt_reservation_allows(&r, &other, NVT_ACCESS_WRITE), 0);
    }
}

static void access_of__groups(void **state)
{
    (void)state;
    static const uint8_t reads[] = {nvme_cmd_read, nvme_cmd_compare, nvme_cmd_verify};
    static const uint8_t writes[] = {nvme_cmd_write,        nvme_cmd_flush, nvme_cmd_write_uncor,
                                     nvme_cmd_write_zeroes, nvme_cmd_dsm,   nvme_cmd_copy};
    for (size_t i = 0; i < sizeof(reads); i++)
        assert_int_equal(nvt_access_of_io(reads[i]), NVT_ACCESS_READ);
    for (size_t i = 0; i < sizeof(writes); i++)
        assert_int_equal(nvt_access_of_io(writes[i]), NVT_ACCESS_WRITE);
    assert_int_equal(nvt_access_of_io(nvme_cmd_resv_acquire), NVT_ACCESS_OTHER);
}

static void report__extended(void **state)
{
    (void)state;
    static uint8_t out[NVT_REPORT_BYTES];
    size_t len = 0;
    struct nvme_resv_status header;
    struct nvme_registered_ctrl_ext entry;
    assert_int_equal(do_acquire(2, 0, WE, 20, 0), 0);
    assert_int_equal(nvt_reservation_report(&r, 0, out, &len), NVME_SC_HOSTID_FORMAT | NVME_SC_DNR);
    assert_int_equal(nvt_reservation_report(&r, 1, out, &len), 0);
    assert_int_equal(len, 64 + 3 * 64);
    memcpy(&header, out, sizeof(header));
    assert_int_equal(le32toh(header.gen), 3);
    assert_int_equal(header.rtype, WE);
    assert_int_equal(header.regctl[0], 3);
    assert_int_equal(header.ptpls, 0);
    for (size_t i = 0; i < 3; i++) {
        const struct nvt_host_id id = host((int)i + 1);
        memcpy(&entry, out + 64 + i * 64, sizeof(entry));
        assert_int_equal(le16toh(entry.cntlid), 0xffff);
        assert_int_equal(entry.rcsts, i == 1);
        assert_int_equal(le64toh(entry.rkey), 10 * (i + 1));
        assert_memory_equal(entry.hostid, id.bytes, sizeof(entry.hostid));
    }
}

static void log__order_and_loss(void **state)
{
    (void)state;
    static struct nvt_reservation_log log;
    struct nvme_resv_notification_log page;
    nvt_reservation_log_take(&log, false, &page);
    assert_int_equal(page.rnlpt, NVME_RESV_NOTIFY_RNLPT_EMPTY);
    assert_int_equal(page.lpc, 0);
    for (uint32_t i = 1; i <= NVT_RESERVATION_LOG_MAX + 2; i++)
        nvt_reservation_log_add(&log, i, RELEASED);
    for (int again = 0; again < 2; again++) {
        nvt_reservation_log_take(&log, again == 0, &page);
        assert_int_equal(le64toh(page.lpc), 3); /* 1 and 2 are lost */
        assert_int_equal(le32toh(page.nsid), 3);
        assert_int_equal(page.nalp, NVT_RESERVATION_LOG_MAX - 1);
    }
    for (uint64_t i = 4; i <= NVT_RESERVATION_LOG_MAX + 2; i++) {
        nvt_reservation_log_take(&log, false, &page);
        assert_int_equal(le64toh(page.lpc), i);
    }
    nvt_reservation_log_take(&log, false, &page);
    assert_int_equal(page.lpc, 0);
    assert_true(nvt_notice_is_masked(NVME_FEAT_RESV_NOTIFY_RESREL, RELEASED));
    assert_false(nvt_notice_is_masked(NVME_FEAT_RESV_NOTIFY_RESREL, PREEMPTED));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(register__key_and_generation, set_up),
        cmocka_unit_test_setup(register__persistence, set_up),
        cmocka_unit_test_setup(register__is_bounded, set_up),
        cmocka_unit_test(unregister__of_holder),
        cmocka_unit_test_setup(unregister__all_registrants_until_the_last, set_up),
        cmocka_unit_test_setup(acquire__only_one, set_up),
        cmocka_unit_test_setup(preempt__without_reservation, set_up),
        cmocka_unit_test_setup(preempt__holder, set_up),
        cmocka_unit_test_setup(preempt__same_type_keeps_quiet, set_up),
        cmocka_unit_test_setup(preempt__own_reservation_changes_type, set_up),
        cmocka_unit_test_setup(preempt__registrant_of_a_held_one, set_up),
        cmocka_unit_test_setup(preempt__all_registrants, set_up),
        cmocka_unit_test(release__by_type),
        cmocka_unit_test_setup(release__clear, set_up),
        cmocka_unit_test(allows__truth_table),
        cmocka_unit_test(access_of__groups),
        cmocka_unit_test_setup(report__extended, set_up),
        cmocka_unit_test(log__order_and_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
