/* SPDX-License-Identifier: BSD-2-Clause */
/* A played target, and a controller and a queue of the host that is tested against it. */
#ifndef SW_TESTS_NVME_HOST_WORLD_H
#define SW_TESTS_NVME_HOST_WORLD_H

#include "sidewire/nvme.h"
#include "test_host_target.h"

enum { BYTES = 65536, WAIT_MS = 60000 }; /* patience, on a busy machine too */

struct world {
    struct played *target;
    struct sw_nvme_options options;
    struct sw_nvme_error error;
    struct sw_nvme_controller *controller;
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem;
    uint8_t *data;
};

/* Before and after each case: the target, and options to connect to it. */
int world_set_up(void **state);
int world_tear_down(void **state);
#define CASE(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)

/* Connects, and opens a queue. */
void world_bring_up(struct world *w);

/* sw_nvme_read() and its like. */
typedef enum sw_nvme_status submit(struct sw_nvme_queue *queue, const struct sw_nvme_io *io);
/* One command, and how it ended. */
struct sw_nvme_result world_run_one(struct world *w, submit *op, uint64_t lba, uint32_t blocks);
void world_fill(uint8_t *data, size_t bytes, unsigned seed);
/* Writes and reads of each way that data moves, and what came of them. */
void world_check_moves(struct world *w);

/* How many of some commands have ended, and how. */
struct tally {
    struct world *w;
    unsigned ended, submitted, ok, maybe, not_done, other;
    bool resubmits;
};
void tally_submit(struct world *w, struct tally *tally, unsigned count);
void tally_wait(struct world *w, struct tally *tally);

#endif
