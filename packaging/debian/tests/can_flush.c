/* SPDX-License-Identifier: BSD-2-Clause */
/* Says of each RDMA device whether its FLUSH makes memory outlive the power of its machine.
 *   cc -o can_flush can_flush.c $(pkg-config --cflags --libs sidewire)
 *   sidewire run -- ./can_flush */
#include <sidewire/flush.h>
#include <stdio.h>

static int say(struct ibv_device *device)
{
    struct ibv_context *ctx = ibv_open_device(device);
    struct ibv_device_attr_ex attr;
    if (!ctx || ibv_query_device_ex(ctx, NULL, &attr))
        return 1;
    int can = (attr.device_cap_flags_ex & IB_UVERBS_DEVICE_FLUSH_PERSISTENT) != 0;
    printf("%s: %s\n", ibv_get_device_name(device), can ? "can flush" : "cannot flush");
    return ibv_close_device(ctx);
}

int main(void)
{
    int count = 0, failed = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    if (!list)
        return 1;
    for (int i = 0; i < count; i++)
        failed |= say(list[i]);
    ibv_free_device_list(list);
    return failed || !count;
}
