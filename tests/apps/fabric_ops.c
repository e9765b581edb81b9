// SPDX-License-Identifier: BSD-2-Clause
// What fabtests' quick set does with an endpoint: messages, tags, reads and writes, atomics,
// cancelling. Both sides run the same; whoever has a turn acts, and the other one looks at each
// byte.
#include "fabric_all.h"

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdlib.h>
#include <string.h>

static const size_t SIZES[] = {0, 1, 7, 64, 1000, 4000, 16384, 65537, 1 << 20, PART_LEN};

enum {
    SIZES_COUNT = sizeof(SIZES) / sizeof(*SIZES),
    BURST = 32,
    SHORT_LEN = 3000,
    AT = 2 * PART_LEN
};

static unsigned char byte_of(unsigned whose, size_t at)
{
    return (unsigned char)(whose * 61 + at * 7 + (at >> 8) * 13);
}

static void fill(unsigned char *data, unsigned whose, size_t len)
{
    for (size_t i = 0; i < len; i++)
        data[i] = byte_of(whose, i);
}

static void check_bytes(const unsigned char *data, unsigned whose, size_t len, const char *what)
{
    for (size_t i = 0; i < len; i++)
        check(data[i] == byte_of(whose, i), "%s: byte %zu of %zu", what, i, len);
}

// A full queue is no failure: what has ended must be taken from it first.
#define post(call)                               \
    do {                                         \
        long posted_;                            \
        while ((posted_ = (call)) == -FI_EAGAIN) \
            progress();                          \
        must(posted_);                           \
    } while (0)

static void post_receive(struct side *side, struct op *op, unsigned char *data, size_t len)
{
    memset(op, 0, sizeof(*op));
    post(fi_recv(side->rx, data, len + side->in_prefix_len, side->desc, FI_ADDR_UNSPEC, op));
}

enum way {
    PLAIN,     // fi_send
    PIECES,    // fi_sendv of two pieces
    WITH_DATA, // fi_senddata
    INJECTED,  // fi_inject
    WAYS,
};

static void send_one(struct side *side, enum way way, size_t len)
{
    struct op op = {0};
    const size_t all = len + side->out_prefix_len;
    const size_t half = all / 2;
    struct iovec iov[2] = {{side->memory, half}, {side->memory + half, all - half}};
    void *desc[2] = {side->desc, side->desc};
    switch (way) {
    case PIECES:
        post(fi_sendv(side->ep, iov, desc, 2, side->to, &op));
        break;
    case WITH_DATA:
        post(fi_senddata(side->ep, side->memory, all, side->desc, 0x1000 + len % 1000, side->to,
                         &op));
        break;
    case INJECTED:
        post(fi_inject(side->ep, side->memory, all, side->to));
        return;
    case PLAIN:
    case WAYS:
        post(fi_send(side->ep, side->memory, all, side->desc, side->to, &op));
        break;
    }
    wait_for(&op);
    check(!op.error, "a message of %zu: %s", len, fi_strerror(op.error));
}

static bool is_possible(const struct side *side, enum way way, size_t len)
{
    const size_t all = len + side->out_prefix_len;
    return all <= side->info->ep_attr->max_msg_size &&
           (way != INJECTED || all <= side->info->tx_attr->inject_size) &&
           (way != WITH_DATA || side->info->domain_attr->cq_data_size) &&
           (way != PIECES || (side->info->tx_attr->iov_limit > 1 && len > 64));
}

static void take_one(struct side *side, struct op *op, enum way way, size_t len)
{
    unsigned char *in = side->memory + PART_LEN;
    wait_for(op);
    check(!op->error, "a receive of %zu: %s", len, fi_strerror(op->error));
    check(op->len == len + side->in_prefix_len, "%zu bytes came, not %zu", op->len, len);
    check_bytes(in + side->in_prefix_len, (unsigned)len + is_server, len, "a message");
    if (way == WITH_DATA)
        check((op->flags & FI_REMOTE_CQ_DATA) && op->data == 0x1000 + len % 1000,
              "data %llx came along", (unsigned long long)op->data);
}

// Each size in each way, there and back.
void run_messages(struct side *side)
{
    struct op in;
    for (enum way way = PLAIN; way < WAYS; way++)
        for (int i = 0; i < SIZES_COUNT; i++) {
            const size_t len = SIZES[i];
            if (!is_possible(side, way, len))
                continue;
            fill(side->memory + side->out_prefix_len, (unsigned)len + !is_server, len);
            post_receive(side, &in, side->memory + PART_LEN, PART_LEN - side->in_prefix_len);
            meet_peer();
            if (!is_server)
                send_one(side, way, len);
            take_one(side, &in, way, len);
            if (is_server)
                send_one(side, way, len);
            meet_peer();
        }
    struct op ops[BURST];
    for (int i = 0; i < BURST; i++)
        post_receive(side, &ops[i], side->memory + PART_LEN + (size_t)i * 4096, SHORT_LEN);
    meet_peer();
    for (unsigned i = 0; i < BURST; i++) {
        fill(side->memory + side->out_prefix_len, i, SHORT_LEN);
        send_one(side, PLAIN, SHORT_LEN);
    }
    for (unsigned i = 0; i < BURST; i++) {
        wait_for(&ops[i]);
        check_bytes(side->memory + PART_LEN + (size_t)i * 4096 + side->in_prefix_len, i, SHORT_LEN,
                    "a burst");
    }
    meet_peer();
}

// Receives for tags in the opposite order; one that ignores some bits of them.
void run_tagged(struct side *side)
{
    struct op in[BURST], out[BURST] = {0};
    memset(in, 0, sizeof(in));
    for (unsigned i = 0; i < BURST; i++)
        must(fi_trecv(side->ep, side->memory + PART_LEN + (size_t)i * 4096, 4096, side->desc,
                      FI_ADDR_UNSPEC, i == 0 ? 0x100 : i, i == 0 ? 0xff : 0, &in[i]));
    fill(side->memory, 3, 4096);
    meet_peer();
    for (unsigned i = 0; i < BURST; i++) {
        const unsigned tag = BURST - 1 - i;
        post(fi_tsend(side->ep, side->memory, 100 + tag, side->desc, side->to, tag ? tag : 0x142,
                      &out[i]));
    }
    for (unsigned i = 0; i < BURST; i++) {
        wait_for(&out[i]);
        wait_for(&in[i]);
        check(!in[i].error && in[i].len == 100 + i, "tag %u brings %zu bytes", i, in[i].len);
        check(in[i].tag == (i ? i : 0x142), "tag %llx", (unsigned long long)in[i].tag);
        check_bytes(side->memory + PART_LEN + (size_t)i * 4096, 3, 100 + i, "a tagged message");
    }
    meet_peer();
}

// Writes to the peer's third part, reads it back, and writes with data.
// iWARP has no data beside a write.
static void write_with_data(struct side *side)
{
    const uint64_t there = side->peer_memory + AT;
    struct op in = {0}, out = {0};
    remote_data = 0;
    if (side->info->mode & FI_RX_CQ_DATA)
        post_receive(side, &in, side->memory + PART_LEN, 64);
    meet_peer();
    fill(side->memory, 9, 5000);
    post(fi_writedata(side->ep, side->memory, 5000, side->desc, 0x4711, side->to, there,
                      side->peer_key, &out));
    wait_for(&out);
    while (!remote_data && !in.done) {
        progress();
        check_time("data of a write");
    }
    // With a shared receive context libfabric calls it a message.
    const uint64_t came = remote_data ? remote_data : in.data;
    check(came == 0x4711, "a write brings the data %llx", (unsigned long long)came);
    check_bytes(side->memory + AT, 9, 5000, "a write with data");
    meet_peer();
}

void run_rma(struct side *side)
{
    const uint64_t there = side->peer_memory + AT;
    for (int i = 0; i < SIZES_COUNT; i++) {
        const size_t len = SIZES[i];
        struct op write = {0}, read = {0};
        if (!len)
            continue;
        fill(side->memory, (unsigned)len + is_server, len);
        post(fi_write(side->ep, side->memory, len, side->desc, side->to, there, side->peer_key,
                      &write));
        wait_for(&write);
        memset(side->memory + PART_LEN, 0xee, len);
        post(fi_read(side->ep, side->memory + PART_LEN, len, side->desc, side->to, there,
                     side->peer_key, &read));
        wait_for(&read);
        check(!write.error && !read.error, "%zu bytes: write %d, read %d", len, write.error,
              read.error);
        check_bytes(side->memory + PART_LEN, (unsigned)len + is_server, len, "a read");
        meet_peer();
        check_bytes(side->memory + AT, (unsigned)len + !is_server, len, "a write");
        meet_peer();
    }
    if (side->info->tx_attr->inject_size >= 8) {
        post(fi_inject_write(side->ep, "injected", 8, side->to, there, side->peer_key));
        struct op read = {0};
        post(fi_read(side->ep, side->memory + PART_LEN, 8, side->desc, side->to, there,
                     side->peer_key, &read));
        wait_for(&read);
        check(!memcmp(side->memory + PART_LEN, "injected", 8), "an injected write is not there");
    }
    meet_peer();
    if (side->info->domain_attr->cq_data_size)
        write_with_data(side);
}

static bool can(struct side *side, enum fi_op op, bool fetches, bool compares)
{
    size_t count = 0;
    int rc = compares  ? fi_compare_atomicvalid(side->ep, FI_UINT64, op, &count)
             : fetches ? fi_fetch_atomicvalid(side->ep, FI_UINT64, op, &count)
                       : fi_atomicvalid(side->ep, FI_UINT64, op, &count);
    return !rc && count;
}

// Both sides add to the server's number at once: none is lost. Then the client swaps it.
void run_atomics(struct side *side)
{
    uint64_t *number = (uint64_t *)(void *)(side->memory + AT);
    uint64_t *operand = (uint64_t *)(void *)side->memory;
    uint64_t *result = operand + 1, *compare = operand + 2;
    const uint64_t there = side->peer_memory + AT;
    if (!(side->info->caps & FI_ATOMIC) || !can(side, FI_SUM, true, false))
        return;
    *number = 1000;
    meet_peer();
    for (int i = 0; i < 100; i++) {
        struct op op = {0};
        *operand = 3;
        post(fi_fetch_atomic(side->ep, operand, 1, side->desc, result, side->desc, side->to, there,
                             side->peer_key, FI_UINT64, FI_SUM, &op));
        wait_for(&op);
        check(!op.error && *result == 1000 + 3 * (uint64_t)i, "step %d fetches %llu: %d", i,
              (unsigned long long)*result, op.error);
    }
    meet_peer();
    check(*number == 1300, "the sum is %llu", (unsigned long long)*number);
    meet_peer();
    if (can(side, FI_CSWAP, true, true)) {
        struct op op = {0};
        *operand = 7;
        *compare = 1300;
        post(fi_compare_atomic(side->ep, operand, 1, side->desc, compare, side->desc, result,
                               side->desc, side->to, there, side->peer_key, FI_UINT64, FI_CSWAP,
                               &op));
        wait_for(&op);
        meet_peer();
        check(*result == 1300 && *number == 7, "swapped %llu, now %llu",
              (unsigned long long)*result, (unsigned long long)*number);
    }
    meet_peer();
}

// A receive that is taken back, where the provider can.
void run_cancel(struct side *side)
{
    struct op op = {0};
    if (!(side->info->caps & FI_TAGGED))
        return;
    must(
        fi_trecv(side->ep, side->memory + PART_LEN, 64, side->desc, FI_ADDR_UNSPEC, 0x999, 0, &op));
    must(fi_cancel(&side->ep->fid, &op));
    wait_for(&op);
    check(op.error == FI_ECANCELED, "a cancelled receive ends with %d", op.error);
    meet_peer();
}

// The client writes with a key that nobody has. That ends the connection's use.
void run_bad_key(struct side *side)
{
    struct op op = {0};
    meet_peer();
    if (!is_server) {
        memset(side->memory, 0xbb, 64);
        post(fi_write(side->ep, side->memory, 64, side->desc, side->to, side->peer_memory + AT,
                      side->peer_key ^ 0x5a5a00, &op));
        wait_for(&op);
        // Over iWARP a write is complete when TCP has it.
        check(op.error || side->info->ep_attr->protocol == FI_PROTO_IWARP,
              "a write with a bad key ends well");
    }
    meet_peer();
    check(side->memory[AT + 63] != 0xbb, "a write with a bad key is executed");
}
