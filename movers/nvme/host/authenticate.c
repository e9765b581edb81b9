/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/authenticate.h"

#include <stdlib.h>
#include <string.h>

#include "nvme/host/completion.h"
#include "nvme/host/controller.h"
#include "nvme/host/dhchap.h"
#include "nvme/host/queue.h"
#include "nvme/host/request.h"
#include "nvme/host/send.h"
#include "nvme/host/setup.h"
#include "nvme/wire/sgl.h"

enum { SPSP = 1 << 16 | 1 << 8, RECEIVE_BYTES = NVH_SCRATCH_BYTES };

struct nvh_auth {
    struct nvh_dhchap chap;
    bool receives; /* the command that is under way */
};

enum sw_nvme_status nvh_secrets_take(struct sw_nvme_controller *controller,
                                     const struct sw_nvme_options *options,
                                     struct sw_nvme_error *error)
{
    struct nvh_secrets *secrets = calloc(1, sizeof(*secrets));
    const char *wrong = NULL;
    controller->secrets = secrets;
    if (!secrets)
        return nvh_error(error, SW_NVME_NO_MEMORY, "no memory for secrets");
    secrets->has_host = options->dhchap_secret;
    secrets->has_controller = options->dhchap_ctrl_secret;
    if (secrets->has_controller && !secrets->has_host)
        return nvh_error(error, SW_NVME_INVALID,
                         "dhchap_ctrl_secret goes with a dhchap_secret of the host");
    if (secrets->has_host)
        wrong = nvf_secret_parse(options->dhchap_secret, &secrets->host);
    if (!wrong && secrets->has_controller)
        wrong = nvf_secret_parse(options->dhchap_ctrl_secret, &secrets->controller);
    if (wrong)
        return nvh_error(error, SW_NVME_INVALID, "a secret is not valid: %s", wrong);
    return SW_NVME_OK;
}

void nvh_secrets_forget(struct sw_nvme_controller *controller)
{
    if (controller->secrets)
        explicit_bzero(controller->secrets, sizeof(*controller->secrets));
    free(controller->secrets);
    controller->secrets = NULL;
}

void nvh_auth_stop(struct sw_nvme_queue *queue)
{
    if (queue->auth)
        nvh_dhchap_clear(&queue->auth->chap);
    free(queue->auth);
    queue->auth = NULL;
}

/* Nothing mends it but another secret, so a controller that was there is not tried again. */
static void authenticate_give_up(struct sw_nvme_queue *queue)
{
    if (!queue->qid)
        queue->controller->gives_up = true;
}

static void explain_end(struct sw_nvme_queue *queue)
{
    const struct nvh_dhchap *chap = &queue->auth->chap;
    const char *where = queue->controller->where;
    if (chap->is_proof_false)
        nvh_queue_break(queue, SW_NVME_AUTHENTICATION,
                        "%s does not prove that it knows the controller's secret", where);
    else
        nvh_queue_break(queue, SW_NVME_AUTHENTICATION, "authentication on queue %u, says %s: %s",
                        queue->qid, chap->is_their_word ? where : "this host",
                        nvf_auth_fault_text(chap->fault));
    authenticate_give_up(queue);
}

static void command_answered(void *arg, const struct sw_nvme_result *result);

/* One command of the exchange. */
static void authenticate_send_command(struct sw_nvme_queue *queue)
{
    struct nvh_auth *auth = queue->auth;
    uint8_t message[NVF_AUTH_MESSAGE_MAX];
    uint32_t len = RECEIVE_BYTES;
    auth->receives = !nvh_dhchap_sends(&auth->chap);
    memset(queue->scratch, 0, NVH_SCRATCH_BYTES);
    if (!auth->receives) {
        len = (uint32_t)nvh_dhchap_next(&auth->chap, message);
        memcpy(queue->scratch, message, len);
    }
    const enum nvf_type type = auth->receives ? NVF_AUTH_RECEIVE : NVF_AUTH_SEND;
    const int taken = nvh_slot_take(queue, true);
    if (taken < 0)
        return nvh_queue_break(queue, SW_NVME_SYSTEM, "no slot is left for authentication");
    struct nvf_sqe sqe = {.opcode = NVF_OPCODE,
                          .nsid = htole32(type),
                          .cdw10 = htole32((uint32_t)NVF_AUTH_PROTOCOL << 24 | SPSP),
                          .cdw11 = htole32(len)};
    nvf_sgl_set_keyed(&sqe, (uintptr_t)queue->scratch, len, queue->scratch_mr->rkey, false);
    queue->sqes[taken] = sqe;
    queue->slots[taken].done = command_answered;
    queue->slots[taken].result.arg = queue;
    nvh_slot_submit(queue, (uint32_t)taken);
}

static void command_answered(void *arg, const struct sw_nvme_result *result)
{
    struct sw_nvme_queue *queue = arg;
    struct nvh_dhchap *chap = &queue->auth->chap;
    if (result->status) {
        nvh_queue_break(queue, SW_NVME_FAILED, "%s fails at authentication of queue %u: %s",
                        queue->controller->where, queue->qid,
                        sw_nvme_code_text(result->nvme_status));
        queue->error.nvme_status = result->nvme_status;
        return;
    }
    if (queue->auth->receives) {
        uint8_t message[NVF_AUTH_MESSAGE_MAX]; /* the controller may write to the scratch again */
        memcpy(message, queue->scratch, sizeof(message));
        nvh_dhchap_take(chap, message, sizeof(message));
    }
    if (!nvh_dhchap_has_ended(chap))
        return authenticate_send_command(queue);
    if (chap->state == NVH_DHCHAP_FAILED)
        return explain_end(queue);
    nvh_auth_stop(queue);
    nvh_queue_up(queue);
}

void nvh_auth_cut(struct sw_nvme_queue *queue)
{
    if (!queue->auth)
        return;
    nvh_queue_drain(queue); /* the reason may have come just before the end */
    if (!queue->is_broken && queue->auth && queue->auth->chap.state == NVH_DHCHAP_FAILED)
        explain_end(queue);
}

void nvh_auth_start(struct sw_nvme_queue *queue, uint32_t connect_result)
{
    struct sw_nvme_controller *c = queue->controller;
    const char *wrong = NULL;
    if (connect_result & NVF_CONNECT_ASCR)
        wrong = "wants secure concatenation, which this host does not know";
    else if (connect_result & NVF_CONNECT_ATR && !c->secrets->has_host)
        wrong = "wants authentication: give the host's secret (dhchap-secret)";
    else if (!(connect_result & NVF_CONNECT_ATR) && c->secrets->has_controller &&
             strcmp(c->subsysnqn, NVF_DISCOVERY_NQN) != 0)
        wrong = "does not authenticate, but the controller's secret is to be proved";
    if (wrong) {
        nvh_queue_break(queue, SW_NVME_AUTHENTICATION, "%s %s", c->where, wrong);
        return authenticate_give_up(queue);
    }
    if (!(connect_result & NVF_CONNECT_ATR))
        return nvh_queue_up(queue);
    queue->auth = calloc(1, sizeof(*queue->auth));
    if (!queue->auth)
        return nvh_queue_break(queue, SW_NVME_NO_MEMORY, "no memory for authentication");
    nvh_dhchap_init(&queue->auth->chap, c->secrets, c->hostnqn, c->subsysnqn, queue->qid + 1u);
    authenticate_send_command(queue);
}
