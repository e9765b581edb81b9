/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/config/identity.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/evp.h>

/* Parts are told apart by their NUL. A digest that cannot be made is our own bug. */
static void digest_parts(const char *const *parts, size_t count, uint8_t uuid[NVT_UUID_BYTES])
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (!context || !EVP_DigestInit_ex(context, EVP_sha256(), NULL))
        abort();
    for (size_t i = 0; i < count; i++)
        if (!EVP_DigestUpdate(context, parts[i], strlen(parts[i]) + 1))
            abort();
    if (!EVP_DigestFinal_ex(context, digest, NULL))
        abort();
    EVP_MD_CTX_free(context);
    memcpy(uuid, digest, NVT_UUID_BYTES);
}

/* RFC 9562 s5.8: version 8, whose bits are the maker's own. */
static void mark_uuid(uint8_t uuid[NVT_UUID_BYTES])
{
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x80);
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

void nvt_machine_id(char out[NVT_MACHINE_ID_BYTES])
{
    const int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC);
    const ssize_t len = fd < 0 ? 0 : read(fd, out, NVT_MACHINE_ID_BYTES - 1);
    if (fd >= 0)
        close(fd);
    out[len > 0 ? len : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    if (*out)
        return;
    char name[NVT_MACHINE_ID_BYTES] = "";
    if (gethostname(name, sizeof(name) - 1))
        strcpy(name, "unnamed");
    memcpy(out, name, sizeof(name));
}

void nvt_default_uuid(const char *machine_id, const char *nqn, uint32_t nsid,
                      const struct nvt_backend_spec *spec, uint8_t uuid[NVT_UUID_BYTES])
{
    char number[16];
    /* A plain path and "file:" of it are the same thing. */
    const bool is_path = spec->path[0] && spec->kind != NVT_BACKEND_RBD;
    const char *kind = is_path ? "path" : nvt_backend_kind_name(spec->kind);
    snprintf(number, sizeof(number), "%u", nsid);
    const char *const parts[] = {"namespace", machine_id, nqn, number, kind, spec->path};
    digest_parts(parts, sizeof(parts) / sizeof(*parts), uuid);
    mark_uuid(uuid);
}

void nvt_default_serial(const char *machine_id, const char *nqn, char serial[NVT_SERIAL_BYTES])
{
    uint8_t digest[NVT_UUID_BYTES];
    const char *const parts[] = {"serial", machine_id, nqn};
    digest_parts(parts, sizeof(parts) / sizeof(*parts), digest);
    for (size_t i = 0; i < NVT_SERIAL_BYTES / 2; i++)
        snprintf(serial + 2 * i, 3, "%02x", digest[i]);
}
