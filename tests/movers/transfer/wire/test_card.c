/* SPDX-License-Identifier: BSD-2-Clause */
/* The bytes of docs/transfer.md: what is put is what the page says; what is damaged is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "common/base/bytes.h"
#include "transfer/wire/card.h"
#include "transfer/wire/message.h"

static size_t make_card_of(uint8_t bytes[XFW_CARD_MAX], uint16_t version)
{
    struct xfw_card card = {.version = version,
                            .layout = 0x1122334455667788,
                            .addresses_count = 2,
                            .regions_count = 2,
                            .addresses = {{.family = 4, .port = 4440, .bytes = {192, 0, 2, 1}},
                                          {.family = 6, .port = 1, .bytes = {0x20, 1}}}};
    const struct xfw_region regions[] = {
        {.name = "kv", .address = 0x1000, .bytes = 4096, .keys = {7, 17}, .rights = 3},
        {.name = "weights", .address = 0x8000, .bytes = 1, .keys = {8, 18}, .rights = 1}};
    memset(card.instance, 0xab, sizeof(card.instance));
    xfw_put_card(bytes, &card);
    xfw_put_region(bytes, &card, 0, &regions[0]);
    xfw_put_region(bytes, &card, 1, &regions[1]);
    xfw_seal_card(bytes, &card);
    return xfw_card_bytes(&card);
}

static size_t make_card(uint8_t bytes[XFW_CARD_MAX])
{
    return make_card_of(bytes, XFW_VERSION);
}

static void card__lies_as_the_page_says(void **state)
{
    (void)state;
    static uint8_t bytes[XFW_CARD_MAX];
    assert_int_equal(make_card(bytes), 48 + 2 * 24 + 2 * 56);
    assert_memory_equal(bytes, "SWXC\1\0\2\0", 8);
    assert_int_equal(get_le32(bytes + 8), 208);
    assert_int_equal(bytes[16], 0xab);
    assert_int_equal(get_le64(bytes + 32), 0x1122334455667788);
    assert_int_equal(get_le16(bytes + 40), 2);
    assert_memory_equal(bytes + 48, "\4\0\x58\x11\0\0\0\0\xc0\0\2\1", 12);
    assert_int_equal(bytes[72], 6);
    assert_string_equal((char *)bytes + 96, "kv");
    assert_int_equal(get_le64(bytes + 96 + 32), 0x1000);
    assert_int_equal(get_le64(bytes + 96 + 40), 4096);
    assert_int_equal(get_le32(bytes + 96 + 48), 7);
    assert_int_equal(get_le32(bytes + 96 + 52), 3);
}

/* CRC32C of "123456789" is 0xe3069283 (RFC 3720, B.4 has others of it). */
static void card__sum_is_crc32c(void **state)
{
    (void)state;
    static uint8_t bytes[XFW_CARD_MAX];
    const size_t len = make_card(bytes);
    const uint32_t said = get_le32(bytes + 12);
    uint32_t sum = UINT32_MAX;
    put_le32(bytes + 12, 0);
    for (size_t i = 0; i < len; i++)
        for (int bit = 0; bit < 8; bit++) {
            const bool top = (sum ^ bytes[i] >> bit) & 1;
            sum = sum >> 1 ^ (top ? 0x82f63b78u : 0);
        }
    assert_int_equal(said, ~sum);
}

static void get_card__what_was_put(void **state)
{
    (void)state;
    static uint8_t bytes[XFW_CARD_MAX];
    struct xfw_card card;
    struct xfw_region region;
    const size_t len = make_card(bytes);
    assert_int_equal(xfw_get_card(bytes, len, &card), SW_XFER_OK);
    assert_int_equal(card.addresses[0].port, 4440);
    xfw_get_region(bytes, &card, 1, &region);
    assert_string_equal(region.name, "weights");
    assert_int_equal(region.rights, 1);
}

static void card__of_rails_has_a_key_for_each(void **state)
{
    (void)state;
    static uint8_t bytes[XFW_CARD_MAX];
    struct xfw_card card;
    struct xfw_region region;
    const size_t len = make_card_of(bytes, XFW_VERSION_RAILS);
    assert_int_equal(len, 48 + 2 * 24 + 2 * 60);
    assert_memory_equal(bytes, "SWXC\2\0\2\0", 8);
    assert_int_equal(get_le32(bytes + 96 + 48), 7);
    assert_int_equal(get_le32(bytes + 96 + 56), 17);
    assert_string_equal((char *)bytes + 96 + 60, "weights");
    assert_int_equal(xfw_get_card(bytes, len, &card), SW_XFER_OK);
    xfw_get_region(bytes, &card, 1, &region);
    assert_int_equal(region.keys[0], 8);
    assert_int_equal(region.keys[1], 18);
    assert_int_equal(region.keys[2], 8);
    bytes[4] = 1; /* the length is another one then */
    xfw_seal_card(bytes, &card);
    assert_int_equal(xfw_get_card(bytes, len, &card), SW_XFER_CARD);
}

static void get_card__each_damaged_byte_is_found(void **state)
{
    (void)state;
    static uint8_t bytes[XFW_CARD_MAX];
    struct xfw_card card;
    const size_t len = make_card(bytes);
    for (size_t i = 0; i < len; i++) {
        bytes[i] ^= 0x10;
        assert_int_equal(xfw_get_card(bytes, len, &card),
                         i == 4 || i == 5 ? SW_XFER_VERSION : SW_XFER_CARD);
        bytes[i] ^= 0x10;
        assert_int_equal(xfw_get_card(bytes, i, &card), SW_XFER_CARD);
    }
}

/* The sum is right, what it covers is not. */
static void get_card__contradictions_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
    } cases[] = {
        {6, 0},  {6, 5},  {48, 5}, {50, 0}, {96, '\n'}, {96 + 52, 0}, {96 + 56 + 40, 0},
        {40, 1}, {41, 2},
    };
    static uint8_t bytes[XFW_CARD_MAX];
    struct xfw_card card, as = {.version = XFW_VERSION, .addresses_count = 2, .regions_count = 2};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const size_t len = make_card(bytes);
        bytes[cases[i].at] = cases[i].value;
        if (cases[i].at == 50)
            bytes[51] = 0;
        xfw_seal_card(bytes, &as);
        if (xfw_get_card(bytes, len, &card) != SW_XFER_CARD)
            fail_msg("case %zu was taken", i);
    }
    const size_t len = make_card(bytes);
    memset(bytes + 96, 'x', XFW_NAME_BYTES); /* a name without its end */
    xfw_seal_card(bytes, &as);
    assert_int_equal(xfw_get_card(bytes, len, &card), SW_XFER_CARD);
    make_card(bytes);
    put_le64(bytes + 96 + 32, UINT64_MAX - 5); /* an end beyond the last address */
    xfw_seal_card(bytes, &as);
    assert_int_equal(xfw_get_card(bytes, len, &card), SW_XFER_CARD);
}

static void message__what_was_put_and_no_other(void **state)
{
    (void)state;
    uint8_t bytes[XFW_MESSAGE_MAX + 1] = {0};
    struct xfw_message got;
    const struct xfw_message notice = {.type = XFW_NOTICE, .bytes = 5, .tag = 9};
    assert_int_equal(xfw_put_message(bytes, &notice), 21);
    assert_memory_equal(bytes, "SWXM\1\0\x15\0\x9\0\0\0\0\0\0\0", 16);
    assert_true(xfw_get_message(bytes, 21, &got));
    assert_int_equal(got.bytes, 5);
    assert_int_equal(got.tag, 9);
    assert_false(xfw_get_message(bytes, 20, &got));
    assert_false(xfw_get_message(bytes, 15, &got));
    bytes[4] = 7;
    assert_false(xfw_get_message(bytes, 21, &got));
    bytes[4] = XFW_SUM; /* has parts of 16 bytes */
    assert_false(xfw_get_message(bytes, 21, &got));
    bytes[4] = XFW_SUMS; /* has sums of 4 bytes */
    assert_false(xfw_get_message(bytes, 21, &got));
    bytes[4] = XFW_ACK; /* which has no bytes behind its header */
    assert_false(xfw_get_message(bytes, 21, &got));
    const struct xfw_message none = {.type = XFW_ACK, .tag = 0};
    xfw_put_message(bytes, &none);
    assert_false(xfw_get_message(bytes, 16, &got));
}

static void message__sums_lie_as_the_page_says(void **state)
{
    (void)state;
    uint8_t bytes[XFW_MESSAGE_MAX] = {0};
    const struct xfw_message sum = {.type = XFW_SUM, .bytes = 32, .tag = 1};
    const struct xfw_sum part = {.address = 0x1122334455667788, .key = 0xa1a2a3a4, .bytes = 4096};
    struct xfw_message message;
    struct xfw_sum got;
    xfw_put_sum(bytes, 1, &part);
    assert_int_equal(xfw_put_message(bytes, &sum), 48);
    assert_memory_equal(bytes + 32, "\x88\x77\x66\x55\x44\x33\x22\x11\xa4\xa3\xa2\xa1\0\x10\0\0",
                        16);
    assert_true(xfw_get_message(bytes, 48, &message));
    xfw_get_sum(bytes, 1, &got);
    assert_memory_equal(&got, &part, sizeof(got));
    const struct xfw_message none = {.type = XFW_SUM, .tag = 1};
    xfw_put_message(bytes, &none);
    assert_false(xfw_get_message(bytes, 16, &message));
    xfw_put_sums(bytes, 1, 0xc1c2c3c4);
    const struct xfw_message sums = {.type = XFW_SUMS, .bytes = 8, .tag = 1};
    xfw_put_message(bytes, &sums);
    assert_memory_equal(bytes + 20, "\xc4\xc3\xc2\xc1", 4);
    assert_true(xfw_get_message(bytes, 24, &message));
    assert_int_equal(xfw_get_sums(bytes, 1), 0xc1c2c3c4);
    const struct xfw_message many = {.type = XFW_SUMS, .bytes = 4 * XFW_SUMS_MAX + 4, .tag = 1};
    xfw_put_message(bytes, &many);
    assert_false(xfw_get_message(bytes, XFW_ANSWER_MAX + 4, &message));
}

static void message__end_names_a_lane_and_a_count(void **state)
{
    (void)state;
    uint8_t bytes[XFW_MESSAGE_MAX] = {0};
    struct xfw_message message = {.type = XFW_END, .bytes = XFW_END_BYTES, .tag = 3};
    const struct xfw_end end = {.lane = 2, .count = 0xfe};
    struct xfw_end got;
    xfw_put_end(bytes, &end);
    assert_int_equal(xfw_put_message(bytes, &message), 24);
    assert_memory_equal(bytes, "SWXM\5\0\x18\0\3\0\0\0\0\0\0\0\2\xfe\0\0\0\0\0\0", 24);
    assert_true(xfw_get_message(bytes, 24, &message));
    xfw_get_end(bytes, &got);
    assert_true(got.lane == 2 && got.count == 0xfe);
    assert_false(xfw_get_message(bytes, 23, &message));
    message = (struct xfw_message){.type = XFW_ENDED, .bytes = 4, .tag = 3};
    xfw_put_message(bytes, &message);
    assert_false(xfw_get_message(bytes, 20, &message)); /* which says no more */
    assert_true(xfw_is_earlier(0xfe, 0) && xfw_is_earlier(0, 1));
    assert_false(xfw_is_earlier(0, 0xfe) || xfw_is_earlier(1, 1));
}

static void connect__what_was_put_and_no_other(void **state)
{
    (void)state;
    uint8_t bytes[XFW_CONNECT_BYTES];
    struct xfw_connect hello = {.layout = 3, .session = 4, .lane = 2, .count = 0xc0}, got;
    struct xfw_accept accept = {.notices = 32, .notice_bytes_max = 1024, .abilities = 5}, accepted;
    hello.called[0] = 1;
    hello.calling[0] = 2;
    xfw_put_connect(bytes, &hello);
    assert_int_equal(xfw_get_connect(bytes, sizeof(bytes), &got), 0);
    assert_memory_equal(got.called, hello.called, sizeof(got.called));
    assert_memory_equal(got.calling, hello.calling, sizeof(got.calling));
    assert_true(got.layout == 3 && got.session == 4 && got.lane == 2 && got.count == 0xc0);
    assert_memory_equal(bytes, "SWXP\1\0\2\xc0", 8);
    assert_int_equal(xfw_get_connect(bytes, 55, &got), XFW_REASON_MALFORMED);
    bytes[6] = SW_XFER_ADDRESSES_MAX;
    assert_int_equal(xfw_get_connect(bytes, 56, &got), XFW_REASON_MALFORMED);
    bytes[4] = 9;
    assert_int_equal(xfw_get_connect(bytes, 8, &got), XFW_REASON_VERSION);
    bytes[0] = 0;
    assert_int_equal(xfw_get_connect(bytes, 56, &got), XFW_REASON_MALFORMED);
    xfw_put_accept(bytes, &accept);
    assert_true(xfw_get_accept(bytes, XFW_ACCEPT_BYTES, &accepted));
    assert_int_equal(accepted.notices, 32);
    assert_int_equal(bytes[28], 5);
    assert_int_equal(accepted.abilities, 5);
    bytes[24] = 0;
    assert_false(xfw_get_accept(bytes, XFW_ACCEPT_BYTES, &accepted));
    xfw_put_reject(bytes, XFW_REASON_LAYOUT);
    assert_int_equal(xfw_get_reject(bytes, XFW_REJECT_BYTES), XFW_REASON_LAYOUT);
    bytes[6] = 99;
    assert_int_equal(xfw_get_reject(bytes, XFW_REJECT_BYTES), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(card__lies_as_the_page_says),
        cmocka_unit_test(card__of_rails_has_a_key_for_each),
        cmocka_unit_test(message__end_names_a_lane_and_a_count),
        cmocka_unit_test(card__sum_is_crc32c),
        cmocka_unit_test(get_card__what_was_put),
        cmocka_unit_test(get_card__each_damaged_byte_is_found),
        cmocka_unit_test(get_card__contradictions_are_refused),
        cmocka_unit_test(message__what_was_put_and_no_other),
        cmocka_unit_test(message__sums_lie_as_the_page_says),
        cmocka_unit_test(connect__what_was_put_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
