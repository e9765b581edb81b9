/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/faults/faults.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MS 1000000ull

static struct sw_faults faults;
static char error[256];

static void parse(const char *text)
{
    error[0] = '\0';
    assert_int_equal(sw_faults_parse(text, &faults, error, sizeof(error)), 0);
}

static void parse_script(const char *text)
{
    error[0] = '\0';
    if (sw_faults_parse_script(text, &faults, error, sizeof(error)))
        fail_msg("%s", error);
}

static void refuses(const char *text, const char *says)
{
    assert_int_equal(sw_faults_parse(text, &faults, error, sizeof(error)), -EINVAL);
    if (!strstr(error, says))
        fail_msg("'%s' is refused with '%s', not with '%s'", text, error, says);
}

static void refuses_script(const char *text, const char *says)
{
    assert_int_equal(sw_faults_parse_script(text, &faults, error, sizeof(error)), -EINVAL);
    if (!strstr(error, says))
        fail_msg("'%s' is refused with '%s', not with '%s'", text, error, says);
}

static struct sw_fault_packet send_of(uint32_t ordinal, uint32_t psn)
{
    return (struct sw_fault_packet){.qpn = 0x10000 + ordinal,
                                    .ordinal = ordinal,
                                    .psn = psn,
                                    .len_bytes = 100,
                                    .kind = SW_FAULT_SEND};
}

static void sw_faults_parse__list(void **state)
{
    (void)state;
    parse("loss=1%,dup=0.1%,reorder=2%:50us,corrupt=1e-4,delay=20us,rnr=3%,seed=7");
    assert_int_equal(faults.seed, 7);
    assert_int_equal(faults.count, 6);
    const struct sw_fault_rule *rules = faults.rules;
    const enum sw_fault_kind kinds[] = {SW_FAULT_DROP,    SW_FAULT_DUPLICATE, SW_FAULT_REORDER,
                                        SW_FAULT_CORRUPT, SW_FAULT_DELAY,     SW_FAULT_RNR};
    const double chances[] = {0.01, 0.001, 0.02, 1e-4, 1, 0.03};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(rules[i].kind, kinds[i]);
        double chance = (double)rules[i].chance / 0x1p64;
        assert_true(chance > chances[i] * 0.9999 && chance < chances[i] * 1.0001);
    }
    assert_int_equal(rules[2].amount_ns, 50000);
    assert_int_equal(rules[4].amount_ns, 20000);
    parse("loss=0.5");
    assert_int_equal(faults.rules[0].chance, 1ull << 63);
    parse("loss=100%");
    assert_int_equal(faults.rules[0].chance, UINT64_MAX);
}

static void sw_faults_parse__refuses(void **state)
{
    (void)state;
    refuses("loss", "NAME=VALUE");
    refuses("los=1%", "none of loss");
    refuses("loss=200%", "probability");
    refuses("loss=-1", "probability");
    refuses("loss=nan", "probability");
    refuses("loss=1%:5us", "takes no time");
    refuses("loss=1%x", "probability");
    refuses("reorder=1%", "a probability and a time");
    refuses("delay=20", "a time");
    refuses("delay=-20us", "a time");
    refuses("delay=1e30s", "a time");
    refuses("seed=x", "not a number");
    refuses("seed=99999999999999999999", "not a number");
    assert_int_equal(sw_faults_parse("@/nonexistent", &faults, error, sizeof(error)), -ENOENT);
    assert_non_null(strstr(error, "/nonexistent"));
    assert_int_equal(sw_faults_parse("@/dev/zero", &faults, error, sizeof(error)), -EINVAL);
}

static void sw_faults_parse__script(void **state)
{
    (void)state;
    parse_script("# a comment\n"
                 "seed 9\n"
                 "drop packet 3 of qp 1   # the third\n"
                 "\n"
                 "corrupt psn 0x1234 once\n"
                 "rnr for 200ms\n"
                 "cut at 2s for 1s\n"
                 "drop 1% received opcode ack opcode response for 1s at 1.5s\n"
                 "delay 20us qp 0x2a0001 times 5\r\n"
                 "reorder 50us 2%\n"
                 "drop opcode dreq once");
    assert_int_equal(faults.seed, 9);
    assert_int_equal(faults.count, 8);
    const struct sw_fault_rule *rules = faults.rules;
    assert_true(rules[0].nth == 3 && rules[0].qp == 1 && rules[0].number == 3);
    assert_true(rules[1].psn == 0x1234 && rules[1].times == 1);
    assert_true(rules[2].received && rules[2].from_ns == 0 && rules[2].until_ns == 200 * MS);
    assert_true(rules[3].from_ns == 2000 * MS && rules[3].until_ns == 3000 * MS);
    assert_true(rules[4].received && rules[4].packets == (SW_FAULT_ACK | SW_FAULT_RESPONSE));
    assert_true(rules[4].from_ns == 1500 * MS && rules[4].until_ns == 2500 * MS);
    assert_true(rules[5].qp == 0x2a0001 && rules[5].times == 5 && rules[5].amount_ns == 20000);
    assert_true(rules[6].kind == SW_FAULT_REORDER && rules[6].amount_ns == 50000);
    assert_true(rules[7].packets == SW_FAULT_DREQ && rules[7].times == 1);
}

static void sw_faults_parse_script__refuses(void **state)
{
    (void)state;
    refuses_script("drop\nloose 1%\n", "line 2: 'loose'");
    refuses_script("drop packet", "packet wants a number");
    refuses_script("drop packet 0", "packet wants a number");
    refuses_script("drop psn 0x1000000", "psn wants a number");
    refuses_script("delay", "a time first");
    refuses_script("drop sometimes", "'sometimes'");
    refuses_script("drop 101%", "not a probability");
    refuses_script("cut sent", "no meaning");
    refuses_script("drop opcode jump", "opcode wants");
    refuses_script("cut at noon", "at wants a time");
    refuses_script("seed 1 2", "one number");
    char many[SW_FAULT_RULES * 5 + 10] = "";
    for (int i = 0; i <= SW_FAULT_RULES; i++)
        strcat(many, "drop\n");
    refuses_script(many, "more than");
}

static void sw_faults_parse__script_file(void **state)
{
    (void)state;
    char path[] = "/tmp/faults.XXXXXX", text[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "drop once\n", 10), 10);
    close(fd);
    snprintf(text, sizeof(text), "@%s", path);
    parse(text);
    assert_int_equal(unlink(path), 0);
    assert_true(faults.count == 1 && faults.rules[0].times == 1);
}

/* Which of `count` packets of a QP are dropped. */
static uint32_t drops(uint32_t ordinal, uint32_t count, bool *which)
{
    struct sw_fault_action action;
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct sw_fault_packet packet = send_of(ordinal, i);
        which[i] = sw_faults_decide(&faults, &packet, 0, &action) && action.drop;
        total += which[i];
    }
    return total;
}

#define MANY 20000u
static bool first[MANY], second[MANY];

static void sw_faults_decide__is_as_likely_as_asked(void **state)
{
    (void)state;
    parse("loss=5%,seed=1");
    uint32_t total = drops(1, MANY, first);
    assert_in_range(total, MANY * 4 / 100, MANY * 6 / 100); /* seeded: always the same */
    parse("loss=0");
    assert_int_equal(drops(1, MANY, first), 0);
    parse("loss=100%");
    assert_int_equal(drops(1, MANY, first), MANY);
}

static void sw_faults_decide__seed(void **state)
{
    (void)state;
    parse("loss=5%,seed=1");
    drops(1, MANY, first);
    parse("loss=5%,seed=1");
    drops(2, 77, second); /* another QP's packets change nothing */
    drops(1, MANY, second);
    assert_memory_equal(first, second, sizeof(first));
    parse("loss=5%,seed=2");
    drops(1, MANY, second);
    assert_memory_not_equal(first, second, sizeof(first));
}

static void sw_faults_decide__nth_of_a_qp(void **state)
{
    (void)state;
    parse_script("drop packet 3 of qp 1");
    assert_int_equal(drops(2, 10, first), 0);
    assert_int_equal(drops(1, 10, first), 1);
    assert_true(first[2]);
}

static void sw_faults_decide__qpn(void **state)
{
    (void)state;
    parse_script("drop qp 0x10002");
    assert_int_equal(drops(1, 5, first), 0);
    assert_int_equal(drops(2, 5, first), 5);
}

static void sw_faults_decide__once(void **state)
{
    (void)state;
    parse_script("corrupt psn 7 once");
    struct sw_fault_action action;
    struct sw_fault_packet packet = send_of(1, 6);
    assert_false(sw_faults_decide(&faults, &packet, 0, &action));
    packet.psn = 7;
    assert_true(sw_faults_decide(&faults, &packet, 0, &action));
    assert_true(action.corrupt && !action.drop && action.corrupt_bit < 800);
    assert_false(sw_faults_decide(&faults, &packet, 0, &action));
}

static void sw_faults_decide__kind_and_direction(void **state)
{
    (void)state;
    parse_script("drop received opcode ack");
    struct sw_fault_action action;
    struct sw_fault_packet packet = send_of(1, 1);
    assert_false(sw_faults_decide(&faults, &packet, 0, &action));
    packet.received = true;
    assert_false(sw_faults_decide(&faults, &packet, 0, &action));
    packet.kind = SW_FAULT_ACK;
    assert_true(sw_faults_decide(&faults, &packet, 0, &action));
    packet.received = false;
    assert_false(sw_faults_decide(&faults, &packet, 0, &action));
}

static void sw_faults_decide__adds_up(void **state)
{
    (void)state;
    parse_script("delay 20us\nreorder 50us\nduplicate\ndelay 1us");
    struct sw_fault_action action;
    struct sw_fault_packet packet = send_of(1, 1);
    assert_true(sw_faults_decide(&faults, &packet, 0, &action));
    assert_true(action.duplicate && action.delay_ns == 21000 && action.reorder_ns == 50000);
}

static void sw_faults_decide__cut(void **state)
{
    (void)state;
    parse_script("cut at 2ms for 1ms");
    struct sw_fault_action action;
    struct sw_fault_packet packet = send_of(1, 1);
    assert_false(sw_faults_decide(&faults, &packet, 2 * MS - 1, &action));
    assert_true(sw_faults_decide(&faults, &packet, 2 * MS, &action) && action.drop);
    packet.received = true;
    assert_true(sw_faults_decide(&faults, &packet, 3 * MS - 1, &action) && action.drop);
    assert_false(sw_faults_decide(&faults, &packet, 3 * MS, &action));
    assert_true(sw_faults_is_cut(&faults, 2 * MS) && !sw_faults_is_cut(&faults, 3 * MS));
}

static void sw_faults_spare__where_no_rule_is_about_them(void **state)
{
    (void)state;
    parse("loss=1%,rnr=3%,seed=7"); /* of what leaves */
    assert_true(sw_faults_spare(&faults, true, 1, 5));
    assert_false(sw_faults_spare(&faults, false, 1, 5));
    assert_int_equal(atomic_load(&faults.seen[true]), 5);
    assert_int_equal(atomic_load(&faults.seen[false]), 0);
    parse_script("cut at 2s for 1s");
    assert_false(sw_faults_spare(&faults, true, 1, 5));
    assert_false(sw_faults_spare(&faults, false, 1, 5));
}

static void sw_faults_withholds__for_a_time(void **state)
{
    (void)state;
    parse_script("rnr qp 2 at 1ms for 1ms");
    assert_false(sw_faults_withholds(&faults, 0x10002, 2, 0));
    assert_true(sw_faults_withholds(&faults, 0x10002, 2, MS));
    assert_false(sw_faults_withholds(&faults, 0x10001, 1, MS));
    assert_false(sw_faults_withholds(&faults, 0x10002, 2, 2 * MS));
    struct sw_fault_action action;
    struct sw_fault_packet packet = send_of(2, 1);
    packet.received = true;
    assert_false(sw_faults_decide(&faults, &packet, MS, &action)); /* not the packet's affair */
}

static void sw_faults_summary__counts(void **state)
{
    (void)state;
    char text[256];
    parse("loss=100%,dup=0");
    drops(1, 10, first);
    sw_faults_summary(&faults, text, sizeof(text));
    assert_string_equal(text, "10 packets sent, 0 received, 10 dropped, 0 duplicated");
    assert_int_equal(sw_faults_summary(&faults, text, 8), strlen("10 packets sent, 0 received, 10 "
                                                                 "dropped, 0 duplicated"));
    assert_string_equal(text, "10 pack");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_faults_parse__list),
        cmocka_unit_test(sw_faults_parse__refuses),
        cmocka_unit_test(sw_faults_parse__script),
        cmocka_unit_test(sw_faults_parse_script__refuses),
        cmocka_unit_test(sw_faults_parse__script_file),
        cmocka_unit_test(sw_faults_decide__is_as_likely_as_asked),
        cmocka_unit_test(sw_faults_decide__seed),
        cmocka_unit_test(sw_faults_decide__nth_of_a_qp),
        cmocka_unit_test(sw_faults_decide__qpn),
        cmocka_unit_test(sw_faults_decide__once),
        cmocka_unit_test(sw_faults_decide__kind_and_direction),
        cmocka_unit_test(sw_faults_decide__adds_up),
        cmocka_unit_test(sw_faults_decide__cut),
        cmocka_unit_test(sw_faults_spare__where_no_rule_is_about_them),
        cmocka_unit_test(sw_faults_withholds__for_a_time),
        cmocka_unit_test(sw_faults_summary__counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
