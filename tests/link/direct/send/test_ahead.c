/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that are executed before they are queued: how far into a list, and what is left alone.
 */
#include "link/direct/bind/account.h"
#include "link/direct/process/block.h"
#include "link/direct/send/ahead.h"
#include "link/direct/send/requester.h"
#include "link_rig.h"

#define LIST 4u

struct list {
    struct ibv_sge sges[LIST];
    struct ibv_send_wr wrs[LIST];
};

/* Requests of 8 bytes from 0, 64 ... of the region to 4096 further on. */
static void make(const struct rig *rig, struct list *list, enum ibv_wr_opcode opcode)
{
    for (uint32_t i = 0; i < LIST; i++) {
        list->sges[i] = rig_sge(rig, i * 64, 8);
        list->wrs[i] = (struct ibv_send_wr){.wr_id = i,
                                            .next = i + 1 < LIST ? &list->wrs[i + 1] : NULL,
                                            .sg_list = &list->sges[i],
                                            .num_sge = 1,
                                            .opcode = opcode,
                                            .send_flags = IBV_SEND_SIGNALED};
        list->wrs[i].wr.rdma.remote_addr = (uintptr_t)rig->bytes + 4096 + i * 64;
        list->wrs[i].wr.rdma.rkey = sw_mr_key(rig->mr);
        memset(rig->bytes + i * 64, (int)i + 1, 8);
        memset(rig->bytes + 4096 + i * 64, 0x80 + (int)i, 8);
    }
}

/* The region is remembered after a request went the long way. */
static void meet(struct rig *rig)
{
    struct ibv_sge sge = rig_sge(rig, 0, 8);
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
    wr.wr.rdma.remote_addr = (uintptr_t)rig->bytes + 8192;
    wr.wr.rdma.rkey = sw_mr_key(rig->mr);
    rig_append(rig, &wr, &sge);
    sw_direct_send_run(rig->qp, rig->d);
    assert_int_equal(rig->qp->sq.head, rig->qp->sq.tail);
}

/* At most so many, all of which are done. */
static uint32_t run_most(struct rig *rig, const struct ibv_send_wr *wr, uint32_t most)
{
    uint32_t sent = 0, executed = sw_ahead_run(rig->qp, rig->d, wr, most, &sent);
    assert_int_equal(sent, 0);
    return executed;
}

static uint32_t run(struct rig *rig, const struct ibv_send_wr *wr)
{
    return run_most(rig, wr, UINT32_MAX);
}

static void sw_ahead_run__writes(void **state)
{
    struct rig *rig = *state;
    struct list list;
    make(rig, &list, IBV_WR_RDMA_WRITE);
    assert_int_equal(run(rig, list.wrs), 0); /* nothing is remembered yet */
    meet(rig);
    assert_int_equal(run(rig, list.wrs), LIST);
    for (uint32_t i = 0; i < LIST; i++)
        assert_memory_equal(rig->bytes + 4096 + i * 64, rig->bytes + i * 64, 8);
    assert_int_equal(run_most(rig, list.wrs, 2), 2);
    assert_int_equal(run_most(rig, list.wrs, 0), 0);
    assert_false(rig->d->accessing);
}

static void sw_ahead_run__reads(void **state)
{
    struct rig *rig = *state;
    struct list list;
    make(rig, &list, IBV_WR_RDMA_READ);
    meet(rig);
    assert_int_equal(run(rig, list.wrs), LIST);
    for (uint32_t i = 0; i < LIST; i++)
        assert_int_equal(rig->bytes[i * 64 + 7], 0x80 + i);
}

/* A request that is at fault, or long, or of another kind ends the run and is left as it was. */
static void sw_ahead_run__stops(void **state)
{
    struct rig *rig = *state;
    struct list list;
    meet(rig);

    make(rig, &list, IBV_WR_RDMA_WRITE);
    list.sges[2].lkey ^= 1;
    assert_int_equal(run(rig, list.wrs), 2);
    assert_int_equal(rig->bytes[4096 + 2 * 64], 0x82);

    make(rig, &list, IBV_WR_RDMA_WRITE);
    list.wrs[1].wr.rdma.rkey ^= 1;
    assert_int_equal(run(rig, list.wrs), 1);

    make(rig, &list, IBV_WR_RDMA_READ);
    list.wrs[3].wr.rdma.remote_addr = (uintptr_t)rig->bytes + RIG_BYTES - 7;
    assert_int_equal(run(rig, list.wrs), 3);

    make(rig, &list, IBV_WR_RDMA_WRITE);
    list.sges[1].length = SW_SKIP_BYTES + 1;
    assert_int_equal(run(rig, list.wrs), 1);
    list.sges[1].length = 8;
    list.sges[0].length = 0;
    assert_int_equal(run(rig, list.wrs), 0);

    make(rig, &list, IBV_WR_RDMA_WRITE);
    list.wrs[2].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    assert_int_equal(run(rig, list.wrs), 2);
    list.wrs[0].opcode = (enum ibv_wr_opcode)77;
    assert_int_equal(run(rig, list.wrs), 0);

    make(rig, &list, IBV_WR_RDMA_WRITE);
    list.wrs[1].num_sge = 0;
    assert_int_equal(run(rig, list.wrs), 1);
    list.wrs[0].send_flags |= IBV_SEND_INLINE;
    list.sges[0].length = rig->qp->sq.inline_max + 1;
    assert_int_equal(run(rig, list.wrs), 0);
    assert_int_equal(rig->qp->state, IBV_QPS_RTS);
}

/* One of many pages; and how long one may be. */
static void sw_ahead_run__a_long_write(void **state)
{
    enum { HALF = RIG_BYTES / 2 };
    struct rig *rig = *state;
    struct ibv_sge sge = rig_sge(rig, 0, HALF);
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    wr.wr.rdma.remote_addr = (uintptr_t)rig->bytes + HALF;
    wr.wr.rdma.rkey = sw_mr_key(rig->mr);
    meet(rig);
    for (uint32_t i = 0; i < HALF; i++)
        rig->bytes[i] = (uint8_t)(i * 7 + i / 256);
    memset(rig->bytes + HALF, 0, HALF);
    assert_int_equal(run(rig, &wr), 1);
    assert_memory_equal(rig->bytes, rig->bytes + HALF, HALF);
    wr.wr.rdma.remote_addr++; /* its end is outside */
    assert_int_equal(run(rig, &wr), 0);
    sge.length = SW_SKIP_BYTES;
    assert_true(sw_sq_may_skip(&rig->qp->sq, &wr));
    sge.length++;
    assert_false(sw_sq_may_skip(&rig->qp->sq, &wr));
}

/* A long list of long requests keeps nobody waiting for all of it. */
static void sw_ahead_run__a_mebibyte_at_a_time(void **state)
{
    enum { LONG = 4096, COUNT = 258, MOST = (1 << 20) / LONG };
    struct rig *rig = *state;
    struct ibv_sge sge = rig_sge(rig, 0, LONG);
    static struct ibv_send_wr wrs[COUNT];
    meet(rig);
    for (uint32_t i = 0; i < COUNT; i++) {
        wrs[i] = (struct ibv_send_wr){.next = i + 1 < COUNT ? &wrs[i + 1] : NULL,
                                      .sg_list = &sge,
                                      .num_sge = 1,
                                      .opcode = IBV_WR_RDMA_WRITE};
        wrs[i].wr.rdma.remote_addr = (uintptr_t)rig->bytes + 8192;
        wrs[i].wr.rdma.rkey = sw_mr_key(rig->mr);
    }
    assert_int_equal(run(rig, wrs), MOST);
    assert_false(rig->d->accessing);
}

/* Short WRITEs or READs at the front of a list are added up together, the others one by one. */
static void sw_ahead_run__counts_what_it_moved(void **state)
{
    const uint32_t lengths[LIST] = {8, 256, 257, 8};
    struct rig *rig = *state;
    struct list list;
    struct sw_traffic before, after;
    meet(rig);
    make(rig, &list, IBV_WR_RDMA_WRITE);
    list.wrs[LIST - 1].opcode = IBV_WR_RDMA_READ;
    for (uint32_t i = 0; i < LIST; i++)
        list.sges[i].length = lengths[i];
    rig->qp->attr.path_mtu = IBV_MTU_256;
    sw_account_read(rig->d, &before);
    assert_int_equal(run(rig, list.wrs), LIST);
    sw_account_read(rig->d, &after);
    assert_int_equal(after.sent_bytes - before.sent_bytes, 8 + 256 + 257);
    assert_int_equal(after.sent_packets - before.sent_packets, 1 + 1 + 2);
    assert_int_equal(after.received_bytes - before.received_bytes, 8);
    assert_int_equal(after.received_packets - before.received_packets, 1);
    list.wrs[1].wr.rdma.rkey ^= 1; /* what was done before it counts */
    assert_int_equal(run(rig, list.wrs), 1);
    sw_account_read(rig->d, &before);
    assert_int_equal(before.sent_bytes - after.sent_bytes, 8);
    assert_int_equal(before.sent_packets - after.sent_packets, 1);
    make(rig, &list, IBV_WR_RDMA_READ);
    list.sges[2].length = 257;
    assert_int_equal(run(rig, list.wrs), LIST);
    sw_account_read(rig->d, &after);
    assert_int_equal(after.received_bytes - before.received_bytes, 8 + 8 + 257 + 8);
    assert_int_equal(after.received_packets - before.received_packets, 1 + 1 + 2 + 1);
    list.wrs[1].send_flags |= IBV_SEND_INLINE; /* of a READ: for the queue to refuse */
    assert_int_equal(run(rig, list.wrs), 1);
}

/* While the target still executes something, nothing may overtake it. */
static void sw_ahead_run__answers_due(void **state)
{
    struct rig *rig = *state;
    struct list list;
    meet(rig);
    make(rig, &list, IBV_WR_RDMA_WRITE);
    rig->d->send.answers_due = 1;
    assert_int_equal(run(rig, list.wrs), 0);
    rig->d->send.answers_due = 0;
}

static void post_at_peer(struct rig *rig, struct ibv_sge *sges, int count)
{
    struct ibv_recv_wr recv = {.sg_list = sges, .num_sge = count}, *bad;
    assert_int_equal(sw_qp_post_recv(rig->other, &recv, &bad), 0);
}

static void sw_ahead_run__sends(void **state)
{
    struct rig *rig = *state;
    struct list list;
    make(rig, &list, IBV_WR_SEND_WITH_IMM);
    list.wrs[1].imm_data = 0x1234;
    list.wrs[1].send_flags |= IBV_SEND_SOLICITED;
    list.sges[2] = rig_sge(rig, 512, 200);
    memset(rig->bytes + 512, 0x5a, 200);
    assert_int_equal(run(rig, list.wrs), 0); /* no receive */
    struct ibv_sge room = rig_sge(rig, 16384, 200);
    for (int i = 0; i < 3; i++)
        post_at_peer(rig, &room, 1);
    rig->d->send.recv_posted = 2; /* as last read: the third is looked for */
    uint32_t at = rig->d->send.request_at;
    assert_int_equal(run(rig, list.wrs), 3);
    const struct sw_record *record = &rig->out->requests[(at + 1) % SW_REQUEST_SLOTS];
    assert_int_equal(atomic_load(&record->seq), at + 2);
    assert_int_equal(record->kind, SW_REC_SEND_INLINE);
    assert_int_equal(record->flags, SW_REC_IMM | SW_REC_SOLICITED);
    assert_int_equal(record->imm, 0x1234);
    assert_memory_equal(record->payload, rig->bytes + 64, 8);
    record = &rig->out->requests[(at + 2) % SW_REQUEST_SLOTS];
    assert_int_equal(record->len_bytes, 200);
    assert_int_equal(record->slots, sw_record_slots(200, SW_INLINE_FIRST));
    assert_int_equal(rig->d->send.recv_used, 3);
}

/* One that no record has room for goes into the receive, be that in several elements. */
static void sw_ahead_run__a_long_send(void **state)
{
    enum { LONG = 3000, FIRST = 1000 };
    struct rig *rig = *state;
    struct ibv_sge from = rig_sge(rig, 0, LONG), room = rig_sge(rig, 16384, LONG + 1);
    struct ibv_sge parts[] = {rig_sge(rig, 32768, FIRST), rig_sge(rig, 40000, LONG - FIRST)};
    struct ibv_send_wr wr = {.sg_list = &from,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND_WITH_IMM,
                             .imm_data = 0x1234,
                             .send_flags = IBV_SEND_SOLICITED};
    for (uint32_t i = 0; i < LONG; i++)
        rig->bytes[i] = (uint8_t)(i * 7 + i / 256);
    assert_int_equal(run(rig, &wr), 0); /* no receive */
    post_at_peer(rig, &room, 1);
    post_at_peer(rig, parts, 2);
    uint32_t at = rig->d->send.request_at;
    assert_int_equal(run(rig, &wr), 1);
    const struct sw_record *record = &rig->out->requests[at % SW_REQUEST_SLOTS];
    assert_int_equal(atomic_load(&record->seq), at + 1);
    assert_int_equal(record->kind, SW_REC_SEND_PLACED);
    assert_int_equal(record->flags, SW_REC_IMM | SW_REC_SOLICITED);
    assert_int_equal(record->imm, 0x1234);
    assert_int_equal(record->len_bytes, LONG);
    assert_memory_equal(rig->bytes + 16384, rig->bytes, LONG);
    assert_int_equal(run(rig, &wr), 1);
    assert_memory_equal(rig->bytes + 32768, rig->bytes, FIRST);
    assert_memory_equal(rig->bytes + 40000, rig->bytes + FIRST, LONG - FIRST);
    assert_int_equal(rig->d->send.recv_used, 2);
}

/* A SEND that has no room, or a bad key on either side, is left to the queue, and takes no
 * receive. */
static void sw_ahead_run__a_long_send_that_fails(void **state)
{
    struct rig *rig = *state;
    struct ibv_sge from = rig_sge(rig, 0, 3000), room = rig_sge(rig, 16384, 2999);
    struct ibv_send_wr wr = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND};
    post_at_peer(rig, &room, 1);
    assert_int_equal(run(rig, &wr), 0);
    from.length--;
    from.lkey ^= 1;
    assert_int_equal(run(rig, &wr), 0);
    from.lkey ^= 1;
    assert_int_equal(run(rig, &wr), 1);
    room.lkey ^= 1;
    post_at_peer(rig, &room, 1);
    assert_int_equal(run(rig, &wr), 0);
    assert_int_equal(rig->d->send.recv_used, 1);
    assert_int_equal(rig->qp->state, IBV_QPS_RTS);
}

/* A receive that has less room than the message: the queue finds out what that means. */
static void sw_ahead_run__short_receive(void **state)
{
    struct rig *rig = *state;
    struct list list;
    make(rig, &list, IBV_WR_SEND);
    struct ibv_sge room = rig_sge(rig, 16384, 7);
    post_at_peer(rig, &room, 1);
    rig->d->send.recv_posted = 1;
    assert_int_equal(run(rig, list.wrs), 0);
}

/* To a shared receive queue: sent, not done, and nothing but another SEND may follow. */
static void sw_ahead_run__sends_shared(void **state)
{
    struct rig *rig = *state;
    struct list list;
    uint32_t sent = 0, at = rig->d->send.request_at;
    meet(rig);
    rig->d->remote.rq_entries = 0;
    make(rig, &list, IBV_WR_SEND);
    list.wrs[0].opcode = IBV_WR_RDMA_WRITE;
    list.sges[1].length = 200;
    list.wrs[3].opcode = IBV_WR_RDMA_WRITE;
    assert_int_equal(sw_ahead_run(rig->qp, rig->d, list.wrs, UINT32_MAX, &sent), 3);
    assert_int_equal(sent, 2);
    assert_int_equal(rig->d->send.answers_due, 2);
    assert_int_equal(rig->bytes[4096 + 3 * 64], 0x83);
    const struct sw_record *record = &rig->out->requests[at % SW_REQUEST_SLOTS];
    assert_int_equal(atomic_load(&record->seq), at + 1);
    assert_int_equal(record->kind, SW_REC_SEND_WHOLE);
    assert_int_equal(record->flags, SW_REC_FIRST | SW_REC_LAST);
    assert_int_equal(record->slots, sw_record_slots(200, SW_WHOLE_FIRST));

    sent = 0;
    assert_int_equal(sw_ahead_run(rig->qp, rig->d, &list.wrs[3], 1, &sent), 0);
    assert_int_equal(sw_ahead_run(rig->qp, rig->d, &list.wrs[2], 1, &sent), 1);
    list.sges[2].length = SW_WHOLE_BYTES + 1;
    assert_int_equal(sw_ahead_run(rig->qp, rig->d, &list.wrs[2], 1, &sent), 0);
    list.sges[2].length = 8;
    list.wrs[2].send_flags |= IBV_SEND_FENCE;
    rig->d->send.reads_due = 1;
    assert_int_equal(sw_ahead_run(rig->qp, rig->d, &list.wrs[2], 1, &sent), 0);
    rig->d->send.reads_due = 0;
    list.sges[2].lkey ^= 1;
    assert_int_equal(sw_ahead_run(rig->qp, rig->d, &list.wrs[2], 1, &sent), 0);
    assert_int_equal(sent, 1);
    assert_int_equal(rig->qp->state, IBV_QPS_RTS);
    rig->d->send.answers_due = 0;
}

/* A list longer than the queue: what has no slot is refused, not executed. */
static void sw_qp_post_send__room(void **state)
{
    struct rig *rig = *state;
    struct list list;
    struct ibv_send_wr *bad = NULL;
    meet(rig);
    sw_lock_release(&rig->qp->lock);
    uint32_t posts = 0;
    for (int rc = 0; !rc; posts++) {
        make(rig, &list, IBV_WR_RDMA_WRITE);
        rc = sw_qp_post_send(rig->qp, list.wrs, &bad);
        assert_true(!rc || rc == -ENOMEM);
    }
    sw_lock_acquire(&rig->qp->lock);
    assert_ptr_equal(bad, &list.wrs[0] + (rig->qp->sq.wr_max - 1) % LIST); /* one of meet() */
    assert_int_equal(rig->bytes[4096 + bad->wr_id * 64], 0x80 + bad->wr_id);
    assert_int_equal(rig->qp->sq.tail - atomic_load(&rig->qp->sq.polled), rig->qp->sq.wr_max);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        rig_test(sw_ahead_run__writes),
        rig_test(sw_ahead_run__reads),
        rig_test(sw_ahead_run__stops),
        rig_test(sw_ahead_run__answers_due),
        rig_test(sw_ahead_run__a_long_write),
        rig_test(sw_ahead_run__a_mebibyte_at_a_time),
        rig_test(sw_ahead_run__counts_what_it_moved),
        rig_test(sw_ahead_run__sends),
        rig_test(sw_ahead_run__a_long_send),
        rig_test(sw_ahead_run__a_long_send_that_fails),
        rig_test(sw_ahead_run__short_receive),
        rig_test(sw_ahead_run__sends_shared),
        rig_test(sw_qp_post_send__room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
