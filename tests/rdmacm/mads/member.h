/* SPDX-License-Identifier: BSD-2-Clause */
/* A process with ports and an agent, that does what the test says. */
#ifndef SW_TESTS_RDMACM_MEMBER_H
#define SW_TESTS_RDMACM_MEMBER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "cm/cm.h"
#include "rdmacm/mads/agent.h"
#include "rdmacm/mads/ports.h"

struct member {
    pid_t pid;
    int orders, reports;
    uint32_t slot;
};

enum order_kind {
    ORDER_CLAIM,   /* reports the error, and the port in `value` */
    ORDER_RELEASE, /* the claim number `which` */
    ORDER_LISTEN,  /* by the claim number `which`, to `service_id` */
    ORDER_SEND,    /* `mad`, `count` times, numbered from `value` on in their last four bytes */
    ORDER_MUTE,    /* of what comes from now on only the number is told, with ORDER_HEARD */
    ORDER_HEARD,
    ORDER_FORK, /* a child that stays until this process ends, and `which` seconds longer */
    ORDER_END,
};

struct order {
    enum order_kind kind;
    uint32_t which, value, count;
    uint64_t service_id;
    struct sw_cm_port_name name;
    struct sw_cm_path path;
    uint8_t mad[SW_MAD_BYTES];
};

enum report_kind { REPORT_HELLO, REPORT_DONE, REPORT_MAD, REPORT_GONE };

struct report {
    enum report_kind kind;
    int rc;
    uint32_t value; /* HELLO, GONE: a slot; DONE: of the order; MAD: its number */
    struct sw_cm_path path;
    uint8_t mad[SW_MAD_BYTES];
};

/* In a network namespace of the test's own with a loopback; 77: there is none. */
int enter_namespace(void);

/* MEMBER_STRANGER in the environment: in a user namespace of its own, so nobody may look into it.
 */
struct member member_start(void);
void member_stop(struct member *member);
void member_kill(struct member *member);
/* What it reports to an order, rc too. MADs that come before it are a failure. */
struct report member_do(struct member *member, const struct order *order);
struct report member_next(struct member *member);
/* Fails, and says what came in place of what was awaited. */
void member_fail_with(const struct member *member, const struct report *report);
/* Nothing is reported for some milliseconds. */
void member_is_quiet(struct member *member);

struct in6_addr address(const char *text); /* IPv4 is mapped */
/* -1: failed as *rc says */
int member_claim(struct member *member, const struct sw_cm_port_name *name, uint16_t *port);

#endif
