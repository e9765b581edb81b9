/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Moves blocks of memory between processes and hosts by one-sided RDMA: a KV cache, weights,
 * shards.
 * docs/transfer.md has the protocol and the bytes of a card.
 *
 * An agent is what a process takes part with. The side whose memory is reached registers it, grants
 * leases on it and hands out a card, by whatever way it likes: a file, a socket, a message. The
 * other side connects by the card, describes blocks on both sides, prepares a transfer of them once
 * and posts it as often as it likes. The processor of the side that is reached has no part in the
 * data; its agent takes connections and notices, so it has to be polled.
 *
 * One thread may use an agent, and what belongs to it, at a time; several threads open an agent
 * each. There are no hidden threads: an agent goes on only while somebody calls poll or a wait.
 * Nothing is allocated after prepare.
 *
 * A transfer that has ended (done, failed, cancelled) is quiet: its requests have been answered, or
 * their queue pair is destroyed. So nothing of it reads or writes this side's memory any more.
 * `enum sw_xfer_state` says what is true of the other side's.
 *
 * Units are in the names. Deadlines are CLOCK_MONOTONIC in nanoseconds: sw_xfer_deadline_ms().
 * Outputs are set where the status is SW_XFER_OK, and only there.
 */
#ifndef SIDEWIRE_TRANSFER_H
#define SIDEWIRE_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_XFER_PUBLIC __attribute__((visibility("default")))
/* A deadline that never comes; the other bounds of an agent hold all the same. */
#define SW_XFER_NEVER UINT64_MAX

struct sw_xfer_agent;
struct sw_xfer_memory;   /* memory of this process that transfers may use */
struct sw_xfer_lease;    /* the right of peers to reach a part of it */
struct sw_xfer_peer;     /* another agent, one instance of it */
struct sw_xfer_blocks;   /* a list of blocks, all of this side or all of one peer */
struct sw_xfer_transfer; /* pairs of blocks to be moved */

enum sw_xfer_status {
    SW_XFER_OK = 0,
    SW_XFER_AGAIN,         /* not now: nothing is there, or a table is full */
    SW_XFER_TIMEOUT,       /* the deadline of a wait has passed; what it waited for goes on */
    SW_XFER_INVALID,       /* an argument is wrong */
    SW_XFER_BUSY,          /* it is in use: a transfer is posted, a lease is granted */
    SW_XFER_NO_MEMORY,     /* memory, or room in the RDMA device */
    SW_XFER_NOT_SUPPORTED, /* this host, device or build cannot do it */
    SW_XFER_ADDRESS,       /* no such address, or no RDMA device leads there */
    SW_XFER_CARD,          /* the card is damaged, or of something else */
    SW_XFER_VERSION,       /* the other side speaks another version of the protocol */
    SW_XFER_LAYOUT,        /* the other side lays its blocks out in another way */
    SW_XFER_INSTANCE,      /* another instance than that of the card is at that address */
    SW_XFER_REFUSED,       /* the other side has no room for this peer */
    SW_XFER_DENIED,        /* the lease does not give that right, or was revoked, or the file has a
                              hole there, and its disk is full */
    SW_XFER_PEER_GONE,     /* the peer has died, ended, or does not answer any more */
    SW_XFER_DEADLINE,      /* the transfer's deadline passed before it was done */
    SW_XFER_CANCELLED,     /* by this side */
    SW_XFER_CORRUPT,       /* a block has another sum here than at the peer */
    SW_XFER_PROTOCOL,      /* the other side broke the protocol */
    SW_XFER_FORKED,        /* the handle belongs to the parent of this process */
    SW_XFER_SYSTEM,        /* the operating system or the RDMA device failed */
};

/* A sentence without its full stop; never NULL. */
SW_XFER_PUBLIC const char *sw_xfer_status_text(enum sw_xfer_status status);

struct sw_xfer_error {
    enum sw_xfer_status status;
    char text[256]; /* what happened, and why */
};

SW_XFER_PUBLIC uint64_t sw_xfer_deadline_ms(uint32_t from_now_ms);

/* ---- agents ---- */

enum {
    SW_XFER_INSTANCE_BYTES = 16,
    SW_XFER_NAME_MAX = 31,
    SW_XFER_NOTICE_MAX = 1024,
    SW_XFER_REGIONS_MAX = 256, /* of a card */
    SW_XFER_ADDRESSES_MAX = 4, /* of a card */
};

struct sw_xfer_agent_options {
    const char *address; /* of an RDMA device here, where peers connect; NULL: none can */
    const char *port;    /* NULL: a free one; the card says which */
    uint64_t layout;     /* sw_xfer_layout() of how blocks lie; 0: not compared */
    /* Connections of peers to this agent, 1-1024. The last eighth is for addresses that have few:
     * all peers of one other host have seven eighths, those of this host all. */
    uint32_t visitors_max;
    uint32_t notices_max;        /* held, 1-65536; of one address at most seven eighths */
    uint32_t queue_depth;        /* requests given to the device at a time for a peer, 64-8192 */
    uint32_t window_bytes;       /* and their bytes: bounds how long a cancellation takes */
    uint32_t connect_timeout_ms; /* a connection takes no longer */
    uint32_t stall_timeout_ms;   /* a peer that confirms nothing for so long is gone */
    uint32_t drain_timeout_ms;   /* what is under way gets so long to end by itself */
    uint32_t spin_us;            /* waits poll for so long before they sleep */
    /* More addresses, of other RDMA devices or ports; NULL ends them. Peers have a connection to
     * each, and use all at a time. */
    const char *rails[SW_XFER_ADDRESSES_MAX - 1];
};

/* 64 visitors, 1024 notices, 256 requests of together 8 MiB, 5 s to connect, 10 s of stall, 50 ms
 * to drain, 50 us of polling. */
SW_XFER_PUBLIC void sw_xfer_agent_options_init(struct sw_xfer_agent_options *options);
/* `error` may be NULL, here and below. Each agent is a new instance. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_agent_open(const struct sw_xfer_agent_options *options,
                                                      struct sw_xfer_error *error,
                                                      struct sw_xfer_agent **agent);
/* Ends all connections, then frees the agent and all that belongs to it: each handle that was made
 * with it is invalid afterwards. Nothing of this process's memory is touched any more. In a child
 * of fork() it frees what the child has of it and leaves the parent's connections alone. */
SW_XFER_PUBLIC void sw_xfer_agent_close(struct sw_xfer_agent *agent);
SW_XFER_PUBLIC void sw_xfer_agent_instance(const struct sw_xfer_agent *agent,
                                           uint8_t instance[SW_XFER_INSTANCE_BYTES]);
/* How many addresses of its own it has. */
SW_XFER_PUBLIC uint32_t sw_xfer_addresses(const struct sw_xfer_agent *agent);
/* Whether the agent listens at that address of its options: 0 is `address`, 1 the first of `rails`.
 * False while the address is away, as in a restart of the network: it listens again once it is
 * back. `text` says what became of it. */
SW_XFER_PUBLIC bool sw_xfer_listens(const struct sw_xfer_agent *agent, uint32_t address,
                                    struct sw_xfer_error *text);
/* Handles what has come, and gives the device what it has room for; never sleeps. */
SW_XFER_PUBLIC void sw_xfer_poll(struct sw_xfer_agent *agent);
/* For epoll and asyncio: readable when poll has something to do, timers included, once
 * sw_xfer_arm() returned true. False: there is something already, poll first. */
SW_XFER_PUBLIC int sw_xfer_fd(const struct sw_xfer_agent *agent);
SW_XFER_PUBLIC bool sw_xfer_arm(struct sw_xfer_agent *agent);
/* Polls, and sleeps until something has come or the deadline has passed: a server's loop. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_run_once(struct sw_xfer_agent *agent,
                                                    uint64_t deadline_ns);
/* A hash of a description of how blocks lie: block size, heads, token order, type. Both sides
 * describe it alike, byte for byte. Never 0. */
SW_XFER_PUBLIC uint64_t sw_xfer_layout(const void *description, size_t bytes);

/* ---- memory ---- */

enum sw_xfer_memory_kind {
    SW_XFER_HOST = 1,
    SW_XFER_FILE,
    SW_XFER_DMABUF,
    SW_XFER_CUDA,
};

/* [data, data + bytes) stays the caller's and is not copied. It has to stay mapped until the memory
 * is released. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_memory_host(struct sw_xfer_agent *agent, void *data,
                                                       size_t bytes, struct sw_xfer_error *error,
                                                       struct sw_xfer_memory **memory);
/* A file, mapped and registered: `offset` is a multiple of the page; `bytes` 0 means to its end. A
 * file that must not be written can be the source of WRITEs and of peers' READs only. The
 * descriptor may be closed afterwards. */
SW_XFER_PUBLIC enum sw_xfer_status
sw_xfer_memory_file(struct sw_xfer_agent *agent, int fd, uint64_t offset, uint64_t bytes,
                    bool is_writable, struct sw_xfer_error *error, struct sw_xfer_memory **memory);
/* NOT_SUPPORTED where the RDMA device cannot register it. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_memory_dmabuf(struct sw_xfer_agent *agent, int fd,
                                                         uint64_t offset, uint64_t bytes,
                                                         struct sw_xfer_error *error,
                                                         struct sw_xfer_memory **memory);
/* Memory of a GPU at the address that CUDA gave for it. NOT_SUPPORTED where there is no driver. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_memory_cuda(struct sw_xfer_agent *agent,
                                                       uint64_t device_pointer, uint64_t bytes,
                                                       struct sw_xfer_error *error,
                                                       struct sw_xfer_memory **memory);
SW_XFER_PUBLIC enum sw_xfer_memory_kind sw_xfer_memory_kind_of(const struct sw_xfer_memory *memory);
/* Where this process sees it; NULL where it does not. */
SW_XFER_PUBLIC void *sw_xfer_memory_data(const struct sw_xfer_memory *memory);
SW_XFER_PUBLIC uint64_t sw_xfer_memory_bytes(const struct sw_xfer_memory *memory);
/* BUSY while leases or blocks of it are there. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_memory_release(struct sw_xfer_memory *memory);

/* ---- leases ---- */

enum sw_xfer_rights {
    SW_XFER_MAY_READ = 1,
    SW_XFER_MAY_WRITE = 2,
};

struct sw_xfer_lease_options {
    const char *name;       /* by which peers find it in a card, up to 31 bytes; NULL: none */
    uint64_t offset, bytes; /* in the memory; `bytes` 0: to its end */
    uint32_t rights;        /* enum sw_xfer_rights */
    uint64_t visitor;       /* only this one may use it; 0: all that have the card */
    uint64_t deadline_ns;   /* poll revokes it then; SW_XFER_NEVER */
};

/* Memory without a lease can be reached by nobody. The agent needs an address. Where a visitor is
 * named and the device has windows of type 2, the lease is such a window, which is quick to revoke;
 * else it is a registration of its own. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_lease_grant(struct sw_xfer_memory *memory,
                                                       const struct sw_xfer_lease_options *options,
                                                       struct sw_xfer_error *error,
                                                       struct sw_xfer_lease **lease);
/* When this returns OK, no request by this lease touches the memory any more, also none that a
 * stopped peer posts when it goes on: those end with DENIED. Revoking twice does nothing.
 *
 * TIMEOUT: it is revoked, but the device waited in vain for a peer that was stopped in the midst of
 * an access, whose store may still come; keep the memory. Calling again tries again. For host
 * memory it helps to revoke its other leases first, and to post no transfer from it. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_lease_revoke(struct sw_xfer_lease *lease);
SW_XFER_PUBLIC bool sw_xfer_lease_is_granted(const struct sw_xfer_lease *lease);
SW_XFER_PUBLIC bool sw_xfer_lease_is_window(const struct sw_xfer_lease *lease);
/* Revokes and frees it. */
SW_XFER_PUBLIC void sw_xfer_lease_release(struct sw_xfer_lease *lease);

/* ---- cards ---- */

/* What a peer must know: where this agent is, which instance it is, its layout, and the leases.
 * Anybody who has the bytes may use the leases, so they are handed to friends only. With `bytes`
 * NULL `*length` is what is needed. No lease at all is allowed: such a card is good for
 * connecting. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_card_make(const struct sw_xfer_agent *agent,
                                                     struct sw_xfer_lease *const *leases,
                                                     uint32_t leases_count, void *bytes,
                                                     size_t capacity, size_t *length);

struct sw_xfer_card {
    uint32_t version;
    uint8_t instance[SW_XFER_INSTANCE_BYTES];
    uint64_t layout; /* 0: none */
    uint32_t addresses_count;
    char addresses[SW_XFER_ADDRESSES_MAX][56]; /* "192.0.2.1 port 4440" */
    uint32_t regions_count;
};

struct sw_xfer_region {
    char name[SW_XFER_NAME_MAX + 1];
    uint64_t bytes;
    uint32_t rights; /* enum sw_xfer_rights */
};

/* CARD or VERSION where these bytes are no card that this library knows. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_card_read(const void *bytes, size_t length,
                                                     struct sw_xfer_card *card);
/* Tells a region of a card that was read; INVALID where there is no such region. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_card_region(const void *bytes, size_t length,
                                                       uint32_t index,
                                                       struct sw_xfer_region *region);
/* Which region has that name; INVALID where none has. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_card_find(const void *bytes, size_t length,
                                                     const char *name, uint32_t *index);

/* ---- peers ---- */

enum sw_xfer_peer_state {
    SW_XFER_CONNECTING, /* also again, where this side had to end the queue pair for one transfer */
    SW_XFER_LIVE,
    SW_XFER_GONE, /* for good: its card is of no use any more, or it can be connected to anew */
};

/* Starts to connect and returns at once. The instance that answers is compared with the card's. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_connect(struct sw_xfer_agent *agent, const void *card,
                                                   size_t card_bytes, struct sw_xfer_error *error,
                                                   struct sw_xfer_peer **peer);
/* Until it is LIVE (OK), GONE (why) or the deadline passes (TIMEOUT). */
SW_XFER_PUBLIC enum sw_xfer_status
sw_xfer_peer_wait(struct sw_xfer_peer *peer, uint64_t deadline_ns, struct sw_xfer_error *error);
SW_XFER_PUBLIC enum sw_xfer_peer_state sw_xfer_peer_state_of(const struct sw_xfer_peer *peer);
SW_XFER_PUBLIC void sw_xfer_peer_error(const struct sw_xfer_peer *peer,
                                       struct sw_xfer_error *error);

struct sw_xfer_rail {
    char address[64]; /* of the peer, that it leads to */
    bool is_up;
    uint32_t connections; /* that have come up so far: more than one where it was rebuilt */
    uint64_t bytes;       /* that were moved over it, and answered */
};

/* The ways to the peer: one, or one to each of its addresses. Sets up to `rails_max` of them and
 * returns how many there are. */
SW_XFER_PUBLIC uint32_t sw_xfer_peer_rails(const struct sw_xfer_peer *peer,
                                           struct sw_xfer_rail *rails, uint32_t rails_max);
/* BUSY while transfers or blocks of it are there. Ends the connection. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_peer_release(struct sw_xfer_peer *peer);

/* ---- blocks ---- */

/* `count` blocks of `bytes`, the first at `offset`, each next one `stride` further on. */
struct sw_xfer_extent {
    uint32_t part; /* which memory, or which region of the card */
    uint64_t offset, bytes, stride, count;
};

/* Blocks are numbered from 0 in the order of the extents. */
SW_XFER_PUBLIC enum sw_xfer_status
sw_xfer_blocks_local(struct sw_xfer_agent *agent, struct sw_xfer_memory *const *memories,
                     uint32_t memories_count, const struct sw_xfer_extent *extents,
                     uint32_t extents_count, struct sw_xfer_blocks **blocks);
/* The card may be another one than that which the peer was connected by, but of its instance. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_blocks_remote(struct sw_xfer_peer *peer,
                                                         const void *card, size_t card_bytes,
                                                         const struct sw_xfer_extent *extents,
                                                         uint32_t extents_count,
                                                         struct sw_xfer_blocks **blocks);
SW_XFER_PUBLIC uint32_t sw_xfer_blocks_count(const struct sw_xfer_blocks *blocks);
/* BUSY while transfers of it are there. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_blocks_release(struct sw_xfer_blocks *blocks);

/* ---- transfers ---- */

enum sw_xfer_op {
    SW_XFER_WRITE = 1, /* local blocks to the peer's */
    SW_XFER_READ,      /* the peer's to the local ones */
    SW_XFER_NOTIFY,    /* no blocks: a notice alone */
};

/*
 * PREPARED -> POSTED -> DONE, FAILED or CANCELLED, and from these three to POSTED again.
 *
 * DONE: all bytes are in place, and a notice is in the hands of the peer's agent.
 * FAILED, CANCELLED: some blocks may be in place; sw_xfer_block_of() says which. If all that was
 * under way was answered (`is_drained`), nothing of it comes to the peer's memory any more either.
 * If not, the queue pair was ended here, and packets that were on the network then may still be
 * taken by the peer while it lives: the peer is safe from them once it has revoked the lease.
 */
enum sw_xfer_state {
    SW_XFER_PREPARED,
    SW_XFER_POSTED,
    SW_XFER_DONE,
    SW_XFER_FAILED,
    SW_XFER_WAS_CANCELLED,
};

/* Pairs block i with block i; pairs have one length. Lists of different counts can be posted by
 * index only. With NOTIFY both are NULL. AGAIN: the agent knows no device before its first peer is
 * LIVE; wait for that. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_prepare(struct sw_xfer_peer *peer, enum sw_xfer_op op,
                                                   struct sw_xfer_blocks *local,
                                                   struct sw_xfer_blocks *remote,
                                                   struct sw_xfer_error *error,
                                                   struct sw_xfer_transfer **transfer);

/* A transfer whose blocks' sums (CRC32C) are compared before it is done, and before the peer has
 * its notice: this side's processor reads each block once more, and so does the peer's agent, which
 * has to be polled for it. A block whose sums differ is BLOCK_CORRUPT, and the transfer FAILED with
 * CORRUPT. The lease has to give the right to read, since a sum tells of what it is of.
 * NOT_SUPPORTED where the peer knows no sums, or a memory is not seen by the processor. */
SW_XFER_PUBLIC enum sw_xfer_status
sw_xfer_prepare_summed(struct sw_xfer_peer *peer, enum sw_xfer_op op, struct sw_xfer_blocks *local,
                       struct sw_xfer_blocks *remote, struct sw_xfer_error *error,
                       struct sw_xfer_transfer **transfer);

struct sw_xfer_post_options {
    const uint32_t *local_index; /* which blocks, in this order; NULL: 0, 1, 2... */
    const uint32_t *remote_index;
    uint32_t count;        /* of indices, at most the longer list; 0: all blocks */
    const void *notice;    /* told to the peer behind all data; copied; NULL: no notice */
    uint32_t notice_bytes; /* up to SW_XFER_NOTICE_MAX; 0 is a notice too, if `notice` is set */
    uint64_t deadline_ns;  /* the transfer ends then; the connection stays; 0: SW_XFER_NEVER */
    void *arg;             /* given back in its info */
};

/* OK where it is on its way, and then it ends in one of three ways. Transfers of a peer take turns,
 * a slice of each, so that a large one holds up none; those that are a notice alone come in the
 * order in which they were posted. BUSY where it is posted already. It may be posted while the peer
 * is CONNECTING. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_post(struct sw_xfer_transfer *transfer,
                                                const struct sw_xfer_post_options *options);
/* Asks for its end, which comes within `drain_timeout_ms`: wait for it. */
SW_XFER_PUBLIC void sw_xfer_cancel(struct sw_xfer_transfer *transfer);
SW_XFER_PUBLIC enum sw_xfer_state sw_xfer_state_of(const struct sw_xfer_transfer *transfer);
/* Until it has ended: OK where it is DONE, else why not. TIMEOUT: it goes on. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_wait(struct sw_xfer_transfer *transfer,
                                                uint64_t deadline_ns);

struct sw_xfer_info {
    enum sw_xfer_state state;
    enum sw_xfer_status status; /* why it FAILED; OK before that */
    bool is_drained;            /* see above; true of DONE */
    uint32_t blocks, blocks_done;
    uint64_t bytes, bytes_done;
    uint32_t requests; /* that the blocks became, joined and cut */
    uint64_t posted_ns, ended_ns;
    void *arg;
};

SW_XFER_PUBLIC void sw_xfer_info_of(const struct sw_xfer_transfer *transfer,
                                    struct sw_xfer_info *info);

enum sw_xfer_block_state {
    SW_XFER_BLOCK_WAITS, /* nothing of it was given to the device */
    SW_XFER_BLOCK_MAYBE, /* it was, and was not answered: any part may have been moved */
    SW_XFER_BLOCK_IN_PLACE,
    SW_XFER_BLOCK_CORRUPT, /* it was moved, and its sums differ */
};

/* The state of the `index`th block, in the order in which they were posted. */
SW_XFER_PUBLIC enum sw_xfer_block_state sw_xfer_block_of(const struct sw_xfer_transfer *transfer,
                                                         uint32_t index);
/* Transfers that have ended since they were last posted, each once, oldest first. Returns how
 * many. */
SW_XFER_PUBLIC uint32_t sw_xfer_ended(struct sw_xfer_agent *agent,
                                      struct sw_xfer_transfer **transfers, uint32_t transfers_max);
/* One that is posted is cancelled and waited for first, at most `drain_timeout_ms`. */
SW_XFER_PUBLIC void sw_xfer_release(struct sw_xfer_transfer *transfer);

/* ---- notices and visitors ---- */

struct sw_xfer_notice {
    uint64_t visitor;                         /* who sent it; never 0 */
    uint8_t instance[SW_XFER_INSTANCE_BYTES]; /* of the sender */
    uint32_t bytes;
    uint8_t data[SW_XFER_NOTICE_MAX];
};

/* The oldest; AGAIN where there is none. Each notice is taken once. All data of its transfer is in
 * place. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_notice_take(struct sw_xfer_agent *agent,
                                                       struct sw_xfer_notice *notice);
/* The oldest that consists of exactly these bytes; `visitor` 0: of anybody. Others stay. */
SW_XFER_PUBLIC enum sw_xfer_status sw_xfer_notice_match(struct sw_xfer_agent *agent,
                                                        uint64_t visitor, const void *data,
                                                        uint32_t bytes,
                                                        struct sw_xfer_notice *notice);
/* Whether that visitor is connected still. A visitor that connects anew has another number. */
SW_XFER_PUBLIC bool sw_xfer_visitor_is_live(const struct sw_xfer_agent *agent, uint64_t visitor);
SW_XFER_PUBLIC uint32_t sw_xfer_visitors(const struct sw_xfer_agent *agent);
/* The visitor in that place, of 0 to visitors_max - 1, and the address that it has come from,
 * as IPv6 or as IPv4 mapped to that; 0: nobody has the place now. */
SW_XFER_PUBLIC uint64_t sw_xfer_visitor_in(const struct sw_xfer_agent *agent, uint32_t place,
                                           uint8_t address[16]);

#ifdef __cplusplus
}
#endif
#endif
