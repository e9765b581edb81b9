/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * make_cm_mads FILE: writes a capture with every message of connection management that we can
 * encode, over IPv4 and IPv6, and prints for each what tshark is to say of it, as NAME=NUMBER: see
 * tests/wire/test_cm_tshark.py.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "wire/cm_mad.h"

static uint32_t serial;

static void say(const char *field, uint64_t value)
{
    printf("\t%s=%" PRIu64, field, value);
}

/* Not the flow label and the packet rate: tshark 4.0 takes their 32 bits apart at the wrong place.
 */
static void say_path(const char *prefix, const struct sw_cm_req_path *path)
{
    const struct {
        const char *field;
        uint64_t value;
    } fields[] = {
        {"locallid", path->local_lid},
        {"remotelid", path->remote_lid},
        {"tfcclass", path->traffic_class},
        {"hoplim", path->hop_limit},
        {"sl", path->sl},
        {"subnetlocal", path->subnet_local},
        {"localacktout", path->local_ack_timeout},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        printf("\treq.%s_%s=%" PRIu64, prefix, fields[i].field, fields[i].value);
}

static struct sw_cm_req_path path_of(uint32_t n)
{
    return (struct sw_cm_req_path){.local_lid = (uint16_t)(0x1000 + n),
                                   .remote_lid = (uint16_t)(0x2000 + n),
                                   .local_gid = {0xfe, 0x80, [15] = 1},
                                   .remote_gid = {0xfe, 0x80, [15] = 2},
                                   .flow_label = 0xabc00 + n,
                                   .packet_rate = (uint8_t)(n & 0x3f),
                                   .traffic_class = (uint8_t)(0x20 + n),
                                   .hop_limit = (uint8_t)(0x40 + n),
                                   .sl = (uint8_t)(n & 0x0f),
                                   .subnet_local = n & 1,
                                   .local_ack_timeout = (uint8_t)(n & 0x1f)};
}

static void make_req(struct sw_cm_message *message)
{
    uint32_t n = serial;
    message->req = (struct sw_cm_req){.local_comm_id = 0x70000000 + n,
                                      .service_id = sw_cm_ip_service_id(0x0106, (uint16_t)n),
                                      .local_ca_guid = 0x1122334455660000 + n,
                                      .local_qkey = 0x11110000 + n,
                                      .local_qpn = 0xabc000 + n,
                                      .local_eecn = 0xdef000 + n,
                                      .remote_eecn = 0x123000 + n,
                                      .responder_resources = (uint8_t)(n + 1),
                                      .initiator_depth = (uint8_t)(n + 2),
                                      .remote_cm_response_timeout = n & 0x1f,
                                      .local_cm_response_timeout = (n + 3) & 0x1f,
                                      .service = n & 3,
                                      .extended_service = (n >> 1) & 7,
                                      .flow_control = n & 1,
                                      .rdc_exists = (n >> 1) & 1,
                                      .srq = (n >> 2) & 1,
                                      .starting_psn = 0xfed000 + n,
                                      .retry_count = n & 7,
                                      .rnr_retry_count = (n + 1) & 7,
                                      .pkey = (uint16_t)(0x8000 + n),
                                      .path_mtu = n & 0x0f,
                                      .max_cm_retries = (n + 5) & 0x0f,
                                      .primary = path_of(n),
                                      .alternate = path_of(n + 9)};
    struct sw_cm_ip_header header = {.ip_version = n & 1 ? 6 : 4, .src_port = (uint16_t)(n + 7)};
    sw_cm_ip_header_encode(&header, message->req.private_data);
    say("req", message->req.local_comm_id);
    say("req.localcaguid", message->req.local_ca_guid);
    say("req.localqkey", message->req.local_qkey);
    say("req.localqpn", message->req.local_qpn);
    say("req.localeecn", message->req.local_eecn);
    say("req.remoteeecn", message->req.remote_eecn);
    say("req.responderres", message->req.responder_resources);
    say("req.initdepth", message->req.initiator_depth);
    say("req.remoteresptout", message->req.remote_cm_response_timeout);
    say("req.localresptout", message->req.local_cm_response_timeout);
    say("req.transpsvctype", message->req.service);
    say("req.ext_transport", message->req.extended_service);
    say("req.e2eflowctrl", message->req.flow_control);
    say("req.rdcexist", message->req.rdc_exists);
    say("req.srq", message->req.srq);
    say("req.startpsn", message->req.starting_psn);
    say("req.retrcount", message->req.retry_count);
    say("req.rnrretrcount", message->req.rnr_retry_count);
    say("req.pkey", message->req.pkey);
    say("req.pppmtu", message->req.path_mtu);
    say("req.maxcmretr", message->req.max_cm_retries);
    say_path("prim", &message->req.primary);
    say_path("alt", &message->req.alternate);
    say("req.serviceid.dport", (uint16_t)n);
    say("req.ip_cm.ipv", header.ip_version);
    say("req.ip_cm.sport", header.src_port);
}

static void make_rep(struct sw_cm_message *message)
{
    uint32_t n = serial;
    message->rep = (struct sw_cm_rep){.local_comm_id = 0x71000000 + n,
                                      .remote_comm_id = 0x72000000 + n,
                                      .local_qkey = 0x12120000 + n,
                                      .local_qpn = 0xcba000 + n,
                                      .local_eecn = 0xfec000 + n,
                                      .starting_psn = 0x321000 + n,
                                      .responder_resources = (uint8_t)(n + 3),
                                      .initiator_depth = (uint8_t)(n + 4),
                                      .target_ack_delay = n & 0x1f,
                                      .failover_accepted = n & 3,
                                      .flow_control = n & 1,
                                      .srq = (n >> 1) & 1,
                                      .rnr_retry_count = n & 7,
                                      .local_ca_guid = 0x6655443322110000 + n};
    say("rep", message->rep.local_comm_id);
    say("rep.remotecommid", message->rep.remote_comm_id);
    say("rep.localqkey", message->rep.local_qkey);
    say("rep.localqpn", message->rep.local_qpn);
    say("rep.localeecn", message->rep.local_eecn);
    say("rep.startpsn", message->rep.starting_psn);
    say("rep.respres", message->rep.responder_resources);
    say("rep.initdepth", message->rep.initiator_depth);
    say("rep.tgtackdelay", message->rep.target_ack_delay);
    say("rep.failoveracc", message->rep.failover_accepted);
    say("rep.e2eflowctrl", message->rep.flow_control);
    say("rep.srq", message->rep.srq);
    say("rep.rnrretrcount", message->rep.rnr_retry_count);
    say("rep.localcaguid", message->rep.local_ca_guid);
}

static void make_rej(struct sw_cm_message *message)
{
    uint32_t n = serial;
    message->rej = (struct sw_cm_rej){.local_comm_id = 0x73000000 + n,
                                      .remote_comm_id = 0x74000000 + n,
                                      .about = n & 3,
                                      .info_len = (uint8_t)(n % (SW_CM_INFO_MAX + 1)),
                                      .reason = (uint16_t)(1 + n % 33)};
    say("rej.localcommid", message->rej.local_comm_id);
    say("rej.remotecommid", message->rej.remote_comm_id);
    say("rej.msgrej", message->rej.about);
    say("rej.rejinfolen", message->rej.info_len);
    say("rej.reason", message->rej.reason);
}

/* The first two numbers of all messages but REQ and SIDR are at the same place in the union. */
static void make_ids(struct sw_cm_message *message, const char *local, const char *remote)
{
    message->rtu.local_comm_id = 0x75000000 + serial;
    message->rtu.remote_comm_id = 0x76000000 + serial;
    if (local) {
        say(local, message->rtu.local_comm_id);
        say(remote, message->rtu.remote_comm_id);
    }
}

static void make(enum sw_cm_attribute attribute, struct sw_cm_message *message)
{
    serial++;
    *message =
        (struct sw_cm_message){.attribute = attribute, .transaction = 0x0123456700000000 + serial};
    printf("%s", sw_cm_attribute_name((uint16_t)attribute));
    printf("\tmad.attributeid=%u\tmad.transactionid=%" PRIu64, (unsigned)attribute,
           message->transaction);
    if (attribute == SW_CM_REQ)
        make_req(message);
    else if (attribute == SW_CM_REP)
        make_rep(message);
    else if (attribute == SW_CM_REJ)
        make_rej(message);
    else if (attribute == SW_CM_RTU)
        make_ids(message, "rtu.localcommid", "rtu.remotecommid");
    else if (attribute == SW_CM_DREQ)
        make_ids(message, "dreq.localcommid", "dreq.remotecommid");
    else if (attribute == SW_CM_DREP)
        make_ids(message, "drsp.localcommid", "drsp.remotecommid");
    else if (attribute == SW_CM_MRA || attribute == SW_CM_LAP || attribute == SW_CM_APR)
        make_ids(message, NULL, NULL); /* tshark 4.0 names these and shows no more of them */
    if (attribute == SW_CM_DREQ) {
        message->dreq.remote_qpn = 0x987000 + serial;
        say("req.remoteqpneecn", message->dreq.remote_qpn); /* as tshark names it */
    }
    putchar('\n');
}

static void write_mad(FILE *capture, const struct sw_flow *flow, const uint8_t *mad)
{
    static uint8_t datagram[CAPTURE_FRAME_MAX], frame[CAPTURE_FRAME_MAX];
    const struct sw_packet packet = {
        .bth = {.opcode = sw_opcode_find(SW_SERVICE_UD, SW_PACKET_SEND, SW_ONLY, 0)->number,
                .ack_req = true,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = SW_MAD_QPN,
                .psn = serial},
        .deth = {.qkey = SW_MAD_QKEY, .src_qpn = SW_MAD_QPN},
        .payload = mad,
        .payload_len = SW_MAD_BYTES};
    struct sw_icrc_flow prepared;
    sw_icrc_flow_init(&prepared, flow);
    size_t len = datagram_build(&prepared, flow->ip_id, &packet, datagram);
    capture_write(capture, frame, frame_build(flow, datagram, len, frame));
}

int main(int argc, char **argv)
{
    enum { ROUNDS = 40 };
    const struct sw_flow flows[] = {{.dont_fragment = true,
                                     .ttl = 64,
                                     .src_port = 49152,
                                     .dst_port = SW_ROCE_PORT,
                                     .src = {10, 77, 0, 1},
                                     .dst = {10, 77, 0, 12}},
                                    {.is_ipv6 = true,
                                     .ttl = 64,
                                     .src_port = 49153,
                                     .dst_port = SW_ROCE_PORT,
                                     .src = {0xfd, 0x77, [15] = 1},
                                     .dst = {0xfd, 0x77, [15] = 12}}};
    if (argc != 2)
        return EXIT_FAILURE;
    FILE *capture = capture_create(argv[1]);
    for (int round = 0; round < ROUNDS; round++)
        for (unsigned n = SW_CM_REQ; n <= SW_CM_APR; n++) {
            struct sw_cm_message message;
            uint8_t mad[SW_MAD_BYTES];
            make((enum sw_cm_attribute)n, &message);
            sw_cm_mad_encode(&message, mad);
            write_mad(capture, &flows[round % 2], mad);
        }
    return fclose(capture) ? EXIT_FAILURE : EXIT_SUCCESS;
}
