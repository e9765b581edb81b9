/* SPDX-License-Identifier: BSD-2-Clause */
/* Every field of every CM message lies at its bits, and nothing else does. */
#include "wire/cm_mad.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/bytes.h"

/* A field: where it is in the message (struct sw_cm_message), and where in the MAD: from bit
 * `first` of byte `at`, as the specification's tables count: behind the header, bit 0 the most
 * significant. */
struct field {
    const char *name;
    enum sw_cm_attribute attribute;
    size_t member, size;
    int at, first, bits;
};
#define FIELD(attribute, member, at, first, bits)                           \
    {                                                                       \
#member, attribute, offsetof(struct sw_cm_message, member),         \
            sizeof(((struct sw_cm_message *)NULL)->member), at, first, bits \
    }
#define IDS(attribute, noun) \
    FIELD(attribute, noun.local_comm_id, 0, 0, 32), FIELD(attribute, noun.remote_comm_id, 4, 0, 32)
#define REQ_PATH(path, at)                                       \
    FIELD(SW_CM_REQ, req.path.local_lid, at, 0, 16),             \
        FIELD(SW_CM_REQ, req.path.remote_lid, at + 2, 0, 16),    \
        FIELD(SW_CM_REQ, req.path.local_gid, at + 4, 0, 128),    \
        FIELD(SW_CM_REQ, req.path.remote_gid, at + 20, 0, 128),  \
        FIELD(SW_CM_REQ, req.path.flow_label, at + 36, 0, 20),   \
        FIELD(SW_CM_REQ, req.path.packet_rate, at + 39, 2, 6),   \
        FIELD(SW_CM_REQ, req.path.traffic_class, at + 40, 0, 8), \
        FIELD(SW_CM_REQ, req.path.hop_limit, at + 41, 0, 8),     \
        FIELD(SW_CM_REQ, req.path.sl, at + 42, 0, 4),            \
        FIELD(SW_CM_REQ, req.path.subnet_local, at + 42, 4, 1),  \
        FIELD(SW_CM_REQ, req.path.local_ack_timeout, at + 43, 0, 5)

static const struct field fields[] = {
    FIELD(SW_CM_REQ, req.local_comm_id, 0, 0, 32),
    FIELD(SW_CM_REQ, req.vendor_id, 5, 0, 24),
    FIELD(SW_CM_REQ, req.service_id, 8, 0, 64),
    FIELD(SW_CM_REQ, req.local_ca_guid, 16, 0, 64),
    FIELD(SW_CM_REQ, req.local_qkey, 28, 0, 32),
    FIELD(SW_CM_REQ, req.local_qpn, 32, 0, 24),
    FIELD(SW_CM_REQ, req.responder_resources, 35, 0, 8),
    FIELD(SW_CM_REQ, req.local_eecn, 36, 0, 24),
    FIELD(SW_CM_REQ, req.initiator_depth, 39, 0, 8),
    FIELD(SW_CM_REQ, req.remote_eecn, 40, 0, 24),
    FIELD(SW_CM_REQ, req.remote_cm_response_timeout, 43, 0, 5),
    FIELD(SW_CM_REQ, req.service, 43, 5, 2),
    FIELD(SW_CM_REQ, req.flow_control, 43, 7, 1),
    FIELD(SW_CM_REQ, req.starting_psn, 44, 0, 24),
    FIELD(SW_CM_REQ, req.local_cm_response_timeout, 47, 0, 5),
    FIELD(SW_CM_REQ, req.retry_count, 47, 5, 3),
    FIELD(SW_CM_REQ, req.pkey, 48, 0, 16),
    FIELD(SW_CM_REQ, req.path_mtu, 50, 0, 4),
    FIELD(SW_CM_REQ, req.rdc_exists, 50, 4, 1),
    FIELD(SW_CM_REQ, req.rnr_retry_count, 50, 5, 3),
    FIELD(SW_CM_REQ, req.max_cm_retries, 51, 0, 4),
    FIELD(SW_CM_REQ, req.srq, 51, 4, 1),
    FIELD(SW_CM_REQ, req.extended_service, 51, 5, 3),
    REQ_PATH(primary, 52),
    REQ_PATH(alternate, 96),
    FIELD(SW_CM_REQ, req.sap_supported, 139, 5, 1),
    FIELD(SW_CM_REQ, req.private_data, 140, 0, 736),
    FIELD(SW_CM_REQ, req.ece_options, -4, 0, 32), /* the header's last field */
    IDS(SW_CM_MRA, mra),
    FIELD(SW_CM_MRA, mra.about, 8, 0, 2),
    FIELD(SW_CM_MRA, mra.service_timeout, 9, 0, 5),
    FIELD(SW_CM_MRA, mra.private_data, 10, 0, 1776),
    IDS(SW_CM_REJ, rej),
    FIELD(SW_CM_REJ, rej.about, 8, 0, 2),
    FIELD(SW_CM_REJ, rej.info_len, 9, 0, 7),
    FIELD(SW_CM_REJ, rej.reason, 10, 0, 16),
    FIELD(SW_CM_REJ, rej.info, 12, 0, 576),
    FIELD(SW_CM_REJ, rej.private_data, 84, 0, 1184),
    IDS(SW_CM_REP, rep),
    FIELD(SW_CM_REP, rep.local_qkey, 8, 0, 32),
    FIELD(SW_CM_REP, rep.local_qpn, 12, 0, 24),
    FIELD(SW_CM_REP, rep.local_eecn, 16, 0, 24),
    FIELD(SW_CM_REP, rep.starting_psn, 20, 0, 24),
    FIELD(SW_CM_REP, rep.responder_resources, 24, 0, 8),
    FIELD(SW_CM_REP, rep.initiator_depth, 25, 0, 8),
    FIELD(SW_CM_REP, rep.target_ack_delay, 26, 0, 5),
    FIELD(SW_CM_REP, rep.failover_accepted, 26, 5, 2),
    FIELD(SW_CM_REP, rep.flow_control, 26, 7, 1),
    FIELD(SW_CM_REP, rep.rnr_retry_count, 27, 0, 3),
    FIELD(SW_CM_REP, rep.srq, 27, 3, 1),
    FIELD(SW_CM_REP, rep.local_ca_guid, 28, 0, 64),
    FIELD(SW_CM_REP, rep.private_data, 36, 0, 1568),
    FIELD(SW_CM_REP, rep.ece_options, -4, 0, 32),
    IDS(SW_CM_RTU, rtu),
    FIELD(SW_CM_RTU, rtu.private_data, 8, 0, 1792),
    IDS(SW_CM_DREQ, dreq),
    FIELD(SW_CM_DREQ, dreq.remote_qpn, 8, 0, 24),
    FIELD(SW_CM_DREQ, dreq.private_data, 12, 0, 1760),
    IDS(SW_CM_DREP, drep),
    FIELD(SW_CM_DREP, drep.private_data, 8, 0, 1792),
    FIELD(SW_CM_SIDR_REQ, sidr_req.request_id, 0, 0, 32),
    FIELD(SW_CM_SIDR_REQ, sidr_req.pkey, 4, 0, 16),
    FIELD(SW_CM_SIDR_REQ, sidr_req.service_id, 8, 0, 64),
    FIELD(SW_CM_SIDR_REQ, sidr_req.private_data, 16, 0, 1728),
    FIELD(SW_CM_SIDR_REP, sidr_rep.request_id, 0, 0, 32),
    FIELD(SW_CM_SIDR_REP, sidr_rep.status, 4, 0, 8),
    FIELD(SW_CM_SIDR_REP, sidr_rep.info_len, 5, 0, 8),
    FIELD(SW_CM_SIDR_REP, sidr_rep.qpn, 8, 0, 24),
    FIELD(SW_CM_SIDR_REP, sidr_rep.service_id, 12, 0, 64),
    FIELD(SW_CM_SIDR_REP, sidr_rep.qkey, 20, 0, 32),
    FIELD(SW_CM_SIDR_REP, sidr_rep.info, 24, 0, 576),
    FIELD(SW_CM_SIDR_REP, sidr_rep.private_data, 96, 0, 1088),
    FIELD(SW_CM_SIDR_REP, sidr_rep.ece_options, -4, 0, 32),
    IDS(SW_CM_LAP, lap),
    FIELD(SW_CM_LAP, lap.remote_qpn, 12, 0, 24),
    FIELD(SW_CM_LAP, lap.remote_cm_response_timeout, 15, 0, 5),
    FIELD(SW_CM_LAP, lap.alternate.local_lid, 20, 0, 16),
    FIELD(SW_CM_LAP, lap.alternate.remote_lid, 22, 0, 16),
    FIELD(SW_CM_LAP, lap.alternate.local_gid, 24, 0, 128),
    FIELD(SW_CM_LAP, lap.alternate.remote_gid, 40, 0, 128),
    FIELD(SW_CM_LAP, lap.alternate.flow_label, 56, 0, 20),
    FIELD(SW_CM_LAP, lap.alternate.traffic_class, 59, 0, 8),
    FIELD(SW_CM_LAP, lap.alternate.hop_limit, 60, 0, 8),
    FIELD(SW_CM_LAP, lap.alternate.packet_rate, 61, 2, 6),
    FIELD(SW_CM_LAP, lap.alternate.sl, 62, 0, 4),
    FIELD(SW_CM_LAP, lap.alternate.subnet_local, 62, 4, 1),
    FIELD(SW_CM_LAP, lap.alternate.local_ack_timeout, 63, 0, 5),
    FIELD(SW_CM_LAP, lap.private_data, 64, 0, 1344),
    IDS(SW_CM_APR, apr),
    FIELD(SW_CM_APR, apr.info_len, 8, 0, 8),
    FIELD(SW_CM_APR, apr.status, 9, 0, 8),
    FIELD(SW_CM_APR, apr.info, 12, 0, 576),
    FIELD(SW_CM_APR, apr.private_data, 84, 0, 1184),
};
enum { FIELD_COUNT = sizeof(fields) / sizeof(fields[0]) };

/* In an allocation of its own, for the sanitizers to see its end. */
static uint8_t *encode(const struct sw_cm_message *message)
{
    uint8_t *mad = malloc(SW_MAD_BYTES);
    assert_non_null(mad);
    memset(mad, 0xa5, SW_MAD_BYTES);
    sw_cm_mad_encode(message, mad);
    return mad;
}

/* All ones, or for numbers that are checked some of them. */
static void fill(struct sw_cm_message *message, const struct field *field)
{
    uint8_t *member = (uint8_t *)message + field->member;
    bool is_array = field->bits > 64;
    if (is_array)
        memset(member, 0xff, field->size);
    else if (field->size == 8)
        memcpy(member, &(uint64_t){UINT64_MAX}, 8);
    else if (field->size == 4)
        memcpy(member, &(uint32_t){(uint32_t)((1ull << field->bits) - 1)}, 4);
    else if (field->size == 2)
        memcpy(member, &(uint16_t){UINT16_MAX}, 2);
    else
        *member = (uint8_t)((1u << field->bits) - 1);
}

static bool is_at(const struct field *field, int bit)
{
    int first = 8 * (SW_MAD_HEADER_BYTES + field->at) + field->first;
    return bit >= first && bit < first + field->bits;
}

static void encode__puts_each_field_at_its_bits_and_nothing_elsewhere(void **state)
{
    (void)state;
    for (int i = 0; i < FIELD_COUNT; i++) {
        struct sw_cm_message message = {.attribute = fields[i].attribute};
        uint8_t *nothing = encode(&message);
        fill(&message, &fields[i]);
        uint8_t *mad = encode(&message);
        for (int bit = 0; bit < 8 * SW_MAD_BYTES; bit++) {
            bool is_set = (mad[bit / 8] ^ nothing[bit / 8]) & 0x80 >> bit % 8;
            if (is_set != is_at(&fields[i], bit))
                fail_msg("%s: byte %d bit %d is %d", fields[i].name, bit / 8 - SW_MAD_HEADER_BYTES,
                         bit % 8, is_set);
        }
        free(nothing);
        free(mad);
    }
}

static void encode__cuts_what_is_too_long(void **state)
{
    (void)state;
    struct sw_cm_message message = {.attribute = SW_CM_REP,
                                    .rep = {.local_qpn = 0xff123456, .rnr_retry_count = 0xfa}};
    uint8_t *mad = encode(&message);
    assert_int_equal(sw_be32_load(mad + SW_MAD_HEADER_BYTES + 12), 0x12345600);
    assert_int_equal(mad[SW_MAD_HEADER_BYTES + 27], 2 << 5);
    free(mad);
}

static void decode__gives_back_each_field_alone(void **state)
{
    (void)state;
    for (int i = 0; i < FIELD_COUNT; i++) {
        struct sw_cm_message message, again;
        memset(&message, 0, sizeof(message));
        message.attribute = fields[i].attribute;
        message.transaction = 0x0102030405060708;
        fill(&message, &fields[i]);
        if (strstr(fields[i].name, "info_len"))
            *((uint8_t *)&message + fields[i].member) = SW_CM_INFO_MAX;
        uint8_t *mad = encode(&message);
        memset(&again, 0, sizeof(again));
        assert_int_equal(sw_cm_mad_decode(mad, SW_MAD_BYTES, &again), SW_CM_MAD_FAULT_NONE);
        assert_int_equal(again.attribute, message.attribute);
        assert_true(again.transaction == message.transaction);
        if (memcmp((uint8_t *)&again + fields[i].member, (uint8_t *)&message + fields[i].member,
                   fields[i].size) != 0)
            fail_msg("%s comes back as another", fields[i].name);
        uint8_t *twice = encode(&again);
        assert_memory_equal(twice, mad, SW_MAD_BYTES);
        free(twice);
        free(mad);
    }
}

/* Between other fields, since there was no room left for them. */
static void encode__puts_vendor_ids_beside_numbers_of_24_bits(void **state)
{
    (void)state;
    struct sw_cm_message message = {.attribute = SW_CM_REP, .rep = {.vendor_id = 0x123456}}, again;
    uint8_t *mad = encode(&message);
    assert_int_equal(mad[SW_MAD_HEADER_BYTES + 15], 0x12);
    assert_int_equal(mad[SW_MAD_HEADER_BYTES + 19], 0x34);
    assert_int_equal(mad[SW_MAD_HEADER_BYTES + 23], 0x56);
    assert_int_equal(sw_cm_mad_decode(mad, SW_MAD_BYTES, &again), SW_CM_MAD_FAULT_NONE);
    assert_int_equal(again.rep.vendor_id, 0x123456);
    free(mad);
    message =
        (struct sw_cm_message){.attribute = SW_CM_SIDR_REP, .sidr_rep = {.vendor_id = 0x123456}};
    mad = encode(&message);
    assert_int_equal(sw_be16_load(mad + SW_MAD_HEADER_BYTES + 6), 0x1234);
    assert_int_equal(mad[SW_MAD_HEADER_BYTES + 11], 0x56);
    assert_int_equal(sw_cm_mad_decode(mad, SW_MAD_BYTES, &again), SW_CM_MAD_FAULT_NONE);
    assert_int_equal(again.sidr_rep.vendor_id, 0x123456);
    free(mad);
}

static void decode__ignores_reserved_bits(void **state)
{
    (void)state;
    struct sw_cm_message message = {.attribute = SW_CM_DREQ, .dreq = {.remote_qpn = 0x123456}},
                         again;
    uint8_t *mad = encode(&message);
    mad[SW_MAD_HEADER_BYTES + 11] = 0xff;
    assert_int_equal(sw_cm_mad_decode(mad, SW_MAD_BYTES, &again), SW_CM_MAD_FAULT_NONE);
    assert_int_equal(again.dreq.remote_qpn, 0x123456);
    free(mad);
}

/* A RTU with one byte changed. */
static enum sw_cm_mad_fault fault_of(enum sw_cm_attribute attribute, int at, uint8_t value)
{
    struct sw_cm_message message = {.attribute = attribute}, out, untouched;
    memset(&untouched, 0x5a, sizeof(untouched));
    out = untouched;
    uint8_t *mad = encode(&message);
    mad[at] = value;
    enum sw_cm_mad_fault fault = sw_cm_mad_decode(mad, SW_MAD_BYTES, &out);
    if (fault)
        assert_memory_equal(&out, &untouched, sizeof(out));
    free(mad);
    return fault;
}

static void decode__refuses_what_is_no_cm_message(void **state)
{
    (void)state;
    assert_int_equal(fault_of(SW_CM_RTU, 0, 1), SW_CM_MAD_FAULT_NONE);
    assert_int_equal(fault_of(SW_CM_RTU, 0, 2), SW_CM_MAD_FAULT_VERSION);
    assert_int_equal(fault_of(SW_CM_RTU, 1, 0x03), SW_CM_MAD_FAULT_CLASS); /* subnet admin. */
    assert_int_equal(fault_of(SW_CM_RTU, 2, 1), SW_CM_MAD_FAULT_VERSION);
    assert_int_equal(fault_of(SW_CM_RTU, 3, 0x01), SW_CM_MAD_FAULT_METHOD); /* Get */
    assert_int_equal(fault_of(SW_CM_RTU, 3, 0x83), SW_CM_MAD_FAULT_METHOD);
    assert_int_equal(fault_of(SW_CM_RTU, 17, 0x0f), SW_CM_MAD_FAULT_ATTRIBUTE);
    assert_int_equal(fault_of(SW_CM_RTU, 17, 0x1b), SW_CM_MAD_FAULT_ATTRIBUTE);
    assert_int_equal(fault_of(SW_CM_RTU, 16, 0x01), SW_CM_MAD_FAULT_ATTRIBUTE);
}

static void decode__refuses_more_information_than_fits(void **state)
{
    (void)state;
    assert_int_equal(fault_of(SW_CM_REJ, 24 + 9, 72 << 1), SW_CM_MAD_FAULT_NONE);
    assert_int_equal(fault_of(SW_CM_REJ, 24 + 9, 73 << 1), SW_CM_MAD_FAULT_INFO);
    assert_int_equal(fault_of(SW_CM_APR, 24 + 8, 72), SW_CM_MAD_FAULT_NONE);
    assert_int_equal(fault_of(SW_CM_APR, 24 + 8, 73), SW_CM_MAD_FAULT_INFO);
    assert_int_equal(fault_of(SW_CM_SIDR_REP, 24 + 5, 72), SW_CM_MAD_FAULT_NONE);
    assert_int_equal(fault_of(SW_CM_SIDR_REP, 24 + 5, 73), SW_CM_MAD_FAULT_INFO);
}

static void decode__refuses_any_other_length(void **state)
{
    (void)state;
    struct sw_cm_message message = {.attribute = SW_CM_RTU}, out;
    uint8_t *mad = encode(&message), more[SW_MAD_BYTES + 1];
    memcpy(more, mad, SW_MAD_BYTES);
    for (size_t len = 0; len < SW_MAD_BYTES; len++) {
        uint8_t *less = malloc(len ? len : 1);
        assert_non_null(less);
        memcpy(less, mad, len);
        assert_int_equal(sw_cm_mad_decode(less, len, &out), SW_CM_MAD_FAULT_LENGTH);
        free(less);
    }
    assert_int_equal(sw_cm_mad_decode(more, sizeof(more), &out), SW_CM_MAD_FAULT_LENGTH);
    free(mad);
}

static void names__are_there_for_all(void **state)
{
    (void)state;
    for (int i = 0; i < SW_CM_MAD_FAULT_COUNT; i++)
        assert_non_null(sw_cm_mad_fault_name((enum sw_cm_mad_fault)i));
    assert_string_equal(sw_cm_attribute_name(SW_CM_REQ), "REQ");
    assert_string_equal(sw_cm_attribute_name(SW_CM_DREP), "DREP");
    assert_string_equal(sw_cm_attribute_name(SW_CM_APR), "APR");
    assert_null(sw_cm_attribute_name(0x0f));
    assert_null(sw_cm_attribute_name(0x1b));
    assert_string_equal(sw_cm_reason_name(8), "invalid service ID");
    assert_string_equal(sw_cm_reason_name(28), "consumer reject");
    assert_null(sw_cm_reason_name(0));
    assert_null(sw_cm_reason_name(34));
    assert_null(sw_cm_reason_name(36));
}

static void ip_header__comes_back(void **state)
{
    (void)state;
    struct sw_cm_ip_header header = {.ip_version = 6, .src_port = 0x1234}, again;
    uint8_t bytes[SW_CM_IP_HEADER_BYTES];
    memset(header.src_addr, 0x11, 16);
    memset(header.dst_addr, 0x22, 16);
    sw_cm_ip_header_encode(&header, bytes);
    assert_int_equal(bytes[1], 0x60);
    assert_int_equal(sw_be16_load(bytes + 2), 0x1234);
    assert_int_equal(bytes[4], 0x11);
    assert_int_equal(bytes[35], 0x22);
    assert_true(sw_cm_ip_header_decode(bytes, &again));
    assert_memory_equal(&again, &header, sizeof(header));
}

static void ip_header__refuses_other_versions(void **state)
{
    (void)state;
    struct sw_cm_ip_header header = {.ip_version = 4};
    uint8_t bytes[SW_CM_IP_HEADER_BYTES];
    sw_cm_ip_header_encode(&header, bytes);
    assert_true(sw_cm_ip_header_decode(bytes, &header));
    bytes[0] = 0x10; /* major version 1 */
    assert_false(sw_cm_ip_header_decode(bytes, &header));
    bytes[0] = 0x01; /* a minor one changes nothing */
    assert_true(sw_cm_ip_header_decode(bytes, &header));
    bytes[1] = 0x50;
    assert_false(sw_cm_ip_header_decode(bytes, &header));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encode__puts_each_field_at_its_bits_and_nothing_elsewhere),
        cmocka_unit_test(encode__cuts_what_is_too_long),
        cmocka_unit_test(decode__gives_back_each_field_alone),
        cmocka_unit_test(encode__puts_vendor_ids_beside_numbers_of_24_bits),
        cmocka_unit_test(decode__ignores_reserved_bits),
        cmocka_unit_test(decode__refuses_what_is_no_cm_message),
        cmocka_unit_test(decode__refuses_more_information_than_fits),
        cmocka_unit_test(decode__refuses_any_other_length),
        cmocka_unit_test(names__are_there_for_all),
        cmocka_unit_test(ip_header__comes_back),
        cmocka_unit_test(ip_header__refuses_other_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
