/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/secrets.h"

#include <stdlib.h>
#include <string.h>

#include "nvme/host/controller.h"
#include "nvme/host/dhchap.h"
#include "nvme/host/queue.h"

enum sw_nvme_status nvh_secrets_take(struct nvh_host *host, const struct sw_nvme_options *options,
                                     struct sw_nvme_error *error)
{
    struct nvh_secrets *secrets = calloc(1, sizeof(*secrets));
    const char *wrong = NULL;
    host->secrets = secrets;
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
    host->controller.has_secret = secrets->has_host;
    host->controller.wants_proof = secrets->has_controller;
    return SW_NVME_OK;
}

void nvh_secrets_forget(struct nvh_host *host)
{
    if (host->secrets)
        explicit_bzero(host->secrets, sizeof(*host->secrets));
    free(host->secrets);
    host->secrets = NULL;
}

static void secrets_tell_state(struct sw_nvme_queue *queue)
{
    const struct nvh_dhchap *chap = nvh_link_of(queue)->chap;
    struct nvh_auth *auth = &queue->auth;
    auth->sends = nvh_dhchap_sends(chap);
    auth->has_ended = nvh_dhchap_has_ended(chap);
    auth->has_failed = chap->state == NVH_DHCHAP_FAILED;
    auth->is_proof_false = chap->is_proof_false;
    auth->is_their_word = chap->is_their_word;
    auth->fault = nvf_auth_fault_text(chap->fault);
}

bool nvh_secrets_start(struct sw_nvme_queue *queue)
{
    struct nvh_link *link = nvh_link_of(queue);
    struct sw_nvme_controller *c = queue->controller;
    link->chap = calloc(1, sizeof(*link->chap));
    if (!link->chap)
        return false;
    nvh_dhchap_init(link->chap, nvh_host_of(c)->secrets, c->hostnqn, c->subsysnqn, queue->qid + 1u);
    secrets_tell_state(queue);
    return true;
}

size_t nvh_secrets_send(struct sw_nvme_queue *queue, uint8_t *message)
{
    const size_t len = nvh_dhchap_next(nvh_link_of(queue)->chap, message);
    secrets_tell_state(queue);
    return len;
}

void nvh_secrets_receive(struct sw_nvme_queue *queue, const uint8_t *message, size_t len)
{
    nvh_dhchap_take(nvh_link_of(queue)->chap, message, len);
    secrets_tell_state(queue);
}

void nvh_secrets_end(struct sw_nvme_queue *queue)
{
    struct nvh_link *link = nvh_link_of(queue);
    if (link->chap)
        nvh_dhchap_clear(link->chap);
    free(link->chap);
    link->chap = NULL;
}
