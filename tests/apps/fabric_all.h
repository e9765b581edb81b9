// SPDX-License-Identifier: BSD-2-Clause
// A libfabric program that looks at all of its data: what its parts share. fabric.py runs it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fi_info;
struct fid_ep;

enum {
    PART_LEN = 2 << 20,
    PARTS = 3,
    CM_DATA_LEN = 40
}; // parts: what is sent, what comes, what peers reach

extern bool is_server;

#define check(what, ...) ((what) ? (void)checks++ : end_in_failure(__VA_ARGS__))
// For calls of libfabric: a negative errno is a failure.
#define must(call)                                      \
    do {                                                \
        const long rc_ = (long)(call);                  \
        check(rc_ >= 0, "%s: %s", #call, text_of(rc_)); \
    } while (0)
extern uint64_t checks;
__attribute__((noreturn, format(printf, 1, 2))) void end_in_failure(const char *format, ...);
const char *text_of(long rc);

// Both sides swap `len` bytes by TCP; meanwhile the provider goes on.
void swap_with_peer(const void *mine, void *other, size_t len);
void meet_peer(void);

// One end of a channel; what is done with it is in fabric_ops.c.
struct side {
    const struct fi_info *info;
    struct fid_ep *ep;
    struct fid_ep *rx; // the shared receive context, or the endpoint
    uint64_t to;       // the peer's address, of endpoints without connection
    unsigned char *memory;
    void *desc;
    uint64_t peer_memory;
    uint64_t peer_key;
    size_t out_prefix_len,
        in_prefix_len; // what stands before a datagram's bytes, in what is sent and received
};

// One operation and how it ended.
struct op {
    _Alignas(16) unsigned char context[64]; // first: the provider's own
    bool done;
    int error;
    size_t len;
    uint64_t flags, data, tag;
};

void progress(void);
void check_time(const char *what);
void wait_for(struct op *op);
extern uint64_t remote_data; // of the last write with data, 0: none yet

void run_messages(struct side *side);
void run_tagged(struct side *side);
void run_rma(struct side *side);
void run_atomics(struct side *side);
void run_cancel(struct side *side);
void run_bad_key(struct side *side);
