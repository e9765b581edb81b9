/* SPDX-License-Identifier: BSD-2-Clause */
/* Two ports on 4791 of one network namespace, and packets between them. */
#ifndef SW_TESTS_LINK_PORT_RIG_H
#define SW_TESTS_LINK_PORT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/roce/port/port.h"
#include "link/roce/port/tx.h"

#define KEPT 256
#define ACK 0x11 /* the opcode of RC */
#define SEND_ONLY 0x04
#define SEND_MIDDLE 0x01

extern const uint8_t lo_v4[16];

struct pair {
    struct sw_port one, two; /* of slots 5 and 6 */
};

/* What both have delivered. */
struct port_seen {
    uint32_t count;
    uint32_t calls; /* in which they came */
    struct sw_arrival last;
    uint32_t lens[KEPT];
    uint32_t order[KEPT]; /* PSNs */
    bool damaged;
};
extern struct port_seen seen;
extern bool are_strangers; /* all who send */

extern uint8_t packet_opcode;
extern uint32_t packet_damage; /* of struct sw_outgoing */
extern uint32_t packet_qp;     /* index of the QP it is for */
extern uint8_t pattern[KEPT + SW_PACKET_PAYLOAD_MAX];

/* In a network namespace of the test's own; 77: there is none. */
int enter_port_namespace(void);
void lo_set(short flags, int mtu);
bool keep(void *arg, const struct sw_arrival *arrival);
int open_pair(void **state);
int close_pair(void **state);
#define WITH_PAIR(function) cmocka_unit_test_setup_teardown(function, open_pair, close_pair)

struct sw_roce_path path_to(struct sw_port *port, const uint8_t from[16], const uint8_t to[16]);
/* Packet n: to a QP of `slot`, from several pieces. */
void add(struct sw_batch *batch, const struct sw_roce_path *path, uint32_t slot, uint32_t n,
         uint32_t len);
void add_ack(struct sw_batch *batch, const struct sw_roce_path *path, uint32_t slot, uint32_t n);
/* Has both ports receive until there are so many packets. */
void receive(struct pair *pair, uint32_t want);
void came_in_order(uint32_t count);

#endif
