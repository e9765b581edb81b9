/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/rules/target.h"

#include <setjmp.h>
#include <sidewire/flush.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* As the specification has it: AETH syndromes of IBTA Vol1 table 46, completions and states of
 * 10.10.3 and 9.9.2 (what the responder's own receive and QP see). */
static void sw_verdict_rules__row_by_row(void **state)
{
    (void)state;
    static const struct {
        enum sw_verdict verdict;
        int syndrome, requester, requester_dies, responder, responder_dies, event;
    } rows[] = {
        {SW_ACK, 0x1f, IBV_WC_SUCCESS, 0, IBV_WC_SUCCESS, 0, -1},
        {SW_RNR, 0x20, IBV_WC_SUCCESS, 0, IBV_WC_SUCCESS, 0, -1},
        {SW_NAK_ACCESS, 0x62, IBV_WC_REM_ACCESS_ERR, 1, IBV_WC_SUCCESS, 1, IBV_EVENT_QP_ACCESS_ERR},
        {SW_NAK_INVALID, 0x61, IBV_WC_REM_INV_REQ_ERR, 1, IBV_WC_LOC_LEN_ERR, 1,
         IBV_EVENT_QP_REQ_ERR},
        {SW_NAK_OPERATIONAL, 0x63, IBV_WC_REM_OP_ERR, 1, IBV_WC_LOC_PROT_ERR, 1,
         IBV_EVENT_QP_FATAL},
        {SW_UNREACHABLE, 0, IBV_WC_RETRY_EXC_ERR, 1, IBV_WC_SUCCESS, 0, -1},
        {SW_RNR_EXHAUSTED, 0x20, IBV_WC_RNR_RETRY_EXC_ERR, 1, IBV_WC_SUCCESS, 0, -1},
    };
    assert_int_equal(sizeof(rows) / sizeof(rows[0]), SW_VERDICT_COUNT);
    for (size_t i = 0; i < SW_VERDICT_COUNT; i++) {
        const struct sw_verdict_rule *rule = &sw_verdict_rules[rows[i].verdict];
        assert_int_equal(rows[i].verdict, i);
        assert_non_null(rule->name);
        assert_int_equal(rule->aeth_syndrome, rows[i].syndrome);
        assert_int_equal(rule->requester, rows[i].requester);
        assert_int_equal(rule->requester_fatal, rows[i].requester_dies);
        assert_int_equal(rule->responder, rows[i].responder);
        assert_int_equal(rule->responder_fatal, rows[i].responder_dies);
        assert_int_equal(rule->responder_event, rows[i].event);
        assert_false(rule->lost);
    }
}

/* Nothing is acknowledged, so no request ends in an error of the target's (IBTA Vol1 9.8.2); a
 * fault of the responder's own receive queue is its own (9.9.3, class A). */
static void sw_verdict_rules_uc__refuses_nothing(void **state)
{
    (void)state;
    assert_ptr_equal(sw_verdict_rules_of(IBV_QPT_UC), sw_verdict_rules_uc);
    assert_ptr_equal(sw_verdict_rules_of(IBV_QPT_RC), sw_verdict_rules);
    for (int verdict = 0; verdict < SW_VERDICT_COUNT; verdict++) {
        const struct sw_verdict_rule *rule = &sw_verdict_rules_uc[verdict];
        assert_non_null(rule->name);
        assert_int_equal(rule->requester, IBV_WC_SUCCESS);
        assert_false(rule->requester_fatal);
        assert_int_equal(rule->responder_fatal, verdict == SW_NAK_OPERATIONAL);
        assert_int_equal(rule->lost, verdict != SW_ACK && verdict != SW_NAK_OPERATIONAL);
    }
    assert_int_equal(sw_verdict_rules_uc[SW_NAK_OPERATIONAL].responder, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(sw_verdict_rules_uc[SW_NAK_INVALID].responder, IBV_WC_LOC_LEN_ERR);
}

#define INDEX 0x1234u
#define KEY (INDEX << 8 | 0x56u)
#define WORD (9ull << 32 | KEY)
#define IOVA 0x10000ull
#define LEN 0x1000ull
#define PD 3u
#define QPN 0x2001u
#define RIGHTS                                                                   \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
     IBV_ACCESS_REMOTE_ATOMIC)

static struct sw_pub *tables;

static struct sw_pub_mr *entry(void)
{
    return &tables->mrs[INDEX];
}

static int setup(void **state)
{
    (void)state;
    if (!tables)
        tables = calloc(1, sizeof(*tables)); /* untouched pages cost nothing */
    assert_non_null(tables);
    *entry() = (struct sw_pub_mr){
        .key_word = WORD,
        .access = RIGHTS,
        .pd = PD,
        .iova = IOVA,
        .len_bytes = LEN,
        .va = 0x7000000,
    };
    return 0;
}

static enum sw_verdict check(uint32_t key, uint64_t addr, uint64_t len_bytes, uint32_t need)
{
    const struct sw_pub_mr *mr = NULL;
    uint64_t word = 0;
    enum sw_verdict verdict = sw_target_check(tables, key, addr, len_bytes, need,
                                              (struct sw_target_qp){QPN, PD, RIGHTS}, &mr, &word);
    if (verdict == SW_ACK) {
        assert_ptr_equal(mr, entry());
        assert_int_equal(word, WORD);
    } else { /* outputs only on success */
        assert_null(mr);
        assert_int_equal(word, 0);
    }
    return verdict;
}

static void sw_target_check__admits(void **state)
{
    (void)state;
    assert_int_equal(check(KEY, IOVA, LEN, IBV_ACCESS_REMOTE_WRITE), SW_ACK);
    assert_int_equal(check(KEY, IOVA, LEN, 0), SW_ACK);
}

static void sw_target_check__keys(void **state)
{
    (void)state;
    assert_int_equal(check(KEY ^ 1, IOVA, 8, 0), SW_NAK_ACCESS);         /* another generation */
    assert_int_equal(check(KEY + (1u << 8), IOVA, 8, 0), SW_NAK_ACCESS); /* an empty entry */
    assert_int_equal(check(0, IOVA, 8, 0), SW_NAK_ACCESS);
    assert_int_equal(check(UINT32_MAX, IOVA, 8, 0), SW_NAK_ACCESS);
    /* Same entry when the index is cut to the table's size, but beyond the table. */
    assert_int_equal(check(KEY | SW_MAX_MR << 8, IOVA, 8, 0), SW_NAK_ACCESS);
    entry()->key_word = 0;
    assert_int_equal(check(KEY, IOVA, 8, 0), SW_NAK_ACCESS);
    entry()->key_word = 10ull << 32 | (KEY + 1); /* registered again */
    assert_int_equal(check(KEY, IOVA, 8, 0), SW_NAK_ACCESS);
}

static void sw_target_check__a_zero_key_of_a_valid_entry_is_none(void **state)
{
    (void)state;
    const struct sw_pub_mr *mr;
    uint64_t word;
    tables->mrs[0] = *entry();
    tables->mrs[0].key_word = 0;
    assert_int_equal(
        sw_target_check(tables, 0, IOVA, 8, 0, (struct sw_target_qp){QPN, PD, RIGHTS}, &mr, &word),
        SW_NAK_ACCESS);
}

static void sw_target_check__bounds(void **state)
{
    (void)state;
    static const struct {
        uint64_t addr, len;
        enum sw_verdict verdict;
    } cases[] = {
        {IOVA, 1, SW_ACK},
        {IOVA + LEN - 1, 1, SW_ACK},
        {IOVA + LEN, 0, SW_ACK},
        {IOVA + LEN, 1, SW_NAK_ACCESS},
        {IOVA + LEN - 1, 2, SW_NAK_ACCESS},
        {IOVA - 1, 1, SW_NAK_ACCESS},
        {IOVA - 1, 0, SW_NAK_ACCESS},
        {IOVA - 1, LEN + 1, SW_NAK_ACCESS},
        {IOVA, LEN + 1, SW_NAK_ACCESS},
        {IOVA + 1, UINT64_MAX, SW_NAK_ACCESS}, /* wraps to just before the start */
        {IOVA + LEN, UINT64_MAX - LEN + 1, SW_NAK_ACCESS},
        {UINT64_MAX, 2, SW_NAK_ACCESS},
        {UINT64_MAX - 7, 8, SW_NAK_ACCESS},
        {0, LEN, SW_NAK_ACCESS},
        {0x7000000, 8, SW_NAK_ACCESS}, /* the owner's address is not the region's */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(check(KEY, cases[i].addr, cases[i].len, 0), cases[i].verdict);
}

static void sw_target_check__region_that_ends_with_the_address_space(void **state)
{
    (void)state;
    entry()->iova = UINT64_MAX - 15;
    entry()->len_bytes = 15;
    assert_int_equal(check(KEY, UINT64_MAX - 15, 15, 0), SW_ACK);
    assert_int_equal(check(KEY, UINT64_MAX - 1, 1, 0), SW_ACK);
    assert_int_equal(check(KEY, UINT64_MAX - 1, 2, 0), SW_NAK_ACCESS);
    assert_int_equal(check(KEY, UINT64_MAX - 1, 20, 0), SW_NAK_ACCESS);
    assert_int_equal(check(KEY, 0, 1, 0), SW_NAK_ACCESS);
}

static void sw_target_check__empty_region(void **state)
{
    (void)state;
    entry()->len_bytes = 0;
    assert_int_equal(check(KEY, IOVA, 0, 0), SW_ACK);
    assert_int_equal(check(KEY, IOVA, 1, 0), SW_NAK_ACCESS);
}

static void sw_target_check__region_rights(void **state)
{
    (void)state;
    static const uint32_t rights[] = {IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE,
                                      IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC};
    for (size_t has = 0; has < 4; has++) {
        entry()->access = rights[has];
        for (size_t need = 0; need < 4; need++)
            assert_int_equal(check(KEY, IOVA, 8, rights[need]),
                             has == need ? SW_ACK : SW_NAK_ACCESS);
    }
    entry()->access = IBV_ACCESS_REMOTE_READ;
    assert_int_equal(check(KEY, IOVA, 8, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE),
                     SW_NAK_ACCESS);
}

/* A QP that does not admit the operation refuses before it looks at the key. */
static void sw_target_check__qp_rights_come_first(void **state)
{
    (void)state;
    const struct sw_pub_mr *mr;
    uint64_t word;
    assert_int_equal(sw_target_check(tables, KEY ^ 1, IOVA, 8, IBV_ACCESS_REMOTE_WRITE,
                                     (struct sw_target_qp){QPN, PD, IBV_ACCESS_REMOTE_READ}, &mr,
                                     &word),
                     SW_NAK_INVALID);
    assert_int_equal(sw_target_check(tables, KEY, IOVA, 8, IBV_ACCESS_REMOTE_READ,
                                     (struct sw_target_qp){QPN, PD, IBV_ACCESS_REMOTE_READ}, &mr,
                                     &word),
                     SW_ACK);
}

static void sw_target_check__protection_domain(void **state)
{
    (void)state;
    const struct sw_pub_mr *mr;
    uint64_t word;
    assert_int_equal(sw_target_check(tables, KEY, IOVA, 8, 0,
                                     (struct sw_target_qp){QPN, PD + 1, RIGHTS}, &mr, &word),
                     SW_NAK_ACCESS);
}

/* A window of type 2 is good for the QP it was bound to, and no local key. */
static void sw_target_check__windows(void **state)
{
    (void)state;
    const struct sw_pub_mr *mr;
    uint64_t word;
    entry()->kind = SW_PUB_WINDOW_2;
    entry()->access = IBV_ACCESS_REMOTE_WRITE;
    entry()->qpn = QPN;
    assert_int_equal(check(KEY, IOVA, 8, IBV_ACCESS_REMOTE_WRITE), SW_ACK);
    struct sw_target_qp other = {QPN + 1, PD, RIGHTS}, own = {0, PD, ~0u};
    assert_int_equal(
        sw_target_check(tables, KEY, IOVA, 8, IBV_ACCESS_REMOTE_WRITE, other, &mr, &word),
        SW_NAK_ACCESS);
    assert_int_equal(sw_target_check(tables, KEY, IOVA, 8, IBV_ACCESS_LOCAL_WRITE, own, &mr, &word),
                     SW_NAK_ACCESS);
    entry()->kind = SW_PUB_WINDOW_1;
    entry()->qpn = 0;
    assert_int_equal(
        sw_target_check(tables, KEY, IOVA, 8, IBV_ACCESS_REMOTE_WRITE, other, &mr, &word), SW_ACK);
}

/* A refused check has a reason, and an admitted one has none. */
static void sw_target_fault__says_why_a_check_refuses(void **state)
{
    (void)state;
    const uint32_t reads = IBV_ACCESS_REMOTE_READ, binds = IBV_ACCESS_MW_BIND;
    const struct sw_target_qp qp = {QPN, PD, RIGHTS | IBV_ACCESS_MW_BIND};
    const struct sw_target_qp stranger = {QPN, PD + 1, RIGHTS}, closed = {QPN, PD, 0};
    assert_int_equal(sw_target_fault(tables, KEY, IOVA, 8, reads, qp), SW_ACCESS_FAULT_NONE);
    assert_int_equal(sw_target_fault(tables, KEY ^ 1, IOVA, 8, reads, qp), SW_ACCESS_FAULT_KEY);
    assert_int_equal(sw_target_fault(tables, 0, IOVA, 8, reads, qp), SW_ACCESS_FAULT_KEY);
    assert_int_equal(sw_target_fault(tables, KEY, IOVA, 8, reads, stranger), SW_ACCESS_FAULT_OWNER);
    assert_int_equal(sw_target_fault(tables, KEY, IOVA, 8, binds, qp), SW_ACCESS_FAULT_RIGHTS);
    assert_int_equal(sw_target_fault(tables, KEY, IOVA, 8, reads, closed), SW_ACCESS_FAULT_RIGHTS);
    assert_int_equal(sw_target_fault(tables, KEY, IOVA + LEN, 1, reads, qp),
                     SW_ACCESS_FAULT_BOUNDS);
    assert_int_equal(sw_target_fault(tables, KEY, IOVA - 1, 8, reads, qp), SW_ACCESS_FAULT_BOUNDS);
    entry()->kind = SW_PUB_WINDOW_2;
    entry()->qpn = QPN + 1;
    assert_int_equal(sw_target_fault(tables, KEY, IOVA, 8, reads, qp), SW_ACCESS_FAULT_OWNER);
}

static void sw_target_check_invalidate__only_windows_of_the_qp(void **state)
{
    (void)state;
    struct sw_target_qp qp = {QPN, PD, RIGHTS}, other = {QPN + 1, PD, RIGHTS};
    struct sw_target_qp foreign = {QPN, PD + 1, RIGHTS};
    assert_int_equal(sw_target_check_invalidate(tables, KEY, qp), SW_NAK_ACCESS); /* a region */
    entry()->kind = SW_PUB_WINDOW_1;
    assert_int_equal(sw_target_check_invalidate(tables, KEY, qp), SW_NAK_ACCESS);
    entry()->kind = SW_PUB_WINDOW_2;
    entry()->qpn = QPN;
    assert_int_equal(sw_target_check_invalidate(tables, KEY, qp), SW_ACK);
    assert_int_equal(sw_target_check_invalidate(tables, KEY, other), SW_NAK_ACCESS);
    assert_int_equal(sw_target_check_invalidate(tables, KEY, foreign), SW_NAK_ACCESS);
    assert_int_equal(sw_target_check_invalidate(tables, KEY ^ 1, qp), SW_NAK_ACCESS);
    assert_int_equal(sw_target_check_invalidate(tables, UINT32_MAX, qp), SW_NAK_ACCESS);
    entry()->key_word = 0;
    assert_int_equal(sw_target_check_invalidate(tables, KEY, qp), SW_NAK_ACCESS);
}

static enum sw_verdict check_flush(struct sw_target_flush *flush, uint32_t admits)
{
    const struct sw_pub_mr *mr = NULL;
    enum sw_verdict verdict =
        sw_target_check_flush(tables, flush, (struct sw_target_qp){QPN, PD, admits}, &mr);
    assert_ptr_equal(mr, verdict == SW_ACK ? entry() : NULL);
    return verdict;
}

/* Each type needs its right, of region and QP, and both need both. */
static void sw_target_check_flush__rights(void **state)
{
    (void)state;
    static const uint32_t right[4] = {0, IBV_ACCESS_FLUSH_GLOBAL, IBV_ACCESS_FLUSH_PERSISTENT,
                                      IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT};
    for (uint8_t type = 1; type < 4; type++)
        for (int has = 0; has < 4; has++) {
            struct sw_target_flush flush = {
                .addr = IOVA, .len_bytes = LEN, .key = KEY, .type = type};
            bool may = (has & type) == type;
            entry()->access = RIGHTS | right[has];
            assert_int_equal(check_flush(&flush, ~0u), may ? SW_ACK : SW_NAK_ACCESS);
            entry()->access = ~0u;
            assert_int_equal(check_flush(&flush, RIGHTS | right[has]),
                             may ? SW_ACK : SW_NAK_INVALID);
        }
    struct sw_target_flush nothing = {.addr = IOVA, .len_bytes = LEN, .key = KEY};
    assert_int_equal(check_flush(&nothing, ~0u), SW_NAK_INVALID);
}

static void sw_target_check_flush__ranges(void **state)
{
    (void)state;
    entry()->access = IBV_ACCESS_FLUSH_GLOBAL;
    struct sw_target_flush flush = {
        .addr = IOVA + 8, .len_bytes = 16, .key = KEY, .type = IBV_FLUSH_GLOBAL};
    assert_int_equal(check_flush(&flush, ~0u), SW_ACK);
    assert_int_equal(flush.addr, IOVA + 8);
    assert_int_equal(flush.len_bytes, 16);
    flush.len_bytes = LEN;
    assert_int_equal(check_flush(&flush, ~0u), SW_NAK_ACCESS);
    flush.len_bytes = 0;
    assert_int_equal(check_flush(&flush, ~0u), SW_ACK);
    flush.key ^= 1; /* an empty range names a key all the same */
    assert_int_equal(check_flush(&flush, ~0u), SW_NAK_ACCESS);

    struct sw_target_flush whole = {
        .addr = 1, .len_bytes = 1, .key = KEY, .type = IBV_FLUSH_GLOBAL, .whole_region = true};
    assert_int_equal(check_flush(&whole, ~0u), SW_ACK);
    assert_int_equal(whole.addr, IOVA);
    assert_int_equal(whole.len_bytes, LEN);
    whole.key = UINT32_MAX;
    assert_int_equal(check_flush(&whole, ~0u), SW_NAK_ACCESS);
    whole.key = KEY ^ 1;
    assert_int_equal(check_flush(&whole, ~0u), SW_NAK_ACCESS);
}

static void sw_target_need__opcodes(void **state)
{
    (void)state;
    assert_int_equal(sw_target_need(IBV_WR_RDMA_WRITE), IBV_ACCESS_REMOTE_WRITE);
    assert_int_equal(sw_target_need(IBV_WR_RDMA_WRITE_WITH_IMM), IBV_ACCESS_REMOTE_WRITE);
    assert_int_equal(sw_target_need(IBV_WR_RDMA_READ), IBV_ACCESS_REMOTE_READ);
    assert_int_equal(sw_target_need(IBV_WR_ATOMIC_CMP_AND_SWP), IBV_ACCESS_REMOTE_ATOMIC);
    assert_int_equal(sw_target_need(IBV_WR_ATOMIC_FETCH_AND_ADD), IBV_ACCESS_REMOTE_ATOMIC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_verdict_rules__row_by_row),
        cmocka_unit_test(sw_verdict_rules_uc__refuses_nothing),
        cmocka_unit_test_setup(sw_target_check__admits, setup),
        cmocka_unit_test_setup(sw_target_check__keys, setup),
        cmocka_unit_test_setup(sw_target_check__a_zero_key_of_a_valid_entry_is_none, setup),
        cmocka_unit_test_setup(sw_target_check__bounds, setup),
        cmocka_unit_test_setup(sw_target_check__region_that_ends_with_the_address_space, setup),
        cmocka_unit_test_setup(sw_target_check__empty_region, setup),
        cmocka_unit_test_setup(sw_target_check__region_rights, setup),
        cmocka_unit_test_setup(sw_target_check__qp_rights_come_first, setup),
        cmocka_unit_test_setup(sw_target_check__protection_domain, setup),
        cmocka_unit_test_setup(sw_target_check__windows, setup),
        cmocka_unit_test_setup(sw_target_fault__says_why_a_check_refuses, setup),
        cmocka_unit_test_setup(sw_target_check_invalidate__only_windows_of_the_qp, setup),
        cmocka_unit_test_setup(sw_target_check_flush__rights, setup),
        cmocka_unit_test_setup(sw_target_check_flush__ranges, setup),
        cmocka_unit_test(sw_target_need__opcodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
