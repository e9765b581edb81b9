/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/mads/local_message.h"

#include <string.h>

#include "device/nic/nic.h"

struct sw_local_message sw_local_message_bare(enum sw_local_message_kind kind)
{
    return (struct sw_local_message){.magic = SW_LOCAL_MAGIC, .kind = kind, .slot = sw_nic.slot};
}

struct sw_local_message sw_local_message_write(const struct sw_cm_path *path,
                                               enum sw_local_message_kind kind,
                                               const uint8_t mad[SW_MAD_BYTES])
{
    struct sw_local_message message = sw_local_message_bare(kind);
    message.ifindex = path->ifindex;
    message.pkey = path->pkey;
    message.traffic_class = path->traffic_class;
    message.hop_limit = path->hop_limit;
    memcpy(message.local_gid, path->local_gid, 16);
    memcpy(message.remote_gid, path->remote_gid, 16);
    memcpy(message.mad, mad, SW_MAD_BYTES);
    return message;
}

bool sw_local_message_is_sound(const struct sw_local_message *message, size_t len)
{
    return len == sizeof(*message) && message->magic == SW_LOCAL_MAGIC;
}

struct sw_cm_path sw_local_message_path(const struct sw_local_message *message)
{
    struct sw_cm_path path = {
        .ifindex = message->ifindex,
        .pkey = message->pkey,
        .slot = (uint16_t)(message->kind == SW_LOCAL_MAD ? message->slot : 0),
        .traffic_class = message->traffic_class,
        .hop_limit = message->hop_limit,
    };
    memcpy(path.local_gid, message->local_gid, 16);
    memcpy(path.remote_gid, message->remote_gid, 16);
    return path;
}
