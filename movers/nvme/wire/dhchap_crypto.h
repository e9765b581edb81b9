/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What DH-HMAC-CHAP computes, for both sides (NVM Express Base 2.0 s8.13.5): secrets as people
 * write them, responses, and the Diffie-Hellman exchange.
 */
#ifndef SW_MOVERS_NVME_DHCHAP_CRYPTO_H
#define SW_MOVERS_NVME_DHCHAP_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/wire/dhchap.h"

struct nvf_secret {
    uint8_t hash; /* by which it is bound to an NQN; 0: it is not */
    uint8_t len_bytes;
    uint8_t bytes[NVF_HASH_MAX];
};

/* "DHHC-1:00:BASE64:". Returns NULL, or what is wrong with the text. */
const char *nvf_secret_parse(const char *text, struct nvf_secret *out);

enum nvf_auth_role { NVF_AUTH_HOST, NVF_AUTH_CONTROLLER }; /* whose response it is */

struct nvf_auth_proof {
    enum nvf_auth_role role;
    uint8_t hash;
    const struct nvf_secret *secret; /* of that role */
    const uint8_t *challenge;        /* as long as the hash */
    const uint8_t *dh_secret;        /* of the exchange, NULL with the null group */
    size_t dh_bytes;
    uint32_t sequence;
    uint16_t transaction;
    uint8_t concatenation;
    const char *host_nqn, *subsystem_nqn;
};

/* Sets the response, as long as the hash; false where libcrypto would not. */
bool nvf_auth_respond(const struct nvf_auth_proof *proof, uint8_t response[NVF_HASH_MAX]);

/* One side of an exchange in one of the ffdhe groups (RFC 7919). */
struct nvf_dh;
struct nvf_dh *nvf_dh_new(uint8_t group); /* NULL where libcrypto would not */
void nvf_dh_free(struct nvf_dh *dh);
/* Both are as long as the group; zeroes lead. False: the peer's value is not in the group. */
bool nvf_dh_public(const struct nvf_dh *dh, uint8_t out[NVF_DH_MAX]);
bool nvf_dh_derive(const struct nvf_dh *dh, const uint8_t *peer, size_t peer_bytes,
                   uint8_t out[NVF_DH_MAX]);

#endif
