/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A peer that changes what it wrote while we read it: between the check of a value and its use.
 * Another thread flips fields between good and absurd values as fast as it can; nothing may be
 * touched but the registered memory (which has unmapped pages around it), nothing may hang.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/clock.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/direct/send/bounce.h"
#include "link/direct/send/reach.h"
#include "link/direct/serve/responder.h"
#include "link/gather.h"
#include "link_rig.h"

#define RUN_NS (400 * SW_NS_PER_MS) /* at least; as long as it takes on a busy machine */
#define RUN_MAX_NS (30 * SW_NS_PER_S)

struct scribbler {
    struct rig rig;
    pthread_t thread;
    atomic_bool stop;
    _Atomic(struct sw_block *) block; /* NULL: pause */
    atomic_bool paused;
    atomic_uint passes;
    uint64_t random;
};

static uint32_t next_random(uint64_t *state) /* xorshift64, Marsaglia 2003 */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 16);
}

#define FLIP(field, good, bad) \
    __atomic_store_n(&(field), next_random(&s->random) % 4 ? (good) : (bad), __ATOMIC_RELAXED)

static void scribble_request(struct scribbler *s, struct sw_record *record)
{
    static const uint8_t kinds[] = {SW_REC_SEND_INLINE, SW_REC_SEND_PLACED, SW_REC_WRITE_IMM,
                                    SW_REC_SEND,        SW_REC_WRITE,       SW_REC_WRITE,
                                    SW_REC_READ,        SW_REC_ATOMIC,      SW_REC_SEND_WHOLE,
                                    SW_REC_SEND_PARTLY};
    uint64_t base = (uintptr_t)s->rig.bytes;
    __atomic_store_n(&record->kind, kinds[next_random(&s->random) % sizeof(kinds)],
                     __ATOMIC_RELAXED);
    FLIP(record->slots, 1, 4);
    FLIP(record->flags, SW_REC_FIRST | SW_REC_LAST, SW_REC_IMM);
    FLIP(record->len_bytes, 64u, UINT32_MAX);
    FLIP(record->total_bytes, 64u, RIG_BYTES + 1);
    FLIP(record->remote_addr, base, base + RIG_BYTES - 1);
    FLIP(record->bounce_at, 0u, SW_REQUEST_BOUNCE - 1);
    FLIP(record->opcode, IBV_WR_ATOMIC_FETCH_AND_ADD, 255);
    __atomic_store_n(&record->rkey, sw_mr_key(s->rig.mr), __ATOMIC_RELAXED);
    __atomic_store_n(&record->verdict, 0, __ATOMIC_RELAXED);
}

static void scribble_answer(struct scribbler *s, struct sw_record *record)
{
    FLIP(record->kind, SW_REC_DATA, SW_REC_ANSWER);
    FLIP(record->len_bytes, 64u, UINT32_MAX);
    FLIP(record->bounce_at, 0u, SW_RESPONSE_BOUNCE - 1);
    __atomic_store_n(&record->verdict, 0, __ATOMIC_RELAXED);
}

static void *scribble_block(void *arg)
{
    struct scribbler *s = arg;
    while (!atomic_load(&s->stop)) {
        struct sw_block *block = atomic_load(&s->block);
        atomic_store(&s->paused, !block);
        if (!block) {
            sched_yield();
            continue;
        }
        for (uint32_t i = 0; i < 32; i++) { /* of a short life */
            scribble_request(s, &block->requests[i]);
            scribble_answer(s, &block->responses[i]);
            atomic_store(&block->requests[i].seq, i + 1);
            atomic_store(&block->responses[i].seq, i + 1);
        }
        atomic_store(&block->responses_consumed, next_random(&s->random) % 64);
        atomic_store(&block->acknowledged, (uint32_t)next_random(&s->random) % 4);
        atomic_fetch_add(&s->passes, 1);
    }
    return NULL;
}

static void pause_scribbling(struct scribbler *s)
{
    atomic_store(&s->block, NULL);
    while (!atomic_load(&s->paused))
        sched_yield();
}

static void new_life(struct scribbler *s)
{
    rig_connect(&s->rig, 0);
    for (uint64_t i = 0; i < 64; i++)
        rig_recv(&s->rig, 64, (uint32_t)(i * 64), 64);
    for (uint64_t i = 0; i < 16; i++) {
        struct ibv_sge sge = rig_sge(&s->rig, 32768, 64);
        struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ, .wr_id = 1};
        struct sw_wqe *wqe = rig_append(&s->rig, &wr, &sge);
        assert_true(sw_bind_enter(s->rig.qp, s->rig.d));
        assert_int_equal(sw_bounce_start(s->rig.qp, s->rig.d, wqe, (uint32_t)i), SW_STEP_SENT);
        sw_bind_leave(s->rig.d);
        wqe->state = SW_WQE_SENT;
        s->rig.qp->sq.next++;
    }
    uint32_t passes = atomic_load(&s->passes);
    atomic_store(&s->block, s->rig.block);
    while (atomic_load(&s->passes) == passes)
        sched_yield();
}

static bool goes_on(uint64_t start_ns, bool enough)
{
    uint64_t ran_ns = sw_clock_ns() - start_ns;
    return ran_ns < RUN_NS || (!enough && ran_ns < RUN_MAX_NS);
}

static void hostile__inbox_changes_while_it_is_read(void **state)
{
    (void)state;
    struct scribbler *s = calloc(1, sizeof(*s));
    s->random = 0x9e3779b97f4a7c15;
    rig_open(&s->rig);
    assert_int_equal(pthread_create(&s->thread, NULL, scribble_block, s), 0);
    uint64_t start_ns = sw_clock_ns(), served = 0, collected = 0, lives = 0;
    while (goes_on(start_ns, served > 200 && collected > 200)) {
        new_life(s);
        bool serves = lives++ % 2; /* first: either soon finds what ends the QP */
        for (int i = 0; i < 100 && s->rig.qp->link_state == s->rig.d; i++, serves = !serves) {
            uint32_t before = s->rig.d->send.response_at;
            if (serves) {
                served += sw_serve_run(s->rig.qp, s->rig.d);
                continue;
            }
            bool good = sw_bounce_collect(s->rig.qp, s->rig.d);
            collected += s->rig.d->send.response_at - before;
            if (!good) /* it says so again at each call, until somebody fails the QP */
                break;
        }
        pause_scribbling(s);
        struct ibv_wc wc;
        while (sw_cq_poll(s->rig.cq, 1, &wc) == 1)
            if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV)
                assert_true(wc.byte_len <= wc.wr_id);
        rig_drop(&s->rig);
    }
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    rig_close(&s->rig);
    assert_true(served > 200 && collected > 200);
    free(s);
}

/* ---- a peer's tables ---- */

#define VA 0x7f0000000000ull
#define PAGE 4096u

struct tables {
    struct scribbler s;
    struct sw_peer peer;
    struct sw_pub *pub;
    struct sw_pub_mr *mr;
    uint8_t *segment; /* four pages with unmapped ones around */
    struct sw_direct_qp d;
};

static void *scribble_tables(void *arg)
{
    struct tables *t = arg;
    struct scribbler *s = &t->s;
    struct sw_pub_mr *mr = t->mr;
    while (!atomic_load(&s->stop)) {
        for (int i = 0; i < SW_MR_EXTENTS; i++) {
            struct sw_pub_extent *extent = &mr->extents[i];
            FLIP(extent->va, VA + PAGE, VA + 2 * PAGE);
            FLIP(extent->len_bytes, 2 * PAGE, UINT64_MAX - PAGE);
            FLIP(extent->file_offset, 0, UINT64_MAX - PAGE + 1);
            FLIP(extent->segment, 9, 10);
        }
        FLIP(mr->extent_count, 2, UINT32_MAX);
        FLIP(mr->iova, VA, 0);
        FLIP(mr->len_bytes, 4 * PAGE, UINT64_MAX);
        FLIP(mr->va, VA, VA + 8 * PAGE);
    }
    return NULL;
}

static void play(struct tables *t)
{
    t->s.random = 88172645463325252ull;
    t->pub = rig_pub();
    t->mr = &t->pub->mrs[5];
    t->mr->handed = SW_HANDED_OUT_WRITE;
    t->mr->key_word = 1ull << 32 | 5u << 8;
    t->mr->access = RIG_RIGHTS;
    uint8_t *around = mmap(NULL, 6 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(around, MAP_FAILED);
    t->segment = around + PAGE;
    assert_int_equal(mprotect(t->segment, 4 * PAGE, PROT_READ | PROT_WRITE), 0);
    pthread_mutex_init(&t->peer.lock, NULL);
    t->peer.pub = t->pub;
    t->peer.can_map = true;
    t->peer.segments[9] = calloc(1, sizeof(struct sw_peer_segment));
    t->peer.segments[9]->id = 9;
    t->peer.segments[9]->state = SW_SEGMENT_MAPPED;
    t->peer.segments[9]->writable = true;
    t->peer.segments[9]->base = t->segment;
    t->peer.segments[9]->len_bytes = 4 * PAGE;
    t->d.peer = &t->peer;
    t->d.remote.access = RIG_RIGHTS;
}

static void hostile__tables_change_while_they_are_read(void **state)
{
    (void)state;
    struct tables *t = calloc(1, sizeof(*t));
    rig_open(&t->s.rig);
    rig_connect(&t->s.rig, 0);
    play(t);
    struct ibv_sge sge = rig_sge(&t->s.rig, 0, RIG_BYTES);
    struct sw_gather gather = {.sges = &sge, .sge_count = 1, .pd = t->s.rig.pd->id};
    assert_int_equal(pthread_create(&t->s.thread, NULL, scribble_tables, t), 0);
    uint64_t start_ns = sw_clock_ns(), moved = 0, remembered = 0;
    for (uint32_t i = 0; goes_on(start_ns, moved && remembered); i++) {
        uint64_t addr = VA + (i * 24) % (4 * PAGE), len = 1 + i % (2 * PAGE);
        uint32_t done = 0;
        t->d.send.budget_bytes = 1u << 20;
        if (sw_reach_probe(&t->peer, t->mr, addr, len) == SW_REACH_DIRECT)
            sw_reach_move(&t->d, &gather, 0, t->mr, addr, len, i & 1 ? SW_MOVE_IN : SW_MOVE_OUT,
                          &done);
        moved += done;
        sw_reach_remember(&t->d, 5u << 8, t->mr, t->mr->key_word, addr);
        if (i % 256 == 0)
            sched_yield();
        uint8_t *at = sw_reach_remembered(&t->d, 5u << 8, addr, 8, 0);
        if (at) {
            remembered++;
            at[0] = at[7] = 1;
        }
    }
    atomic_store(&t->s.stop, true);
    pthread_join(t->s.thread, NULL);
    rig_drop(&t->s.rig);
    rig_close(&t->s.rig);
    assert_true(moved > 0);
    assert_true(remembered > 0);
    free(t->peer.segments[9]);
    free(t->peer.segments[10]);
    munmap(t->segment - PAGE, 6 * PAGE);
    rig_pub_free(t->pub);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile__inbox_changes_while_it_is_read),
        cmocka_unit_test(hostile__tables_change_while_they_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
