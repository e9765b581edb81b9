/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A simulated server and the way there, as the port of the client's machine: requests wait in a
 * queue, are executed on a medium one by one, and leave their order where a device may. Nothing
 * happens by itself: the test calls device_step().
 */
#ifndef SW_TEST_PMEM_DEVICE_H
#define SW_TEST_PMEM_DEVICE_H

#include "../log/medium.h"
#include "pmem/client/machine.h"

enum { DEVICE_QUEUE = 256, DEVICE_WRITE_MAX = 512 };

struct device_entry {
    struct pmc_request request;
    struct sw_pmem_op op;
    bool is_done;
    uint8_t data[DEVICE_WRITE_MAX]; /* of one whose sender has gone */
};

/* What a device may have. */
struct device_kind {
    bool has_flush, has_atomic;
    bool ignores_fences;    /* a fault on purpose: WRITEs pass FLUSHes that they have to wait for */
    bool publishes_at_once; /* likewise: an ATOMIC WRITE does not wait for FLUSHes */
};

struct device {
    struct device_kind kind;
    struct medium medium;
    uint64_t *seed;
    uint64_t instance;    /* of the server: another one each time it starts */
    bool is_away;         /* the server, or the way to it */
    bool is_asked;        /* for a connection */
    struct sw_pmem *pmem; /* that has it; NULL: none */
    struct device_entry queue[DEVICE_QUEUE];
    unsigned first, count;
    bool is_stale; /* the queue is what an earlier connection has left on its way */
    uint64_t completions[DEVICE_QUEUE];
    unsigned completion_first, completion_count;
    /* Told of each store, before it is made. */
    void (*stores)(void *arg, uint64_t offset);
    void *arg;
};

/* There is one at a time. */
extern struct device the_device;
extern const struct pmc_port device_port;

/* Executes a request, answers one, or lets a connection come about. */
void device_step(void);
/* The connection ends; some of what is under way still happens, and some of it later. */
void device_disconnect(const char *why);
/* The server begins anew, with the memory as it is. */
void device_restart(void);
void device_cut_power(void);
/* Time goes on, so that what waits for it happens. */
void device_wait_ms(uint64_t ms);

#endif
