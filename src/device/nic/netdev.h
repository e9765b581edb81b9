/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Network interfaces as RDMA devices: one device "sw_<ifname>" (RoCE) per interface that is up, or
 * "iw_<ifname>" (iWARP), or both, with its GID table. SIDEWIRE_LINK and SIDEWIRE_DEVICES say which.
 *
 * A device keeps its object (and its slot in the list) for the life of the process, also when the
 * interface goes down or vanishes (`up` is then false), so pointers stay valid. GID indices are
 * stable: an address keeps its index while it exists, a new address takes the lowest free pair.
 * Each address has two entries, RoCE v1 at an even index and RoCE v2 at the odd one after it. An
 * iWARP device has one GID, its hardware address. The
 * snapshot is refreshed by sw_netdev_refresh(): at start, and whenever sw_netdev_monitor_fd() is
 * readable. Readers copy what they need under the table's lock through the accessors here.
 */
#ifndef SW_DEVICE_NIC_NETDEV_H
#define SW_DEVICE_NIC_NETDEV_H

#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#define SW_NETDEV_MAX 256
#define SW_GID_TABLE_LEN 128

struct sw_gid {
    union ibv_gid gid;
    enum sw_gid_type { SW_GID_ROCE_V1, SW_GID_ROCE_V2, SW_GID_MAC /* of iWARP */ } type;
    bool valid;
};

enum sw_netdev_kind { SW_NETDEV_ROCE, SW_NETDEV_IWARP };

struct sw_netdev; /* opaque, lives as long as the process */

/* What a program may ask of the port; a consistent copy. */
struct sw_netdev_info {
    char name[IBV_SYSFS_NAME_MAX]; /* "sw_eth0", "iw_eth0" */
    enum sw_netdev_kind kind;
    char ifname[IF_NAMESIZE];
    unsigned int ifindex;
    int index;      /* position in the device list */
    int uverbs;     /* N of uverbsN: the index, moved past the numbers that real devices have */
    uint8_t mac[6]; /* zero for the loopback */
    uint64_t guid;  /* network byte order as in ibv_get_device_guid; EUI-64 of the MAC, or derived
                       from the ifname */
    unsigned int mtu_bytes;
    unsigned int speed_mbps; /* 0: unknown (the loopback, veth) */
    bool up;
};

/* What changed, for asynchronous events. */
enum sw_netdev_change {
    SW_NETDEV_GID_CHANGE,
    SW_NETDEV_PORT_UP,
    SW_NETDEV_PORT_DOWN,
    SW_NETDEV_GONE, /* the interface does not exist any more, though another may have its name */
    SW_NETDEV_MAC_CHANGE
};
typedef void (*sw_netdev_change_fn)(void *arg, struct sw_netdev *dev, enum sw_netdev_change change);

/* Reads interfaces and addresses (getifaddrs/rtnetlink). Calls `fn` (may be NULL) for each change
 * against the last refresh, without the lock held. Thread-safe. Returns 0 or a negative errno.
 * SIDEWIRE_DEVICES ("lo,eth0,iw_eth0") limits the devices. */
int sw_netdev_refresh(sw_netdev_change_fn fn, void *arg);

int sw_netdev_count(void);
struct sw_netdev *sw_netdev_get(int index); /* NULL past the end */
void sw_netdev_read(struct sw_netdev *dev, struct sw_netdev_info *out);
bool sw_netdev_is_iwarp(const struct sw_netdev *dev);
/* Whether it is that interface now. One that comes back has another number. */
bool sw_netdev_is_interface(struct sw_netdev *dev, unsigned int ifindex);
/* Whether there is one of that kind whose interface exists. */
bool sw_netdev_has_kind(enum sw_netdev_kind kind);
/* How long its GID table is. */
int sw_netdev_gid_table_len(const struct sw_netdev *dev);
/* The addresses of its interface: like sw_netdev_gid(), `valid` says whether there is one. */
bool sw_netdev_address(struct sw_netdev *dev, int index, struct sw_gid *out);
/* Returns false for an index past the table; an empty entry is returned with valid == false. */
bool sw_netdev_gid(struct sw_netdev *dev, int index, struct sw_gid *out);
int sw_netdev_gid_count(struct sw_netdev *dev); /* highest valid index + 1 */
/* True when any interface of this host has the address: the peer is then on this host. */
bool sw_netdev_is_local_gid(const union ibv_gid *gid);
/* A number that changes whenever the answer to that may. */
uint64_t sw_netdev_generation(void);
/* The RoCE device with this GID; NULL if there is none. */
struct sw_netdev *sw_netdev_with_gid(const union ibv_gid *gid);
/* The first device of any kind whose interface has the address, and the first iWARP device. */
struct sw_netdev *sw_netdev_with_address(const union ibv_gid *address);
struct sw_netdev *sw_netdev_iwarp_at(const union ibv_gid *address);

/* An rtnetlink socket subscribed to link and address changes (non-blocking, close-on-exec), opened
 * on first use; or a negative errno. When readable: call sw_netdev_monitor_drain(), then
 * sw_netdev_refresh(). */
int sw_netdev_monitor_fd(void);
void sw_netdev_monitor_drain(void);
/* In a forked child: forget the monitor's descriptor (closes it), keep the snapshot. */
void sw_netdev_fork_child(void);

#endif
