/* SPDX-License-Identifier: BSD-2-Clause */
/* Messages of a peer's server: each goes there and back, and what each bad value gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "common/base/bytes.h"
#include "snapshot/wire/message.h"

static uint8_t message[SNAP_WIRE_MESSAGE_MAX];

static void assert_request_goes_there_and_back(const struct snap_wire_request *request)
{
    struct snap_wire_request got;
    const size_t bytes = snap_wire_put_request(message, request);
    assert_int_equal(snap_wire_get_request(message, bytes, &got), SNAP_WIRE_OK);
    assert_memory_equal(&got, request, sizeof(got));
    for (size_t less = 0; less < bytes; less++)
        assert_int_not_equal(snap_wire_get_request(message, less, &got), SNAP_WIRE_OK);
    assert_int_equal(snap_wire_get_request(message, bytes + 1, &got), SNAP_WIRE_MALFORMED);
}

static struct snap_wire_request an_open(void)
{
    return (struct snap_wire_request){.type = SNAP_WIRE_OPEN,
                                      .tag = 7,
                                      .wishes = SNAP_WIRE_WRITE | SNAP_WIRE_CREATE,
                                      .bytes = 1 << 20,
                                      .session = {1, 2, 3},
                                      .name = "run.0",
                                      .writer = "host, train.py, 17"};
}

static void request__goes_there_and_back(void **state)
{
    (void)state;
    struct snap_wire_request request = an_open();
    assert_request_goes_there_and_back(&request);
    request = (struct snap_wire_request){.type = SNAP_WIRE_CHECK, .tag = UINT32_MAX};
    for (; request.leaves_count < SNAP_WIRE_LEAVES_MAX; request.leaves_count++)
        request.leaves[request.leaves_count] = (UINT64_MAX >> request.leaves_count) & ~4095ull;
    assert_request_goes_there_and_back(&request);
    request = (struct snap_wire_request){.type = SNAP_WIRE_FLUSH, .ticket = 1ull << 40};
    assert_request_goes_there_and_back(&request);
    request = (struct snap_wire_request){.type = SNAP_WIRE_CLOSE, .tag = 1};
    assert_request_goes_there_and_back(&request);
    request = (struct snap_wire_request){.type = SNAP_WIRE_LIST, .first = 99};
    assert_request_goes_there_and_back(&request);
    request = (struct snap_wire_request){.type = SNAP_WIRE_REMOVE, .name = "\xc3\xbc"};
    assert_request_goes_there_and_back(&request);
}

static void answer__goes_there_and_back(void **state)
{
    static struct snap_wire_answer answer, got;
    (void)state;
    for (uint32_t type = SNAP_WIRE_OPEN; type <= SNAP_WIRE_REMOVE; type++) {
        answer = (struct snap_wire_answer){.type = (enum snap_wire_type)type,
                                           .status = SNAP_WIRE_DIFFERS,
                                           .tag = type,
                                           .text = "because",
                                           .instance = {9}};
        if (type == SNAP_WIRE_OPEN) {
            answer.identity[3] = 4;
            answer.epoch = 5, answer.bytes = 6, answer.address = 7, answer.key = 8;
            answer.flags = SNAP_WIRE_IS_BLANK;
        }
        if (type == SNAP_WIRE_CHECK)
            answer.leaves_done = 3, answer.bad_block = 1ull << 33;
        if (type == SNAP_WIRE_FLUSH)
            answer.ticket = 12;
        for (; type == SNAP_WIRE_LIST && answer.count < SNAP_WIRE_LIST_MAX; answer.count++)
            answer.volumes[answer.count] =
                (struct snap_wire_volume){.name = "v", .writer = "w", .bytes = answer.count};
        const size_t bytes = snap_wire_put_answer(message, &answer);
        assert_true(snap_wire_get_answer(message, bytes, &got));
        assert_memory_equal(&got, &answer, sizeof(got));
        for (size_t less = 0; less < bytes; less++)
            assert_false(snap_wire_get_answer(message, less, &got));
    }
}

static void request__bad_values(void **state)
{
    struct snap_wire_request got;
    const struct snap_wire_request open = an_open();
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
        enum snap_wire_status status;
    } bad[] = {
        {0, 0, SNAP_WIRE_MALFORMED},
        {4, 2, SNAP_WIRE_OTHER_VERSION},
        {5, 0, SNAP_WIRE_MALFORMED},
        {5, 7, SNAP_WIRE_MALFORMED},
        {5, SNAP_WIRE_CHECK, SNAP_WIRE_MALFORMED},
        {8, 199, SNAP_WIRE_MALFORMED},
        {16, 16, SNAP_WIRE_MALFORMED},  /* a wish that is not known */
        {24, 1, SNAP_WIRE_MALFORMED},   /* no multiple of a block */
        {48, '.', SNAP_WIRE_MALFORMED}, /* the name */
        {49, '/', SNAP_WIRE_MALFORMED},
        {49, 0x1b, SNAP_WIRE_MALFORMED},
        {49, 0xff, SNAP_WIRE_MALFORMED},
        {48, 0, SNAP_WIRE_MALFORMED},
        {144, 0x07, SNAP_WIRE_MALFORMED}, /* the writer */
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        const size_t bytes = snap_wire_put_request(message, &open);
        message[bad[i].at] = bad[i].value;
        assert_int_equal(snap_wire_get_request(message, bytes, &got), bad[i].status);
    }
    const size_t bytes = snap_wire_put_request(message, &open);
    memset(message + 48, 'n', SNAP_WIRE_NAME_BYTES); /* without an end */
    assert_int_equal(snap_wire_get_request(message, bytes, &got), SNAP_WIRE_MALFORMED);
}

static void check__counts_that_lie(void **state)
{
    struct snap_wire_request got, check = {.type = SNAP_WIRE_CHECK, .leaves_count = 2};
    static const uint32_t counts[] = {
        0, 1, 3, SNAP_WIRE_LEAVES_MAX + 1, UINT32_MAX, (UINT32_MAX / 8) + 3};
    (void)state;
    const size_t bytes = snap_wire_put_request(message, &check);
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        put_le32(message + 16, counts[i]);
        assert_int_equal(snap_wire_get_request(message, bytes, &got), SNAP_WIRE_MALFORMED);
    }
    put_le32(message + 16, 2);
    put_le64(message + 24, 4097);
    assert_int_equal(snap_wire_get_request(message, bytes, &got), SNAP_WIRE_MALFORMED);
}

static void answer__bad_values(void **state)
{
    static struct snap_wire_answer answer = {.type = SNAP_WIRE_LIST, .count = 1}, got;
    (void)state;
    strcpy(answer.volumes[0].name, "run");
    const size_t bytes = snap_wire_put_answer(message, &answer);
    assert_true(snap_wire_get_answer(message, bytes, &got));
    static const struct {
        size_t at;
        uint8_t value;
    } bad[] = {{0, 1},   {4, 9},   {5, 0},   {6, SNAP_WIRE_STATUSES}, {16, 0x1b},
               {152, 2}, {152, 0}, {153, 1}, {160 + 24, '.'},         {160 + 24 + 96, 8}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        snap_wire_put_answer(message, &answer);
        message[bad[i].at] = bad[i].value;
        assert_false(snap_wire_get_answer(message, bytes, &got));
    }
}

static void name__is_that_of_a_file(void **state)
{
    char longest[SNAP_WIRE_NAME_BYTES + 1];
    static const char *const fit[] = {"run", "run.0", "a..b", "\xc3\xbc", "with space", "-x"};
    static const char *const unfit[] = {"",    ".",    "..",   ".run",         "a/b",     "/",
                                        "a\n", "\xc3", "\x7f", "\xed\xa0\x80", "\xc2\x9b"};
    (void)state;
    for (size_t i = 0; i < sizeof(fit) / sizeof(*fit); i++)
        assert_true(snap_wire_name_is_fit(fit[i]));
    for (size_t i = 0; i < sizeof(unfit) / sizeof(*unfit); i++)
        assert_false(snap_wire_name_is_fit(unfit[i]));
    memset(longest, 'n', sizeof(longest));
    longest[SNAP_WIRE_NAME_BYTES] = 0;
    assert_false(snap_wire_name_is_fit(longest));
    longest[SNAP_WIRE_NAME_BYTES - 1] = 0;
    assert_true(snap_wire_name_is_fit(longest));
}

static void status__each_has_its_text(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SNAP_WIRE_STATUSES; i++) {
        const char *text = snap_wire_status_text((enum snap_wire_status)i);
        assert_string_not_equal(text, "unknown");
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(text, snap_wire_status_text((enum snap_wire_status)k));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request__goes_there_and_back),
        cmocka_unit_test(answer__goes_there_and_back),
        cmocka_unit_test(request__bad_values),
        cmocka_unit_test(check__counts_that_lie),
        cmocka_unit_test(answer__bad_values),
        cmocka_unit_test(name__is_that_of_a_file),
        cmocka_unit_test(status__each_has_its_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
