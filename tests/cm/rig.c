/* SPDX-License-Identifier: BSD-2-Clause */
#include "rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct rig_node rig[RIG_NODES];
uint64_t rig_now;

static void on_send(void *user, const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    struct rig_node *node = user;
    assert_true(node->out_count < RIG_OUT_MAX);
    struct rig_mad *out = &node->out[node->out_count++];
    out->path = *path;
    memcpy(out->bytes, mad, SW_MAD_BYTES);
    assert_int_equal(sw_cm_mad_decode(mad, SW_MAD_BYTES, &out->message), SW_CM_MAD_FAULT_NONE);
}

static struct sw_cm_id *on_incoming(void *user, struct sw_cm_listener *listener,
                                    const struct sw_cm_path *path,
                                    const struct sw_cm_message *message, uint16_t *reason)
{
    struct rig_node *node = user;
    (void)path;
    (void)message;
    assert_ptr_equal(listener->user, node);
    if (node->silent)
        *reason = 0;
    else if (node->refusal)
        *reason = node->refusal;
    if (node->silent || node->refusal)
        return NULL;
    assert_true(node->id_count < RIG_IDS_MAX);
    struct sw_cm_id *id = &node->ids[node->id_count++];
    sw_cm_id_init(id, node);
    return id;
}

static void on_event(void *user, struct sw_cm_id *id, const struct sw_cm_event *event)
{
    struct rig_node *node = user;
    assert_true(node->event_count < RIG_EVENTS_MAX);
    assert_non_null(event->path);
    node->events[node->event_count] = (struct rig_event){.id = id,
                                                         .kind = event->kind,
                                                         .about = event->about,
                                                         .has_message = event->message != NULL};
    if (event->message)
        node->events[node->event_count].message = *event->message;
    node->event_count++;
    if (node->destroys)
        sw_cm_id_destroy(&node->cm, id, rig_now);
}

static void on_released(void *user, struct sw_cm_id *id)
{
    struct rig_node *node = user;
    node->released++;
    memset(id, 0, sizeof(*id)); /* it is the user's, who uses it for something else */
}

static const struct sw_cm_ops ops = {
    .send = on_send, .incoming = on_incoming, .event = on_event, .released = on_released};

void rig_init(uint64_t resend_ns)
{
    memset(rig, 0, sizeof(rig));
    rig_now = 1000 * RIG_MS;
    for (int i = 0; i < RIG_NODES; i++) {
        struct sw_cm_config config = {.ca_guid = 0x1000 + (uint64_t)i,
                                      .slot = (uint16_t)(i + 1),
                                      .key = {{77 + (uint64_t)i, 1}},
                                      .resend_ns = resend_ns};
        rig[i].number = i;
        sw_cm_init(&rig[i].cm, &config, &ops, &rig[i]);
        assert_int_equal(
            sw_cm_listen(&rig[i].cm, &rig[i].listener, RIG_SERVICE, UINT64_MAX, &rig[i]), 0);
    }
}

int rig_setup(void **state)
{
    (void)state;
    rig_init(0);
    return 0;
}

struct sw_cm_path rig_path(int from, int to)
{
    struct sw_cm_path path = {.local_gid = {[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)from},
                              .remote_gid = {[10] = 0xff, 0xff, 10, 0, 0, (uint8_t)to},
                              .ifindex = 2,
                              .pkey = 0xffff};
    return path;
}

struct sw_cm_req rig_req(int from, int to, uint32_t qpn)
{
    struct sw_cm_path path = rig_path(from, to);
    struct sw_cm_req req = {.service_id = RIG_SERVICE,
                            .local_qpn = qpn,
                            .responder_resources = 4,
                            .initiator_depth = 3,
                            .remote_cm_response_timeout = 14, /* 67 ms */
                            .local_cm_response_timeout = 14,
                            .service = SW_CM_RC,
                            .starting_psn = 0x123456,
                            .retry_count = 7,
                            .rnr_retry_count = 7,
                            .pkey = 0xffff,
                            .path_mtu = 5,
                            .max_cm_retries = 3,
                            .primary = {.hop_limit = 64, .local_ack_timeout = 14}};
    memcpy(req.primary.local_gid, path.local_gid, 16);
    memcpy(req.primary.remote_gid, path.remote_gid, 16);
    memcpy(req.private_data, "from the active", 16);
    return req;
}

struct sw_cm_rep rig_rep(uint32_t qpn)
{
    struct sw_cm_rep rep = {.local_qpn = qpn,
                            .starting_psn = 0x654321,
                            .responder_resources = 3,
                            .initiator_depth = 4,
                            .rnr_retry_count = 7};
    memcpy(rep.private_data, "from the passive", 17);
    return rep;
}

static int node_of(const uint8_t gid[16])
{
    return gid[15];
}

static void hand_over(const struct rig_mad *mad)
{
    int from = node_of(mad->path.local_gid), to = node_of(mad->path.remote_gid);
    struct sw_cm_path path = rig_path(to, from);
    uint8_t *copy = malloc(SW_MAD_BYTES); /* for the sanitizers to see its end */
    assert_non_null(copy);
    memcpy(copy, mad->bytes, SW_MAD_BYTES);
    assert_int_equal(sw_cm_receive(&rig[to].cm, &path, copy, SW_MAD_BYTES, rig_now),
                     SW_CM_MAD_FAULT_NONE);
    free(copy);
}

static const char *name_of(enum sw_cm_attribute attribute)
{
    return sw_cm_attribute_name((uint16_t)attribute);
}

static struct rig_mad take(int from, enum sw_cm_attribute attribute)
{
    struct rig_node *node = &rig[from];
    if (!node->out_count)
        fail_msg("node %d sent nothing, not %s", from, name_of(attribute));
    struct rig_mad mad = node->out[0];
    memmove(node->out, node->out + 1, sizeof(mad) * (size_t)--node->out_count);
    if (mad.message.attribute != attribute)
        fail_msg("node %d sent %s, not %s", from, name_of(mad.message.attribute),
                 name_of(attribute));
    return mad;
}

struct sw_cm_message rig_carry(int from, enum sw_cm_attribute attribute)
{
    struct rig_mad mad = take(from, attribute);
    hand_over(&mad);
    return mad.message;
}

struct sw_cm_message rig_lose(int from, enum sw_cm_attribute attribute)
{
    return take(from, attribute).message;
}

struct sw_cm_message rig_carry_copy(int from, enum sw_cm_attribute attribute)
{
    struct rig_node *node = &rig[from];
    struct rig_mad mad = take(from, attribute);
    memmove(node->out + 1, node->out, sizeof(mad) * (size_t)node->out_count++);
    node->out[0] = mad;
    hand_over(&mad);
    return mad.message;
}

void rig_lose_copies(int from, enum sw_cm_attribute attribute, int time)
{
    const int copies = time < 2 ? 1 : time == 2 ? 2 : SW_CM_COPIES_MAX;
    uint32_t last = 0;
    for (int i = 0; i < copies; i++) {
        const uint32_t attempt = take(from, attribute).path.attempt;
        if (i && attempt != last + 1)
            fail_msg("copies leave by attempts %u and %u", last, attempt);
        last = attempt;
    }
    rig_nothing_sent(from);
}

void rig_nothing_sent(int from)
{
    if (rig[from].out_count)
        fail_msg("node %d sent %s", from, name_of(rig[from].out[0].message.attribute));
}

void rig_inject(int from, int to, const struct sw_cm_message *message)
{
    struct rig_mad mad = {.path = rig_path(from, to)};
    sw_cm_mad_encode(message, mad.bytes);
    hand_over(&mad);
}

struct rig_event rig_expect(int number, enum sw_cm_event_kind kind)
{
    struct rig_node *node = &rig[number];
    if (!node->event_count)
        fail_msg("node %d was told nothing, not %s", number, sw_cm_event_name(kind));
    struct rig_event event = node->events[0];
    memmove(node->events, node->events + 1, sizeof(event) * (size_t)--node->event_count);
    if (event.kind != kind)
        fail_msg("node %d was told %s, not %s", number, sw_cm_event_name(event.kind),
                 sw_cm_event_name(kind));
    return event;
}

void rig_no_event(int number)
{
    if (rig[number].event_count)
        fail_msg("node %d was told %s", number, sw_cm_event_name(rig[number].events[0].kind));
}

void rig_pass(uint64_t ns)
{
    rig_now += ns;
    for (int i = 0; i < RIG_NODES; i++)
        sw_cm_tick(&rig[i].cm, rig_now);
}

void rig_until_due(int node)
{
    uint64_t due_ns = sw_cm_due_ns(&rig[node].cm);
    assert_true(due_ns != UINT64_MAX && due_ns >= rig_now);
    rig_pass(due_ns - rig_now);
}

void rig_connect(struct sw_cm_id *active, struct sw_cm_id **passive, uint32_t qpn, uint32_t peer)
{
    struct sw_cm_path path = rig_path(0, 1);
    struct sw_cm_req req = rig_req(0, 1, qpn);
    struct sw_cm_rep rep = rig_rep(peer);
    sw_cm_id_init(active, &rig[0]);
    assert_int_equal(sw_cm_connect(&rig[0].cm, active, &path, &req, rig_now), 0);
    rig_carry(0, SW_CM_REQ);
    *passive = rig_expect(1, SW_CM_EVENT_REQ).id;
    assert_int_equal(sw_cm_accept(&rig[1].cm, *passive, &rep, rig_now), 0);
    rig_carry(1, SW_CM_REP);
    assert_ptr_equal(rig_expect(0, SW_CM_EVENT_REP).id, active);
    assert_int_equal(sw_cm_ready(&rig[0].cm, active, NULL, 0, rig_now), 0);
    rig_carry(0, SW_CM_RTU);
    assert_ptr_equal(rig_expect(1, SW_CM_EVENT_RTU).id, *passive);
    assert_int_equal(active->state, SW_CM_ESTABLISHED);
    assert_int_equal((*passive)->state, SW_CM_ESTABLISHED);
}

void rig_is_empty(int number)
{
    struct rig_node *node = &rig[number];
    assert_int_equal(node->cm.id_count, 0);
    assert_null(node->cm.timers.first);
    for (int i = 0; i < SW_CM_BUCKETS; i++) {
        assert_null(node->cm.by_local[i]);
        assert_null(node->cm.by_remote[i]);
        assert_null(node->cm.by_remote_qpn[i]);
    }
}
