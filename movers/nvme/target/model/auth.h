/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The controller's side of DH-HMAC-CHAP on one queue (NVM Express Base 2.0 s8.13.5). A machine:
 * data of Authentication Send goes in, of Authentication Receive comes out. Its owner ends the
 * connection once the machine has failed, and limits the time of one that is not at rest. It is the
 * owner, too, that lets no other command of a host with a secret through before.
 */
#ifndef SW_MOVERS_NVME_AUTH_H
#define SW_MOVERS_NVME_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/wire/dhchap_crypto.h"
#include "nvme/wire/fabrics.h"

/* What the controller knows of a host. Hash and group are the least that it takes. */
struct nvt_auth_policy {
    char host_nqn[NVF_NQN_MAX + 1], subsystem_nqn[NVF_NQN_MAX + 1];
    struct nvf_secret host_secret, controller_secret;
    bool has_controller_secret; /* else a host that wants proof of the controller is refused */
    uint8_t hash, group;
};

enum nvt_auth_state {
    NVT_AUTH_IDLE,      /* waits for negotiation */
    NVT_AUTH_CHALLENGE, /* is to be asked for the challenge */
    NVT_AUTH_REPLY,     /* waits for the reply */
    NVT_AUTH_SUCCESS1,  /* is to be asked for the result, and so on */
    NVT_AUTH_SUCCESS2,  /* waits for the host's word on the controller's proof */
    NVT_AUTH_DONE,
    NVT_AUTH_FAILURE1, /* is to be asked for the reason */
    NVT_AUTH_FAILED,   /* nothing leads on from here */
};

struct nvt_auth {
    const struct nvt_auth_policy *policy; /* outlives the machine */
    /* Fills bytes that nobody can foretell; false where there are none. */
    bool (*random)(uint8_t *out, size_t len);
    enum nvt_auth_state state;
    bool authenticated; /* stays while the host proves itself anew, until that fails */
    bool proves;        /* the host has set a challenge, too */
    uint8_t fault;      /* enum nvf_auth_fault, for the log as well */
    uint8_t hash, group;
    uint16_t transaction;
    uint32_t sequence, host_sequence;
    uint8_t challenge[NVF_HASH_MAX], host_challenge[NVF_HASH_MAX];
    struct nvf_dh *dh;
    uint8_t dh_secret[NVF_DH_MAX];
};

/* A policy without its names. `controller_secret` may be NULL or empty; hash 0 is the weakest.
 * Returns NULL, or what is wrong. */
const char *nvt_auth_policy_parse(const char *host_secret, const char *controller_secret,
                                  uint8_t hash, uint8_t group, struct nvt_auth_policy *out);

/* `random` may be NULL for that of libcrypto. */
void nvt_auth_init(struct nvt_auth *auth, const struct nvt_auth_policy *policy,
                   bool (*random)(uint8_t *out, size_t len));
/* Forgets secrets and frees what is held. */
void nvt_auth_clear(struct nvt_auth *auth);

/* Return the status of the command. One that ends in a failure still succeeds as a command: the
 * host is told the reason by the message that it asks for next. */
uint16_t nvt_auth_send(struct nvt_auth *auth, const uint8_t *data, size_t len);
/* `room` is what the host asked for, and at most that is `*len`. */
uint16_t nvt_auth_receive(struct nvt_auth *auth, size_t room, uint8_t out[NVF_AUTH_MESSAGE_MAX],
                          size_t *len);

/* The next step may take long: with the largest group, tens of milliseconds. */
static inline bool nvt_auth_is_long(const struct nvt_auth *auth)
{
    return auth->group && (auth->state == NVT_AUTH_CHALLENGE || auth->state == NVT_AUTH_REPLY);
}

/* In neither of these a time limit runs. */
static inline bool nvt_auth_is_at_rest(const struct nvt_auth *auth)
{
    return auth->state == NVT_AUTH_IDLE || auth->state == NVT_AUTH_DONE;
}

#endif
