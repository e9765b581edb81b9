/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/authenticate.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "common/time/clock.h"
#include "nvme/target/model/admission.h"
#include "nvme/target/model/auth.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/subsystem.h"
#include "nvme/target/model/worker.h"

enum { LIMIT_MS = 30000, SPSP = 1 };

/* More than any message has. A host may say more, but while its command waits for the worker, it
 * keeps no more than this of the memory that others need. */
enum { DATA_MAX = 4096 };
static_assert((int)DATA_MAX >= (int)NVF_AUTH_MESSAGE_MAX, "room for each message");

/* Has a policy of its own, as that of the host may change meanwhile. */
struct nvt_queue_auth {
    struct nvt_job job;
    struct nvt_auth_policy policy;
    struct nvt_auth machine;
    struct nvt_request *request; /* the worker has its step; NULL: it has none */
    bool is_proven;              /* the machine's word as of its last step */
    bool is_abandoned;           /* the queue has gone meanwhile */
    uint64_t limit_ns;           /* for what is not at rest */
    uint16_t status;             /* of the step, and what the host gets */
    size_t len_bytes;
    uint8_t message[NVF_AUTH_MESSAGE_MAX];
};

int nvt_subsystem_authenticate(struct nvt_subsystem *subsystem, const char *host_nqn,
                               const struct nvt_auth_policy *policy)
{
    struct nvt_host *host = nvt_subsystem_host(subsystem, host_nqn);
    if (!host)
        return -ENOENT;
    host->has_policy = policy;
    OPENSSL_cleanse(&host->policy, sizeof(host->policy));
    if (!policy)
        return 0;
    host->policy = *policy;
    memcpy(host->policy.host_nqn, host->nqn, sizeof(host->nqn));
    memcpy(host->policy.subsystem_nqn, subsystem->nqn, sizeof(subsystem->nqn));
    return 0;
}

static void set_limit(const struct nvt_queue *queue)
{
    queue->auth->limit_ns = queue->target->now_ns + LIMIT_MS * NS_PER_MS;
}

uint16_t nvt_auth_begin(struct nvt_queue *queue, struct nvt_subsystem *subsystem,
                        const char *host_nqn)
{
    const struct nvt_host *host = nvt_subsystem_host(subsystem, host_nqn);
    if (!host || !host->has_policy)
        return 0;
    queue->auth = calloc(1, sizeof(*queue->auth));
    if (!queue->auth)
        return NVF_SPECIFIC(NVME_SC_CONNECT_CTRL_BUSY);
    queue->auth->policy = host->policy;
    nvt_auth_init(&queue->auth->machine, &queue->auth->policy, NULL);
    set_limit(queue);
    return 0;
}

static void free_auth(struct nvt_queue_auth *auth)
{
    nvt_auth_clear(&auth->machine);
    OPENSSL_cleanse(auth, sizeof(*auth));
    free(auth);
}

void nvt_auth_end(struct nvt_queue *queue)
{
    struct nvt_queue_auth *auth = queue->auth;
    queue->auth = NULL;
    if (!auth)
        return;
    if (auth->request && nvt_worker_cancel(queue->target->worker, &auth->job)) {
        nvt_request_finish(auth->request, NVME_SC_ABORT_REQ);
        auth->request = NULL;
    }
    if (auth->request)
        auth->is_abandoned = true;
    else
        free_auth(auth);
}

bool nvt_auth_is_due(const struct nvt_queue *queue)
{
    return queue->auth && !queue->auth->is_proven;
}

bool nvt_auth_is_late(const struct nvt_queue *queue, uint64_t now_ns)
{
    const struct nvt_queue_auth *auth = queue->auth;
    return auth && now_ns > auth->limit_ns &&
           (!auth->is_proven || auth->request || !nvt_auth_is_at_rest(&auth->machine));
}

/* ---- the commands ---- */

uint16_t nvt_auth_measure(struct nvt_request *request, uint64_t *bytes)
{
    const uint32_t cdw10 = le32toh(request->sqe.cdw10);
    if (!request->queue->auth)
        return NVME_SC_INVALID_OPCODE | NVME_SC_DNR;
    *bytes = le32toh(request->sqe.cdw11);
    if (cdw10 >> 24 != NVF_AUTH_PROTOCOL || (cdw10 >> 16 & 0xff) != SPSP ||
        (cdw10 >> 8 & 0xff) != SPSP) {
        request->error_offset = 40;
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    }
    if (!*bytes || *bytes > NVT_TRANSFER_MAX) {
        request->error_offset = 44;
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    }
    if (request->sgl.len_bytes < *bytes)
        return NVME_SC_SGL_INVALID_DATA | NVME_SC_DNR;
    if (*bytes > DATA_MAX)
        *bytes = DATA_MAX;
    return 0;
}

/* The connection of a host that has failed ends; on the admin queue, all of the controller's. */
static void end_failed(struct nvt_queue *queue)
{
    const struct nvt_auth *machine = &queue->auth->machine;
    const struct nvt_target *target = queue->target;
    if (machine->state != NVT_AUTH_FAILED || queue->is_cut)
        return;
    if (target->refused)
        target->refused(queue, nvf_auth_fault_text(machine->fault));
    nvt_ctrl_cut_queue(queue);
}

static void make_step(struct nvt_queue_auth *auth, const struct nvt_request *request)
{
    if (request->direction == NVT_FROM_HOST)
        auth->status = nvt_auth_send(&auth->machine, request->data, request->data_bytes);
    else
        auth->status =
            nvt_auth_receive(&auth->machine, request->data_bytes, auth->message, &auth->len_bytes);
}

static void end_step(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    struct nvt_queue_auth *auth = queue->auth;
    auth->is_proven = auth->machine.authenticated;
    if (auth->is_proven)
        nvt_ctrl_note_proven(queue);
    if (request->direction == NVT_TO_HOST && !auth->status)
        nvt_request_put(request, auth->message, auth->len_bytes, 0);
    nvt_request_finish(request, auth->status);
    end_failed(queue);
}

static void work_on(struct nvt_job *job)
{
    struct nvt_queue_auth *auth = LIST_MEMBER(job, struct nvt_queue_auth, job);
    make_step(auth, auth->request);
}

static void job_done(struct nvt_job *job)
{
    struct nvt_queue_auth *auth = LIST_MEMBER(job, struct nvt_queue_auth, job);
    struct nvt_request *request = auth->request;
    auth->request = NULL;
    if (!auth->is_abandoned)
        return end_step(request);
    free_auth(auth);
    nvt_request_finish(request, NVME_SC_ABORT_REQ);
}

void nvt_auth_run(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    struct nvt_queue_auth *auth = queue->auth;
    if (auth->request) /* one after the other */
        return nvt_request_finish(request, NVME_SC_CMD_SEQ_ERROR | NVME_SC_DNR);
    if (auth->machine.state == NVT_AUTH_DONE && request->direction == NVT_FROM_HOST)
        set_limit(queue); /* anew */
    if (!queue->target->worker || !nvt_auth_is_long(&auth->machine)) {
        make_step(auth, request);
        return end_step(request);
    }
    /* Anybody who knows a host's name may connect in it, but only the host itself gets further. */
    auth->job = (struct nvt_job){.owner = auth->policy.host_nqn,
                                 .is_trusted = queue->qid || auth->is_proven,
                                 .work = work_on,
                                 .done = job_done};
    auth->request = request;
    if (nvt_worker_give(queue->target->worker, &auth->job))
        return;
    auth->request = NULL;
    nvt_request_finish(request, NVME_SC_CMD_INTERRUPTED); /* the host may try again */
}
