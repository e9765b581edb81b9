/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions that concern no device: names, rates, sysfs, fork. Names and rates are stock's own;
 * they are exported because a program that loads libibverbs with dlopen is given us and looks
 * everything up in us.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs/object.h"
#include "verbs/stock.h"

static const char *or_unknown(const char *name)
{
    return name ? name : "unknown";
}

SW_EXPORT const char *ibv_node_type_str(enum ibv_node_type node_type)
{
    return or_unknown(sw_stock()->node_type_str(node_type));
}

SW_EXPORT const char *ibv_port_state_str(enum ibv_port_state port_state)
{
    return or_unknown(sw_stock()->port_state_str(port_state));
}

SW_EXPORT const char *ibv_event_type_str(enum ibv_event_type event)
{
    return or_unknown(sw_stock()->event_type_str(event));
}

SW_EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    return or_unknown(sw_stock()->wc_status_str(status));
}

SW_EXPORT int ibv_rate_to_mult(enum ibv_rate rate)
{
    return sw_stock()->rate_to_mult(rate);
}

SW_EXPORT int ibv_rate_to_mbps(enum ibv_rate rate)
{
    return sw_stock()->rate_to_mbps(rate);
}

SW_EXPORT enum ibv_rate mult_to_ibv_rate(int mult)
{
    __typeof__(mult_to_ibv_rate) *stock = sw_stock_find("mult_to_ibv_rate", "IBVERBS_1.0");
    return stock ? stock(mult) : IBV_RATE_MAX;
}

SW_EXPORT enum ibv_rate mbps_to_ibv_rate(int mbps)
{
    __typeof__(mbps_to_ibv_rate) *stock = sw_stock_find("mbps_to_ibv_rate", "IBVERBS_1.1");
    return stock ? stock(mbps) : IBV_RATE_MAX;
}

/* Copies between the kernel's structs and the public ones, used by librdmacm. */
#define COPY(name, version)                                              \
    SW_EXPORT void name(void *to, void *from);                           \
    SW_EXPORT void name(void *to, void *from)                            \
    {                                                                    \
        static _Atomic(__typeof__(name) *) found;                        \
        __typeof__(name) *stock = atomic_load(&found);                   \
        if (!stock)                                                      \
            atomic_store(&found, stock = sw_stock_find(#name, version)); \
        if (stock)                                                       \
            stock(to, from);                                             \
    }
COPY(ibv_copy_ah_attr_from_kern, "IBVERBS_1.1")
COPY(ibv_copy_path_rec_from_kern, "IBVERBS_1.0")
COPY(ibv_copy_path_rec_to_kern, "IBVERBS_1.0")
COPY(ibv_copy_qp_attr_from_kern, "IBVERBS_1.0")

/* Declared in rdma-core's private headers, and used by librdmacm and by old programs. */
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

SW_EXPORT const char *ibv_get_sysfs_path(void)
{
    static char path[IBV_SYSFS_PATH_MAX];
    const char *env = secure_getenv("SYSFS_PATH");
    if (!env)
        return "/sys";
    size_t len = strnlen(env, sizeof(path) - 1);
    while (len && env[len - 1] == '/')
        len--;
    memmove(path, env, len);
    path[len] = '\0';
    return path;
}

/* Returns the length without a final newline, or -1 if the file cannot be read or does not fit with
 * its terminator. */
SW_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
    char *path;
    if (asprintf(&path, "%s/%s", dir, file) < 0)
        return -1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    free(path);
    if (fd < 0)
        return -1;
    ssize_t len = read(fd, buf, size);
    close(fd);
    if (len <= 0)
        return (int)len;
    if (buf[len - 1] == '\n')
        len--;
    if ((size_t)len >= size)
        return -1;
    buf[len] = '\0';
    return (int)len;
}

/*
 * Fork. Our regions survive it as they are (adopted pages are given to the child by the adopter's
 * own handlers). Real devices need stock's bookkeeping, which marks their regions MADV_DONTFORK.
 */

SW_EXPORT int ibv_fork_init(void)
{
    return sw_stock_has_devices() ? sw_stock()->fork_init() : 0;
}

SW_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
    return sw_stock_has_devices() ? sw_stock()->is_fork_initialized() : IBV_FORK_UNNEEDED;
}

/* Called by stock when it registers a region of a real device. */
int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

SW_EXPORT int ibv_dontfork_range(void *base, size_t size)
{
    __typeof__(ibv_dontfork_range) *stock = sw_stock_find("ibv_dontfork_range", "IBVERBS_1.1");
    return stock ? stock(base, size) : 0;
}

SW_EXPORT int ibv_dofork_range(void *base, size_t size)
{
    __typeof__(ibv_dofork_range) *stock = sw_stock_find("ibv_dofork_range", "IBVERBS_1.1");
    return stock ? stock(base, size) : 0;
}
