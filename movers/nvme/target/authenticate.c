/* SPDX-License-Identifier: BSD-2-Clause */
/* Authentication of queues: whose is due, its commands, and how long it may take. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "nvme/target/auth.h"
#include "nvme/target/model.h"

enum { LIMIT_MS = 30000, NS_PER_MS = 1000000, SPSP = 1 };

/* Has a policy of its own, as that of the host may change meanwhile. */
struct nvt_queue_auth {
    struct nvt_auth_policy policy;
    struct nvt_auth machine;
    uint64_t limit_ns; /* for what is not at rest */
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
    queue->auth->limit_ns = queue->target->now_ns + (uint64_t)LIMIT_MS * NS_PER_MS;
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

void nvt_auth_end(struct nvt_queue *queue)
{
    if (!queue->auth)
        return;
    nvt_auth_clear(&queue->auth->machine);
    OPENSSL_cleanse(queue->auth, sizeof(*queue->auth));
    free(queue->auth);
    queue->auth = NULL;
}

bool nvt_auth_is_due(const struct nvt_queue *queue)
{
    return queue->auth && !queue->auth->machine.authenticated;
}

bool nvt_auth_is_late(const struct nvt_queue *queue, uint64_t now_ns)
{
    return queue->auth && now_ns > queue->auth->limit_ns &&
           (nvt_auth_is_due(queue) || !nvt_auth_is_at_rest(&queue->auth->machine));
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
    if (!*bytes) {
        request->error_offset = 44;
        return NVME_SC_INVALID_FIELD | NVME_SC_DNR;
    }
    return 0;
}

/* The connection of who has failed ends; on the admin queue, all of the controller's. */
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

void nvt_auth_run_send(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    struct nvt_auth *machine = &queue->auth->machine;
    const bool begins = machine->state == NVT_AUTH_DONE; /* anew */
    const uint16_t status = nvt_auth_send(machine, request->data, request->data_bytes);
    if (begins)
        set_limit(queue);
    nvt_request_finish(request, status);
    end_failed(queue);
}

void nvt_auth_run_receive(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    uint8_t message[NVF_AUTH_MESSAGE_MAX];
    size_t len = 0;
    const uint16_t status =
        nvt_auth_receive(&queue->auth->machine, request->data_bytes, message, &len);
    if (!status)
        nvt_request_put(request, message, len, 0);
    nvt_request_finish(request, status);
    end_failed(queue);
}
