/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * DH-HMAC-CHAP, by which host and controller prove in-band that they know a secret (NVM Express
 * Base 2.0 s8.13): its messages, for both sides. The computations are in dhchap_crypto.h.
 */
#ifndef SW_MOVERS_NVME_DHCHAP_H
#define SW_MOVERS_NVME_DHCHAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NVF_AUTH_PROTOCOL = 0xe9, /* SECP of Authentication Send and Receive; SPSP0 and SPSP1 are 1 */
    NVF_AUTH_DHCHAP = 1,      /* the only protocol in AUTH_Negotiate */
    NVF_AUTH_LIST_MAX = 30,   /* hashes, and groups, that a host may offer */
    NVF_HASH_MAX = 64,        /* bytes */
    NVF_DH_MAX = 1024,
    NVF_AUTH_MESSAGE_MAX = 16 + 2 * NVF_HASH_MAX + NVF_DH_MAX, /* the longest, a reply */
};

enum nvf_hash { NVF_SHA256 = 1, NVF_SHA384 = 2, NVF_SHA512 = 3 };
enum nvf_dh_group {
    NVF_DH_NULL = 0,
    NVF_FFDHE2048 = 1,
    NVF_FFDHE3072 = 2,
    NVF_FFDHE4096 = 3,
    NVF_FFDHE6144 = 4,
    NVF_FFDHE8192 = 5,
};

enum nvf_auth_id {
    NVF_AUTH_NEGOTIATE = 0x00,
    NVF_AUTH_CHALLENGE = 0x01,
    NVF_AUTH_REPLY = 0x02,
    NVF_AUTH_SUCCESS1 = 0x03,
    NVF_AUTH_SUCCESS2 = 0x04,
    NVF_AUTH_FAILURE2 = 0xf0, /* of the host */
    NVF_AUTH_FAILURE1 = 0xf1, /* of the controller */
};

enum { NVF_AUTH_REASON_FAILED = 1 };
enum nvf_auth_fault { /* the explanation in a failure */
                      NVF_AUTH_FAILED = 1,
                      NVF_AUTH_NOT_USABLE = 2,
                      NVF_AUTH_CONCAT_MISMATCH = 3,
                      NVF_AUTH_HASH_NOT_USABLE = 4,
                      NVF_AUTH_GROUP_NOT_USABLE = 5,
                      NVF_AUTH_INCORRECT_PAYLOAD = 6,
                      NVF_AUTH_INCORRECT_MESSAGE = 7,
};

/* One message. Which fields it has is said behind them; the others are 0. */
struct nvf_auth_message {
    enum nvf_auth_id id;
    uint16_t transaction;
    uint8_t concatenation; /* negotiate: SC_C, 0 for none */
    bool offers_dhchap;    /* negotiate */
    uint8_t hash_count, group_count;
    uint8_t hashes[NVF_AUTH_LIST_MAX], groups[NVF_AUTH_LIST_MAX];
    uint8_t hash, group;             /* challenge: what the controller chose */
    uint8_t hash_bytes;              /* challenge, reply, success1: 32, 48 or 64 */
    bool is_valid;                   /* reply: it has a challenge; success1: it has a response */
    uint32_t sequence;               /* challenge; reply */
    uint8_t response[NVF_HASH_MAX];  /* reply; success1 */
    uint8_t challenge[NVF_HASH_MAX]; /* challenge; reply */
    uint16_t dh_bytes;               /* challenge; reply */
    uint8_t dh[NVF_DH_MAX];
    uint8_t reason, explanation; /* failure1, failure2 */
};

/* Bytes behind the message are passed over. False: it is none, or is cut short. */
bool nvf_auth_decode(const uint8_t *bytes, size_t len, struct nvf_auth_message *out);
/* Encodes what decode() makes; returns the length. */
size_t nvf_auth_encode(const struct nvf_auth_message *message, uint8_t out[NVF_AUTH_MESSAGE_MAX]);

/* "a response is wrong, or a secret is missing" and the like; never NULL. */
const char *nvf_auth_fault_text(uint8_t fault);

/* 0 where there is no such hash. */
uint8_t nvf_hash_bytes(uint8_t hash);
/* 0 for the null group, -1 where there is no such group. */
int nvf_dh_bytes(uint8_t group);

#endif
