/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that are refused, the way they go, tables in words, and what one machine says of others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/core/machine.h"

enum { RANKS = 4, EAGER = 64 };

static uint8_t here[4096];
static const struct coll_site site = {
    .rank = 1, .size = RANKS, .eager_bytes = EAGER, .scratch_bytes = 1 << 20};
static const uint64_t counts[RANKS] = {1, 2, 3, 4}, other_counts[RANKS] = {1, 3, 3, 4},
                      large_counts[RANKS] = {1, UINT64_MAX, 3, 4};

static void coll_call_check__says_what_is_wrong(void **state)
{
    (void)state;
    const struct {
        struct sw_coll_call call;
        const char *text;
    } cases[] = {
        {{.kind = SW_COLL_KINDS}, "there is no kind of operation 9"},
        {{.kind = SW_COLL_ALL_REDUCE, .type = 12}, "all_reduce: there is no type 12"},
        {{.kind = SW_COLL_ALL_REDUCE, .op = 5}, "all_reduce: there is no operator 5"},
        {{.kind = SW_COLL_REDUCE, .root = 4}, "reduce: the root is rank 4, and there are 4 ranks"},
        {{.kind = SW_COLL_ALL_REDUCE, .leaves = 65}, "all_reduce: 65 leaves are more than 64"},
        {{.kind = SW_COLL_GATHER, .leaves = 2},
         "gather: leaves are for operations with an operator"},
        {{.kind = SW_COLL_BROADCAST, .counts = counts},
         "broadcast has one count: its counts have to be NULL"},
        {{.kind = SW_COLL_GATHER, .counts = counts, .recv_counts = counts},
         "gather: recv_counts are for all_to_all"},
        {{.kind = SW_COLL_ALL_TO_ALL, .counts = counts},
         "all_to_all: give counts and recv_counts, or neither"},
        {{.kind = SW_COLL_ALL_TO_ALL,
          .counts = counts,
          .recv_counts = other_counts,
          .send = here,
          .recv = here + 2048},
         "all_to_all: rank 1 sends itself 2 elements and awaits 3"},
        {{.kind = SW_COLL_ALL_GATHER, .counts = large_counts, .send = here, .recv = here},
         "all_gather: a buffer would have more than 2^63 bytes"},
        {{.kind = SW_COLL_ALL_REDUCE,
          .type = SW_COLL_F64,
          .count = 1ull << 58,
          .leaves = 8,
          .send = here,
          .recv = here},
         "all_reduce: a buffer would have more than 2^63 bytes"},
        {{.kind = SW_COLL_ALL_REDUCE, .count = 1, .recv = here}, "all_reduce: send is NULL"},
        {{.kind = SW_COLL_SCATTER, .count = 1, .send = here}, "scatter: recv is NULL"},
        {{.kind = SW_COLL_BROADCAST, .count = 1, .send = here}, "broadcast: recv is NULL"},
        {{.kind = SW_COLL_ALL_REDUCE, .count = 1, .send = here, .recv = (void *)(UINTPTR_MAX - 0)},
         "all_reduce: a buffer ends behind the last address"},
        {{.kind = SW_COLL_ALL_TO_ALL, .count = 8, .send = here, .recv = here},
         "all_to_all is not done in place: send and recv overlap"},
        {{.kind = SW_COLL_ALL_REDUCE, .count = 8, .send = here, .recv = here + 7},
         "all_reduce: send and recv overlap; in place they are the same"},
        {{.kind = SW_COLL_ALL_GATHER, .count = 8, .send = here, .recv = here},
         "all_gather: send and recv overlap; in place send is 8 bytes behind recv"},
        {{.kind = SW_COLL_REDUCE_SCATTER, .count = 8, .send = here, .recv = here},
         "reduce_scatter: send and recv overlap; in place recv is 8 bytes behind send"},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sw_coll_error error = {0};
        assert_int_equal(coll_call_check(&cases[i].call, &site, &error), SW_COLL_INVALID);
        assert_int_equal(error.status, SW_COLL_INVALID);
        assert_string_equal(error.text, cases[i].text);
        assert_int_equal(coll_call_check(&cases[i].call, &site, NULL), SW_COLL_INVALID);
    }
}

static void coll_call_check__takes_what_is_right(void **state)
{
    (void)state;
    const struct sw_coll_call cases[] = {
        {.kind = SW_COLL_BARRIER, .count = 7, .root = 77},
        {.kind = SW_COLL_ALL_REDUCE}, /* 0 elements */
        {.kind = SW_COLL_ALL_REDUCE, .count = 8, .send = here, .recv = here},
        {.kind = SW_COLL_ALL_REDUCE, .count = 8, .send = here, .recv = here + 8},
        {.kind = SW_COLL_ALL_REDUCE, .count = 1ull << 40, .send = here, .recv = here},
        {.kind = SW_COLL_ALL_GATHER, .count = 8, .send = here + 8, .recv = here},
        {.kind = SW_COLL_REDUCE_SCATTER, .counts = counts, .send = here, .recv = here + 1},
        {.kind = SW_COLL_REDUCE, .count = 8, .send = here}, /* not the root */
        {.kind = SW_COLL_BROADCAST, .count = 8, .recv = here},
        {.kind = SW_COLL_BROADCAST, .count = 8, .send = here, .root = 1},
        {.kind = SW_COLL_BROADCAST, .count = 8, .recv = here, .root = 1},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sw_coll_error error;
        if (coll_call_check(&cases[i], &site, &error))
            fail_msg("%u: %s", i, error.text);
    }
}

static void coll_call_plan__follows_what_all_ranks_know(void **state)
{
    (void)state;
    const struct {
        struct sw_coll_call call;
        enum coll_plan plan;
    } cases[] = {
        {{.kind = SW_COLL_BARRIER, .count = 1000}, COLL_PLAN_EAGER},
        {{.kind = SW_COLL_ALL_REDUCE, .count = 64}, COLL_PLAN_EAGER},
        {{.kind = SW_COLL_ALL_REDUCE, .count = 65}, COLL_PLAN_OWNERS},
        {{.kind = SW_COLL_ALL_REDUCE, .count = 64, .leaves = 2}, COLL_PLAN_OWNERS},
        {{.kind = SW_COLL_ALL_GATHER, .count = 64}, COLL_PLAN_EAGER},
        {{.kind = SW_COLL_ALL_GATHER, .type = SW_COLL_F64, .counts = counts}, COLL_PLAN_EAGER},
        {{.kind = SW_COLL_ALL_TO_ALL, .counts = counts, .recv_counts = counts}, COLL_PLAN_OWNERS},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(coll_call_plan(&cases[i].call, &site), cases[i].plan);
        assert_int_equal(coll_call_is_direct(&cases[i].call, &site),
                         cases[i].plan != COLL_PLAN_EAGER);
    }
    enum coll_plan plan;
    assert_true(coll_plan_of_name("owners", &plan) && plan == COLL_PLAN_OWNERS);
    assert_true(coll_plan_of_name("eager", &plan) && plan == COLL_PLAN_EAGER);
    assert_false(coll_plan_of_name("any", &plan));
}

static void sw_coll_names__are_complete(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SW_COLL_KINDS; i++)
        assert_non_null(sw_coll_kind_name(i));
    for (unsigned i = 0; i < SW_COLL_OPS; i++)
        assert_non_null(sw_coll_op_name(i));
    for (unsigned i = 0; i < SW_COLL_TYPES; i++)
        assert_true(sw_coll_type_name(i) && sw_coll_type_bytes(i));
    for (unsigned i = COLL_PLAN_ANY + 1; i < COLL_PLANS; i++)
        assert_non_null(coll_plan_name(i));
    for (unsigned i = SW_COLL_OK; i <= SW_COLL_REVOKED; i++)
        assert_string_not_equal(sw_coll_status_text(i), "unknown status");
    assert_null(sw_coll_kind_name(SW_COLL_KINDS));
    assert_null(sw_coll_op_name(SW_COLL_OPS));
    assert_null(sw_coll_type_name(SW_COLL_TYPES));
    assert_int_equal(sw_coll_type_bytes(SW_COLL_TYPES), 0);
    assert_string_equal(sw_coll_status_text(1000), "unknown status");
}

static void coll_step_text__tells_a_table(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "MAIL OPEN 3 ranks from 2 on from send+0",
        "AWAIT OPEN 3 ranks from 2 on",
        "PULL 3 ranks from 2 on, 128 bytes of each of 2 leaves from send+256+leaf*1000 to "
        "scratch+0+rank*256+leaf*128",
        "  PULL 3 ranks from 2 on, 256 bytes of each of 2 leaves of the next chunk from "
        "send+256+leaf*1000+chunk*128 to scratch+0+rank*256+leaf*128+chunk%2*768",
        "  SETTLE pulls",
        "  FOLD of all ranks, 256 bytes of each of 2 leaves from "
        "scratch+0+rank*256+leaf*128+chunk%2*768 own send+256+leaf*1000+chunk*128 to "
        "recv+256+chunk*128",
        "  PUSH 3 ranks from 2 on, 256 bytes from recv+256+chunk*128 to recv+256+chunk*128",
        "MAIL DONE 3 ranks from 2 on",
        "SETTLE",
        "AWAIT DONE 3 ranks from 2 on",
    };
    struct coll_site at = site;
    at.request_max = 128;
    struct coll_step steps[2 * RANKS + 16];
    struct coll_table table = {.steps = steps, .room = coll_steps_max(RANKS)};
    const struct sw_coll_call call = {
        .kind = SW_COLL_ALL_REDUCE, .type = SW_COLL_F64, .count = 125, .leaves = 2};
    coll_plan_make(&table, &call, &at);
    assert_int_equal(table.count, sizeof(lines) / sizeof(*lines));
    assert_int_equal(table.chunks, 2);
    for (unsigned i = 0; i < table.count; i++) {
        char text[300], little[8];
        coll_step_text(&table, i, text, sizeof(text));
        assert_string_equal(text, lines[i]);
        coll_step_text(&table, i, little, sizeof(little));
        assert_memory_equal(little, text, sizeof(little) - 1);
    }
}

/* ---- one machine, and a port that says what a test wants ---- */

struct lone_port {
    struct coll_machine machine;
    struct coll_record mails[RANKS][COLL_SLOTS];
    bool is_there[RANKS][COLL_SLOTS], is_gone[RANKS];
    uint64_t posted, settled;
};

static bool lone_mail(void *context, uint32_t peer, enum coll_slot slot,
                      const struct coll_record *record, const void *payload)
{
    (void)slot, (void)record, (void)payload;
    return !((struct lone_port *)context)->is_gone[peer];
}

static bool lone_look(void *context, uint32_t peer, enum coll_slot slot, uint64_t number,
                      struct coll_mail *mail)
{
    struct lone_port *port = context;
    (void)number;
    mail->record = &port->mails[peer][slot];
    mail->payload_end = here + sizeof(here);
    return port->is_there[peer][slot];
}

static bool lone_pull(void *context, uint32_t peer, void *to, struct coll_memory from, size_t bytes)
{
    struct lone_port *port = context;
    (void)to, (void)from, (void)bytes;
    port->posted++;
    return !port->is_gone[peer];
}

static bool lone_push(void *context, uint32_t peer, const void *from, struct coll_memory to,
                      size_t bytes)
{
    return lone_pull(context, peer, (void *)from, to, bytes);
}

static uint64_t lone_settled(void *context)
{
    return ((struct lone_port *)context)->settled;
}

static const struct coll_port lone_functions = {.posts_max = 2,
                                                .mail = lone_mail,
                                                .look = lone_look,
                                                .pull = lone_pull,
                                                .push = lone_push,
                                                .settled = lone_settled};
static const struct sw_coll_call lone_call = {
    .kind = SW_COLL_ALL_REDUCE, .count = 1000, .send = here, .recv = here + 2000};

/* An operation that all others have begun alike, but none has mailed so. */
static struct lone_port *open_lone(struct coll_port *functions)
{
    struct lone_port *port = calloc(1, sizeof(*port));
    *functions = lone_functions;
    functions->context = port;
    coll_machine_init(&port->machine, &site, functions,
                      aligned_alloc(64, coll_machine_bytes(RANKS)), malloc(site.scratch_bytes),
                      calloc(1, coll_shown_bytes(RANKS)));
    coll_machine_begin(&port->machine, &lone_call, 1, (struct coll_memory){1, 2},
                       (struct coll_memory){3, 4});
    for (unsigned peer = 0; peer < RANKS; peer++)
        for (unsigned slot = 0; slot < COLL_SLOTS; slot++)
            port->mails[peer][slot] = port->machine.records[site.rank];
    return port;
}

static void close_lone(struct lone_port *port)
{
    free(port->machine.records);
    free(port->machine.scratch);
    free(port->machine.shown);
    free(port);
}

static void assert_waits(const struct lone_port *port, const char *wanted)
{
    char text[256];
    coll_machine_waits_text(&port->machine, text, sizeof(text));
    assert_string_equal(text, wanted);
}

static void coll_machine_waits_text__names_ranks_and_what_they_have_done(void **state)
{
    (void)state;
    struct coll_port functions;
    struct lone_port *port = open_lone(&functions);
    bool is_absent[RANKS];
    assert_int_equal(coll_machine_go(&port->machine), SW_COLL_AGAIN);
    assert_waits(port, "ranks 0, 2 and 3 have not begun operation 1 (all_reduce)");
    port->is_there[2][COLL_OPEN] = true;
    assert_int_equal(coll_machine_go(&port->machine), SW_COLL_AGAIN);
    assert_waits(port, "ranks 0 and 3 have not begun operation 1 (all_reduce)");
    assert_int_equal(coll_machine_absent(&port->machine, is_absent), 2);
    assert_true(is_absent[0] && !is_absent[1] && !is_absent[2] && is_absent[3]);
    port->is_there[0][COLL_OPEN] = port->is_there[3][COLL_OPEN] = true;
    /* As many requests as have room. */
    assert_int_equal(coll_machine_go(&port->machine), SW_COLL_AGAIN);
    assert_int_equal(port->posted, 2);
    assert_waits(port, "operation 1 (all_reduce) waits for 2 of its reads and writes");
    assert_int_equal(coll_machine_absent(&port->machine, is_absent), 0);
    port->settled = 100;
    assert_int_equal(coll_machine_go(&port->machine), SW_COLL_AGAIN);
    assert_waits(port, "ranks 0, 2 and 3 have begun operation 1 (all_reduce), and have not "
                       "finished");
    port->is_there[0][COLL_DONE] = port->is_there[2][COLL_DONE] = true;
    assert_int_equal(coll_machine_go(&port->machine), SW_COLL_AGAIN);
    assert_waits(port, "rank 3 has begun operation 1 (all_reduce), and has not finished");
    port->is_there[3][COLL_DONE] = true;
    assert_int_equal(coll_machine_go(&port->machine), SW_COLL_OK);
    assert_waits(port, "no operation is under way");
    close_lone(port);
}

static void assert_error(struct lone_port *port, enum sw_coll_status status, const char *text)
{
    for (unsigned peer = 0; peer < RANKS; peer++)
        port->is_there[peer][COLL_OPEN] = port->is_there[peer][COLL_DONE] = true;
    port->settled = 100;
    assert_int_equal(coll_machine_go(&port->machine), status);
    assert_int_equal(port->machine.error.status, status);
    assert_string_equal(port->machine.error.text, text);
    assert_int_equal(coll_machine_go(&port->machine), status);
    close_lone(port);
}

static void coll_machine_go__accuses_who_breaks_the_protocol(void **state)
{
    (void)state;
    struct coll_port functions;
    struct lone_port *port = open_lone(&functions);
    port->mails[2][COLL_OPEN].mark = 7;
    assert_error(port, SW_COLL_PROTOCOL,
                 "operation 1 (all_reduce): rank 2 broke the protocol: its message changes");
    port = open_lone(&functions);
    port->mails[3][COLL_OPEN].kind = 77;
    assert_error(port, SW_COLL_PROTOCOL,
                 "operation 1 (all_reduce): rank 3 broke the protocol: its message names what "
                 "there is not");
    port = open_lone(&functions);
    port->mails[0][COLL_OPEN].payload_bytes = EAGER + 1;
    assert_error(port, SW_COLL_PROTOCOL,
                 "operation 1 (all_reduce): rank 0 broke the protocol: its payload is too long");
    port = open_lone(&functions);
    port->mails[0][COLL_OPEN].payload_bytes = 8;
    assert_error(port, SW_COLL_PROTOCOL,
                 "operation 1 (all_reduce): rank 0 broke the protocol: its payload is not as long "
                 "as its call says");
    port = open_lone(&functions);
    port->mails[0][COLL_DONE].kind = SW_COLL_REDUCE;
    assert_error(port, SW_COLL_PROTOCOL,
                 "operation 1 (all_reduce): rank 0 broke the protocol: it has ended what was not "
                 "begun");
    port = open_lone(&functions);
    port->mails[0][COLL_DONE].verdict = COLL_PAIR_DIFFERS;
    assert_error(port, SW_COLL_PROTOCOL,
                 "operation 1 (all_reduce): rank 0 broke the protocol: it ends with an unknown "
                 "verdict");
}

static void coll_machine_go__names_the_rank_that_is_gone(void **state)
{
    (void)state;
    struct coll_port functions;
    struct lone_port *port = open_lone(&functions);
    port->is_gone[3] = true;
    assert_error(port, SW_COLL_RANK_GONE,
                 "operation 1 (all_reduce): the connection to rank 3 has ended");
    port = open_lone(&functions);
    assert_int_equal(coll_machine_go(&port->machine), SW_COLL_AGAIN);
    port->is_gone[0] = true; /* OPEN is mailed: a pull finds it */
    assert_error(port, SW_COLL_RANK_GONE,
                 "operation 1 (all_reduce): the connection to rank 0 has ended");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coll_call_check__says_what_is_wrong),
        cmocka_unit_test(coll_call_check__takes_what_is_right),
        cmocka_unit_test(coll_call_plan__follows_what_all_ranks_know),
        cmocka_unit_test(sw_coll_names__are_complete),
        cmocka_unit_test(coll_step_text__tells_a_table),
        cmocka_unit_test(coll_machine_waits_text__names_ranks_and_what_they_have_done),
        cmocka_unit_test(coll_machine_go__accuses_who_breaks_the_protocol),
        cmocka_unit_test(coll_machine_go__names_the_rank_that_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
