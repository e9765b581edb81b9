/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/version.h"
#include "device/queue/counters.h"
#include "link/link.h"
#include "preload/real.h"

#define MISC_MAJOR 10
#define RDMA_CM_MINOR 58       /* such numbers are given out as modules come */
#define UVERBS_MINOR_FIRST 192 /* IB_UVERBS_BASE_MINOR of the kernel */

/* Appends at offset `len` of a text and returns the new length, also of a text that was full. */
__attribute__((format(printf, 3, 4))) static int put_text(char *out, int len, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(out + len, (size_t)(SW_TREE_TEXT_MAX - len), fmt, args);
    va_end(args);
    return more < SW_TREE_TEXT_MAX - len ? len + more : SW_TREE_TEXT_MAX - 1;
}

static struct sw_netdev_info text_info_of(const struct sw_node *node)
{
    struct sw_netdev_info info;
    sw_netdev_read(node->dev, &info);
    return info;
}

static int put_field(char *out, int len, char field, const struct sw_netdev_info *info)
{
    switch (field) {
    case 'D':
        return put_text(out, len, "%s", info->name);
    case 'I':
        return put_text(out, len, "%s", info->ifname);
    case 'U':
        return put_text(out, len, "%d", info->uverbs);
    default:
        return put_text(out, len, "%d", UVERBS_MINOR_FIRST + info->uverbs);
    }
}

int sw_text_expand(const char *template, const struct sw_netdev_info *info, char *out)
{
    int len = 0;
    for (const char *c = template; *c; c++)
        len = *c == '%' ? put_field(out, len, *++c, info) : put_text(out, len, "%c", *c);
    return len;
}

int sw_text_guid(const struct sw_node *node, char *out)
{
    struct sw_netdev_info info = text_info_of(node);
    uint8_t b[8];
    memcpy(b, &info.guid, sizeof(b));
    return put_text(out, 0, "%02x%02x:%02x%02x:%02x%02x:%02x%02x\n", b[0], b[1], b[2], b[3], b[4],
                    b[5], b[6], b[7]);
}

int sw_text_gid(const struct sw_node *node, char *out)
{
    struct sw_gid entry;
    if (!sw_netdev_gid(node->dev, node->number, &entry))
        return -ENOENT;
    int len = 0;
    for (int i = 0; i < 16; i += 2)
        len = put_text(out, len, "%02x%02x%c", entry.valid ? entry.gid.raw[i] : 0,
                       entry.valid ? entry.gid.raw[i + 1] : 0, i < 14 ? ':' : '\n');
    return len;
}

int sw_text_gid_type(const struct sw_node *node, char *out)
{
    struct sw_gid entry;
    if (!sw_netdev_gid(node->dev, node->number, &entry) || !entry.valid)
        return -EINVAL;
    return put_text(out, 0, "%s\n", entry.type == SW_GID_ROCE_V2 ? "RoCE v2" : "IB/RoCE v1");
}

int sw_text_gid_ndev(const struct sw_node *node, char *out)
{
    struct sw_gid entry;
    if (!sw_netdev_gid(node->dev, node->number, &entry) || !entry.valid)
        return -EINVAL;
    return put_text(out, 0, "%s\n", text_info_of(node).ifname);
}

int sw_text_node_type(const struct sw_node *node, char *out)
{
    return put_text(out, 0, "%s\n", sw_netdev_is_iwarp(node->dev) ? "4: RNIC" : "1: CA");
}

int sw_text_cap_mask(const struct sw_node *node, char *out)
{
    /* siw's, and that of RoCE with IP_BASED_GIDS */
    return put_text(out, 0, "%s\n", sw_netdev_is_iwarp(node->dev) ? "0x00090000" : "0x04010000");
}

int sw_text_state(const struct sw_node *node, char *out)
{
    return put_text(out, 0, "%s\n", text_info_of(node).up ? "4: ACTIVE" : "1: DOWN");
}

int sw_text_phys_state(const struct sw_node *node, char *out)
{
    return put_text(out, 0, "%s\n", text_info_of(node).up ? "5: LinkUp" : "3: Disabled");
}

/* The steps are those that the port's active width and speed can express. */
int sw_text_rate(const struct sw_node *node, char *out)
{
    static const struct {
        unsigned int mbps;
        const char *text;
    } rates[] = {
        {400000, "400 Gb/sec (4X NDR)"}, {200000, "200 Gb/sec (4X HDR)"},
        {100000, "100 Gb/sec (4X EDR)"}, {50000, "50 Gb/sec (1X HDR)"},
        {40000, "40 Gb/sec (4X QDR)"},   {25000, "25 Gb/sec (1X EDR)"},
        {10000, "10 Gb/sec (4X SDR)"},   {0, "2.5 Gb/sec (1X SDR)"},
    };
    unsigned int speed_mbps = text_info_of(node).speed_mbps;
    if (speed_mbps == 0)
        speed_mbps = 100000; /* the interface names none: memory carries at least that */
    size_t i = 0;
    while (speed_mbps < rates[i].mbps)
        i++;
    return put_text(out, 0, "%s\n", rates[i].text);
}

/* Where the interface's own device is; -ENOENT for virtual ones. */
static int read_netdev_file(const struct sw_node *node, const char *name, char *out)
{
    char path[SW_TREE_PATH_MAX];
    struct sw_netdev_info info = text_info_of(node);
    snprintf(path, sizeof(path), "/sys/class/net/%s/device/%s", info.ifname, name);
    int fd = SW_REAL(open)(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -ENOENT;
    ssize_t got = read(fd, out, SW_TREE_TEXT_MAX - 1);
    close(fd);
    if (got <= 0)
        return -ENOENT;
    out[got] = '\0';
    return (int)got;
}

int sw_text_numa_node(const struct sw_node *node, char *out)
{
    int len = read_netdev_file(node, "numa_node", out);
    return len > 0 ? len : put_text(out, 0, "-1\n");
}

int sw_text_cpulist(const struct sw_node *node, char *out)
{
    int len = read_netdev_file(node, "local_cpulist", out);
    long count = sysconf(_SC_NPROCESSORS_CONF);
    if (len > 0)
        return len;
    return count > 1 ? put_text(out, 0, "0-%ld\n", count - 1) : put_text(out, 0, "0\n");
}

/* A mask in groups of 32 bits, highest first. */
int sw_text_cpus(const struct sw_node *node, char *out)
{
    int len = read_netdev_file(node, "local_cpus", out);
    if (len > 0)
        return len;
    long count = sysconf(_SC_NPROCESSORS_CONF);
    long groups = (count + 31) / 32;
    if (groups < 1 || groups * 9 >= SW_TREE_TEXT_MAX)
        return -EINVAL;
    unsigned int top_bits = (unsigned int)(count - (groups - 1) * 32);
    len = put_text(out, 0, "%x", top_bits == 32 ? UINT32_MAX : (1u << top_bits) - 1);
    for (long i = 1; i < groups; i++)
        len = put_text(out, len, ",ffffffff");
    return put_text(out, len, "\n");
}

/* Data in the field's unit of four bytes (IBTA Vol1 16.1.3.5). */
int sw_text_traffic(const struct sw_node *node, char *out)
{
    const char *name = sw_node_name(node);
    const bool sent = strstr(name, "xmit") || strstr(name, "sent");
    struct sw_counts counts;
    sw_link_survey(node->dev, &counts);
    const struct sw_traffic *traffic = &counts.traffic;
    uint64_t multicast = sent ? traffic->sent_multicast : traffic->received_multicast;
    uint64_t value = sent ? traffic->sent_packets : traffic->received_packets;
    if (strstr(name, "_data"))
        value = (sent ? traffic->sent_bytes : traffic->received_bytes) / 4;
    else if (strstr(name, "multicast"))
        value = multicast;
    else if (strstr(name, "unicast"))
        value -= multicast;
    return put_text(out, 0, "%" PRIu64 "\n", value);
}

int sw_text_counter(const struct sw_node *node, char *out)
{
    struct sw_counts counts;
    int counter = 0;
    while (strcmp(sw_counter_name((enum sw_counter)counter), sw_node_name(node)))
        if (++counter == SW_COUNTER_COUNT)
            return -EINVAL;
    sw_link_survey(node->dev, &counts);
    return put_text(out, 0, "%" PRIu64 "\n", counts.counters[counter]);
}

/* That of the kernel's own where it has one: librdmacm asks for it by netlink, and wants the same
 * of what it opens. */
dev_t sw_text_rdma_cm_number(void)
{
    char text[32];
    unsigned int major_number, minor_number;
    int fd = SW_REAL(open)("/sys/devices/virtual/misc/rdma_cm/dev", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    if (sscanf(text, "%u:%u", &major_number, &minor_number) == 2)
        return makedev(major_number, minor_number);
    return makedev(MISC_MAJOR, RDMA_CM_MINOR);
}

int sw_text_rdma_cm_dev(const struct sw_node *node, char *out)
{
    (void)node;
    dev_t number = sw_text_rdma_cm_number();
    return put_text(out, 0, "%u:%u\n", major(number), minor(number));
}

int sw_text_rdma_cm_uevent(const struct sw_node *node, char *out)
{
    (void)node;
    dev_t number = sw_text_rdma_cm_number();
    return put_text(out, 0, "MAJOR=%u\nMINOR=%u\nDEVNAME=infiniband/rdma_cm\nDEVMODE=0666\n",
                    major(number), minor(number));
}

int sw_text_version(const struct sw_node *node, char *out)
{
    (void)node;
    return put_text(out, 0, "%s\n", sw_version());
}
