/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/hardware.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "device/nic/netdev.h"

#define SYSFS "/sys/class/infiniband"

static bool hardware_is_ours(const char *name)
{
    for (int i = 0; i < sw_netdev_count(); i++) {
        struct sw_netdev_info info;
        sw_netdev_read(sw_netdev_get(i), &info);
        if (!strcmp(info.name, name))
            return true;
    }
    return false;
}

/* The kernel writes "4: ACTIVE". */
static void read_state(const char *name, char *out, size_t size)
{
    char path[PATH_MAX], line[64] = "";
    snprintf(path, sizeof(path), SYSFS "/%s/ports/1/state", name);
    FILE *file = fopen(path, "re");
    if (file) {
        if (!fgets(line, sizeof(line), file))
            line[0] = '\0';
        fclose(file);
    }
    const char *colon = strchr(line, ':');
    snprintf(out, size, "%s", colon ? colon + 1 + strspn(colon + 1, " ") : "unknown");
    out[strcspn(out, "\n")] = '\0';
    for (char *at = out; *at; at++)
        *at = (char)tolower((unsigned char)*at);
}

static void read_netdev(const char *name, char *out, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), SYSFS "/%s/device/net", name);
    snprintf(out, size, "-");
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (entry->d_name[0] != '.') {
            snprintf(out, size, "%.*s", (int)size - 1, entry->d_name);
            break;
        }
    }
    closedir(dir);
}

void sw_hardware_read(struct sw_hardware *out)
{
    out->count = 0;
    DIR *dir = opendir(SYSFS);
    if (!dir)
        return;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (entry->d_name[0] == '.' || hardware_is_ours(entry->d_name) ||
            out->count == SW_HARDWARE_MAX)
            continue;
        struct sw_hardware_device *device = &out->devices[out->count++];
        snprintf(device->name, sizeof(device->name), "%.*s", (int)sizeof(device->name) - 1,
                 entry->d_name);
        read_state(device->name, device->state, sizeof(device->state));
        read_netdev(device->name, device->netdev, sizeof(device->netdev));
    }
    closedir(dir);
}
