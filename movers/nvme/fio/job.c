/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/fio/job.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>

#include <nvme/types.h>

enum { BLOCKS_MAX = 65536, ONCS_DSM = 4 };

struct list {
    struct nvj_request *first, *last;
};

struct nvj_job {
    struct sw_nvme_controller *controller;
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem, *ranges; /* of data, and of what trims say */
    struct nvj_namespace target;
    uint32_t blocks_max; /* of one command */
    struct nvj_request *requests;
    struct list unsent, ended;
    uint32_t requests_count, ended_count;
};

static void append_request(struct list *list, struct nvj_request *request)
{
    request->next = NULL;
    if (list->first)
        list->last->next = request;
    else
        list->first = request;
    list->last = request;
}

static struct nvj_request *list_take(struct list *list)
{
    struct nvj_request *request = list->first;
    if (request)
        list->first = request->next;
    return request;
}

static void end_request(struct nvj_request *request)
{
    append_request(&request->job->ended, request);
    request->job->ended_count++;
}

static void pump_queue(struct nvj_job *job);

static void command_done(void *arg, const struct sw_nvme_result *result)
{
    struct nvj_request *request = arg;
    request->in_flight--;
    if (result->status) {
        if (!request->result.status)
            request->result = *result;
        request->all_sent = true; /* what is left of it would be in vain */
    }
    if (!request->in_flight && !request->is_unsent)
        end_request(request);
    pump_queue(request->job);
}

/* The next command of a request. */
static enum sw_nvme_status job_send_command(struct nvj_request *request)
{
    struct nvj_job *job = request->job;
    const uint32_t block = job->target.ns.block_bytes;
    const uint64_t left = request->blocks - request->blocks_sent;
    const bool has_data = request->kind == NVJ_READ || request->kind == NVJ_WRITE;
    const uint32_t blocks = has_data && left > job->blocks_max ? job->blocks_max : (uint32_t)left;
    struct sw_nvme_io io = {.nsid = job->target.ns.nsid,
                            .lba = request->lba + request->blocks_sent,
                            .blocks = blocks,
                            .done = command_done,
                            .arg = request};
    enum sw_nvme_status status = SW_NVME_INVALID;
    if (has_data) {
        io.data = request->data + request->blocks_sent * block;
        io.bytes = blocks * block;
        io.mem = job->mem;
        io.flags = request->flags;
        status = request->kind == NVJ_READ ? sw_nvme_read(job->queue, &io)
                                           : sw_nvme_write(job->queue, &io);
    } else if (request->kind == NVJ_FLUSH) {
        status = sw_nvme_flush(job->queue, &io);
    } else if (request->range && left <= UINT32_MAX) {
        *request->range = (struct sw_nvme_range){.blocks = htole32(blocks), .lba = htole64(io.lba)};
        io.data = request->range;
        io.bytes = sizeof(*request->range);
        io.mem = job->ranges;
        status = sw_nvme_dsm(job->queue, &io);
    }
    if (!status) {
        request->in_flight++;
        request->blocks_sent += blocks;
        request->all_sent = request->blocks_sent >= request->blocks;
    }
    return status;
}

/* Sends what the queue has room for. */
static void pump_queue(struct nvj_job *job)
{
    while (job->unsent.first) {
        struct nvj_request *request = job->unsent.first;
        const enum sw_nvme_status status =
            request->all_sent ? SW_NVME_OK : job_send_command(request);
        if (status == SW_NVME_AGAIN)
            return;
        if (status) {
            request->result = (struct sw_nvme_result){.status = status};
            request->all_sent = true;
        }
        if (!request->all_sent)
            continue;
        list_take(&job->unsent);
        request->is_unsent = false;
        if (!request->in_flight)
            end_request(request);
    }
}

void nvj_submit(struct nvj_request *request)
{
    request->result = (struct sw_nvme_result){0};
    request->blocks_sent = 0;
    request->in_flight = 0;
    request->all_sent = false;
    request->is_unsent = true;
    append_request(&request->job->unsent, request);
    pump_queue(request->job);
}

uint32_t nvj_wait(struct nvj_job *job, uint32_t least, uint64_t deadline_ns)
{
    if (!job->ended_count || !least)
        sw_nvme_queue_poll(job->queue);
    while (job->ended_count < least && !sw_nvme_queue_wait(job->queue, deadline_ns)) {
    }
    return job->ended_count;
}

struct nvj_request *nvj_take(struct nvj_job *job)
{
    struct nvj_request *request = list_take(&job->ended);
    job->ended_count -= request != NULL;
    return request;
}

struct nvj_request *nvj_request_at(struct nvj_job *job, uint32_t index)
{
    return index < job->requests_count ? &job->requests[index] : NULL;
}

const char *nvj_text_of(const struct sw_nvme_result *result)
{
    return result->status == SW_NVME_FAILED ? sw_nvme_code_text(result->nvme_status)
                                            : sw_nvme_status_text(result->status);
}

static enum sw_nvme_status fail_job(struct sw_nvme_error *error, enum sw_nvme_status status,
                                    const char *what, const char *why)
{
    error->status = status;
    snprintf(error->text, sizeof(error->text), "%s: %s", what, why);
    return status;
}

static enum sw_nvme_status job_find_namespace(struct sw_nvme_controller *controller, uint32_t nsid,
                                              struct nvj_namespace *out,
                                              struct sw_nvme_error *error)
{
    struct sw_nvme_result result;
    struct nvme_id_ctrl *id = calloc(1, sizeof(*id));
    uint32_t count = 0;
    char what[32];
    if (!id)
        return fail_job(error, SW_NVME_NO_MEMORY, "identify", "no memory");
    enum sw_nvme_status status = SW_NVME_OK;
    if (!nsid)
        status = sw_nvme_list(controller, 0, &nsid, 1, &count, &result);
    if (!status && !nsid) {
        free(id);
        return fail_job(error, SW_NVME_UNSUPPORTED, "the subsystem", "it has no namespace");
    }
    if (!status)
        status = sw_nvme_namespace_of(controller, nsid, &out->ns, &result);
    if (!status)
        status = sw_nvme_identify(controller, NVME_IDENTIFY_CNS_CTRL, 0, id, &result);
    out->trims = le16toh(id->oncs) & ONCS_DSM;
    free(id);
    snprintf(what, sizeof(what), "namespace %u", nsid);
    if (status)
        return fail_job(error, status, what, nvj_text_of(&result));
    if (out->ns.metadata_bytes)
        return fail_job(error, SW_NVME_UNSUPPORTED, what, "it has metadata");
    return SW_NVME_OK;
}

enum sw_nvme_status nvj_ask(const struct nvj_target *target, struct nvj_namespace *out,
                            struct sw_nvme_error *error)
{
    struct sw_nvme_controller *controller;
    enum sw_nvme_status status = sw_nvme_connect(&target->options, error, &controller);
    if (status)
        return status;
    status = job_find_namespace(controller, target->nsid, out, error);
    sw_nvme_disconnect(controller);
    return status;
}

static enum sw_nvme_status make_requests(struct nvj_job *job, uint32_t count,
                                         struct sw_nvme_error *error)
{
    job->requests = calloc(count, sizeof(*job->requests));
    if (!job->requests)
        return fail_job(error, SW_NVME_NO_MEMORY, "requests", "no memory");
    job->requests_count = count;
    const size_t bytes = count * sizeof(struct sw_nvme_range);
    const enum sw_nvme_status status =
        job->target.trims ? sw_nvme_mem_alloc(job->controller, bytes, &job->ranges) : SW_NVME_OK;
    if (status)
        return fail_job(error, status, "ranges to deallocate", sw_nvme_status_text(status));
    struct sw_nvme_range *ranges = job->ranges ? sw_nvme_mem_data(job->ranges) : NULL;
    for (uint32_t i = 0; i < count; i++)
        job->requests[i] = (struct nvj_request){.job = job, .range = ranges ? &ranges[i] : NULL};
    return SW_NVME_OK;
}

static enum sw_nvme_status fill_job(struct nvj_job *job, const struct nvj_target *target,
                                    uint32_t requests, bool polls, struct sw_nvme_error *error)
{
    struct sw_nvme_info info;
    enum sw_nvme_status status = sw_nvme_connect(&target->options, error, &job->controller);
    if (status)
        return status;
    status = job_find_namespace(job->controller, target->nsid, &job->target, error);
    if (status)
        return status;
    sw_nvme_info_of(job->controller, &info);
    job->blocks_max = info.transfer_max_bytes / job->target.ns.block_bytes;
    if (!job->blocks_max)
        return fail_job(error, SW_NVME_UNSUPPORTED, "the controller",
                        "it takes less than a block in one command");
    if (job->blocks_max > BLOCKS_MAX)
        job->blocks_max = BLOCKS_MAX;
    status = make_requests(job, requests, error);
    return status ? status
                  : sw_nvme_queue_open(job->controller, polls ? SW_NVME_SPIN_FOREVER : 0, error,
                                       &job->queue);
}

enum sw_nvme_status nvj_open(const struct nvj_target *target, uint32_t requests, bool polls,
                             struct sw_nvme_error *error, struct nvj_job **out)
{
    struct nvj_job *job = calloc(1, sizeof(*job));
    if (!job)
        return fail_job(error, SW_NVME_NO_MEMORY, "a job", "no memory");
    const enum sw_nvme_status status = fill_job(job, target, requests, polls, error);
    if (status)
        nvj_close(job);
    else
        *out = job;
    return status;
}

/* Each command that is in flight ends here, and with it what waits for room. */
static void close_queue(struct nvj_job *job)
{
    sw_nvme_queue_close(job->queue);
    job->queue = NULL;
}

void nvj_close(struct nvj_job *job)
{
    if (!job)
        return;
    close_queue(job);
    sw_nvme_mem_release(job->mem);
    sw_nvme_mem_release(job->ranges);
    if (job->controller)
        sw_nvme_disconnect(job->controller);
    free(job->requests);
    free(job);
}

const struct nvj_namespace *nvj_namespace_of(const struct nvj_job *job)
{
    return &job->target;
}

uint32_t nvj_reconnects(struct nvj_job *job)
{
    struct sw_nvme_info info;
    sw_nvme_info_of(job->controller, &info);
    return info.reconnects;
}

void *nvj_alloc(struct nvj_job *job, size_t bytes)
{
    return sw_nvme_mem_alloc(job->controller, bytes, &job->mem) ? NULL : sw_nvme_mem_data(job->mem);
}

void nvj_free(struct nvj_job *job)
{
    if (job->queue && sw_nvme_queue_used(job->queue))
        close_queue(job);
    sw_nvme_mem_release(job->mem);
    job->mem = NULL;
}
