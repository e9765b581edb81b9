/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer's public tables may hold anything: its QP entry, its keys and extents, its posted
 * receives. So may its answers in our inbox. The requester reads all of it and must write nowhere
 * but into the peer's segments and the peer's inbox, and read nothing beyond them.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "fuzz.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/direct/send/ahead.h"
#include "link/direct/send/requester.h"
#include "link_harness.h"

#define PAGE 4096u
#define SLOT 300u
#define INDEX 1u
#define QPN (SLOT << SW_QP_INDEX_BITS | INDEX)
#define RQ_AT (offsetof(struct sw_pub, rq_arena) + PAGE)
#define SEGMENT_BYTES (8 * PAGE)
#define SEGMENT_OFFSET 65536u
#define IOVA 0x10000ull
enum { STEPS_MAX = 256, KEYS = 3, SEGMENT = 9 };

static struct sw_pub *pub;
static uint8_t *inbox, *segment;
static struct sw_peer *peer;
static pid_t victim; /* whose memory the tables speak of, if it cannot be mapped */

/* Memory with an unmapped page before and after it. */
static void *guarded(size_t len_bytes)
{
    len_bytes = (len_bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
    uint8_t *at = mmap(NULL, len_bytes + 2 * PAGE, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    harness_needs(at != MAP_FAILED);
    harness_needs(mprotect(at + PAGE, len_bytes, PROT_READ | PROT_WRITE) == 0);
    return at + PAGE;
}

static void start_victim(void)
{
    victim = fork();
    harness_needs(victim >= 0);
    if (victim == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
}

static void start(void)
{
    if (pub)
        return;
    harness_start();
    start_victim();
    pub = guarded(sizeof(*pub));
    inbox = guarded(SW_INBOX_BYTES);
    segment = guarded(SEGMENT_BYTES);
    peer = sw_peer_get(SLOT);
    harness_needs(peer != NULL);
    peer->pub = pub;
    peer->inbox = inbox;
    peer->pub_bytes = sizeof(*pub);
    peer->inbox_blocks = SW_INBOX_BLOCKS;
    peer->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    peer->pid = victim;
    atomic_store(&peer->state, SW_PEER_READY);
}

static struct sw_pub_mr *entry_of(uint8_t which)
{
    return &pub->mrs[1 + which % KEYS];
}

static uint32_t key_of(uint8_t which)
{
    return (uint32_t)(1 + which % KEYS) << 8;
}

/* Tables as an honest peer would have them, to begin with. */
static void honest(void)
{
    madvise(pub, sizeof(*pub), MADV_DONTNEED);
    madvise(inbox, SW_INBOX_BYTES, MADV_DONTNEED);
    pub->qps[INDEX] = (struct sw_pub_qp){
        .bind_word = 1ull << 32 | IBV_QPS_RTS,
        .qpn = QPN,
        .dest_qpn = sw_qp_num(harness.qp),
        .access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
        .pd = 1,
        .block = 2,
        .rq_offset = RQ_AT,
        .rq_entries = 4,
        .rq_stride_bytes = 64,
        .rq_posted = 100,
    };
    for (uint8_t i = 0; i < KEYS; i++) {
        *entry_of(i) = (struct sw_pub_mr){
            .key_word = 1ull << 32 | key_of(i),
            .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC,
            .pd = 1,
            .iova = IOVA,
            .va = IOVA,
            .len_bytes = SEGMENT_BYTES,
            .extent_count = 1,
        };
        entry_of(i)->extents[0] = (struct sw_pub_extent){.va = IOVA,
                                                         .len_bytes = SEGMENT_BYTES,
                                                         .file_offset = SEGMENT_OFFSET,
                                                         .segment = SEGMENT};
    }
    for (uint32_t i = 0; i < 4; i++) {
        struct sw_pub_recv *recv = (struct sw_pub_recv *)((uint8_t *)pub + RQ_AT + 64 * i);
        recv->sge_count = 1;
        recv->len_bytes = PAGE;
        recv->sges[0] = (struct ibv_sge){IOVA, PAGE, key_of(0)};
    }
}

static void set_segments(void)
{
    for (uint32_t i = 0; i < SW_SEGMENT_BUCKETS; i++) {
        while (peer->segments[i]) {
            struct sw_peer_segment *gone = peer->segments[i];
            peer->segments[i] = gone->next;
            free(gone);
        }
    }
    struct sw_peer_segment *mapped = calloc(1, sizeof(*mapped));
    harness_needs(mapped != NULL);
    mapped->id = SEGMENT;
    mapped->state = SW_SEGMENT_MAPPED;
    mapped->base = segment;
    mapped->offset = SEGMENT_OFFSET;
    mapped->len_bytes = SEGMENT_BYTES;
    peer->segments[SEGMENT] = mapped;
}

static void change_qp(struct feed *feed)
{
    const uint64_t values[] = {
        0, 1, 4, 32, 64, RQ_AT, sizeof(struct sw_pub), SW_INBOX_BLOCKS, UINT32_MAX};
    struct sw_pub_qp *qp = &pub->qps[INDEX];
    uint8_t field = feed_u8(feed) % 11;
    uint64_t value = feed_value(feed, values, 9);
    uint32_t *const words[] = {&qp->block, &qp->recv_cq, &qp->rq_entries, &qp->rq_stride_bytes,
                               &qp->pd,    &qp->access,  &qp->dest_qpn};
    if (field < 7)
        *words[field] = (uint32_t)value;
    else if (field == 7)
        qp->rq_offset = value;
    else if (field == 8)
        atomic_store(&qp->rq_posted, (uint32_t)value);
    else if (field == 9)
        atomic_store(&qp->rq_len_min_bytes, (uint32_t)value);
    else
        qp->min_rnr_timer = (uint8_t)value;
    if (feed_u8(feed) & 1) /* says so, or keeps it for itself */
        atomic_fetch_add(&qp->bind_word, 1ull << 32);
}

static void change_mr(struct feed *feed)
{
    const uint64_t values[] = {
        IOVA,    IOVA + PAGE, IOVA + SEGMENT_BYTES, SEGMENT_OFFSET, SEGMENT_BYTES, PAGE, 0,
        SEGMENT, UINT64_MAX};
    struct sw_pub_mr *mr = entry_of(feed_u8(feed));
    struct sw_pub_extent *extent = &mr->extents[feed_u8(feed) % SW_MR_EXTENTS];
    uint64_t *const longs[] = {&extent->va, &extent->len_bytes, &extent->file_offset, &mr->iova,
                               &mr->va,     &mr->len_bytes};
    uint32_t *const words[] = {&extent->segment, &mr->extent_count, &mr->access, &mr->pd};
    uint8_t field = feed_u8(feed) % 10;
    uint64_t value = feed_value(feed, values, 9);
    if (field < 6)
        *longs[field] = value;
    else
        *words[field - 6] = (uint32_t)value;
    if (feed_u8(feed) & 1)
        atomic_fetch_add(&mr->key_word, 1ull << 32);
}

static void change_recv(struct feed *feed)
{
    const uint64_t addresses[] = {IOVA, IOVA + SEGMENT_BYTES, IOVA - 1, 0, UINT64_MAX};
    const uint64_t lens[] = {0, 8, PAGE, SEGMENT_BYTES, UINT32_MAX};
    struct sw_pub_recv *recv =
        (struct sw_pub_recv *)((uint8_t *)pub + RQ_AT + 64 * (feed_u8(feed) % 4));
    recv->sge_count = feed_u8(feed);
    recv->len_bytes = (uint32_t)feed_value(feed, lens, 5);
    for (int i = 0; i < 3; i++) {
        recv->sges[i].addr = feed_value(feed, addresses, 5);
        recv->sges[i].length = (uint32_t)feed_value(feed, lens, 5);
        recv->sges[i].lkey = key_of(feed_u8(feed)) + (feed_u8(feed) == 255);
    }
}

static void write_response(struct feed *feed)
{
    uint32_t position = harness.d->send.response_at + feed_u8(feed) % 2;
    struct sw_record *record = &harness.block->responses[position % SW_RESPONSE_SLOTS];
    feed_bytes(feed, (uint8_t *)record + 4, 20);
    record->kind = (uint8_t)(SW_REC_ANSWER + record->kind % 2);
    record->verdict = record->verdict < 200 ? SW_ACK : record->verdict;
    record->bounce_at = feed_u16(feed);
    record->imm = harness.d->send.acknowledged + record->imm % 2;
    atomic_store(&record->seq, position + 1);
}

static void post(struct feed *feed)
{
    const uint64_t addresses[] = {IOVA, IOVA + SEGMENT_BYTES, IOVA + PAGE - 4, IOVA - 8};
    uint8_t flags = feed_u8(feed);
    struct ibv_send_wr wr = {.opcode = (enum ibv_wr_opcode)(feed_u8(feed) % 7),
                             .send_flags =
                                 flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)};
    bool atomic =
        wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    struct ibv_sge sge = {(uintptr_t)harness.open, atomic ? 8 : feed_u16(feed) % 40000,
                          sw_mr_key(harness.open_mr)};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    uint64_t address = feed_value(feed, addresses, 4);
    uint32_t key = key_of(feed_u8(feed));
    if (atomic) {
        wr.wr.atomic.remote_addr = address;
        wr.wr.atomic.rkey = key;
    } else {
        wr.wr.rdma.remote_addr = address;
        wr.wr.rdma.rkey = key;
    }
    struct sw_sq *sq = &harness.qp->sq;
    /* The shortcut of sw_qp_post_send(). */
    uint32_t sent = 0;
    sw_lock_acquire(&harness.qp->lock);
    if (flags & 0x80 && sq->next == sq->tail && sw_sq_room(sq) &&
        sw_ahead_run(harness.qp, harness.d, &wr, 1, &sent))
        sw_sq_append_executed(sq, &wr, sent ? SW_WQE_SENT : SW_WQE_DONE);
    else
        sw_sq_append(sq, &wr);
    sw_lock_release(&harness.qp->lock);
}

static void step(struct feed *feed)
{
    switch (feed_u8(feed) % 8) {
    case 0:
        change_qp(feed);
        break;
    case 1:
        change_mr(feed);
        break;
    case 2:
        change_recv(feed);
        break;
    case 3:
        write_response(feed);
        break;
    case 4:
    case 5:
        post(feed);
        break;
    case 6: /* what it claims to have read */
        atomic_store(&harness.block->requests_consumed, feed_u32(feed));
        atomic_store(&harness.block->request_bounce_consumed, feed_u32(feed));
        break;
    default:
        harness_run(sw_direct_send_run);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = {data, size};
    start();
    memset(harness.open, 0, HARNESS_OPEN_BYTES);
    harness_connect(QPN, false);
    honest();
    set_segments();
    uint8_t rungs = feed_u8(&feed);
    peer->can_map = rungs & 1;
    atomic_store(&peer->can_cma, rungs & 2);
    for (int i = 0; i < STEPS_MAX && feed.left && harness_alive(); i++) {
        step(&feed);
        harness_poll();
    }
    if (harness_alive())
        harness_run(sw_direct_send_run);
    harness_finish();
    return 0;
}
