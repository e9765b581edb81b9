/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The machine of connection management: anything comes from peers, users do anything that they may,
 * at any time. All that is sent must be messages, nobody is told anything of an id that it
 * destroyed, and when all ids are destroyed and time has passed, nothing is left.
 */
#include "fuzz.h"

#include <string.h>

#include "cm/cm.h"
#include "transport_feed.h"

enum { IDS = 6, STEPS_MAX = 300, SERVICE = 5 };
#define MS 1000000ull

struct slot {
    struct sw_cm_id id;
    bool used, destroyed;
};

static struct sw_cm cm;
static struct sw_cm_listener listener;
static struct slot slots[IDS];
static struct sw_cm_id untouched;
static struct feed *input;
static uint64_t now;
static int depth;

static void on_send(void *user, const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    struct sw_cm_message message;
    (void)user;
    feed_needs(path->pkey == 0xffff);
    feed_needs(sw_cm_mad_decode(mad, SW_MAD_BYTES, &message) == SW_CM_MAD_FAULT_NONE);
}

static struct slot *free_slot(void)
{
    for (int i = 0; i < IDS; i++)
        if (!slots[i].used) {
            slots[i] = (struct slot){.used = true};
            sw_cm_id_init(&slots[i].id, &slots[i]);
            return &slots[i];
        }
    return NULL;
}

static struct sw_cm_id *on_incoming(void *user, struct sw_cm_listener *who,
                                    const struct sw_cm_path *path,
                                    const struct sw_cm_message *message, uint16_t *reason)
{
    (void)user;
    (void)path;
    feed_needs(who == &listener);
    feed_needs(message->attribute == SW_CM_REQ || message->attribute == SW_CM_SIDR_REQ);
    feed_needs(*reason != 0);
    uint8_t how = feed_u8(input);
    struct slot *slot = how < 230 ? free_slot() : NULL;
    if (!slot && how & 1)
        *reason = how & 2 ? 0 : how;
    return slot ? &slot->id : NULL;
}

static void command(void);

static void on_event(void *user, struct sw_cm_id *id, const struct sw_cm_event *event)
{
    struct slot *slot = id->user;
    (void)user;
    feed_needs(slot->used && !slot->destroyed && event->path != NULL);
    feed_needs(event->kind < SW_CM_EVENT_COUNT);
    if (event->kind == SW_CM_EVENT_EXIT || event->kind == SW_CM_EVENT_SIDR_REP)
        feed_needs(id->state == SW_CM_IDLE);
    if (event->kind == SW_CM_EVENT_REQ)
        feed_needs(id->state == SW_CM_REQ_RCVD);
    if (event->kind == SW_CM_EVENT_RTU)
        feed_needs(id->state == SW_CM_ESTABLISHED && !id->active);
    if (depth < 3 && feed_u8(input) & 1) { /* from within, about this or another */
        depth++;
        command();
        depth--;
    }
}

static void on_released(void *user, struct sw_cm_id *id)
{
    struct slot *slot = id->user;
    (void)user;
    feed_needs(slot->used && slot->destroyed);
    memset(slot, 0, sizeof(*slot));
}

static const struct sw_cm_ops ops = {
    .send = on_send, .incoming = on_incoming, .event = on_event, .released = on_released};

static void start(void)
{
    const struct sw_cm_config config = {
        .ca_guid = 1, .slot = 1, .key = {{7, 7}}, .resend_ns = feed_u8(input) & 1 ? MS : 0};
    now = 1000 * MS;
    depth = 0;
    memset(slots, 0, sizeof(slots));
    sw_cm_init(&cm, &config, &ops, NULL);
    feed_needs(sw_cm_listen(&cm, &listener, SERVICE, UINT64_MAX, NULL) == 0);
}

static struct sw_cm_path path_to(uint8_t node)
{
    return (struct sw_cm_path){.local_gid = {[15] = 1},
                               .remote_gid = {[15] = node},
                               .pkey = 0xffff,
                               .slot = node & 1 ? 0 : node};
}

static const struct sw_cm_id *any_id(uint8_t number)
{
    const struct slot *slot = &slots[number % IDS];
    return slot->used ? &slot->id : &untouched;
}

/* A message as the peer of some id would send it, with some bytes changed. */
static void build_mad(uint8_t mad[SW_MAD_BYTES])
{
    static const struct sw_cm_req req = {.service_id = SERVICE,
                                         .local_qpn = 9,
                                         .local_ca_guid = 2,
                                         .path_mtu = 3,
                                         .remote_cm_response_timeout = 10,
                                         .local_cm_response_timeout = 10,
                                         .max_cm_retries = 3,
                                         .primary = {.local_ack_timeout = 10}};
    const struct sw_cm_id *id = any_id(feed_u8(input));
    struct sw_cm_message message = {
        .attribute = (enum sw_cm_attribute)(SW_CM_REQ + feed_u8(input) % 11),
        .transaction = feed_u8(input) & 1 ? id->transaction : id->request};
    message.rtu.local_comm_id = id->remote_comm_id;
    message.rtu.remote_comm_id = id->local_comm_id;
    if (message.attribute == SW_CM_REQ) {
        message.req = req;
        message.req.local_comm_id = feed_u8(input);
        message.req.local_qpn = feed_u8(input) & 15;
    } else if (message.attribute == SW_CM_SIDR_REQ) {
        message.sidr_req =
            (struct sw_cm_sidr_req){.request_id = feed_u8(input) & 7, .service_id = SERVICE};
    } else if (message.attribute == SW_CM_SIDR_REP) {
        message.sidr_rep.request_id = id->local_comm_id;
    } else if (message.attribute == SW_CM_DREQ) {
        message.dreq.remote_qpn = id->local_qpn;
    } else if (message.attribute == SW_CM_REP) {
        if (!message.rep.local_comm_id)
            message.rep.local_comm_id = feed_u8(input);
        message.rep.local_qpn = feed_u8(input) & 15;
        message.rep.local_ca_guid = 2;
    } else if (message.attribute == SW_CM_REJ && feed_u8(input) & 1) {
        message.rej.reason = SW_CM_REASON_TIMEOUT;
        message.rej.info_len = 8;
        message.rej.info[7] = 2;
    } else if (message.attribute == SW_CM_MRA) {
        message.mra.about = feed_u8(input) & 3;
        message.mra.service_timeout = feed_u8(input) & 31;
    }
    sw_cm_mad_encode(&message, mad);
    for (uint8_t changes = feed_u8(input) & 7; changes > 4; changes--) {
        uint8_t at = feed_u8(input);
        mad[at] = feed_u8(input);
    }
}

static void receive(void)
{
    uint8_t mad[SW_MAD_BYTES], how = feed_u8(input);
    struct sw_cm_path path = path_to(how & 7 ? 2 : feed_u8(input));
    if (how < 250)
        build_mad(mad);
    else
        for (int i = 0; i < SW_MAD_BYTES; i++)
            mad[i] = feed_u8(input);
    sw_cm_receive(&cm, &path, mad, how == 249 ? feed_u8(input) : SW_MAD_BYTES, now);
}

static void ask(uint8_t what)
{
    struct slot *slot = free_slot();
    struct sw_cm_path path = path_to(2);
    struct sw_cm_req req = {.service_id = 1,
                            .local_qpn = feed_u8(input) & 15,
                            .remote_cm_response_timeout = feed_u8(input) & 31,
                            .local_cm_response_timeout = 10,
                            .max_cm_retries = feed_u8(input) & 15,
                            .path_mtu = 3,
                            .primary = {.local_ack_timeout = feed_u8(input) & 31}};
    struct sw_cm_sidr_req sidr = {.service_id = 1};
    if (slot && what & 1)
        feed_needs(sw_cm_connect(&cm, &slot->id, &path, &req, now) == 0);
    else if (slot)
        feed_needs(sw_cm_resolve(&cm, &slot->id, &path, &sidr, feed_u8(input) * MS, feed_u8(input),
                                 now) == 0);
}

/* Any command of a user, in any state; wrong ones are refused. */
static void command(void)
{
    uint8_t what = feed_u8(input);
    struct slot *slot = &slots[feed_u8(input) % IDS];
    struct sw_cm_rep rep = {.local_qpn = 3};
    struct sw_cm_sidr_rep answer = {.qpn = 3, .info_len = what};
    if (what >= 200)
        return ask(what);
    if (!slot->used || slot->destroyed)
        return;
    struct sw_cm_id *id = &slot->id;
    enum sw_cm_state state = id->state;
    int error = 0;
    if (what < 40)
        error = sw_cm_accept(&cm, id, &rep, now);
    else if (what < 70)
        error = sw_cm_ready(&cm, id, "x", 1, now);
    else if (what < 80)
        error = sw_cm_reject(&cm, id, 28, "y", 1, NULL, 0, now);
    else if (what < 100)
        error = sw_cm_disconnect(&cm, id, NULL, 0, now);
    else if (what < 120)
        error = sw_cm_disconnected(&cm, id, NULL, 0, now);
    else if (what < 130)
        error = sw_cm_mra(&cm, id, what, NULL, 0, now);
    else if (what < 140)
        error = sw_cm_established(&cm, id, now);
    else if (what < 150)
        error = sw_cm_answer(&cm, id, &answer, now);
    else if (what < 160)
        sw_cm_gone(&cm, 2, now);
    else if (what < 180) {
        slot->destroyed = true;
        sw_cm_id_destroy(&cm, id, now);
        return;
    }
    feed_needs(!error || id->state == state);
}

static void wait(void)
{
    uint8_t how = feed_u8(input);
    now += how < 128 ? how * MS : (1ull << (how & 31)) * 4096;
    sw_cm_tick(&cm, now);
    feed_needs(sw_cm_due_ns(&cm) > now);
}

/* How many ids the machine should know: all that are not idle. */
static void check_count(void)
{
    uint32_t count = 0;
    for (int i = 0; i < IDS; i++)
        count += slots[i].used && slots[i].id.state != SW_CM_IDLE;
    feed_needs(cm.id_count == count);
}

static void end(void)
{
    for (int i = 0; i < IDS; i++)
        if (slots[i].used && !slots[i].destroyed) {
            slots[i].destroyed = true;
            sw_cm_id_destroy(&cm, &slots[i].id, now);
        }
    for (int i = 0; i < 10000 && sw_cm_due_ns(&cm) != UINT64_MAX; i++) {
        now = sw_cm_due_ns(&cm);
        sw_cm_tick(&cm, now);
    }
    feed_needs(cm.id_count == 0 && !cm.timers.first);
    for (int i = 0; i < IDS; i++)
        feed_needs(!slots[i].used);
    sw_cm_unlisten(&cm, &listener);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = {data, size};
    input = &feed;
    start();
    for (int i = 0; i < STEPS_MAX && feed.left; i++) {
        uint8_t what = feed_u8(&feed);
        if (what < 130)
            receive();
        else if (what < 220)
            command();
        else
            wait();
        check_count();
    }
    end();
    return 0;
}
