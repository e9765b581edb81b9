/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device list: real RDMA devices as stock libibverbs sees them, then ours, one for each network
 * interface that is up.
 *
 * Our devices live in one static array for the life of the process, like the netdevs behind them:
 * pointers stay valid after ibv_free_device_list, and a range check tells whose a device is.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "verbs/context.h"
#include "verbs/object.h"
#include "verbs/stock.h"

struct sw_verbs_device sw_verbs_devices[SW_NETDEV_MAX];

/* A list given out: this header, then the NULL-terminated array the program sees. Kept in a chain,
 * because stock code also frees lists of its own making through our ibv_free_device_list. */
struct list_header {
    struct list_header *next;
    struct ibv_device **stock; /* the references behind the stock devices, or NULL */
    struct ibv_device *devices[];
};

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards the chain and the filling of sw_verbs_devices */
static struct list_header *lists;

static void fill_device(int index, struct sw_netdev *netdev, const struct sw_netdev_info *info)
{
    struct sw_verbs_device *device = &sw_verbs_devices[index];
    if (device->netdev)
        return;
    struct ibv_device *ibv = &device->ibv;
    const bool is_iwarp = info->kind == SW_NETDEV_IWARP;
    ibv->node_type = is_iwarp ? IBV_NODE_RNIC : IBV_NODE_CA;
    ibv->transport_type = is_iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
    memcpy(ibv->name, info->name, sizeof(ibv->name));
    snprintf(ibv->dev_name, sizeof(ibv->dev_name), "uverbs%d", info->uverbs);
    snprintf(ibv->dev_path, sizeof(ibv->dev_path), "/sys/class/infiniband_verbs/uverbs%d",
             info->uverbs);
    snprintf(ibv->ibdev_path, sizeof(ibv->ibdev_path), "/sys/class/infiniband/%s", info->name);
    device->netdev = netdev;
}

static bool is_name_of_ours(const char *name)
{
    for (int i = 0; i < SW_NETDEV_MAX && sw_verbs_devices[i].netdev; i++)
        if (!strcmp(sw_verbs_devices[i].ibv.name, name))
            return true;
    return false;
}

/* Appends our devices that are up; returns the new length. */
static int append_ours(struct ibv_device **devices, int len)
{
    const int count = sw_netdev_count();
    for (int i = 0; i < count && i < SW_NETDEV_MAX; i++) {
        struct sw_netdev *netdev = sw_netdev_get(i);
        struct sw_netdev_info info;
        sw_netdev_read(netdev, &info);
        fill_device(i, netdev, &info);
        if (info.up)
            devices[len++] = &sw_verbs_devices[i].ibv;
    }
    return len;
}

/* The sysfs tree we show may lead a vendor driver of stock libibverbs to one of our own devices;
 * such a twin is left out. */
static int append_stock(struct ibv_device **devices, int len, struct ibv_device **stock,
                        int stock_len)
{
    for (int i = 0; i < stock_len; i++)
        if (!is_name_of_ours(stock[i]->name))
            devices[len++] = stock[i];
    return len;
}

/* A program says at most that it has found none; the reason is told here, once. */
static void tell_none(void)
{
    static atomic_flag has_told = ATOMIC_FLAG_INIT;
    const char *wanted = getenv("SIDEWIRE_DEVICES");
    if (atomic_flag_test_and_set(&has_told))
        return;
    if (wanted && *wanted)
        sw_warn("no device: none of the interfaces in SIDEWIRE_DEVICES=%.200s is up; "
                "mend: unset SIDEWIRE_DEVICES",
                wanted);
    else
        sw_warn("no device: no network interface is up; mend: ip link set lo up (as root)");
}

#undef ibv_get_device_list
SW_EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
    if (num_devices)
        *num_devices = 0;

    /* While a device is open the engine watches the interfaces, and a refresh here would swallow
     * its events. */
    if (!sw_verbs_open_contexts())
        sw_netdev_refresh(NULL, NULL);

    /* Stock fails where the kernel has no RDMA at all (ENOSYS); that is no reason to have no
     * devices. */
    int stock_len = 0;
    struct ibv_device **stock = sw_stock()->get_device_list(&stock_len);
    if (!stock)
        stock_len = 0;

    const size_t room = (size_t)stock_len + SW_NETDEV_MAX + 1;
    struct list_header *header = calloc(1, sizeof(*header) + room * sizeof(header->devices[0]));
    if (!header) {
        if (stock)
            sw_stock()->free_device_list(stock);
        errno = ENOMEM;
        return NULL;
    }
    header->stock = stock;
    struct ibv_device *ours[SW_NETDEV_MAX];
    pthread_mutex_lock(&lock);
    const int ours_len = append_ours(ours, 0);
    const int len = append_stock(header->devices, 0, stock, stock_len);
    memcpy(&header->devices[len], ours, (size_t)ours_len * sizeof(ours[0]));
    header->next = lists;
    lists = header;
    pthread_mutex_unlock(&lock);

    if (len + ours_len == 0)
        tell_none();
    if (num_devices)
        *num_devices = len + ours_len;
    return header->devices;
}

static struct list_header *unchain_list(struct ibv_device **devices)
{
    struct list_header *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct list_header **at = &lists; *at; at = &(*at)->next) {
        if ((*at)->devices == devices) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

SW_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    struct list_header *header = unchain_list(list);
    struct ibv_device **stock = header ? header->stock : list;
    if (stock)
        sw_stock()->free_device_list(stock);
    free(header);
}

int sw_stock_has_devices(void)
{
    int len = 0;
    struct ibv_device **stock = sw_stock()->get_device_list(&len);
    if (!stock)
        return 0;
    int real = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < len; i++)
        real += !is_name_of_ours(stock[i]->name);
    pthread_mutex_unlock(&lock);
    sw_stock()->free_device_list(stock);
    return real;
}

SW_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name; /* a public field, whoever's device it is */
}

static struct sw_netdev_info device_info_of(const struct ibv_device *device)
{
    struct sw_netdev_info info;
    sw_netdev_read(((const struct sw_verbs_device *)device)->netdev, &info);
    return info;
}

SW_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
    return sw_verbs_is_ours(device) ? device_info_of(device).guid
                                    : sw_stock()->get_device_guid(device);
}

SW_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
    return sw_verbs_is_ours(device) ? device_info_of(device).index
                                    : sw_stock()->get_device_index(device);
}

SW_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    if (!sw_verbs_is_ours(device))
        return sw_stock()->open_device(device);
    return sw_verbs_context_open((struct sw_verbs_device *)device);
}

SW_EXPORT int ibv_close_device(struct ibv_context *context)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->close_device(context);
    sw_verbs_context_put(context);
    return 0;
}

static struct sw_verbs_device *find_ours(const char *name)
{
    struct sw_verbs_device *found = NULL;
    struct ibv_device **list = ibv_get_device_list(NULL); /* also fills what it shows */
    for (int i = 0; list && list[i]; i++)
        if (sw_verbs_is_ours(list[i]) && !strcmp(list[i]->name, name))
            found = (struct sw_verbs_device *)list[i];
    if (list)
        ibv_free_device_list(list);
    return found;
}

/* A context of the same device, which owns the descriptor from then on. */
SW_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
    char name[IBV_SYSFS_NAME_MAX];
    if (!sw_verbs_is_cmd_fd(cmd_fd, name))
        return sw_stock()->import_device(cmd_fd);
    struct sw_verbs_device *device = find_ours(name);
    struct ibv_context *context = device ? sw_verbs_context_open(device) : sw_verbs_fail(-ENODEV);
    if (context) {
        close(context->cmd_fd);
        context->cmd_fd = cmd_fd;
    }
    return context;
}
