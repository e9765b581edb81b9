/* SPDX-License-Identifier: BSD-2-Clause */
/* What two processes of one host send each other: a MAD and where it came from. */
#ifndef SW_RDMACM_MADS_LOCAL_MESSAGE_H
#define SW_RDMACM_MADS_LOCAL_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cm/cm.h"

#define SW_LOCAL_MAGIC 0x6d63207773000001ull

enum sw_local_message_kind {
    SW_LOCAL_HELLO,    /* says nothing but whose connection it is */
    SW_LOCAL_MAD,      /* of that process */
    SW_LOCAL_PACKET,   /* of another host, or of a process that is believed no more than one */
    SW_LOCAL_HANDOVER, /* brings a descriptor; nothing follows */
};

struct sw_local_message { /* addresses as the receiver sees them */
    uint64_t magic;
    uint32_t kind, slot, ifindex;
    uint16_t pkey;
    uint8_t traffic_class, hop_limit;
    uint8_t local_gid[16], remote_gid[16];
    uint8_t mad[SW_MAD_BYTES];
};

/* A message of this process without a MAD. */
struct sw_local_message sw_local_message_bare(enum sw_local_message_kind kind);
/* A message of this process with a MAD. `path` as the receiver sees it. */
struct sw_local_message sw_local_message_write(const struct sw_cm_path *path,
                                               enum sw_local_message_kind kind,
                                               const uint8_t mad[SW_MAD_BYTES]);
/* Whether `len` bytes that came are a message. */
bool sw_local_message_is_sound(const struct sw_local_message *message, size_t len);
/* The path that leads back to the sender. */
struct sw_cm_path sw_local_message_path(const struct sw_local_message *message);

#endif
