/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a host says to authenticate. The first byte chooses: a secret as people write it; one
 * message, which encoded again and decoded is the same; or a talk with the controller, each message
 * behind two bytes of length, a length of 0 asking for the next one. Nobody gets in without the
 * secret.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "nvme/target/model/auth.h"

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static bool fill_fixed(uint8_t *out, size_t len)
{
    memset(out, 0x3c, len);
    return true;
}

static void try_secret(const uint8_t *data, size_t size)
{
    struct nvf_secret secret;
    char *text = strndup((const char *)data, size);
    if (text && !nvf_secret_parse(text, &secret))
        demand(secret.hash <= NVF_SHA512 && secret.len_bytes >= 32 &&
               secret.len_bytes <= NVF_HASH_MAX);
    free(text);
}

static void try_message(const uint8_t *data, size_t size)
{
    struct nvf_auth_message m, again;
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    if (!nvf_auth_decode(data, size, &m))
        return;
    const size_t len = nvf_auth_encode(&m, bytes);
    demand(len <= sizeof(bytes) && nvf_auth_decode(bytes, len, &again));
    demand(memcmp(&m, &again, sizeof(m)) == 0);
}

/* With the null group, as the others take milliseconds. */
static void try_talk(const uint8_t *data, size_t size)
{
    static const struct nvt_auth_policy policy = {
        .host_nqn = "h", .subsystem_nqn = "s", .hash = 1, .host_secret = {.len_bytes = 32}};
    struct nvt_auth auth;
    uint8_t bytes[NVF_AUTH_MESSAGE_MAX];
    nvt_auth_init(&auth, &policy, fill_fixed);
    while (size >= 2) {
        size_t len = data[0] | (size_t)data[1] << 8, got = 0;
        data += 2;
        size -= 2;
        len = len < size ? len : size;
        const enum nvt_auth_state before = auth.state;
        const uint16_t status = len ? nvt_auth_send(&auth, data, len)
                                    : nvt_auth_receive(&auth, sizeof(bytes), bytes, &got);
        demand((status == 0) == (before != NVT_AUTH_FAILED) && got <= sizeof(bytes));
        demand(before != NVT_AUTH_FAILED || auth.state == NVT_AUTH_FAILED);
        demand(!auth.authenticated);
        if (auth.group) /* not chosen again */
            break;
        data += len;
        size -= len;
    }
    nvt_auth_clear(&auth);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] == 'S')
        try_secret(data + 1, size - 1);
    else if (data[0] == 'M')
        try_message(data + 1, size - 1);
    else
        try_talk(data + 1, size - 1);
    return 0;
}
