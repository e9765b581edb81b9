/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rendezvous/proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

void mover_meet_sum(const void *body, size_t bytes, uint8_t sum[MOVER_MEET_SUM_BYTES])
{
    memset(sum, 0, MOVER_MEET_SUM_BYTES);
    EVP_Digest(body, bytes, sum, NULL, EVP_sha256(), NULL);
}

/* False: libcrypto cannot. */
static bool compute_proof(const char *token, const uint8_t *host, const uint8_t *joiner,
                          const uint8_t sum[MOVER_MEET_SUM_BYTES], const uint8_t *header,
                          uint8_t proof[MOVER_MEET_PROOF_BYTES])
{
    uint8_t said[2 * MOVER_MEET_NONCE_BYTES + MOVER_MEET_PROVEN_BYTES + MOVER_MEET_SUM_BYTES] = {0};
    memcpy(said, host, MOVER_MEET_NONCE_BYTES);
    if (joiner)
        memcpy(said + MOVER_MEET_NONCE_BYTES, joiner, MOVER_MEET_NONCE_BYTES);
    memcpy(said + 2 * MOVER_MEET_NONCE_BYTES, header, MOVER_MEET_PROVEN_BYTES);
    memcpy(said + sizeof(said) - MOVER_MEET_SUM_BYTES, sum, MOVER_MEET_SUM_BYTES);
    return HMAC(EVP_sha256(), token, (int)strlen(token), said, sizeof(said), proof, NULL);
}

void mover_meet_prove(const char *token, const uint8_t *host, const uint8_t *joiner,
                      const uint8_t sum[MOVER_MEET_SUM_BYTES],
                      uint8_t header[MOVER_MEET_HEADER_BYTES])
{
    uint8_t *proof = header + MOVER_MEET_PROVEN_BYTES;
    if (!token || !compute_proof(token, host, joiner, sum, header, proof))
        memset(proof, 0, MOVER_MEET_PROOF_BYTES);
}

bool mover_meet_is_proven(const char *token, const uint8_t *host, const uint8_t *joiner,
                          const uint8_t sum[MOVER_MEET_SUM_BYTES],
                          const uint8_t header[MOVER_MEET_HEADER_BYTES])
{
    uint8_t proof[MOVER_MEET_PROOF_BYTES];
    return !token || (compute_proof(token, host, joiner, sum, header, proof) &&
                      !CRYPTO_memcmp(proof, header + MOVER_MEET_PROVEN_BYTES, sizeof(proof)));
}
