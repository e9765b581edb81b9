/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One job of fio: a controller with one queue, and requests of any length, which go in as many
 * commands as the controller wants. A request waits here while the queue is full. One thread uses
 * a job. Knows nothing of fio's headers.
 */
#ifndef SW_MOVERS_NVME_JOB_H
#define SW_MOVERS_NVME_JOB_H

#include "sidewire/nvme.h"

struct nvj_job;

enum nvj_kind { NVJ_READ, NVJ_WRITE, NVJ_FLUSH, NVJ_TRIM };

struct nvj_request {
    struct nvj_job *job;
    void *arg; /* the caller's */
    enum nvj_kind kind;
    uint32_t flags; /* enum sw_nvme_flags, of a write */
    uint64_t lba, blocks;
    uint8_t *data;                /* of nvj_alloc() */
    struct sw_nvme_result result; /* of the first command that failed */

    /* The job's own. */
    uint64_t blocks_sent;
    uint32_t in_flight;          /* commands */
    bool is_unsent, all_sent;    /* it waits in `unsent`; no command is left to be sent */
    struct sw_nvme_range *range; /* of a trim */
    struct nvj_request *next;    /* in `unsent` or `ended` */
};

struct nvj_target {
    struct sw_nvme_options options;
    uint32_t nsid; /* 0: the first */
};

struct nvj_namespace {
    struct sw_nvme_namespace ns;
    bool trims; /* the controller has dataset management */
};

/* Connects, asks, and disconnects: nothing is left that a fork could break. */
enum sw_nvme_status nvj_ask(const struct nvj_target *target, struct nvj_namespace *out,
                            struct sw_nvme_error *error);

enum sw_nvme_status nvj_open(const struct nvj_target *target, uint32_t requests, bool polls,
                             struct sw_nvme_error *error, struct nvj_job **job);
void nvj_close(struct nvj_job *job);
const struct nvj_namespace *nvj_namespace_of(const struct nvj_job *job);
/* How often the connection was lost and came back. */
uint32_t nvj_reconnects(struct nvj_job *job);

/* The memory of all requests; NULL where there is none. */
void *nvj_alloc(struct nvj_job *job, size_t bytes);
/* Requests that are under way end first, with an error if need be. */
void nvj_free(struct nvj_job *job);

struct nvj_request *nvj_request_at(struct nvj_job *job, uint32_t index);
/* The request ends with its result, whatever that is: nvj_take() gives it back. */
void nvj_submit(struct nvj_request *request);
/* Until `least` requests have ended or the deadline has passed. Returns how many have ended. */
uint32_t nvj_wait(struct nvj_job *job, uint32_t least, uint64_t deadline_ns);
/* A request that has ended, oldest first; NULL: none. */
struct nvj_request *nvj_take(struct nvj_job *job);
const char *nvj_text_of(const struct sw_nvme_result *result);

#endif
