/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/memory_left.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 1024, LINE_BYTES = 1024 };

static uint64_t system_left(void)
{
    char line[LINE_BYTES];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && !kib && fgets(line, sizeof(line), file))
        (void)sscanf(line, "MemAvailable: %" SCNu64, &kib);
    if (file)
        fclose(file);
    return kib ? kib << 10 : UINT64_MAX;
}

/* UINT64_MAX: there is no such file, or it says "max". */
static uint64_t read_number(const char *folder, const char *name)
{
    char path[PATH_BYTES + 64];
    uint64_t number;
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return UINT64_MAX;
    if (fscanf(file, "%" SCNu64, &number) != 1)
        number = UINT64_MAX;
    fclose(file);
    return number;
}

static uint64_t group_left(const char *folder)
{
    const uint64_t most = read_number(folder, "memory.max"),
                   taken = read_number(folder, "memory.current");
    if (most == UINT64_MAX || taken == UINT64_MAX)
        return UINT64_MAX;
    return most > taken ? most - taken : 0;
}

/* The folder of the process's group below that of all; "" where there is none. */
static void read_group(char folder[PATH_BYTES])
{
    char line[LINE_BYTES];
    *folder = '\0';
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !*folder && fgets(line, sizeof(line), file))
        if (sscanf(line, "0::%1000[^\n]", folder) != 1)
            *folder = '\0';
    if (file)
        fclose(file);
}

uint64_t nvt_memory_left(void)
{
    char folder[PATH_BYTES], *end;
    uint64_t least = system_left();
    read_group(folder);
    do { /* of each group the limit holds for those in it, too */
        const uint64_t left = group_left(folder);
        least = left < least ? left : least;
        end = strrchr(folder, '/');
        if (end)
            *end = '\0';
    } while (end);
    return least;
}
