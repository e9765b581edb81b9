/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/tree.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload/text.h"

#define CLASS "/sys/class/infiniband"
#define CLASS_VERBS "/sys/class/infiniband_verbs"
#define VIRTUAL "/sys/devices/virtual/infiniband"
#define VIRTUAL_VERBS "/sys/devices/virtual/infiniband_verbs"
#define PARENT "/sys/devices/virtual/sidewire"
#define PORT VIRTUAL "/%D/ports/1"
#define VIRTUAL_MISC "/sys/devices/virtual/misc"

struct sw_tree_row {
    const char *path; /* components: %D device, %I its interface, uverbs%U, %G GID index */
    enum sw_tree_kind kind;
    const char *text; /* template of the contents or target, or NULL: */
    int (*make)(const struct sw_node *node, char *out);
};

#define DIR(path)                     \
    {                                 \
        path, SW_TREE_DIR, NULL, NULL \
    }
#define SHARED(path)                         \
    {                                        \
        path, SW_TREE_SHARED_DIR, NULL, NULL \
    }
#define LINK(path, target)               \
    {                                    \
        path, SW_TREE_LINK, target, NULL \
    }
#define FILE_OF(path, text)                 \
    {                                       \
        path, SW_TREE_FILE, text "\n", NULL \
    }
#define FILE_BY(path, make)            \
    {                                  \
        path, SW_TREE_FILE, NULL, make \
    }
#define COUNTER(name) FILE_OF(PORT "/counters/" name, "0")
#define HW_COUNTER(name) FILE_BY(PORT "/hw_counters/" name, sw_text_counter)

/* A directory stands before its entries, and they are listed in this order. The device directories
 * are at the kernel's place for devices without a bus, with links from the class directories as the
 * kernel makes them. */
static const struct sw_tree_row rows[] = {
    SHARED("/dev/infiniband"),
    {SW_TREE_RDMA_CM, SW_TREE_CHAR, NULL, NULL},
    {"/dev/infiniband/uverbs%U", SW_TREE_CHAR, NULL, NULL},

    /* librdmacm looks here for the version of its device. */
    LINK("/sys/class/misc/rdma_cm", "../../devices/virtual/misc/rdma_cm"),
    DIR(VIRTUAL_MISC "/rdma_cm"),
    FILE_OF(VIRTUAL_MISC "/rdma_cm/abi_version", "4"),
    FILE_BY(VIRTUAL_MISC "/rdma_cm/dev", sw_text_rdma_cm_dev),
    LINK(VIRTUAL_MISC "/rdma_cm/subsystem", "../../../../class/misc"),
    FILE_BY(VIRTUAL_MISC "/rdma_cm/uevent", sw_text_rdma_cm_uevent),

    SHARED(CLASS),
    LINK(CLASS "/%D", "../../devices/virtual/infiniband/%D"),
    SHARED(CLASS_VERBS),
    FILE_OF(CLASS_VERBS "/abi_version", "6"),
    LINK(CLASS_VERBS "/uverbs%U", "../../devices/virtual/infiniband_verbs/uverbs%U"),

    SHARED(VIRTUAL_VERBS),
    DIR(VIRTUAL_VERBS "/uverbs%U"),
    FILE_OF(VIRTUAL_VERBS "/uverbs%U/abi_version", "1"),
    FILE_OF(VIRTUAL_VERBS "/uverbs%U/dev", "231:%M"),
    LINK(VIRTUAL_VERBS "/uverbs%U/device", "../../sidewire/%I"),
    FILE_OF(VIRTUAL_VERBS "/uverbs%U/ibdev", "%D"),
    LINK(VIRTUAL_VERBS "/uverbs%U/subsystem", "../../../../class/infiniband_verbs"),
    FILE_OF(VIRTUAL_VERBS "/uverbs%U/uevent",
            "MAJOR=231\nMINOR=%M\nDEVNAME=infiniband/uverbs%U\nDEVMODE=0666"),

    DIR(PARENT),
    DIR(PARENT "/%I"),
    FILE_OF(PARENT "/%I/class", "0x020000"),
    FILE_OF(PARENT "/%I/device", "0x0001"),
    DIR(PARENT "/%I/infiniband"),
    LINK(PARENT "/%I/infiniband/%D", "../../../infiniband/%D"),
    DIR(PARENT "/%I/infiniband_verbs"),
    LINK(PARENT "/%I/infiniband_verbs/uverbs%U", "../../../infiniband_verbs/uverbs%U"),
    FILE_BY(PARENT "/%I/local_cpulist", sw_text_cpulist),
    FILE_BY(PARENT "/%I/local_cpus", sw_text_cpus),
    DIR(PARENT "/%I/net"),
    LINK(PARENT "/%I/net/%I", "../../../../../class/net/%I"),
    FILE_BY(PARENT "/%I/numa_node", sw_text_numa_node),
    FILE_OF(PARENT "/%I/revision", "0x00"),
    FILE_OF(PARENT "/%I/subsystem_device", "0x0001"),
    FILE_OF(PARENT "/%I/subsystem_vendor", "0x5357"),
    FILE_OF(PARENT "/%I/uevent", "DRIVER=sidewire"),
    FILE_OF(PARENT "/%I/vendor", "0x5357"),

    SHARED(VIRTUAL),
    DIR(VIRTUAL "/%D"),
    FILE_OF(VIRTUAL "/%D/board_id", "sidewire"),
    LINK(VIRTUAL "/%D/device", "../../sidewire/%I"),
    FILE_BY(VIRTUAL "/%D/fw_ver", sw_text_version),
    FILE_OF(VIRTUAL "/%D/hca_type", "sidewire"),
    FILE_OF(VIRTUAL "/%D/hw_rev", "0x1"),
    FILE_OF(VIRTUAL "/%D/node_desc", "sidewire"),
    FILE_BY(VIRTUAL "/%D/node_guid", sw_text_guid),
    FILE_BY(VIRTUAL "/%D/node_type", sw_text_node_type),
    LINK(VIRTUAL "/%D/subsystem", "../../../../class/infiniband"),
    FILE_BY(VIRTUAL "/%D/sys_image_guid", sw_text_guid),
    FILE_OF(VIRTUAL "/%D/uevent", "NAME=%D"),
    DIR(VIRTUAL "/%D/ports"),
    DIR(PORT),
    FILE_BY(PORT "/cap_mask", sw_text_cap_mask),
    DIR(PORT "/gid_attrs"),
    DIR(PORT "/gid_attrs/ndevs"),
    FILE_BY(PORT "/gid_attrs/ndevs/%G", sw_text_gid_ndev),
    DIR(PORT "/gid_attrs/types"),
    FILE_BY(PORT "/gid_attrs/types/%G", sw_text_gid_type),
    DIR(PORT "/gids"),
    FILE_BY(PORT "/gids/%G", sw_text_gid),
    FILE_OF(PORT "/lid", "0x0"),
    FILE_OF(PORT "/lid_mask_count", "0"),
    FILE_OF(PORT "/link_layer", "Ethernet"),
    FILE_BY(PORT "/phys_state", sw_text_phys_state),
    DIR(PORT "/pkeys"),
    FILE_OF(PORT "/pkeys/0", "0xffff"),
    FILE_BY(PORT "/rate", sw_text_rate),
    FILE_OF(PORT "/sm_lid", "0x0"),
    FILE_OF(PORT "/sm_sl", "0"),
    FILE_BY(PORT "/state", sw_text_state),

    /* Sums over all processes of the user, asked when they are read: link/link.h. The others stay
     * zero: they are of the link layer. docs/counters.md */
    DIR(PORT "/counters"),
    COUNTER("excessive_buffer_overrun_errors"),
    COUNTER("link_downed"),
    COUNTER("link_error_recovery"),
    COUNTER("local_link_integrity_errors"),
    FILE_BY(PORT "/counters/multicast_rcv_packets", sw_text_traffic),
    FILE_BY(PORT "/counters/multicast_xmit_packets", sw_text_traffic),
    COUNTER("port_rcv_constraint_errors"),
    FILE_BY(PORT "/counters/port_rcv_data", sw_text_traffic),
    COUNTER("port_rcv_errors"),
    FILE_BY(PORT "/counters/port_rcv_packets", sw_text_traffic),
    COUNTER("port_rcv_remote_physical_errors"),
    COUNTER("port_rcv_switch_relay_errors"),
    COUNTER("port_xmit_constraint_errors"),
    FILE_BY(PORT "/counters/port_xmit_data", sw_text_traffic),
    COUNTER("port_xmit_discards"),
    FILE_BY(PORT "/counters/port_xmit_packets", sw_text_traffic),
    COUNTER("port_xmit_wait"),
    COUNTER("symbol_error"),
    FILE_BY(PORT "/counters/unicast_rcv_packets", sw_text_traffic),
    FILE_BY(PORT "/counters/unicast_xmit_packets", sw_text_traffic),
    COUNTER("VL15_dropped"),
    DIR(PORT "/hw_counters"),
    FILE_OF(PORT "/hw_counters/lifespan", "10"),
    HW_COUNTER("ack_timeouts_excused"),
    HW_COUNTER("duplicate_request"),
    HW_COUNTER("iwarp_strangers"),
    HW_COUNTER("iwarp_terminates_received"),
    HW_COUNTER("iwarp_terminates_sent"),
    HW_COUNTER("liveness_refused"),
    HW_COUNTER("local_ack_timeout_err"),
    HW_COUNTER("np_cnp_sent"),
    HW_COUNTER("np_ecn_marked_roce_packets"),
    HW_COUNTER("out_of_sequence"),
    HW_COUNTER("packet_seq_err"),
    HW_COUNTER("peer_deaths"),
    FILE_BY(PORT "/hw_counters/rcvd_pkts", sw_text_traffic),
    HW_COUNTER("req_cqe_error"),
    HW_COUNTER("req_cqe_flush_error"),
    HW_COUNTER("resp_cqe_error"),
    HW_COUNTER("resp_cqe_flush_error"),
    HW_COUNTER("retrans_pkts"),
    HW_COUNTER("retry_exceeded_err"),
    HW_COUNTER("retry_rnr_exceeded_err"),
    HW_COUNTER("rnr_nak_retry_err"),
    HW_COUNTER("rp_cnp_handled"),
    HW_COUNTER("rx_drop_astray"),
    HW_COUNTER("rx_drop_length"),
    HW_COUNTER("rx_drop_malformed"),
    HW_COUNTER("rx_drop_crowded"),
    HW_COUNTER("rx_drop_no_qp"),
    HW_COUNTER("rx_drop_no_recv"),
    HW_COUNTER("rx_drop_qkey"),
    HW_COUNTER("rx_icrc_encapsulated"),
    HW_COUNTER("send_rnr_err"),
    FILE_BY(PORT "/hw_counters/sent_pkts", sw_text_traffic),
    HW_COUNTER("tcp_calls_refused"),
    HW_COUNTER("tcp_connections"),
    HW_COUNTER("tcp_fallbacks"),
    HW_COUNTER("tcp_resets"),
    HW_COUNTER("tcp_strangers"),
    HW_COUNTER("tx_drop_stalled"),
    HW_COUNTER("peer_refused"),
    HW_COUNTER("peer_memory_lost"),
    HW_COUNTER("tx_drop_unreachable"),
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

/* Where a row hangs in the tree, worked out once from the paths. */
static struct place {
    int parent; /* a row, or -1 for the roots */
    const char *name;
    size_t name_len;
} places[ROW_COUNT];
static pthread_once_t places_once = PTHREAD_ONCE_INIT;

static void fill_places(void)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const char *path = rows[i].path;
        const char *name = strrchr(path, '/') + 1;
        size_t dir_len = (size_t)(name - 1 - path);
        places[i] = (struct place){.parent = -1, .name = name, .name_len = strlen(name)};
        for (size_t dir = 0; dir < i; dir++)
            if (strlen(rows[dir].path) == dir_len && !memcmp(rows[dir].path, path, dir_len))
                places[i].parent = (int)dir;
    }
}

static bool is_of_interface(const struct sw_netdev *dev, const struct sw_netdev_info *info)
{
    struct sw_netdev_info own;
    sw_netdev_read((struct sw_netdev *)dev, &own);
    return !strcmp(own.ifname, info->ifname);
}

/* Binds the node to the device that the name tells, or holds it to the one that an earlier
 * component told: which interface does not say which of its devices. */
static bool bind_device(struct sw_node *node, char kind, const char *name, size_t len)
{
    for (int i = 0; i < sw_netdev_count(); i++) {
        struct sw_netdev *dev = sw_netdev_get(i);
        struct sw_netdev_info info;
        char uverbs[16];
        sw_netdev_read(dev, &info);
        snprintf(uverbs, sizeof(uverbs), "%d", info.uverbs);
        const char *have = kind == 'D' ? info.name : kind == 'I' ? info.ifname : uverbs;
        if (strlen(have) != len || memcmp(have, name, len))
            continue;
        if (node->dev && node->dev != dev &&
            !(node->is_interface && is_of_interface(node->dev, &info)))
            return false;
        node->dev = dev;
        node->is_interface = kind == 'I';
        return true;
    }
    return false;
}

/* iWARP's ports have no P_Keys. */
static bool is_shown(const struct sw_tree_row *row, const struct sw_netdev *dev)
{
    return !dev || !sw_netdev_is_iwarp(dev) || !strstr(row->path, "/pkeys");
}

static bool bind_number(struct sw_node *node, const char *name, size_t len)
{
    int number = 0;
    if (len == 0 || len > 3 || (name[0] == '0' && len > 1))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (name[i] < '0' || name[i] > '9')
            return false;
        number = number * 10 + (name[i] - '0');
    }
    node->number = number;
    return number < sw_netdev_gid_table_len(node->dev);
}

/* Matches one component; a wildcard stands at its end. */
static bool match_name(const struct place *place, const char *name, size_t len,
                       struct sw_node *node)
{
    size_t pattern_len = place->name_len;
    if (pattern_len < 2 || place->name[pattern_len - 2] != '%')
        return pattern_len == len && !memcmp(place->name, name, len);
    size_t prefix = pattern_len - 2;
    char kind = place->name[pattern_len - 1];
    if (len <= prefix || memcmp(place->name, name, prefix))
        return false;
    if (kind == 'G')
        return bind_number(node, name + prefix, len - prefix);
    return bind_device(node, kind, name + prefix, len - prefix);
}

/* Goes down from a root along the rest of the path. */
static enum sw_tree_match descend_row(size_t row, const char *rest, struct sw_node *out)
{
    struct sw_node node = {0};
    while (*rest) {
        size_t len = strcspn(++rest, "/");
        size_t child = row + 1; /* a directory stands before its entries */
        while (child < ROW_COUNT &&
               (places[child].parent != (int)row || !match_name(&places[child], rest, len, &node) ||
                !is_shown(&rows[child], node.dev)))
            child++;
        if (child == ROW_COUNT)
            return SW_TREE_FOREIGN;
        row = child;
        rest += len;
    }
    node.row = &rows[row];
    *out = node;
    return SW_TREE_NODE;
}

const char *sw_node_name(const struct sw_node *node)
{
    return strrchr(node->row->path, '/') + 1;
}

enum sw_tree_match sw_tree_lookup(const char *path, struct sw_node *out)
{
    pthread_once(&places_once, fill_places);
    enum sw_tree_match best = SW_TREE_FOREIGN;
    size_t path_len = strlen(path);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (places[i].parent >= 0)
            continue;
        const char *root = rows[i].path;
        size_t root_len = strlen(root);
        if (!strncmp(path, root, root_len) && (!path[root_len] || path[root_len] == '/'))
            return descend_row(i, path + root_len, out);
        if (!strncmp(root, path, path_len) && root[path_len] == '/')
            best = SW_TREE_ABOVE;
    }
    return best;
}

enum sw_tree_kind sw_node_kind(const struct sw_node *node)
{
    return node->row->kind;
}

int sw_node_text(const struct sw_node *node, char out[SW_TREE_TEXT_MAX])
{
    const struct sw_tree_row *row = node->row;
    if (row->make)
        return row->make(node, out);
    struct sw_netdev_info info = {0};
    if (node->dev)
        sw_netdev_read(node->dev, &info);
    return row->text ? sw_text_expand(row->text, &info, out) : -EINVAL;
}

/* Whether an entry of the directory is made of this device. Two of one interface have one entry
 * for that. */
static bool is_entry(const struct sw_node *dir, int index, char kind)
{
    struct sw_netdev *dev = sw_netdev_get(index);
    struct sw_netdev_info info;
    sw_netdev_read(dev, &info);
    for (int i = 0; kind == 'I' && i < index; i++)
        if (is_of_interface(sw_netdev_get(i), &info))
            return false;
    return !dir->dev || dir->dev == dev || (dir->is_interface && is_of_interface(dir->dev, &info));
}

/* Names all entries that one row stands for. */
static void list_row(const struct sw_node *dir, const struct sw_tree_row *row, const char *name,
                     sw_node_list_fn fn, void *arg)
{
    const char *wildcard = strchr(name, '%');
    char text[SW_TREE_TEXT_MAX];
    if (!wildcard) {
        fn(arg, name, row->kind);
    } else if (wildcard[1] == 'G') {
        for (int i = 0; i < sw_netdev_gid_table_len(dir->dev); i++) {
            snprintf(text, sizeof(text), "%d", i);
            fn(arg, text, row->kind);
        }
    } else {
        for (int i = 0; i < sw_netdev_count(); i++) {
            struct sw_netdev_info info;
            if (!is_entry(dir, i, wildcard[1]))
                continue;
            sw_netdev_read(sw_netdev_get(i), &info);
            if (sw_text_expand(name, &info, text) > 0)
                fn(arg, text, row->kind);
        }
    }
}

void sw_node_list(const struct sw_node *dir, sw_node_list_fn fn, void *arg)
{
    int parent = (int)(dir->row - rows);
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (places[i].parent == parent && is_shown(&rows[i], dir->dev))
            list_row(dir, &rows[i], places[i].name, fn, arg);
}

bool sw_tree_list_roots(const char *path, sw_node_list_fn fn, void *arg)
{
    size_t len = strlen(path);
    bool any = false;
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (strncmp(path, "/sys", 4) && strncmp(path, "/dev", 4))
        return false;
    pthread_once(&places_once, fill_places);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (places[i].parent >= 0 || strncmp(rows[i].path, path, len) || rows[i].path[len] != '/' ||
            strchr(rows[i].path + len + 1, '/'))
            continue;
        any = true;
        if (fn)
            fn(arg, rows[i].path + len + 1, rows[i].kind);
    }
    return any;
}
