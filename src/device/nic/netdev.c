/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device list and the GID tables. Written only by sw_netdev_refresh(), one caller at a time
 * (refresh_mutex); the fields of a device are read and written under table_lock. Lock order:
 * refresh_mutex, then table_lock.
 */
#include "device/nic/netdev.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h> /* IFF_LOWER_UP, after net/if.h */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "device/nic/rtnl.h"

#define ADDRESSES_MAX (SW_GID_TABLE_LEN / 2)
#define KINDS 2

struct sw_netdev {
    struct sw_netdev_info info;
    union ibv_gid addrs[ADDRESSES_MAX]; /* entry i is the GIDs 2i and 2i+1 */
    bool used[ADDRESSES_MAX];
    bool gids_changed; /* since the last refresh that had somebody to tell */
    bool reported_up;
    bool is_present;  /* there is such an interface */
    bool has_gone;    /* it, or one before it, has vanished since the last refresh that had somebody
                         to tell */
    bool mac_changed; /* likewise, of an interface that has not gone */
    bool seen;        /* in the snapshot being applied */
};

static pthread_mutex_t refresh_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sw_lock table_lock;
static struct sw_netdev *netdevs[SW_NETDEV_MAX];
static atomic_int netdev_count;
static struct sw_rtnl_addr
    *host_addrs; /* of all interfaces, also those that SIDEWIRE_DEVICES leaves out */
static int host_addr_count;
static _Atomic uint64_t generation;    /* of host_addrs */
static int uverbs_base = -1;           /* the first uverbs number that no real device has */
static const char *device_filter;      /* SIDEWIRE_DEVICES at the first refresh; NULL for all */
static enum sw_netdev_kind usual_kind; /* by SIDEWIRE_LINK */
static atomic_int monitor_fd = -1;

/* The device list starts on a number of its own so that real devices keep theirs. Raw system calls:
 * the libc ones may be interposed by the layer above, which shows our own devices in this
 * directory. */
static int first_free_uverbs(void)
{
    int next = 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/sys/class/infiniband_verbs",
                          O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return next;
    _Alignas(struct dirent64) char buffer[2048];
    long got;
    while ((got = syscall(SYS_getdents64, fd, buffer, sizeof(buffer))) > 0) {
        for (long at = 0; at < got;) {
            const struct dirent64 *entry = (const void *)(buffer + at);
            int number;
            if (sscanf(entry->d_name, "uverbs%d", &number) == 1 && number >= next)
                next = number + 1;
            at += entry->d_reclen;
        }
    }
    close(fd);
    return next;
}

static const char *prefix_of(enum sw_netdev_kind kind)
{
    return kind == SW_NETDEV_IWARP ? "iw_" : "sw_";
}

/* Whether an item of the filter names a device of the interface, and of which kind: one that names
 * the interface alone means the kind that SIDEWIRE_LINK says. */
static bool item_names(const char *item, size_t len, const char *ifname, enum sw_netdev_kind *kind)
{
    const size_t name_len = strlen(ifname);
    if (len == name_len && !memcmp(item, ifname, len)) {
        *kind = usual_kind;
        return true;
    }
    for (int k = 0; k < KINDS; k++) {
        *kind = (enum sw_netdev_kind)k;
        if (len == name_len + 3 && !memcmp(item, prefix_of(*kind), 3) &&
            !memcmp(item + 3, ifname, name_len))
            return true;
    }
    return false;
}

/* The kinds of devices that the interface is to have, in the order in which they are named. */
static int kinds_wanted(const char *ifname, enum sw_netdev_kind out[KINDS])
{
    const char *at = device_filter;
    enum sw_netdev_kind kind;
    int count = 0;
    if (!at)
        out[count++] = usual_kind;
    while (at) {
        const size_t len = strcspn(at, ",");
        if (count < KINDS && item_names(at, len, ifname, &kind) && (!count || out[0] != kind))
            out[count++] = kind;
        at = at[len] ? at + len + 1 : NULL;
    }
    return count;
}

/* EUI-64 of the MAC (RFC 4291 appendix A); without one, a locally administered number made of the
 * name (FNV-1a). Two devices of an interface differ in it, since librdmacm tells them by it. */
static uint64_t make_guid(const struct sw_rtnl_link *link, enum sw_netdev_kind kind)
{
    static const uint8_t no_mac[6];
    uint8_t raw[8] = {link->mac[0] ^ 2, link->mac[1], link->mac[2], 0xff, 0xfe,
                      link->mac[3],     link->mac[4], link->mac[5]};
    if (!memcmp(link->mac, no_mac, sizeof(no_mac))) {
        uint64_t hash = 0xcbf29ce484222325ull;
        for (const char *c = link->ifname; *c; c++)
            hash = (hash ^ (uint8_t)*c) * 0x100000001b3ull;
        memcpy(raw, &hash, sizeof(raw));
        raw[0] = 2;
    }
    if (kind == SW_NETDEV_IWARP)
        raw[4] ^= 3;
    uint64_t guid;
    memcpy(&guid, raw, sizeof(guid));
    return guid;
}

static struct sw_netdev *find_netdev(const char *ifname, enum sw_netdev_kind kind)
{
    int count = atomic_load_explicit(&netdev_count, memory_order_relaxed);
    for (int i = 0; i < count; i++)
        if (netdevs[i]->info.kind == kind && !strcmp(netdevs[i]->info.ifname, ifname))
            return netdevs[i];
    return NULL;
}

static bool link_up(const struct sw_rtnl_link *link)
{
    return (link->flags & IFF_UP) && (link->flags & IFF_LOWER_UP);
}

static struct sw_netdev *add_netdev(const struct sw_rtnl_link *link, enum sw_netdev_kind kind)
{
    int index = atomic_load_explicit(&netdev_count, memory_order_relaxed);
    if (index == SW_NETDEV_MAX) {
        sw_debug("no room for interface %s: %d devices at most", link->ifname, SW_NETDEV_MAX);
        return NULL;
    }
    struct sw_netdev *dev = calloc(1, sizeof(*dev));
    if (!dev)
        return NULL;
    snprintf(dev->info.name, sizeof(dev->info.name), "%s%s", prefix_of(kind), link->ifname);
    dev->info.kind = kind;
    memcpy(dev->info.ifname, link->ifname, sizeof(dev->info.ifname));
    dev->info.index = index;
    dev->info.uverbs = uverbs_base + index;
    dev->info.guid =
        make_guid(link, kind); /* stays, even if the interface comes back with another MAC */
    dev->reported_up = link_up(link);
    netdevs[index] = dev;
    atomic_store_explicit(&netdev_count, index + 1,
                          memory_order_release); /* pairs with sw_netdev_count */
    return dev;
}

/* Called before the table lock is taken: asking a driver for its speed can block. */
static unsigned int current_speed(const struct sw_netdev *dev, const struct sw_rtnl_link *link)
{
    bool same = dev->info.ifindex == link->ifindex && dev->info.up == link_up(link);
    return same ? dev->info.speed_mbps : sw_rtnl_speed_mbps(link->ifname);
}

/* fe80::/64 first, then IPv4, then all other IPv6: the order in which the kernel's RoCE tables
 * fill. */
static int address_class(const union ibv_gid *gid)
{
    static const uint8_t link_local[8] = {0xfe, 0x80};
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (!memcmp(gid->raw, link_local, sizeof(link_local)))
        return 0;
    return memcmp(gid->raw, mapped, sizeof(mapped)) ? 2 : 1;
}

static bool snapshot_has(const struct sw_rtnl_snapshot *snapshot, unsigned int ifindex,
                         const union ibv_gid *gid)
{
    for (int i = 0; i < snapshot->addr_count; i++)
        if (snapshot->addrs[i].ifindex == ifindex &&
            !memcmp(&snapshot->addrs[i].gid, gid, sizeof(*gid)))
            return true;
    return false;
}

static void add_address(struct sw_netdev *dev, const union ibv_gid *gid)
{
    int free_entry = -1;
    for (int i = ADDRESSES_MAX - 1; i >= 0; i--) {
        if (!dev->used[i])
            free_entry = i;
        else if (!memcmp(&dev->addrs[i], gid, sizeof(*gid)))
            return;
    }
    if (free_entry < 0)
        return; /* as with hardware, what the table cannot hold has no GID */
    dev->addrs[free_entry] = *gid;
    dev->used[free_entry] = true;
    dev->gids_changed = true;
}

/* Under table_lock. Addresses that stay keep their entries; `link` is NULL for an interface that
 * vanished. */
static void apply_addresses(struct sw_netdev *dev, const struct sw_rtnl_link *link,
                            const struct sw_rtnl_snapshot *snapshot)
{
    for (int i = 0; i < ADDRESSES_MAX; i++) {
        if (!dev->used[i] || (link && snapshot_has(snapshot, link->ifindex, &dev->addrs[i])))
            continue;
        dev->used[i] = false;
        dev->gids_changed = true;
    }
    for (int class = 0; link && class < 3; class ++)
        for (int i = 0; i < snapshot->addr_count; i++)
            if (snapshot->addrs[i].ifindex == link->ifindex &&
                address_class(&snapshot->addrs[i].gid) == class)
                add_address(dev, &snapshot->addrs[i].gid);
}

static void apply_kind(const struct sw_rtnl_link *link, enum sw_netdev_kind kind,
                       const struct sw_rtnl_snapshot *snapshot)
{
    struct sw_netdev *dev = find_netdev(link->ifname, kind);
    bool is_new = !dev;
    if (is_new && (link->flags & IFF_UP))
        dev = add_netdev(link, kind);
    if (!dev)
        return;

    unsigned int speed_mbps = current_speed(dev, link);
    sw_lock_acquire(&table_lock);
    const bool is_another = dev->info.ifindex != link->ifindex;
    dev->has_gone |= dev->is_present && is_another;
    dev->mac_changed |= dev->is_present && !is_another && !is_new &&
                        memcmp(dev->info.mac, link->mac, sizeof(dev->info.mac)) != 0;
    dev->is_present = true;
    dev->info.ifindex = link->ifindex;
    dev->info.mtu_bytes = link->mtu_bytes;
    dev->info.speed_mbps = speed_mbps;
    dev->info.up = link_up(link);
    memcpy(dev->info.mac, link->mac, sizeof(dev->info.mac));
    apply_addresses(dev, link, snapshot);
    if (is_new)
        dev->gids_changed = false; /* nobody has seen the device without them */
    dev->seen = true;
    sw_lock_release(&table_lock);
}

static void apply_link(const struct sw_rtnl_link *link, const struct sw_rtnl_snapshot *snapshot)
{
    enum sw_netdev_kind kinds[KINDS];
    const int count = kinds_wanted(link->ifname, kinds);
    for (int i = 0; i < count; i++)
        apply_kind(link, kinds[i], snapshot);
}

static void apply_vanished(void)
{
    sw_lock_acquire(&table_lock);
    for (int i = 0; i < sw_netdev_count(); i++) {
        if (!netdevs[i]->seen) {
            netdevs[i]->has_gone |= netdevs[i]->is_present;
            netdevs[i]->is_present = netdevs[i]->info.up = false;
            apply_addresses(netdevs[i], NULL, NULL);
        }
        netdevs[i]->seen = false;
    }
    sw_lock_release(&table_lock);
}

/* Takes over the snapshot's address array. */
static void apply_host_addrs(struct sw_rtnl_snapshot *snapshot)
{
    sw_lock_acquire(&table_lock);
    struct sw_rtnl_addr *old = host_addrs;
    host_addrs = snapshot->addrs;
    host_addr_count = snapshot->addr_count;
    atomic_fetch_add(&generation, 1);
    sw_lock_release(&table_lock);
    snapshot->addrs = old;
}

static void apply_snapshot(struct sw_rtnl_snapshot *snapshot)
{
    if (uverbs_base < 0) {
        uverbs_base = first_free_uverbs();
        const char *wanted = getenv("SIDEWIRE_DEVICES");
        const char *link = getenv("SIDEWIRE_LINK");
        device_filter = wanted && *wanted ? strdup(wanted) : NULL;
        usual_kind = link && !strcmp(link, "iwarp") ? SW_NETDEV_IWARP : SW_NETDEV_ROCE;
    }
    /* The loopback last: programs that take the first device mean a network. */
    for (int loopback = 0; loopback < 2; loopback++)
        for (int i = 0; i < snapshot->link_count; i++)
            if (!!(snapshot->links[i].flags & IFF_LOOPBACK) == loopback)
                apply_link(&snapshot->links[i], snapshot);
    apply_vanished();
    apply_host_addrs(snapshot);
}

static void report_changes(sw_netdev_change_fn fn, void *arg)
{
    for (int i = 0; i < sw_netdev_count(); i++) {
        struct sw_netdev *dev = netdevs[i];
        sw_lock_acquire(&table_lock);
        bool gids_changed = dev->gids_changed;
        bool up = dev->info.up, has_gone = dev->has_gone;
        bool up_changed = dev->reported_up != up, mac_changed = dev->mac_changed && !has_gone;
        dev->gids_changed = dev->has_gone = dev->mac_changed = false;
        dev->reported_up = up;
        sw_lock_release(&table_lock);
        if (has_gone)
            fn(arg, dev, SW_NETDEV_GONE);
        if (mac_changed)
            fn(arg, dev, SW_NETDEV_MAC_CHANGE);
        if (gids_changed)
            fn(arg, dev, SW_NETDEV_GID_CHANGE);
        if (up_changed)
            fn(arg, dev, up ? SW_NETDEV_PORT_UP : SW_NETDEV_PORT_DOWN);
    }
}

int sw_netdev_refresh(sw_netdev_change_fn fn, void *arg)
{
    struct sw_rtnl_snapshot snapshot;
    pthread_mutex_lock(&refresh_mutex);
    int err = sw_rtnl_snapshot_take(&snapshot);
    if (!err) {
        apply_snapshot(&snapshot);
        sw_rtnl_snapshot_free(&snapshot);
    }
    pthread_mutex_unlock(&refresh_mutex);
    if (!err && fn)
        report_changes(fn, arg);
    return err;
}

int sw_netdev_count(void)
{
    return atomic_load_explicit(&netdev_count, memory_order_acquire); /* pairs with add_netdev */
}

struct sw_netdev *sw_netdev_get(int index)
{
    return index >= 0 && index < sw_netdev_count() ? netdevs[index] : NULL;
}

void sw_netdev_read(struct sw_netdev *dev, struct sw_netdev_info *out)
{
    sw_lock_acquire(&table_lock);
    *out = dev->info;
    sw_lock_release(&table_lock);
}

bool sw_netdev_is_iwarp(const struct sw_netdev *dev)
{
    return dev->info.kind == SW_NETDEV_IWARP; /* never changes */
}

bool sw_netdev_is_interface(struct sw_netdev *dev, unsigned int ifindex)
{
    sw_lock_acquire(&table_lock);
    const bool is_it = dev->is_present && dev->info.ifindex == ifindex;
    sw_lock_release(&table_lock);
    return is_it;
}

bool sw_netdev_has_kind(enum sw_netdev_kind kind)
{
    bool has = false;
    sw_lock_acquire(&table_lock);
    for (int i = 0; i < sw_netdev_count() && !has; i++)
        has = netdevs[i]->info.kind == kind && netdevs[i]->is_present;
    sw_lock_release(&table_lock);
    return has;
}

int sw_netdev_gid_table_len(const struct sw_netdev *dev)
{
    return sw_netdev_is_iwarp(dev) ? 1 : SW_GID_TABLE_LEN;
}

/* The hardware address, as iWARP's devices have it; one without is known by its GUID. */
static void read_mac_gid(struct sw_netdev *dev, struct sw_gid *out)
{
    static const uint8_t no_mac[6];
    *out = (struct sw_gid){.type = SW_GID_MAC, .valid = true};
    sw_lock_acquire(&table_lock);
    const bool has_mac = memcmp(dev->info.mac, no_mac, sizeof(no_mac)) != 0;
    memcpy(out->gid.raw, has_mac ? dev->info.mac : (const uint8_t *)&dev->info.guid,
           sizeof(no_mac));
    sw_lock_release(&table_lock);
}

bool sw_netdev_gid(struct sw_netdev *dev, int index, struct sw_gid *out)
{
    if (index < 0 || index >= sw_netdev_gid_table_len(dev))
        return false;
    if (!sw_netdev_is_iwarp(dev))
        return sw_netdev_address(dev, index, out);
    read_mac_gid(dev, out);
    return true;
}

bool sw_netdev_address(struct sw_netdev *dev, int index, struct sw_gid *out)
{
    if (index < 0 || index >= SW_GID_TABLE_LEN)
        return false;
    struct sw_gid entry = {.type = index % 2 ? SW_GID_ROCE_V2 : SW_GID_ROCE_V1};
    sw_lock_acquire(&table_lock);
    entry.valid = dev->used[index / 2];
    if (entry.valid)
        entry.gid = dev->addrs[index / 2];
    sw_lock_release(&table_lock);
    *out = entry;
    return true;
}

int sw_netdev_gid_count(struct sw_netdev *dev)
{
    int entries = ADDRESSES_MAX;
    if (sw_netdev_is_iwarp(dev))
        return 1;
    sw_lock_acquire(&table_lock);
    while (entries > 0 && !dev->used[entries - 1])
        entries--;
    sw_lock_release(&table_lock);
    return entries * 2;
}

bool sw_netdev_is_local_gid(const union ibv_gid *gid)
{
    /* Every address of 127/8 is this host's (RFC 1122 3.2.1.3), though only 127.0.0.1 is
     * configured. */
    if (address_class(gid) == 1 && gid->raw[12] == 127)
        return true;
    bool found = false;
    sw_lock_acquire(&table_lock);
    for (int i = 0; i < host_addr_count && !found; i++)
        found = !memcmp(&host_addrs[i].gid, gid, sizeof(*gid));
    sw_lock_release(&table_lock);
    return found;
}

uint64_t sw_netdev_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_acquire);
}

/* The first of `kinds` (a bit for each) with the address. */
static struct sw_netdev *netdev_find_address(const union ibv_gid *gid, unsigned int kinds)
{
    struct sw_netdev *found = NULL;
    int count = sw_netdev_count();
    sw_lock_acquire(&table_lock);
    for (int i = 0; i < count && !found; i++) {
        if (!(kinds & 1u << netdevs[i]->info.kind))
            continue;
        for (int j = 0; j < ADDRESSES_MAX && !found; j++)
            if (netdevs[i]->used[j] && !memcmp(&netdevs[i]->addrs[j], gid, sizeof(*gid)))
                found = netdevs[i];
    }
    sw_lock_release(&table_lock);
    return found;
}

struct sw_netdev *sw_netdev_with_gid(const union ibv_gid *gid)
{
    return netdev_find_address(gid, 1u << SW_NETDEV_ROCE);
}

struct sw_netdev *sw_netdev_with_address(const union ibv_gid *address)
{
    return netdev_find_address(address, 1u << SW_NETDEV_ROCE | 1u << SW_NETDEV_IWARP);
}

struct sw_netdev *sw_netdev_iwarp_at(const union ibv_gid *address)
{
    return netdev_find_address(address, 1u << SW_NETDEV_IWARP);
}

int sw_netdev_monitor_fd(void)
{
    pthread_mutex_lock(&refresh_mutex);
    int fd = atomic_load_explicit(&monitor_fd, memory_order_relaxed);
    if (fd < 0)
        fd = sw_rtnl_monitor_open();
    if (fd >= 0)
        atomic_store_explicit(&monitor_fd, fd, memory_order_relaxed);
    pthread_mutex_unlock(&refresh_mutex);
    return fd;
}

void sw_netdev_monitor_drain(void)
{
    int fd = atomic_load_explicit(&monitor_fd, memory_order_relaxed);
    if (fd >= 0)
        sw_rtnl_monitor_drain(fd);
}

void sw_netdev_fork_child(void)
{
    int fd = atomic_exchange_explicit(&monitor_fd, -1, memory_order_relaxed);
    if (fd >= 0)
        close(fd);
}

static void netdev_fork_prepare(void)
{
    pthread_mutex_lock(&refresh_mutex);
    sw_lock_acquire(&table_lock);
}

static void fork_release(void)
{
    sw_lock_release(&table_lock);
    pthread_mutex_unlock(&refresh_mutex);
}

/* Before the constructors of the layers above: prepare handlers run last registered first, so a
 * layer that holds a lock over a fork and asks for ours under it gets its own before us. */
__attribute__((constructor(101))) static void register_fork_handlers(void)
{
    pthread_atfork(netdev_fork_prepare, fork_release, fork_release);
}
