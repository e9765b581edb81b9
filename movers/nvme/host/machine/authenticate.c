/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/machine/authenticate.h"

#include <assert.h>
#include <string.h>

#include "nvme/host/machine/call.h"
#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/queue.h"
#include "nvme/host/machine/setup.h"
#include "nvme/wire/dhchap.h"
#include "nvme/wire/sgl.h"

enum { SPSP = 1 << 16 | 1 << 8, RECEIVE_BYTES = NVH_SCRATCH_BYTES };

void nvh_auth_stop(struct sw_nvme_queue *queue)
{
    queue->port->auth_end(queue);
    queue->auth = (struct nvh_auth){0};
}

/* Nothing mends it but another secret, so a controller that was there is not tried again. */
static void authenticate_give_up(struct sw_nvme_queue *queue)
{
    if (!queue->qid)
        queue->controller->gives_up = true;
}

static void explain_end(struct sw_nvme_queue *queue)
{
    const struct nvh_auth *auth = &queue->auth;
    const char *where = queue->controller->where;
    if (auth->is_proof_false)
        nvh_queue_break(queue, SW_NVME_AUTHENTICATION,
                        "%s does not prove that it knows the controller's secret", where);
    else
        nvh_queue_break(queue, SW_NVME_AUTHENTICATION, "authentication on queue %u, says %s: %s",
                        queue->qid, auth->is_their_word ? where : "this host", auth->fault);
    authenticate_give_up(queue);
}

static void command_answered(void *arg, const struct sw_nvme_result *result);

/* One command of the exchange. */
static void authenticate_send_command(struct sw_nvme_queue *queue)
{
    struct nvh_auth *auth = &queue->auth;
    uint8_t message[NVF_AUTH_MESSAGE_MAX];
    uint32_t len = RECEIVE_BYTES;
    assert(auth->is_under_way && !auth->has_ended);
    auth->receives = !auth->sends;
    memset(queue->scratch, 0, NVH_SCRATCH_BYTES);
    if (!auth->receives) {
        len = (uint32_t)queue->port->auth_send(queue, message);
        memcpy(queue->scratch, message, len);
    }
    const enum nvf_type type = auth->receives ? NVF_AUTH_RECEIVE : NVF_AUTH_SEND;
    struct nvf_sqe sqe = {.opcode = NVF_OPCODE,
                          .nsid = htole32(type),
                          .cdw10 = htole32((uint32_t)NVF_AUTH_PROTOCOL << 24 | SPSP),
                          .cdw11 = htole32(len)};
    nvf_sgl_set_keyed(&sqe, (uintptr_t)queue->scratch, len, queue->scratch_key, false);
    if (!nvh_own_command(queue, &sqe, command_answered, queue))
        nvh_queue_break(queue, SW_NVME_SYSTEM, "no slot is left for authentication");
}

static void command_answered(void *arg, const struct sw_nvme_result *result)
{
    struct sw_nvme_queue *queue = arg;
    if (result->status) {
        nvh_queue_break(queue, SW_NVME_FAILED, "%s fails at authentication of queue %u: %s",
                        queue->controller->where, queue->qid,
                        sw_nvme_code_text(result->nvme_status));
        queue->error.nvme_status = result->nvme_status;
        return;
    }
    if (queue->auth.receives) {
        uint8_t message[NVF_AUTH_MESSAGE_MAX]; /* the controller may write to the scratch again */
        memcpy(message, queue->scratch, sizeof(message));
        queue->port->auth_receive(queue, message, sizeof(message));
    }
    if (!queue->auth.has_ended)
        return authenticate_send_command(queue);
    if (queue->auth.has_failed)
        return explain_end(queue);
    nvh_auth_stop(queue);
    nvh_queue_up(queue);
}

void nvh_auth_cut(struct sw_nvme_queue *queue)
{
    if (!queue->auth.is_under_way)
        return;
    queue->port->drain(queue); /* the reason may have come just before the end */
    if (!queue->is_broken && queue->auth.has_failed)
        explain_end(queue);
}

void nvh_auth_start(struct sw_nvme_queue *queue, uint32_t connect_result)
{
    struct sw_nvme_controller *c = queue->controller;
    const char *wrong = NULL;
    if (connect_result & NVF_CONNECT_ASCR)
        wrong = "wants secure concatenation, which this host does not know";
    else if (connect_result & NVF_CONNECT_ATR && !c->has_secret)
        wrong = "wants authentication: give the host's secret (dhchap-secret)";
    else if (!(connect_result & NVF_CONNECT_ATR) && c->wants_proof &&
             strcmp(c->subsysnqn, NVF_DISCOVERY_NQN) != 0)
        wrong = "does not authenticate, but the controller's secret is to be proved";
    if (wrong) {
        nvh_queue_break(queue, SW_NVME_AUTHENTICATION, "%s %s", c->where, wrong);
        return authenticate_give_up(queue);
    }
    if (!(connect_result & NVF_CONNECT_ATR))
        return nvh_queue_up(queue);
    queue->auth.is_under_way = queue->port->auth_start(queue);
    if (!queue->auth.is_under_way)
        return nvh_queue_break(queue, SW_NVME_NO_MEMORY, "no memory for authentication");
    authenticate_send_command(queue);
}
