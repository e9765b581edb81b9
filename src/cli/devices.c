/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire devices`: what programs will see under `sidewire run`; the machine's own RDMA devices
 * too. */
#include <argp.h>
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/hardware.h"
#include "cli/json.h"
#include "device/netdev.h"

static error_t parse(int key, char *value, struct argp_state *state)
{
    bool *as_json = state->input;
    switch (key) {
    case 'j':
        *as_json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "it takes no arguments, and got '%s'", value);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "Print JSON", 0},
    {0},
};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc = "Lists the devices that programs will see under `sidewire run`: one for each network "
           "interface that is up, with "
           "its GIDs, and the machine's own RDMA devices."
           "\v"
           "SIDEWIRE_DEVICES=lo,eth0 limits the interfaces.\n"
           "Status: 0, or 1 if there is no device at all.",
};

static const char *type_name(enum sw_gid_type type)
{
    return type == SW_GID_ROCE_V1 ? "RoCE v1" : "RoCE v2";
}

static void print_gids(struct sw_netdev *dev)
{
    struct sw_gid gid;
    for (int i = 0; sw_netdev_gid(dev, i, &gid) && i < sw_netdev_gid_count(dev); i++) {
        char text[INET6_ADDRSTRLEN];
        if (gid.valid)
            printf("  GID %-3d  %s  %s\n", i, type_name(gid.type),
                   inet_ntop(AF_INET6, gid.gid.raw, text, sizeof(text)));
    }
}

static void print_table(const struct sw_hardware *hardware)
{
    printf("%-16s  %-15s  %-8s  %6s  %s\n", "DEVICE", "INTERFACE", "STATE", "MTU", "KIND");
    for (int i = 0; i < sw_netdev_count(); i++) {
        struct sw_netdev_info info;
        sw_netdev_read(sw_netdev_get(i), &info);
        printf("%-16s  %-15s  %-8s  %6u  %s\n", info.name, info.ifname, info.up ? "active" : "down",
               info.mtu_bytes, "sidewire");
        print_gids(sw_netdev_get(i));
    }
    for (int i = 0; i < hardware->count; i++)
        printf("%-16s  %-15s  %-8s  %6s  %s\n", hardware->devices[i].name,
               hardware->devices[i].netdev, hardware->devices[i].state, "-", "hardware");
}

static void print_json_gids(struct sw_netdev *dev)
{
    struct sw_gid gid;
    const char *separator = "";
    for (int i = 0; sw_netdev_gid(dev, i, &gid) && i < sw_netdev_gid_count(dev); i++) {
        char text[INET6_ADDRSTRLEN];
        if (!gid.valid)
            continue;
        printf("%s\n      {\"index\": %d, ", separator, i);
        sw_json_member(stdout, "type", type_name(gid.type));
        fputs(", ", stdout);
        sw_json_member(stdout, "gid", inet_ntop(AF_INET6, gid.gid.raw, text, sizeof(text)));
        fputc('}', stdout);
        separator = ",";
    }
}

static void print_json(const struct sw_hardware *hardware)
{
    const char *separator = "";
    printf("{\"devices\": [");
    for (int i = 0; i < sw_netdev_count(); i++) {
        struct sw_netdev_info info;
        sw_netdev_read(sw_netdev_get(i), &info);
        printf("%s\n  {", separator);
        sw_json_member(stdout, "name", info.name);
        fputs(", ", stdout);
        sw_json_member(stdout, "kind", "sidewire");
        fputs(", ", stdout);
        sw_json_member(stdout, "interface", info.ifname);
        fputs(", ", stdout);
        sw_json_member(stdout, "state", info.up ? "active" : "down");
        printf(", \"mtu\": %u,\n    \"gids\": [", info.mtu_bytes);
        print_json_gids(sw_netdev_get(i));
        printf("]}");
        separator = ",";
    }
    for (int i = 0; i < hardware->count; i++) {
        printf("%s\n  {", separator);
        sw_json_member(stdout, "name", hardware->devices[i].name);
        fputs(", ", stdout);
        sw_json_member(stdout, "kind", "hardware");
        fputs(", ", stdout);
        sw_json_member(stdout, "interface", hardware->devices[i].netdev);
        fputs(", ", stdout);
        sw_json_member(stdout, "state", hardware->devices[i].state);
        fputc('}', stdout);
        separator = ",";
    }
    printf("\n]}\n");
}

int sw_command_devices(int argc, char **argv)
{
    bool as_json = false;
    argp_parse(&argp, argc, argv, 0, NULL, &as_json);
    int failed = sw_netdev_refresh(NULL, NULL);
    if (failed) {
        sw_fault(NULL, "cannot read the network interfaces: %s", strerror(-failed));
        return SW_STATUS_NO;
    }
    struct sw_hardware hardware;
    sw_hardware_read(&hardware);
    if (as_json)
        print_json(&hardware);
    else if (sw_netdev_count() + hardware.count)
        print_table(&hardware);
    if (sw_netdev_count() + hardware.count)
        return SW_STATUS_OK;
    sw_fault(
        "ip link set lo up (as root), or change SIDEWIRE_DEVICES",
        "no device: no network interface is up, or SIDEWIRE_DEVICES names none of those that are");
    return SW_STATUS_NO;
}
