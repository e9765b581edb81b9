/* SPDX-License-Identifier: BSD-2-Clause */
/* Two agents of one process that are polled in turn: what the tests of the engine share. */
#ifndef SW_TESTS_MOVERS_TRANSFER_WORLD_H
#define SW_TESTS_MOVERS_TRANSFER_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sidewire/transfer.h"

enum { CACHE = 4 << 20, PATIENCE_MS = 20000, CARD_MAX = 4096 };

struct side {
    struct sw_xfer_agent *agent;
    struct sw_xfer_memory *memory;
    uint8_t *data, *model;
};

struct world {
    struct side here, there; /* `there` is reached */
    struct sw_xfer_lease *lease;
    uint8_t card[CARD_MAX];
    size_t card_bytes;
    struct sw_xfer_peer *peer;
    struct sw_xfer_blocks *local, *remote;
};

/* Fails with its text. */
void must(enum sw_xfer_status status);
/* Leases memory of the side that is reached. */
struct sw_xfer_lease *grant(struct world *w, struct sw_xfer_lease_options options);
/* Whether the devices are: then a window is of one rail, and a lease of several is none. */
bool is_iwarp(void);
/* Makes the card of w->lease. */
void make_card(struct world *w);
void poll_both(struct world *w);
/* Until it is live or gone. */
enum sw_xfer_peer_state settle(struct world *w, struct sw_xfer_peer *peer);
struct sw_xfer_peer *connect_to(struct world *w);
/* Until it has ended. */
enum sw_xfer_state end_of(struct world *w, const struct sw_xfer_transfer *transfer);
struct sw_xfer_info info_of(const struct sw_xfer_transfer *transfer);
int set_up(void **state);
/* The side that is reached has two rails. */
int set_up_rails(void **state);
int tear_down(void **state);
void describe(struct world *w, const struct sw_xfer_extent *local, uint32_t local_count,
              const struct sw_xfer_extent *remote, uint32_t remote_count);
struct sw_xfer_transfer *prepare(struct world *w, enum sw_xfer_op op);
/* And the blocks. */
void release(struct world *w, struct sw_xfer_transfer *transfer);
/* Both memories are what their models are. */
void check_both(const struct world *w);
/* So many blocks of one length, one behind the other on both sides. */
void describe_row(struct world *w, uint64_t bytes, uint64_t count);
struct sw_xfer_transfer *prepare_notice(struct world *w);
void post_notice(struct sw_xfer_transfer *transfer, const char *text);
/* The number that the other side has for this one. */
uint64_t visitor_of(struct world *w);

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
