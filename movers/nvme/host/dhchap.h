/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The host's side of DH-HMAC-CHAP on one queue (NVM Express Base 2.0 s8.13.5). A machine: gives out
 * data of Authentication Send, and takes that of Authentication Receive.
 */
#ifndef SW_MOVERS_NVME_HOST_DHCHAP_H
#define SW_MOVERS_NVME_HOST_DHCHAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/wire/dhchap_crypto.h"

struct nvh_secrets {
    struct nvf_secret host, controller;
    bool has_host, has_controller; /* with the latter, the controller has to prove itself */
};

enum nvh_dhchap_state {
    NVH_DHCHAP_NEGOTIATE, /* to be sent */
    NVH_DHCHAP_CHALLENGE, /* to be received, and so on */
    NVH_DHCHAP_REPLY,
    NVH_DHCHAP_SUCCESS1,
    NVH_DHCHAP_SUCCESS2, /* to be sent */
    NVH_DHCHAP_FAILURE2, /* to be sent */
    NVH_DHCHAP_DONE,
    NVH_DHCHAP_FAILED,
};

struct nvh_dhchap {
    const struct nvh_secrets *secrets; /* these outlive the machine */
    const char *host_nqn, *subsystem_nqn;
    enum nvh_dhchap_state state;
    uint8_t fault;        /* enum nvf_auth_fault */
    bool is_their_word;   /* the controller says that this host has failed */
    bool is_proof_false;  /* the controller does not know its secret */
    uint8_t hash, group;  /* the controller's choice */
    uint16_t transaction; /* the host's choice */
    uint32_t sequence, own_sequence;
    uint8_t challenge[NVF_HASH_MAX], own_challenge[NVF_HASH_MAX];
    uint8_t dh_public[NVF_DH_MAX], dh_secret[NVF_DH_MAX];
};

void nvh_dhchap_init(struct nvh_dhchap *chap, const struct nvh_secrets *secrets,
                     const char *host_nqn, const char *subsystem_nqn, uint16_t transaction);
/* Forgets secrets. */
void nvh_dhchap_clear(struct nvh_dhchap *chap);
/* Whether the next message is sent; else it is received, or neither where it is done or has
 * failed. */
bool nvh_dhchap_sends(const struct nvh_dhchap *chap);
bool nvh_dhchap_has_ended(const struct nvh_dhchap *chap);
size_t nvh_dhchap_next(struct nvh_dhchap *chap, uint8_t out[NVF_AUTH_MESSAGE_MAX]);
void nvh_dhchap_take(struct nvh_dhchap *chap, const uint8_t *data, size_t len);

#endif
