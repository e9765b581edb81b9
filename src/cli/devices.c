/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire devices`: what programs will see under `sidewire run`; the machine's own RDMA devices
 * too. */
#include <argp.h>
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/hardware.h"
#include "cli/json.h"
#include "device/nic/netdev.h"
#include "device/queue/counters.h"
#include "link/link.h"

struct devices_args {
    bool as_json, counters;
};

static error_t parse_devices(int key, char *value, struct argp_state *state)
{
    struct devices_args *args = state->input;
    switch (key) {
    case 'j':
        args->as_json = true;
        return 0;
    case 'o':
        args->as_json = sw_take_format(state, value);
        return 0;
    case 'c':
        args->counters = true;
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
    SW_OPTION_FORMAT,
    {"counters", 'c', NULL, 0, "What running processes have counted, too (docs/counters.md)", 0},
    {0},
};

static const struct argp argp = {
    .options = options,
    .parser = parse_devices,
    .doc = "Lists the devices that programs will see under `sidewire run`: one for each network "
           "interface that is up, with "
           "its GIDs, and the machine's own RDMA devices."
           "\v"
           "SIDEWIRE_DEVICES=lo,eth0 limits the interfaces; SIDEWIRE_LINK=iwarp makes the devices\n"
           "iWARP's, as an item iw_eth0 does for one.\n"
           "Status: 0, or 1 if there is no device at all.",
};

static const char *type_name(enum sw_gid_type type)
{
    return type == SW_GID_MAC ? "MAC" : type == SW_GID_ROCE_V1 ? "RoCE v1" : "RoCE v2";
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

/* Prints the counters that are not zero. */
static void each_counter(struct sw_netdev *dev,
                         void (*print)(const char *name, uint64_t value, bool is_first))
{
    bool is_first = true;
    struct sw_counts counts;
    sw_link_survey(dev, &counts);
    const struct sw_traffic *moved = &counts.traffic;
    const struct {
        const char *name;
        uint64_t value;
    } traffic[] = {
        {"port_xmit_data", moved->sent_bytes / 4},
        {"port_xmit_packets", moved->sent_packets},
        {"port_rcv_data", moved->received_bytes / 4},
        {"port_rcv_packets", moved->received_packets},
        {"multicast_xmit_packets", moved->sent_multicast},
        {"multicast_rcv_packets", moved->received_multicast},
    };
    for (size_t i = 0; i < sizeof(traffic) / sizeof(*traffic); i++)
        if (traffic[i].value) {
            print(traffic[i].name, traffic[i].value, is_first);
            is_first = false;
        }
    for (int i = 0; i < SW_COUNTER_COUNT; i++)
        if (counts.counters[i]) {
            print(sw_counter_name((enum sw_counter)i), counts.counters[i], is_first);
            is_first = false;
        }
}

static void print_counter(const char *name, uint64_t value, bool is_first)
{
    (void)is_first;
    printf("  %-28s  %" PRIu64 "\n", name, value);
}

static void print_table(const struct sw_hardware *hardware, bool counters)
{
    printf("%-16s  %-15s  %-8s  %6s  %s\n", "DEVICE", "INTERFACE", "STATE", "MTU", "KIND");
    for (int i = 0; i < sw_netdev_count(); i++) {
        struct sw_netdev_info info;
        sw_netdev_read(sw_netdev_get(i), &info);
        printf("%-16s  %-15s  %-8s  %6u  %s\n", info.name, info.ifname, info.up ? "active" : "down",
               info.mtu_bytes, info.kind == SW_NETDEV_IWARP ? "sidewire, iWARP" : "sidewire");
        print_gids(sw_netdev_get(i));
        if (counters)
            each_counter(sw_netdev_get(i), print_counter);
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

static void print_json_counter(const char *name, uint64_t value, bool is_first)
{
    fputs(is_first ? "" : ", ", stdout);
    sw_json_string(stdout, name);
    printf(": %" PRIu64, value);
}

static void print_json(const struct sw_hardware *hardware, bool counters)
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
        sw_json_member(stdout, "transport", info.kind == SW_NETDEV_IWARP ? "iWARP" : "RoCE");
        fputs(", ", stdout);
        sw_json_member(stdout, "interface", info.ifname);
        fputs(", ", stdout);
        sw_json_member(stdout, "state", info.up ? "active" : "down");
        printf(", \"mtu\": %u,\n    \"gids\": [", info.mtu_bytes);
        print_json_gids(sw_netdev_get(i));
        putchar(']');
        if (counters) {
            printf(",\n    \"counters\": {");
            each_counter(sw_netdev_get(i), print_json_counter);
            putchar('}');
        }
        putchar('}');
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
    struct devices_args args = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    int failed = sw_netdev_refresh(NULL, NULL);
    if (failed) {
        sw_fault(NULL, "cannot read the network interfaces: %s", strerror(-failed));
        return SW_STATUS_NO;
    }
    struct sw_hardware hardware;
    sw_hardware_read(&hardware);
    if (args.as_json)
        print_json(&hardware, args.counters);
    else if (sw_netdev_count() + hardware.count)
        print_table(&hardware, args.counters);
    if (sw_netdev_count() + hardware.count)
        return SW_STATUS_OK;
    sw_fault(
        "ip link set lo up (as root), or change SIDEWIRE_DEVICES",
        "no device: no network interface is up, or SIDEWIRE_DEVICES names none of those that are");
    return SW_STATUS_NO;
}
