/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `sidewire status` reads: each process that uses sockets keeps its connections in a memfd of
 * this name, which other processes of the user open by way of /proc/PID/fd. Nothing has to answer,
 * and nothing is left when the process ends. One writer a record; a reader takes a record whose
 * `seq` is even and the same before and after.
 */
#ifndef SW_SOCKETS_PUBLISHED_H
#define SW_SOCKETS_PUBLISHED_H

#include <assert.h>
#include <netinet/in.h>
#include <stdint.h>

#define SW_PUBLISHED_NAME "sidewire.sockets"
#define SW_PUBLISHED_MAGIC 0x3174656b636f7377ull
#define SW_PUBLISHED_CAPACITY 4096u

enum sw_way {
    SW_WAY_NONE,   /* a TCP socket that is not connected */
    SW_WAY_LISTEN, /* by RDMA and TCP, or only by TCP if it has a reason */
    SW_WAY_DIRECT, /* RDMA to this host */
    SW_WAY_ROCE,   /* RDMA to another host, or as packets */
    SW_WAY_TCP,
    SW_WAY_LOST, /* RDMA, of the parent: this child of fork() cannot use it */
};

union sw_address {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

struct sw_published_header {
    uint64_t magic;
    uint32_t capacity;
    int32_t pid;
    uint32_t used;   /* records that were ever in use are below this */
    uint32_t untold; /* connections that had no room */
    uint8_t spare[40];
};

struct sw_published_record {
    uint32_t seq;
    uint32_t way; /* enum sw_way; SW_WAY_NONE: free */
    int32_t fd;   /* when it was decided */
    uint32_t incoming;
    union sw_address local, peer;
    char reason[88];
};

static_assert(sizeof(struct sw_published_header) == 64, "layout");
static_assert(sizeof(struct sw_published_record) == 160, "layout");

#endif
