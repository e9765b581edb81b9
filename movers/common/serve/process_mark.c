/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/process_mark.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { START_FIELD = 22, DIGITS = 2 * MOVER_BOOT_ID_BYTES };

/* As text; empty where it cannot be read. */
static void read_mark(const char *path, char *text, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t len = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[len > 0 ? len : 0] = 0;
}

/* "01234567-89ab-...". */
bool mover_boot_id(uint8_t id[MOVER_BOOT_ID_BYTES])
{
    char text[64];
    unsigned count = 0;
    read_mark("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    memset(id, 0, MOVER_BOOT_ID_BYTES);
    for (const char *at = text; *at && count < DIGITS; at++) {
        const char *all = "0123456789abcdef", *digit = strchr(all, *at);
        if (!digit)
            continue;
        id[count / 2] = (uint8_t)(id[count / 2] << 4 | (digit - all));
        count++;
    }
    return count == DIGITS;
}

uint64_t mover_process_start(int32_t pid)
{
    char path[64] = "/proc/self/stat", text[1024];
    if (pid)
        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    read_mark(path, text, sizeof(text));
    const char *at = strrchr(text, ')'); /* behind the name, field 2 */
    for (int field = 2; at && field < START_FIELD; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}
