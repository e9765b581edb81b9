/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes with a machine each, and the test in the place of all else: it carries MADs one by one (or
 * loses them), lets time pass, and reads what the machines told their users.
 */
#ifndef SW_TESTS_CM_RIG_H
#define SW_TESTS_CM_RIG_H

#include "cm/cm.h"

enum { RIG_NODES = 3, RIG_OUT_MAX = 128, RIG_EVENTS_MAX = 64, RIG_IDS_MAX = 1200 };
#define RIG_SERVICE 0x01061234ull
#define RIG_MS 1000000ull

struct rig_mad {
    struct sw_cm_path path; /* as its sender sees it */
    struct sw_cm_message message;
    uint8_t bytes[SW_MAD_BYTES];
};

struct rig_event {
    struct sw_cm_id *id;
    enum sw_cm_event_kind kind;
    enum sw_cm_attribute about;
    bool has_message;
    struct sw_cm_message message;
};

struct rig_node {
    int number;
    struct sw_cm cm;
    struct sw_cm_listener listener;
    struct rig_mad out[RIG_OUT_MAX]; /* sent and neither carried nor lost */
    int out_count;
    struct rig_event events[RIG_EVENTS_MAX]; /* told and not yet read */
    int event_count;
    struct sw_cm_id ids[RIG_IDS_MAX]; /* given to incoming() one after the other */
    int id_count, released;
    uint16_t refusal; /* incoming(): refuses for it */
    bool silent;      /* incoming(): drops */
    bool destroys;    /* event(): destroys the id */
};

extern struct rig_node rig[RIG_NODES];
extern uint64_t rig_now;

/* Every node anew, listening to RIG_SERVICE; for cmocka's setup. */
int rig_setup(void **state);
void rig_init(uint64_t resend_ns);

struct sw_cm_path rig_path(int from, int to);
struct sw_cm_req rig_req(int from, int to, uint32_t qpn);
struct sw_cm_rep rig_rep(uint32_t qpn);

/* The oldest MAD that a node has sent is one of `attribute`: it is carried to its destination,
 * lost, or carried and also kept to be carried again. Fails the test if it is another. Returns what
 * it was. */
struct sw_cm_message rig_carry(int from, enum sw_cm_attribute attribute);
struct sw_cm_message rig_lose(int from, enum sw_cm_attribute attribute);
struct sw_cm_message rig_carry_copy(int from, enum sw_cm_attribute attribute);
/* Loses what leaves when a message without an answer is said for the `time`th time, from 0 on: 1,
 * 1, 2, 4, 4... copies, each by another source port, and nothing else. */
void rig_lose_copies(int from, enum sw_cm_attribute attribute, int time);
void rig_nothing_sent(int from);

/* A message out of nowhere. */
void rig_inject(int from, int to, const struct sw_cm_message *message);

/* The oldest event of a node is this one. */
struct rig_event rig_expect(int node, enum sw_cm_event_kind kind);
void rig_no_event(int node);

/* Time goes on, all machines are told. */
void rig_pass(uint64_t ns);
/* Time goes on until a node's machine is due. */
void rig_until_due(int node);

/* Node 0 connects to node 1, all the way. */
void rig_connect(struct sw_cm_id *active, struct sw_cm_id **passive, uint32_t qpn, uint32_t peer);

/* No id has anything in the machine, and no timer runs. */
void rig_is_empty(int node);

#endif
