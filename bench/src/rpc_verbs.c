/* SPDX-License-Identifier: BSD-2-Clause */
/* A request is a SEND. The target WRITEs or READs the data, and answers with a SEND. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "endpoint.h"
#include "rpc.h"

#define PAGE 4096u
#define BATCH 32
#define LOOKS 1024 /* polls between looks at the control connection */

/* The memory of a side: what it receives, what it sends, data; of each slot. */
static struct {
    struct rpc_options options;
    struct bench_endpoint endpoint;
    int control;
    uint8_t *memory;
    size_t sends_at, data_at, span_at;  /* span: where the target has data to read */
    uint32_t receive_bytes, send_bytes; /* of a message */
    uint64_t draw;
} self;

enum { OF_RECEIVE, OF_READ, OF_SEND };

static uint64_t verbs_id_of(unsigned int kind, uint32_t slot)
{
    return (uint64_t)kind << 32 | slot;
}

static void verbs_open(const struct rpc_options *options, int control)
{
    const size_t slots = RPC_DEPTH_MAX;
    size_t len_bytes;
    struct bench_shape shape = {.lanes = 1,
                                .depth = 4 * options->depth,
                                .receives = options->depth,
                                .has_events = options->sleeps,
                                .one_cq = true,
                                .largest_mtu = true};

    self.options = *options;
    self.control = control;
    self.receive_bytes = options->address ? RPC_ANSWER_BYTES : RPC_REQUEST_BYTES;
    self.send_bytes = options->address ? RPC_REQUEST_BYTES : RPC_ANSWER_BYTES;
    self.sends_at = slots * RPC_REQUEST_BYTES;
    self.data_at = (2 * slots * RPC_REQUEST_BYTES + PAGE - 1) / PAGE * PAGE;
    self.span_at =
        (self.data_at + (size_t)options->data_bytes * options->depth + PAGE - 1) / PAGE * PAGE;
    self.draw = 0x9e3779b97f4a7c15u;
    len_bytes = self.span_at + (options->span_bytes + PAGE - 1) / PAGE * PAGE;
    self.memory = aligned_alloc(PAGE, len_bytes);
    if (!self.memory)
        bench_die("no memory");
    memset(self.memory, 1, len_bytes);
    bench_endpoint_join(&self.endpoint, options->device, &shape, self.memory, len_bytes, control);
    for (uint32_t i = 0; i < options->depth; i++)
        bench_lane_receive(&self.endpoint, 0, verbs_id_of(OF_RECEIVE, i), i * RPC_REQUEST_BYTES,
                           self.receive_bytes);
    bench_send(control, "", 1);
    if (!bench_receive(control, &(char){0}, 1))
        bench_die("the other side is gone");
}

static void verbs_close(void)
{
    bench_endpoint_close(&self.endpoint);
    free(self.memory);
}

/* Requests that are posted together. */
struct list {
    struct ibv_send_wr wrs[2 * RPC_DEPTH_MAX];
    struct ibv_sge sges[2 * RPC_DEPTH_MAX];
    uint32_t count;
};

static struct ibv_send_wr *verbs_add(struct list *list, enum ibv_wr_opcode opcode, uint64_t id,
                                     size_t offset, uint32_t len_bytes)
{
    struct ibv_send_wr *wr = &list->wrs[list->count];
    struct ibv_sge *sge = &list->sges[list->count];

    *sge = (struct ibv_sge){(uintptr_t)self.memory + offset, len_bytes, self.endpoint.mr->lkey};
    *wr = (struct ibv_send_wr){
        .wr_id = id, .sg_list = sge, .num_sge = 1, .opcode = opcode, .next = NULL};
    if (list->count++)
        wr[-1].next = wr;
    return wr;
}

/* With a span a list says once that it is done, as a target does that looks for rate. */
static void add_send(struct list *list, uint32_t slot)
{
    const size_t at = self.sends_at + (size_t)slot * RPC_REQUEST_BYTES;
    struct ibv_send_wr *wr =
        verbs_add(list, IBV_WR_SEND, verbs_id_of(OF_SEND, slot), at, self.send_bytes);

    memcpy(self.memory + at, &slot, sizeof(slot));
    wr->send_flags = (self.options.span_bytes ? 0u : IBV_SEND_SIGNALED) |
                     (self.endpoint.inline_ok ? IBV_SEND_INLINE : 0u);
}

static size_t random_block(void)
{
    const uint64_t blocks = self.options.span_bytes / self.options.data_bytes;

    self.draw ^= self.draw << 13;
    self.draw ^= self.draw >> 7;
    self.draw ^= self.draw << 17;
    return self.span_at + (size_t)(self.draw % blocks * self.options.data_bytes);
}

static void verbs_add_data(struct list *list, uint32_t slot)
{
    const size_t at = self.data_at + (size_t)slot * self.options.data_bytes;
    struct ibv_send_wr *wr =
        verbs_add(list, self.options.is_write ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
                  verbs_id_of(OF_READ, slot), self.options.span_bytes ? random_block() : at,
                  self.options.data_bytes);

    wr->send_flags = self.options.is_write ? IBV_SEND_SIGNALED : 0;
    wr->wr.rdma.remote_addr = self.endpoint.remote_addr + at;
    wr->wr.rdma.rkey = self.endpoint.remote_key;
}

static void verbs_post(struct list *list)
{
    struct ibv_send_wr *bad;

    if (list->count)
        list->wrs[list->count - 1].send_flags |= IBV_SEND_SIGNALED;
    if (list->count && (errno = ibv_post_send(self.endpoint.lanes[0].qp, list->wrs, &bad)))
        bench_die("ibv_post_send: %s", strerror(errno));
    list->count = 0;
}

/* The slot that the message names; its buffer is posted again. */
static uint32_t take_message(uint32_t buffer)
{
    uint32_t slot;

    memcpy(&slot, self.memory + (size_t)buffer * RPC_REQUEST_BYTES, sizeof(slot));
    bench_lane_receive(&self.endpoint, 0, verbs_id_of(OF_RECEIVE, buffer),
                       buffer * RPC_REQUEST_BYTES, self.receive_bytes);
    return slot;
}

static int verbs_poll_once(struct ibv_wc wc[BATCH])
{
    int got = ibv_poll_cq(self.endpoint.lanes[0].cq, BATCH, wc);

    if (got < 0)
        bench_die("ibv_poll_cq failed");
    for (int i = 0; i < got; i++)
        if (wc[i].status != IBV_WC_SUCCESS && wc[i].status != IBV_WC_WR_FLUSH_ERR)
            bench_die("a request failed: %s", ibv_wc_status_str(wc[i].status));
    return got;
}

/* Completions, or none if the other side has gone. */
static int next_completions(struct ibv_wc wc[BATCH])
{
    for (int looks = 1;; looks++) {
        int got = verbs_poll_once(wc);

        if (!got && self.options.sleeps) {
            if (!bench_lane_sleep(&self.endpoint, 0, self.control))
                return 0;
            got = verbs_poll_once(wc);
        }
        if (got) /* flushed: the other side's queue pair has ended */
            return wc[got - 1].status == IBV_WC_SUCCESS ? got : 0;
        if (looks % LOOKS == 0 && bench_has_closed(self.control))
            return 0;
    }
}

static void verbs_ask(const uint32_t *slots, uint32_t count)
{
    static struct list list;

    for (uint32_t i = 0; i < count; i++)
        add_send(&list, slots[i]);
    verbs_post(&list);
}

static uint32_t verbs_await(uint32_t slots[RPC_DEPTH_MAX])
{
    struct ibv_wc wc[BATCH];
    uint32_t found = 0;

    while (!found) {
        int got = next_completions(wc);

        if (!got)
            bench_die("the other side is gone");
        for (int i = 0; i < got; i++)
            if (wc[i].wr_id >> 32 == OF_RECEIVE)
                slots[found++] = take_message((uint32_t)wc[i].wr_id);
    }
    return found;
}

static void verbs_serve(void)
{
    static struct list list;
    struct ibv_wc wc[BATCH];
    int got;

    while ((got = next_completions(wc))) {
        for (int i = 0; i < got; i++) {
            const uint32_t of = (uint32_t)wc[i].wr_id;

            if (wc[i].wr_id >> 32 == OF_RECEIVE) {
                const uint32_t slot = take_message(of);

                verbs_add_data(&list, slot);
                if (!self.options.is_write)
                    add_send(&list, slot);
            } else if (wc[i].wr_id >> 32 == OF_READ) {
                add_send(&list, of);
            }
        }
        verbs_post(&list);
    }
}

const struct rpc_way rpc_verbs = {"verbs",     verbs_open,  verbs_ask,
                                  verbs_await, verbs_serve, verbs_close};
