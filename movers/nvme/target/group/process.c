/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/group/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

uint64_t nvg_draw(void)
{
    uint64_t number = 0;
    while (getrandom(&number, sizeof(number), 0) != sizeof(number) || !number)
        ;
    return number;
}

static size_t process_read_text(const char *path, char *text, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[bytes > 0 ? bytes : 0] = 0;
    return bytes > 0 ? (size_t)bytes : 0;
}

/* "01234567-89ab-...": 32 digits. */
static void parse_boot_id(const char *text, uint8_t id[16])
{
    unsigned digits = 0;
    memset(id, 0, 16);
    for (; *text && digits < 32; text++) {
        const char *all = "0123456789abcdef", *at = strchr(all, *text);
        if (!at)
            continue;
        id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | (at - all));
        digits++;
    }
}

/* Field 22, counted from the parenthesis that ends the name, which may hold any character. */
static uint64_t parse_start(const char *stat)
{
    const char *at = strrchr(stat, ')');
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    return at ? strtoull(at, NULL, 10) : 0;
}

void nvg_process_describe(struct nvg_former *who)
{
    char text[1024];
    process_read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    parse_boot_id(text, who->boot_id);
    process_read_text("/proc/self/stat", text, sizeof(text));
    who->start_ticks = parse_start(text);
    who->pid = getpid();
    who->incarnation = nvg_draw();
}
