/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/core/digest.h"

#include <assert.h>
#include <openssl/evp.h>
#include <string.h>

void snap_digest_of(const void *data, size_t bytes, uint8_t digest[SNAP_DIGEST_BYTES])
{
    int is_done = EVP_Digest(data, bytes, digest, NULL, EVP_sha256(), NULL);
    assert(is_done == 1);
    (void)is_done;
}

bool snap_digest_is(const void *data, size_t bytes, const uint8_t digest[SNAP_DIGEST_BYTES])
{
    uint8_t own[SNAP_DIGEST_BYTES];
    snap_digest_of(data, bytes, own);
    return memcmp(own, digest, sizeof own) == 0;
}
