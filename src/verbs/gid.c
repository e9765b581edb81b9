/* SPDX-License-Identifier: BSD-2-Clause */
/* Queries of the port's GID and P_Key tables. RoCE ports have one P_Key, the default one (RoCEv2
 * annex A17.4.6). */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "verbs/object.h"
#include "verbs/stock.h"

#define DEFAULT_PKEY 0xffff

/* 0, EINVAL for a port or index out of range, ENODATA for an empty entry. */
static int read_gid(struct ibv_context *context, uint32_t port_num, uint32_t index,
                    struct sw_gid *out)
{
    if (port_num != 1 || index > INT32_MAX ||
        !sw_netdev_gid(sw_verbs_netdev_of(context), (int)index, out))
        return EINVAL;
    return out->valid ? 0 : ENODATA;
}

SW_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
                            union ibv_gid *gid)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->query_gid(context, port_num, index, gid);
    struct sw_gid found;
    const int rc = index < 0 ? EINVAL : read_gid(context, port_num, (uint32_t)index, &found);
    if (rc == ENODATA) { /* an empty entry reads as zeros here */
        memset(gid, 0, sizeof(*gid));
        return 0;
    }
    if (rc) {
        errno = rc;
        return -1;
    }
    *gid = found.gid;
    return 0;
}

static struct ibv_gid_entry gid_entry_of(const struct sw_gid *gid, uint32_t index,
                                         unsigned int ifindex)
{
    return (struct ibv_gid_entry){
        .gid = gid->gid,
        .gid_index = index,
        .port_num = 1,
        .gid_type = gid->type == SW_GID_MAC       ? IBV_GID_TYPE_IB
                    : gid->type == SW_GID_ROCE_V1 ? IBV_GID_TYPE_ROCE_V1
                                                  : IBV_GID_TYPE_ROCE_V2,
        .ndev_ifindex = ifindex,
    };
}

/* The program's entries may be shorter (older) or longer (newer) than ours. */
static void store_entry(void *to, const struct ibv_gid_entry *entry, size_t entry_size)
{
    memset(to, 0, entry_size);
    memcpy(to, entry, entry_size < sizeof(*entry) ? entry_size : sizeof(*entry));
}

static unsigned int ifindex_of(const struct ibv_context *context)
{
    struct sw_netdev_info info;
    sw_netdev_read(sw_verbs_netdev_of(context), &info);
    return info.ifindex;
}

SW_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
                                struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
    if (!sw_verbs_is_ours(context->device)) {
        __typeof__(_ibv_query_gid_ex) *stock = sw_stock_find("_ibv_query_gid_ex", "IBVERBS_1.11");
        return stock ? stock(context, port_num, gid_index, entry, flags, entry_size) : EOPNOTSUPP;
    }
    if (flags || !entry_size)
        return EINVAL;
    struct sw_gid found;
    const int rc = read_gid(context, port_num, gid_index, &found);
    if (rc)
        return rc;
    const struct ibv_gid_entry full = gid_entry_of(&found, gid_index, ifindex_of(context));
    store_entry(entry, &full, entry_size);
    return 0;
}

SW_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                       size_t max_entries, uint32_t flags, size_t entry_size)
{
    if (!sw_verbs_is_ours(context->device)) {
        __typeof__(_ibv_query_gid_table) *stock =
            sw_stock_find("_ibv_query_gid_table", "IBVERBS_1.11");
        return stock ? stock(context, entries, max_entries, flags, entry_size) : -EOPNOTSUPP;
    }
    if (flags || !entry_size || !max_entries)
        return -EINVAL;
    const unsigned int ifindex = ifindex_of(context);
    size_t count = 0;
    struct sw_gid gid;
    for (int i = 0; sw_netdev_gid(sw_verbs_netdev_of(context), i, &gid); i++) {
        if (!gid.valid)
            continue;
        if (count == max_entries)
            return -EINVAL;
        const struct ibv_gid_entry full = gid_entry_of(&gid, (uint32_t)i, ifindex);
        store_entry((char *)entries + count++ * entry_size, &full, entry_size);
    }
    return (ssize_t)count;
}

/* Private to rdma-core, but its own programs and libraries (ibv_devinfo, the address handle
 * helpers) call it. */
enum sysfs_gid_type { SYSFS_GID_IB_ROCE_V1, SYSFS_GID_ROCE_V2 };
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
                       enum sysfs_gid_type *type);

SW_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
                                 enum sysfs_gid_type *type)
{
    struct sw_gid found;
    if (!sw_verbs_is_ours(context->device)) {
        __typeof__(ibv_query_gid_type) *stock = sw_stock_find("ibv_query_gid_type", NULL);
        if (stock)
            return stock(context, port_num, index, type);
        errno = EOPNOTSUPP;
        return -1;
    }
    const int rc = read_gid(context, port_num, index, &found);
    if (rc && rc != ENODATA) {
        errno = rc;
        return -1;
    }
    *type = !rc && found.type == SW_GID_ROCE_V2 ? SYSFS_GID_ROCE_V2 : SYSFS_GID_IB_ROCE_V1;
    return 0;
}

SW_EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->query_pkey(context, port_num, index, pkey);
    if (port_num != 1 || index != 0 || sw_netdev_is_iwarp(sw_verbs_netdev_of(context))) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htobe16(DEFAULT_PKEY);
    return 0;
}

SW_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->get_pkey_index(context, port_num, pkey);
    if (port_num != 1 || pkey != htobe16(DEFAULT_PKEY) ||
        sw_netdev_is_iwarp(sw_verbs_netdev_of(context))) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}
