/* SPDX-License-Identifier: BSD-2-Clause */
/* The attribute's value is text: "1 ", 32 hexadecimal digits, a space, and the log's copies. */
#include "nvme/target/backend/owed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "nvme/target/backend/backend.h"
#include "nvme/target/config/spec.h"

#define ATTRIBUTE "user.sidewire.tier"

enum { PREFIX_BYTES = 2 + 2 * NVT_OWED_BYTES + 1, VALUE_BYTES = PREFIX_BYTES + NVT_OWED_LOGS_MAX };

static bool is_without_marks(int error)
{
    return error == ENOTSUP || error == ENOSYS || error == EPERM || error == ENODATA;
}

/* What a stranger has written there is shown to people. */
static void owed_copy_printable(char *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
    out[bytes] = '\0';
}

static void decode_owed(const char *value, size_t bytes, struct nvt_owed *out)
{
    char digits[2 * NVT_OWED_BYTES + 1];
    *out = (struct nvt_owed){.logs = "a log that is not known here"};
    if (bytes <= PREFIX_BYTES || memcmp(value, "1 ", 2) != 0 || value[PREFIX_BYTES - 1] != ' ')
        return;
    memcpy(digits, value + 2, 2 * NVT_OWED_BYTES);
    digits[2 * NVT_OWED_BYTES] = '\0';
    if (nvt_uuid_parse(digits, out->identity))
        return;
    owed_copy_printable(out->logs, value + PREFIX_BYTES, bytes - PREFIX_BYTES);
}

int nvt_owed_read(const char *path, struct nvt_owed *out)
{
    char value[VALUE_BYTES - 1];
    const ssize_t bytes = getxattr(path, ATTRIBUTE, value, sizeof(value));
    if (bytes < 0 && errno != ERANGE)
        return is_without_marks(errno) ? 0 : -errno;
    decode_owed(value, bytes < 0 ? 0 : (size_t)bytes, out);
    return 1;
}

int nvt_owed_mark(int fd, const struct nvt_owed *owed)
{
    char value[VALUE_BYTES], *at = value + 2;
    memcpy(value, "1 ", 2);
    for (int i = 0; i < NVT_OWED_BYTES; i++)
        at += sprintf(at, "%02x", owed->identity[i]);
    const int left = (int)sizeof(value) - PREFIX_BYTES;
    at += snprintf(at, (size_t)left, " %s", owed->logs);
    if (fsetxattr(fd, ATTRIBUTE, value, (size_t)(at - value), 0))
        return is_without_marks(errno) ? -EOPNOTSUPP : -errno;
    return fsync(fd) ? -errno : 0;
}

int nvt_owed_clear(int fd)
{
    return fremovexattr(fd, ATTRIBUTE) && !is_without_marks(errno) ? -errno : 0;
}

int nvt_owed_refuse_path(const char *path, char *error, size_t error_size)
{
    struct nvt_owed owed;
    if (nvt_owed_read(path, &owed) <= 0)
        return 0;
    snprintf(
        error, error_size,
        "%.150s lacks writes that the log of a tier has. Serve it as tier: with that log, or with "
        "new-log to give them up: it is whole when that target has ended by itself. The log "
        "is %s",
        path, owed.logs);
    return -EBUSY;
}

int nvt_owed_refuse(const struct nvt_backend_setup *setup, char *error, size_t error_size)
{
    if (!setup->spec || setup->spec->kind == NVT_BACKEND_TIER) /* it looks itself */
        return 0;
    return nvt_owed_refuse_path(setup->path, error, error_size);
}
