/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connections OWN GUEST KERNEL_PEER: the machine of src/cm against the kernel's, over one UDP
 * socket and the codec of src/wire. The guest has `rping -s -P` on RPING_PORT and nobody on
 * CLOSED_PORT; KERNEL_PEER runs what else is wanted there. MADs are lost on purpose. Prints a line
 * for each case; the status is 1 if one failed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cm/cm.h"
#include "expect.h"
#include "peer.h"

enum { RPING_PORT = 7174, CLOSED_PORT = 9999, UDADDY_PORT = 7174, OWN_PORT = 7200 };
enum { TCP_SPACE = 0x0106, UDP_SPACE = 0x0111, ANSWER_MS = 20000, GUEST_MS = 40000 };

static struct peer peer;
static struct sw_cm cm;
static struct sw_cm_listener listener;
static struct sw_cm_id ids[32], *current;
static int id_count;
static const char *kernel_peer, *own, *guest;
/* What was told last of the current id, and what is to be lost. */
static bool told[SW_CM_EVENT_COUNT];
static struct sw_cm_message told_last;
static enum sw_cm_attribute lose;
static int lose_count;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct sw_cm_path path(void)
{
    struct sw_cm_path path = {.pkey = SW_PKEY_DEFAULT};
    if (peer.out.is_ipv6) {
        memcpy(path.local_gid, peer.out.src, 16);
        memcpy(path.remote_gid, peer.out.dst, 16);
    } else {
        memset(path.local_gid + 10, 0xff, 2);
        memset(path.remote_gid + 10, 0xff, 2);
        memcpy(path.local_gid + 12, peer.out.src, 4);
        memcpy(path.remote_gid + 12, peer.out.dst, 4);
    }
    return path;
}

/* --- the machine's user --- */

static void on_send(void *user, const struct sw_cm_path *to, const uint8_t mad[SW_MAD_BYTES])
{
    struct sw_packet packet = {
        .bth = {.opcode = sw_opcode_find(SW_SERVICE_UD, SW_PACKET_SEND, SW_ONLY, 0)->number,
                .pkey = SW_PKEY_DEFAULT,
                .dest_qpn = SW_MAD_QPN},
        .deth = {.qkey = SW_MAD_QKEY, .src_qpn = SW_MAD_QPN},
        .payload = mad,
        .payload_len = SW_MAD_BYTES};
    (void)user;
    (void)to;
    if (mad[17] == lose && lose_count > 0)
        lose_count--;
    else
        peer_send(&peer, &packet);
}

static struct sw_cm_id *new_id(void)
{
    if (id_count == sizeof(ids) / sizeof(ids[0]))
        exit(EXIT_FAILURE);
    current = &ids[id_count++];
    memset(told, 0, sizeof(told));
    sw_cm_id_init(current, NULL);
    return current;
}

static struct sw_cm_id *on_incoming(void *user, struct sw_cm_listener *who,
                                    const struct sw_cm_path *from,
                                    const struct sw_cm_message *message, uint16_t *reason)
{
    (void)user;
    (void)who;
    (void)from;
    (void)message;
    (void)reason;
    return new_id();
}

static void on_event(void *user, struct sw_cm_id *id, const struct sw_cm_event *event)
{
    (void)user;
    if (id != current)
        return;
    told[event->kind] = true;
    if (event->message)
        told_last = *event->message;
}

static void on_released(void *user, struct sw_cm_id *id)
{
    (void)user;
    (void)id;
}

static const struct sw_cm_ops ops = {
    .send = on_send, .incoming = on_incoming, .event = on_event, .released = on_released};

/* Takes what comes within some milliseconds. */
static void carry(void)
{
    static struct received received;
    const struct sw_cm_path from = path();
    const struct sw_packet *packet = &received.packet;
    if (peer_receive(&peer, &received, 10) && packet->opcode->service == SW_SERVICE_UD &&
        packet->bth.dest_qpn == SW_MAD_QPN)
        sw_cm_receive(&cm, &from, packet->payload, packet->payload_len, now_ns());
    sw_cm_tick(&cm, now_ns());
}

/* Until the current id is told this. */
static bool await(enum sw_cm_event_kind kind, int timeout_ms)
{
    uint64_t end_ns = now_ns() + (uint64_t)timeout_ms * 1000000u;
    while (!told[kind] && now_ns() < end_ns)
        carry();
    if (!told[kind])
        printf("    no %s; %s\n", sw_cm_event_name(kind), sw_cm_state_name(current->state));
    return told[kind];
}

/* --- what it says --- */

static void put_ip_header(uint8_t *private_data)
{
    struct sw_cm_ip_header header = {.ip_version = peer.out.is_ipv6 ? 6 : 4, .src_port = 40000};
    size_t at = peer.out.is_ipv6 ? 0 : 12;
    memcpy(header.src_addr + at, peer.out.src, 16 - at);
    memcpy(header.dst_addr + at, peer.out.dst, 16 - at);
    sw_cm_ip_header_encode(&header, private_data);
}

static bool ask_by(uint16_t port, uint32_t qpn)
{
    const struct sw_cm_path to = path();
    struct sw_cm_req req = {
        .service_id = sw_cm_ip_service_id(TCP_SPACE, port),
        .local_qpn = qpn,
        .responder_resources = 1,
        .initiator_depth = 1,
        .remote_cm_response_timeout = 17, /* 537 ms */
        .local_cm_response_timeout = 17,
        .service = SW_CM_RC,
        .starting_psn = 0x123456,
        .retry_count = 7,
        .rnr_retry_count = 7,
        .pkey = SW_PKEY_DEFAULT,
        .path_mtu = 3,
        .max_cm_retries = 8,
        .primary = {
            .local_lid = 0xffff, .remote_lid = 0xffff, .hop_limit = 64, .local_ack_timeout = 17}};
    memcpy(req.primary.local_gid, to.local_gid, 16);
    memcpy(req.primary.remote_gid, to.remote_gid, 16);
    put_ip_header(req.private_data);
    return sw_cm_connect(&cm, new_id(), &to, &req, now_ns()) == 0;
}

static bool ask(uint16_t port)
{
    static uint32_t qpn = 0x1000;
    return ask_by(port, ++qpn);
}

static bool connect_to_rping(void)
{
    EXPECT(ask(RPING_PORT));
    EXPECT(await(SW_CM_EVENT_REP, ANSWER_MS));
    EXPECT(told_last.rep.local_qpn > 1 && told_last.rep.responder_resources == 1);
    EXPECT(sw_cm_ready(&cm, current, NULL, 0, now_ns()) == 0);
    return true;
}

static bool disconnect(void)
{
    EXPECT(sw_cm_disconnect(&cm, current, NULL, 0, now_ns()) == 0);
    EXPECT(await(SW_CM_EVENT_DREP, ANSWER_MS));
    EXPECT(await(SW_CM_EVENT_EXIT, ANSWER_MS));
    EXPECT(current->state == SW_CM_IDLE);
    return true;
}

static bool in_guest(const char *format, const char *argument)
{
    char inner[256], command[512];
    snprintf(inner, sizeof(inner), format, argument);
    snprintf(command, sizeof(command), "%s exec b '%s' >/dev/null", kernel_peer, inner);
    return system(command) == 0;
}

/* --- cases --- */

static bool connects_and_disconnects(void)
{
    return connect_to_rping() && disconnect();
}

static bool nobody_listens(void)
{
    EXPECT(ask(CLOSED_PORT));
    EXPECT(await(SW_CM_EVENT_REJ, ANSWER_MS));
    EXPECT(told_last.rej.reason == SW_CM_REASON_SERVICE_ID);
    EXPECT(current->state == SW_CM_IDLE);
    return true;
}

static void lose_next(enum sw_cm_attribute attribute, int count)
{
    lose = attribute;
    lose_count = count;
}

static bool lost_req_is_sent_again(void)
{
    lose_next(SW_CM_REQ, 1);
    EXPECT(connect_to_rping() && lose_count == 0);
    return disconnect();
}

/* The kernel says its REP again; a DREQ before that would do, too. */
static bool lost_rtu_is_sent_again(void)
{
    lose_next(SW_CM_RTU, 1);
    EXPECT(connect_to_rping() && lose_count == 0);
    const uint64_t *again = &cm.counts.sent_again[SW_CM_RTU - SW_CM_REQ];
    uint64_t before = *again, end_ns = now_ns() + ANSWER_MS * 1000000ull;
    while (*again == before && now_ns() < end_ns)
        carry();
    EXPECT(*again > before);
    return disconnect();
}

static bool lost_dreq_is_sent_again(void)
{
    EXPECT(connect_to_rping());
    lose_next(SW_CM_DREQ, 1);
    EXPECT(disconnect() && lose_count == 0);
    return true;
}

/* The guest has the same QPN in a connection that we say nothing more about. */
static bool forgotten_connection_is_stale(void)
{
    EXPECT(connect_to_rping());
    struct sw_cm_id *old = current;
    EXPECT(ask_by(RPING_PORT, old->local_qpn));
    EXPECT(await(SW_CM_EVENT_REJ, ANSWER_MS));
    EXPECT(told_last.rej.reason == SW_CM_REASON_STALE);
    current = old; /* which the kernel ends */
    EXPECT(await(SW_CM_EVENT_DREQ, ANSWER_MS));
    EXPECT(sw_cm_disconnected(&cm, current, NULL, 0, now_ns()) == 0);
    return await(SW_CM_EVENT_EXIT, ANSWER_MS);
}

static bool resolve(uint16_t port)
{
    const struct sw_cm_path to = path();
    struct sw_cm_sidr_req req = {.pkey = SW_PKEY_DEFAULT,
                                 .service_id = sw_cm_ip_service_id(UDP_SPACE, port)};
    put_ip_header(req.private_data);
    EXPECT(sw_cm_resolve(&cm, new_id(), &to, &req, 500000000, 8, now_ns()) == 0);
    return await(SW_CM_EVENT_SIDR_REP, ANSWER_MS);
}

static bool service_is_resolved(void)
{
    EXPECT(in_guest("spawn udaddy 60 udaddy -b %s -C 1 -c 1; "
                    "while kill -0 $(cat /tmp/udaddy.pid); do "
                    "rdma res show cm_id | grep LISTEN | grep udaddy && exit; sleep 0.1; done; "
                    "exit 1",
                    guest));
    EXPECT(resolve(UDADDY_PORT));
    EXPECT(told_last.sidr_rep.status == SW_CM_SIDR_VALID && told_last.sidr_rep.qpn > 1);
    return true;
}

static bool service_of_nobody_is_refused(void)
{
    EXPECT(resolve(CLOSED_PORT));
    EXPECT(told_last.sidr_rep.status != SW_CM_SIDR_VALID);
    return true;
}

/* A program of the guest asks us; its command ends with our address. */
static bool be_asked(const char *program, enum sw_cm_event_kind kind)
{
    char command[128];
    snprintf(command, sizeof(command), "%s %s", program, own);
    memset(told, 0, sizeof(told));
    EXPECT(in_guest("spawn client 60 %s", command));
    EXPECT(await(kind, GUEST_MS));
    struct sw_cm_ip_header header;
    EXPECT(sw_cm_ip_header_decode(kind == SW_CM_EVENT_REQ ? told_last.req.private_data
                                                          : told_last.sidr_req.private_data,
                                  &header));
    EXPECT(header.ip_version == (peer.out.is_ipv6 ? 6 : 4));
    return true;
}

/* When it has ended. */
static bool client_says(const char *word)
{
    return in_guest("while kill -0 $(cat /tmp/client.pid) 2>/dev/null; do sleep 0.1; done; "
                    "grep -q %s /tmp/client.log",
                    word);
}

static bool listen_to(uint16_t port_space, uint16_t port)
{
    sw_cm_unlisten(&cm, &listener);
    return sw_cm_listen(&cm, &listener, sw_cm_ip_service_id(port_space, port), UINT64_MAX, NULL) ==
           0;
}

/* The guest's client connects to us, and is killed. */
static bool kernel_connects(void)
{
    EXPECT(listen_to(TCP_SPACE, OWN_PORT));
    EXPECT(be_asked("rping -c -C 1 -p 7200 -a", SW_CM_EVENT_REQ));
    EXPECT(sw_cm_mra(&cm, current, 18, NULL, 0, now_ns()) == 0);
    struct sw_cm_rep rep = {.local_qpn = 0x2000,
                            .starting_psn = 7,
                            .responder_resources = 1,
                            .initiator_depth = 1,
                            .rnr_retry_count = 7};
    EXPECT(sw_cm_accept(&cm, current, &rep, now_ns()) == 0);
    EXPECT(await(SW_CM_EVENT_RTU, ANSWER_MS));
    EXPECT(in_guest(
        "for p in $(pidof %s); do grep -q -e -c /proc/$p/cmdline && kill -9 $p; done; true",
        "rping"));
    EXPECT(await(SW_CM_EVENT_DREQ, GUEST_MS));
    EXPECT(sw_cm_disconnected(&cm, current, NULL, 0, now_ns()) == 0);
    return await(SW_CM_EVENT_EXIT, ANSWER_MS);
}

static bool kernel_is_rejected(void)
{
    EXPECT(listen_to(TCP_SPACE, OWN_PORT));
    EXPECT(be_asked("rping -c -C 1 -p 7200 -a", SW_CM_EVENT_REQ));
    EXPECT(sw_cm_reject(&cm, current, SW_CM_REASON_CONSUMER, NULL, 0, "no", 3, now_ns()) == 0);
    while (current->state != SW_CM_IDLE) /* until it would have asked again */
        carry();
    EXPECT(cm.counts.duplicates[SW_CM_REQ - SW_CM_REQ] == 0);
    return client_says("REJECTED");
}

static bool kernel_resolves(void)
{
    EXPECT(listen_to(UDP_SPACE, UDADDY_PORT));
    EXPECT(be_asked("udaddy -c 1 -C 0 -s", SW_CM_EVENT_SIDR_REQ));
    EXPECT(sw_cm_answer(&cm, current, &(struct sw_cm_sidr_rep){.qpn = 0x2001, .qkey = 0x1234567},
                        now_ns()) == 0);
    EXPECT(await(SW_CM_EVENT_EXIT, ANSWER_MS));
    EXPECT(cm.counts.duplicates[SW_CM_SIDR_REQ - SW_CM_REQ] == 0);
    return client_says("complete");
}

static bool nothing_is_left(void)
{
    EXPECT(peer.bad == 0);
    EXPECT(cm.id_count == 0 && cm.timers.first == NULL);
    EXPECT(cm.counts.malformed == 0);
    return true;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        bool (*run)(void);
    } cases[] = {
#define CASE(name) {#name, name}
        CASE(connects_and_disconnects), CASE(nobody_listens),
        CASE(lost_req_is_sent_again),   CASE(lost_rtu_is_sent_again),
        CASE(lost_dreq_is_sent_again),  CASE(forgotten_connection_is_stale),
        CASE(service_is_resolved),      CASE(service_of_nobody_is_refused),
        CASE(kernel_connects),          CASE(kernel_is_rejected),
        CASE(kernel_resolves),          CASE(nothing_is_left),
    };
    int failed = 0;
    if (argc != 4)
        return EXIT_FAILURE;
    setlinebuf(stdout);
    own = argv[1];
    guest = argv[2];
    kernel_peer = argv[3];
    peer_open(&peer, argv[1], argv[2]);
    const struct sw_cm_config config = {.ca_guid = 0x0200000000000001 + (uint64_t)peer.out.is_ipv6,
                                        .slot = 1,
                                        .key = {{now_ns(), 1}}};
    sw_cm_init(&cm, &config, &ops, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool good = cases[i].run();
        failed += !good;
        printf("%s  %s\n", good ? "ok" : "NOT OK", cases[i].name);
    }
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
