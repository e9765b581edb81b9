/* SPDX-License-Identifier: BSD-2-Clause */
/* Hosts for tests of the target's model, with the test in the place of the network. */
#ifndef TEST_MODEL_HOST_H
#define TEST_MODEL_HOST_H

#include "nvme/target/model/port.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/model/target.h"

enum { DEPTH = 32, IN_CAPSULE = 4096, HOST_BYTES = 1 << 21, WAITS = 0xffff };
enum { CC_ENABLED = 4 << 20 | 6 << 16 | 1 };
#define NQN "nqn.2026-01.test:model"
#define HOST_NQN "nqn.2026-01.test:host"

extern struct nvt_target target;
extern struct nvt_subsystem *subsystem;
extern struct nvt_port *port;
extern struct nvt_queue admin, io_queue; /* of one host */
extern uint8_t host[HOST_BYTES], capsule[IN_CAPSULE];
extern struct nvf_cqe response; /* the last */
extern int answers, cuts, drops;
extern bool holds, holds_answers; /* fetches, or answers, wait for the test */
extern bool slices_wait;          /* as long operations do */
extern struct nvt_request *fetching, *answering;

/* A target with a subsystem, which has a namespace in memory; no host is connected. */
int setup(void **state);
int teardown(void **state);
/* Frees those of a connection that has ended. */
void free_unanswered(void);

void add_ram(uint64_t bytes);
void make_queue(struct nvt_queue *queue, uint16_t qid);
void make_queue_from(struct nvt_queue *queue, uint16_t qid, const char *address);
/* Says a command; the status of its response, or WAITS. */
uint16_t say_with(struct nvt_queue *queue, const struct nvf_sqe *sqe, uint32_t data_bytes);
uint16_t say(struct nvt_queue *queue, const struct nvf_sqe *sqe);
/* The status of the response `ago` responses before the last. */
uint16_t status_before(int ago);
struct nvf_sqe command(uint8_t opcode, uint32_t nsid, uint64_t addr, uint32_t len_bytes);
struct nvf_sqe transfer(uint8_t opcode, uint64_t first, uint16_t count, uint64_t addr);
/* The last byte of its host ID tells a host from others. */
uint16_t connect_named(struct nvt_queue *queue, const char *nqn, uint16_t cntlid, uint8_t host_id,
                       const char *host_nqn);
uint16_t connect_as(struct nvt_queue *queue, const char *nqn, uint16_t cntlid, uint8_t host_id);
uint16_t connect_as_host(struct nvt_queue *queue, const char *nqn, uint16_t cntlid);
uint16_t set_config(struct nvt_queue *queue, uint32_t cc);
/* Connects and enables. */
void begin_as(struct nvt_queue *admin_queue, struct nvt_queue *queue, uint8_t host_id);
void begin(void);

#endif
