/* SPDX-License-Identifier: BSD-2-Clause */
/* Reaching a peer's memory: the peer is played, its tables and segments are made up here. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/memory/view.h"
#include "device/serve/execute.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/peer.h"
#include "link/direct/send/reach.h"
#include "link/gather.h"
#include "link_rig.h"

#define PAGE 4096u

/* ---- copies ---- */

static void sw_copy_ordered__every_length_and_alignment(void **state)
{
    (void)state;
    uint8_t from[96], to[96], expected[96];
    for (uint32_t i = 0; i < sizeof(from); i++)
        from[i] = (uint8_t)(i + 1);
    for (uint32_t len = 0; len <= 48; len++) {
        for (uint32_t align = 0; align < 16; align++) {
            memset(to, 0xee, sizeof(to));
            memset(expected, 0xee, sizeof(expected));
            memcpy(expected + 16 + align, from + align % 5, len);
            sw_copy_ordered(to + 16 + align, from + align % 5, len);
            assert_memory_equal(to, expected, sizeof(to));
        }
    }
}

static struct {
    uint8_t *pages; /* two; one of them is protected, in one direction */
    uint8_t *last;  /* of the copy */
    uint32_t head_bytes;
    volatile int faults; /* changed by a signal handler, as all here */
    bool tail_fault;     /* the second page is the protected one */
    volatile bool good;
} order;

/* The copy reached the protected page: what must be there by now, and what must not? */
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    (void)context;
    uint8_t *first = order.pages + PAGE - order.head_bytes;
    order.faults++;
    if (order.tail_fault) {
        for (uint32_t i = 0; i < order.head_bytes; i++)
            order.good &= first[i] == 0x55;
        mprotect(order.pages + PAGE, PAGE, PROT_READ | PROT_WRITE);
    } else {
        order.good &= *order.last == 0;
        mprotect(order.pages, PAGE, PROT_READ | PROT_WRITE);
    }
}

static bool copies_in_order(uint32_t head_bytes, uint32_t tail_bytes, bool tail_fault)
{
    static uint8_t source[2 * PAGE];
    memset(source, 0x55, sizeof(source));
    order.pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    order.head_bytes = head_bytes;
    order.last = order.pages + PAGE + tail_bytes - 1;
    order.tail_fault = tail_fault;
    order.faults = 0;
    order.good = true;
    assert_int_equal(mprotect(order.pages + (tail_fault ? PAGE : 0), PAGE, PROT_READ), 0);
    sw_copy_ordered(order.pages + PAGE - head_bytes, source, head_bytes + tail_bytes);
    assert_int_equal(order.faults, 1);
    assert_int_equal(*order.last, 0x55);
    assert_int_equal(munmap(order.pages, 2 * PAGE), 0);
    return order.good;
}

/* Programs poll the last byte: it is stored last, whatever the library's memcpy does. Seen from a
 * page fault in the middle. */
static void sw_copy_ordered__last_bytes_last(void **state)
{
    (void)state;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;
    assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
    for (uint32_t head = 1; head < 600; head += head < 40 ? 1 : 37) {
        assert_true(copies_in_order(head, 8, true));
        assert_true(copies_in_order(head, 8, false));
        assert_true(copies_in_order(head, 300, false));
    }
    assert_true(copies_in_order(PAGE, PAGE, false));
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
}

/* ---- the local side ---- */

static void sw_gather_at__elements_and_offsets(void **state)
{
    struct rig *rig = *state;
    struct ibv_sge sges[] = {rig_sge(rig, 0, 10), rig_sge(rig, 50, 0), rig_sge(rig, 100, 20)};
    struct sw_gather gather = {.sges = sges, .sge_count = 3, .pd = rig->qp->pd_id};
    static const struct {
        uint64_t offset, ask, got;
        uint32_t at;
    } cases[] = {
        {0, 30, 10, 0}, {9, 30, 1, 9}, {10, 30, 20, 100}, {29, 1, 1, 119}, {12, 5, 5, 102}};
    for (size_t i = 0; i < 5; i++) {
        uint64_t len = cases[i].ask;
        assert_ptr_equal(sw_gather_at(&gather, cases[i].offset, 0, &len), rig->bytes + cases[i].at);
        assert_int_equal(len, cases[i].got);
    }
    uint64_t len = 1;
    assert_null(sw_gather_at(&gather, 30, 0, &len));
    sges[2].lkey ^= 1;
    assert_null(sw_gather_at(&gather, 10, 0, &len));
}

static void sw_gather_at__inline_bytes(void **state)
{
    (void)state;
    uint8_t bytes[16];
    struct sw_gather gather = {.inline_bytes = bytes, .inline_len = 16};
    uint64_t len = 30;
    assert_ptr_equal(sw_gather_at(&gather, 6, 0, &len), bytes + 6);
    assert_int_equal(len, 10);
}

/* ---- a peer that is played ---- */

#define IOVA 0x100000ull
#define VA 0x7f0000000000ull /* in the peer: nothing of it is mapped here */

struct played {
    struct sw_peer peer;
    struct sw_pub *pub;
    struct sw_pub_mr *mr;
    uint8_t *segment; /* mapped here: 4 pages, guarded */
    struct sw_direct_qp d;
};

static struct sw_peer_segment *add_segment(struct played *p, uint32_t id, uint64_t offset,
                                           uint64_t len_bytes)
{
    struct sw_peer_segment *segment = calloc(1, sizeof(*segment));
    assert_non_null(segment);
    segment->id = id;
    segment->state = SW_SEGMENT_MAPPED;
    segment->writable = true;
    segment->base = p->segment;
    segment->offset = offset;
    segment->len_bytes = len_bytes;
    segment->next = p->peer.segments[id % SW_SEGMENT_BUCKETS];
    p->peer.segments[id % SW_SEGMENT_BUCKETS] = segment;
    return segment;
}

static struct sw_pub_extent extent(uint64_t va, uint64_t len, uint64_t offset, uint32_t id)
{
    return (struct sw_pub_extent){.va = va, .len_bytes = len, .file_offset = offset, .segment = id};
}

/* A region of 6 pages; pages 1 and 2 are at pages 0 and 1 of segment 9, page 4 at its page 2. */
static struct played *play(void)
{
    struct played *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    p->pub = rig_pub();
    uint8_t *around = mmap(NULL, 6 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(around, MAP_FAILED);
    p->segment = around + PAGE;
    assert_int_equal(mprotect(p->segment, 4 * PAGE, PROT_READ | PROT_WRITE), 0);
    pthread_mutex_init(&p->peer.lock, NULL);
    p->peer.pub = p->pub;
    p->peer.can_map = true;
    p->peer.socket = p->peer.doorbell = -1;
    p->mr = &p->pub->mrs[5];
    p->mr->key_word = 1ull << 32 | 5u << 8;
    p->mr->access = RIG_RIGHTS;
    p->mr->iova = IOVA;
    p->mr->va = VA;
    p->mr->len_bytes = 6 * PAGE;
    p->mr->handed = SW_HANDED_OUT_WRITE;
    p->mr->extent_count = 2;
    p->mr->extents[0] = extent(VA + PAGE, 2 * PAGE, 0x8000, 9);
    p->mr->extents[1] = extent(VA + 4 * PAGE, PAGE, 0x8000 + 2 * PAGE, 9);
    add_segment(p, 9, 0x8000, 4 * PAGE);
    p->d.rules = sw_verdict_rules_of(IBV_QPT_RC);
    p->d.peer = &p->peer;
    p->d.remote.access = RIG_RIGHTS;
    p->d.send.budget_bytes = 1u << 20;
    return p;
}

static void stop_playing(struct played *p)
{
    for (uint32_t i = 0; i < SW_SEGMENT_BUCKETS; i++) {
        while (p->peer.segments[i]) {
            struct sw_peer_segment *segment = p->peer.segments[i];
            p->peer.segments[i] = segment->next;
            free(segment);
        }
    }
    munmap(p->segment - PAGE, 6 * PAGE);
    rig_pub_free(p->pub);
    free(p);
}

static void sw_reach_mapped__inside_one_extent(void **state)
{
    (void)state;
    struct played *p = play();
    bool wait;
    assert_ptr_equal(sw_reach_mapped(&p->peer, p->mr, IOVA + PAGE, 8, &wait), p->segment);
    assert_false(wait);
    assert_ptr_equal(sw_reach_mapped(&p->peer, p->mr, IOVA + 3 * PAGE - 8, 8, &wait),
                     p->segment + 2 * PAGE - 8);
    assert_ptr_equal(sw_reach_mapped(&p->peer, p->mr, IOVA + 4 * PAGE, PAGE, &wait),
                     p->segment + 2 * PAGE);
    assert_null(sw_reach_mapped(&p->peer, p->mr, IOVA, 8, &wait));
    assert_null(sw_reach_mapped(&p->peer, p->mr, IOVA + 3 * PAGE - 4, 8, &wait)); /* half of it */
    assert_false(wait);
    p->mr->extent_count = 1; /* what stands behind it is of an earlier region */
    assert_null(sw_reach_mapped(&p->peer, p->mr, IOVA + 4 * PAGE, PAGE, &wait));
    stop_playing(p);
}

static void sw_reach_probe__rungs(void **state)
{
    (void)state;
    struct played *p = play();
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA + PAGE, 2 * PAGE), SW_REACH_DIRECT);
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA, 6 * PAGE), SW_REACH_RING);
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA + PAGE, 2 * PAGE + 1), SW_REACH_RING);
    atomic_store(&p->peer.can_cma, true);
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA, 6 * PAGE), SW_REACH_DIRECT);
    assert_int_equal(sw_reach_probe_stores(&p->peer, p->mr, IOVA + PAGE, PAGE), SW_REACH_DIRECT);
    assert_int_equal(sw_reach_probe_stores(&p->peer, p->mr, IOVA, 6 * PAGE), SW_REACH_RING);
    p->peer.can_map = false;
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA, 6 * PAGE), SW_REACH_DIRECT);
    atomic_store(&p->peer.can_cma, false);
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA + PAGE, 8), SW_REACH_RING);
    stop_playing(p);
}

static void sw_reach_probe__segment_on_its_way_or_refused(void **state)
{
    (void)state;
    struct played *p = play();
    p->mr->extents[0].segment = 10; /* not known yet */
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA + PAGE, 8), SW_REACH_WAIT);
    assert_true(atomic_load(&p->peer.segments_wanted));
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA + PAGE, 8), SW_REACH_WAIT);
    atomic_store(&p->peer.can_cma, true); /* no need to wait */
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA + PAGE, 8), SW_REACH_DIRECT);
    assert_int_equal(sw_reach_probe_stores(&p->peer, p->mr, IOVA + PAGE, 8), SW_REACH_WAIT);
    atomic_store(&p->peer.can_cma, false);
    p->peer.segments[10]->state = SW_SEGMENT_REFUSED;
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA + PAGE, 8), SW_REACH_RING);
    stop_playing(p);
}

/* Memory that its owner does not hand out is not even asked for. */
static void sw_reach_probe__not_handed_out(void **state)
{
    (void)state;
    struct played *p = play();
    p->mr->handed = SW_HANDED_OUT_NOT;
    p->mr->extents[0].segment = 10;
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA + PAGE, 8), SW_REACH_RING);
    assert_false(atomic_load(&p->peer.segments_wanted));
    sw_reach_remember(&p->d, 5u << 8, p->mr, p->mr->key_word, IOVA + PAGE);
    assert_null(sw_reach_remembered(&p->d, 5u << 8, IOVA + PAGE, 8, 0));
    atomic_store(&p->peer.can_cma, true);
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA + PAGE, 8), SW_REACH_DIRECT);
    stop_playing(p);
}

/* To be read: mapped so, remembered for that alone; a region of the same memory that may be written
 * has it fetched again, while who reads goes on. */
static void sw_reach_probe__handed_out_to_be_read(void **state)
{
    (void)state;
    struct played *p = play();
    struct sw_peer_segment *segment = p->peer.segments[9];
    bool wait;
    p->mr->handed = SW_HANDED_OUT_READ;
    segment->writable = false;
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA + PAGE, 8), SW_REACH_DIRECT);
    assert_null(sw_reach_mapped(&p->peer, p->mr, IOVA + PAGE, 8, &wait)); /* for atomics */
    sw_reach_remember(&p->d, 5u << 8, p->mr, p->mr->key_word, IOVA + PAGE);
    assert_non_null(sw_reach_remembered(&p->d, 5u << 8, IOVA + PAGE, 8, IBV_ACCESS_REMOTE_READ));
    for (uint32_t need = 1; need <= IBV_ACCESS_REMOTE_ATOMIC; need <<= 1)
        if (need != IBV_ACCESS_REMOTE_READ)
            assert_null(sw_reach_remembered(&p->d, 5u << 8, IOVA + PAGE, 8, need));
    assert_int_equal(segment->state, SW_SEGMENT_MAPPED);

    p->mr->handed = SW_HANDED_OUT_WRITE;
    assert_int_equal(sw_reach_probe(&p->peer, p->mr, IOVA + PAGE, 8), SW_REACH_WAIT);
    assert_int_equal(segment->state, SW_SEGMENT_WANTED);
    assert_ptr_equal(segment->former, p->segment);
    assert_non_null(sw_reach_remembered(&p->d, 5u << 8, IOVA + PAGE, 8, IBV_ACCESS_REMOTE_READ));
    stop_playing(p);
}

/* Extents that point outside of what the segment really has. */
static void sw_reach_mapped__extents_that_lie(void **state)
{
    (void)state;
    static const struct sw_pub_extent lies[] = {
        {VA + PAGE, 2 * PAGE, 0x8000 + 3 * PAGE, 9, 0},     /* ends after it */
        {VA + PAGE, 2 * PAGE, 0x8000 - PAGE, 9, 0},         /* begins before it */
        {VA + PAGE, 2 * PAGE, UINT64_MAX - PAGE + 1, 9, 0}, /* wraps around to it */
        {VA + PAGE, 2 * PAGE, 0, 9, 0},
        {VA + PAGE, UINT64_MAX, 0x8000, 9, 0},
    };
    struct played *p = play();
    bool wait;
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        p->mr->extents[0] = lies[i];
        p->mr->extent_count = 1;
        uint8_t *at = sw_reach_mapped(&p->peer, p->mr, IOVA + PAGE, 2 * PAGE, &wait);
        if (i < 4)
            assert_null(at);
        else /* only as much of it is used as the segment has */
            assert_ptr_equal(at, p->segment);
        sw_reach_remember(&p->d, 5u << 8, p->mr, p->mr->key_word, IOVA + PAGE);
        assert_null(sw_reach_remembered(&p->d, 5u << 8, IOVA + PAGE, 5 * PAGE, 0));
    }
    p->mr->len_bytes = UINT64_MAX;
    assert_null(sw_reach_mapped(&p->peer, p->mr, IOVA + PAGE, 5 * PAGE, &wait));
    p->mr->extent_count = UINT32_MAX; /* only four are there */
    p->mr->extents[0] = extent(0, 0, 0, 0);
    assert_null(sw_reach_mapped(&p->peer, p->mr, IOVA + PAGE, 8, &wait));
    stop_playing(p);
}

static void sw_reach_remembered__only_what_is_still_so(void **state)
{
    (void)state;
    struct played *p = play();
    const uint32_t key = 5u << 8;
    assert_null(sw_reach_remembered(&p->d, key, IOVA + PAGE, 8, 0));
    sw_reach_remember(&p->d, key, p->mr, p->mr->key_word, IOVA + PAGE + 100);
    assert_ptr_equal(sw_reach_remembered(&p->d, key, IOVA + PAGE, 2 * PAGE, 0), p->segment);
    assert_ptr_equal(sw_reach_remembered(&p->d, key, IOVA + 3 * PAGE - 1, 1, 0),
                     p->segment + 2 * PAGE - 1);
    assert_null(sw_reach_remembered(&p->d, key, IOVA + PAGE - 1, 1, 0));
    assert_null(sw_reach_remembered(&p->d, key, IOVA + PAGE, 2 * PAGE + 1, 0));
    assert_null(sw_reach_remembered(&p->d, key, IOVA + 3 * PAGE, 1, 0));
    assert_null(sw_reach_remembered(&p->d, key, IOVA + PAGE + 1, UINT64_MAX, 0));
    assert_null(sw_reach_remembered(&p->d, key + 1, IOVA + PAGE, 8, 0));
    assert_null(sw_reach_remembered(&p->d, key, IOVA + PAGE, 8, IBV_ACCESS_REMOTE_READ << 8));
    p->mr->key_word += 1ull << 32; /* registered anew */
    assert_null(sw_reach_remembered(&p->d, key, IOVA + PAGE, 8, 0));
    stop_playing(p);
}

/* The QP's rights count as well as the region's. */
static void sw_reach_remembered__rights_of_both(void **state)
{
    (void)state;
    struct played *p = play();
    p->mr->access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    p->d.remote.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    sw_reach_remember(&p->d, 5u << 8, p->mr, p->mr->key_word, IOVA + PAGE);
    const uint64_t at = IOVA + PAGE;
    assert_non_null(sw_reach_remembered(&p->d, 5u << 8, at, 8, IBV_ACCESS_REMOTE_READ));
    assert_null(sw_reach_remembered(&p->d, 5u << 8, at, 8, IBV_ACCESS_REMOTE_WRITE));
    assert_null(sw_reach_remembered(&p->d, 5u << 8, at, 8, IBV_ACCESS_REMOTE_ATOMIC));
    stop_playing(p);
}

static void sw_reach_remember__two_regions_in_turn(void **state)
{
    (void)state;
    struct played *p = play();
    for (uint32_t i = 6; i < 8; i++) {
        p->pub->mrs[i] = *p->mr;
        p->pub->mrs[i].handed = SW_HANDED_OUT_WRITE;
        p->pub->mrs[i].key_word = 1ull << 32 | i << 8;
    }
    for (uint32_t i = 5; i < 8; i++)
        sw_reach_remember(&p->d, i << 8, &p->pub->mrs[i], p->pub->mrs[i].key_word, IOVA + PAGE);
    assert_null(sw_reach_remembered(&p->d, 5u << 8, IOVA + PAGE, 8, 0));
    assert_non_null(sw_reach_remembered(&p->d, 6u << 8, IOVA + PAGE, 8, 0));
    assert_non_null(sw_reach_remembered(&p->d, 7u << 8, IOVA + PAGE, 8, 0));
    stop_playing(p);
}

static void sw_reach_move__in_steps_of_the_budget(void **state)
{
    struct rig *rig = *state;
    struct played *p = play();
    struct ibv_sge sges[] = {rig_sge(rig, 0, 5000), rig_sge(rig, 8000, 5000)};
    struct sw_gather gather = {.sges = sges, .sge_count = 2, .pd = rig->pd->id};
    uint32_t done = 0;
    for (uint32_t i = 0; i < 2 * PAGE; i++)
        rig->bytes[i < 5000 ? i : 3000 + i] = (uint8_t)(i % 251);
    p->d.send.budget_bytes = 3000;
    int steps = 0;
    enum sw_step step;
    while ((step = sw_reach_move(&p->d, &gather, 0, p->mr, IOVA + PAGE, 2 * PAGE, SW_MOVE_OUT,
                                 &done)) == SW_STEP_BLOCKED) {
        assert_int_equal(p->d.send.budget_bytes, 0);
        assert_int_equal(done, 3000 * ++steps);
        p->d.send.budget_bytes = 3000;
    }
    assert_int_equal(step, SW_STEP_DONE);
    assert_int_equal(steps, 2);
    for (uint32_t i = 0; i < 2 * PAGE; i++)
        assert_int_equal(p->segment[i], (uint8_t)(i % 251));
    assert_int_equal(p->segment[2 * PAGE], 0);
    stop_playing(p);
}

static void sw_reach_move__to_local_needs_the_right(void **state)
{
    struct rig *rig = *state;
    struct played *p = play();
    struct sw_mr *mr = NULL;
    assert_int_equal(sw_mr_reg(rig->pd, rig->bytes, 64, (uintptr_t)rig->bytes, 0, &mr), 0);
    struct ibv_sge sge = {(uintptr_t)rig->bytes, 64, sw_mr_key(mr)};
    struct sw_gather gather = {.sges = &sge, .sge_count = 1, .pd = rig->pd->id};
    uint32_t done = 0;
    memset(p->segment, 'r', 64);
    assert_int_equal(sw_reach_move(&p->d, &gather, 0, p->mr, IOVA + PAGE, 64, SW_MOVE_IN, &done),
                     SW_STEP_FAILED);
    assert_int_equal(p->d.send.fail_status, IBV_WC_LOC_PROT_ERR);
    assert_int_equal(p->d.send.fail_verdict, SW_ACK);
    assert_int_equal(done, 0);
    assert_int_equal(rig->bytes[0], 0);
    sge.lkey = sw_mr_key(rig->mr);
    assert_int_equal(sw_reach_move(&p->d, &gather, 0, p->mr, IOVA + PAGE, 64, SW_MOVE_IN, &done),
                     SW_STEP_DONE);
    assert_int_equal(rig->bytes[63], 'r');
    sw_lock_release(&rig->qp->lock);
    sw_lock_release(&rig->other->lock);
    sw_mr_dereg(mr);
    sw_lock_acquire(&rig->other->lock);
    sw_lock_acquire(&rig->qp->lock);
    stop_playing(p);
}

/* A child plays the peer: across the parts of a region that are not shared. */
static void sw_reach_move__by_cma_across_rungs(void **state)
{
    struct rig *rig = *state;
    struct played *p = play();
    uint8_t *theirs =
        mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int ready[2], done_pipe[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(done_pipe), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ready[1]);
        if (read(ready[0], &byte, 1) != 1)
            _exit(1);
        for (uint32_t i = 0; i < 6 * PAGE; i++) { /* pages 1, 2 and 4 went through the mapping */
            uint32_t page = i / PAGE;
            uint8_t expected = page == 1 || page == 2 || page == 4 ? 0 : (uint8_t)(i % 253);
            if (theirs[i] != expected)
                _exit(2);
        }
        _exit(0);
    }
    p->peer.pid = child;
    atomic_store(&p->peer.can_cma, true);
    p->mr->va = (uintptr_t)theirs;
    p->mr->extents[0].va = p->mr->va + PAGE;
    p->mr->extents[1].va = p->mr->va + 4 * PAGE;
    for (uint32_t i = 0; i < 6 * PAGE; i++)
        rig->bytes[i] = (uint8_t)(i % 253);
    struct ibv_sge sge = rig_sge(rig, 0, 6 * PAGE);
    struct sw_gather gather = {.sges = &sge, .sge_count = 1, .pd = rig->pd->id};
    uint32_t done = PAGE; /* two more are mapped, and the kernel would write the next one */
    assert_int_equal(
        sw_reach_move(&p->d, &gather, 0, p->mr, IOVA, 6 * PAGE, SW_MOVE_IN_ORDER, &done),
        SW_STEP_BLOCKED);
    assert_int_equal(done, 3 * PAGE);
    done = 0;
    assert_int_equal(sw_reach_move(&p->d, &gather, 0, p->mr, IOVA, 6 * PAGE, SW_MOVE_OUT, &done),
                     SW_STEP_DONE);
    assert_memory_equal(p->segment, rig->bytes + PAGE, 2 * PAGE);
    assert_memory_equal(p->segment + 2 * PAGE, rig->bytes + 4 * PAGE, PAGE);
    /* Unmapped over there: the target's own fault, not ours. */
    p->mr->va = VA;
    p->mr->extent_count = 0;
    done = 0;
    enum sw_step step = SW_STEP_BLOCKED; /* for a moment: it might just be being adopted */
    for (int i = 0; i < 5000 && step == SW_STEP_BLOCKED; i++) {
        step = sw_reach_move(&p->d, &gather, 0, p->mr, IOVA, 8, SW_MOVE_OUT, &done);
        usleep(1000);
    }
    assert_int_equal(step, SW_STEP_FAILED);
    assert_int_equal(p->d.send.fail_status, IBV_WC_REM_OP_ERR);
    assert_int_equal(write(ready[1], &byte, 1), 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    munmap(theirs, 6 * PAGE);
    stop_playing(p);
}

static void *touch(void *at)
{
    *(volatile uint8_t *)at = 9;
    return NULL;
}

/* Another thread's fault has replaced the page that the kernel copies to. */
static void sw_reach_move__by_cma_to_a_page_that_was_lost(void **state)
{
    struct rig *rig = *state;
    struct played *p = play();
    struct sw_mr *mr = NULL;
    pthread_t thread;
    uint8_t theirs[64], came[sizeof(theirs)];
    const int fd = memfd_create("lost", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, PAGE) == 0);
    uint8_t *bytes = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_int_equal(sw_mr_reg(rig->pd, bytes, PAGE, (uintptr_t)bytes, IBV_ACCESS_LOCAL_WRITE, &mr),
                     0);
    struct ibv_sge sge = {(uintptr_t)bytes, sizeof(theirs), sw_mr_key(mr)};
    assert_true(sw_view_is_of(sge.lkey));
    const struct sw_gather gather = {.sges = &sge, .sge_count = 1, .pd = rig->pd->id};
    uint32_t done = 0;
    memset(theirs, 'r', sizeof(theirs));
    p->peer.pid = getpid();
    atomic_store(&p->peer.can_cma, true);
    p->mr->va = (uintptr_t)theirs;
    p->mr->extent_count = 0;
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(
        pthread_create(&thread, NULL, touch, bytes + sw_view_shift[sw_key_index(sge.lkey)]), 0);
    pthread_join(thread, NULL);
    assert_int_equal(ftruncate(fd, PAGE), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            sw_reach_move(&p->d, &gather, 0, p->mr, IOVA, sizeof(theirs), SW_MOVE_IN, &done),
            i ? SW_STEP_DONE : SW_STEP_BLOCKED);
    assert_int_equal(pread(fd, came, sizeof(came), 0), sizeof(came));
    assert_memory_equal(came, theirs, sizeof(came));
    sw_lock_release(&rig->qp->lock);
    sw_lock_release(&rig->other->lock);
    sw_mr_dereg(mr);
    sw_lock_acquire(&rig->other->lock);
    sw_lock_acquire(&rig->qp->lock);
    munmap(bytes, PAGE);
    close(fd);
    stop_playing(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_copy_ordered__every_length_and_alignment),
        cmocka_unit_test(sw_copy_ordered__last_bytes_last),
        rig_test(sw_gather_at__elements_and_offsets),
        rig_test(sw_gather_at__inline_bytes),
        cmocka_unit_test(sw_reach_remembered__only_what_is_still_so),
        cmocka_unit_test(sw_reach_remembered__rights_of_both),
        cmocka_unit_test(sw_reach_remember__two_regions_in_turn),
        cmocka_unit_test(sw_reach_mapped__inside_one_extent),
        cmocka_unit_test(sw_reach_mapped__extents_that_lie),
        cmocka_unit_test(sw_reach_probe__rungs),
        cmocka_unit_test(sw_reach_probe__segment_on_its_way_or_refused),
        cmocka_unit_test(sw_reach_probe__not_handed_out),
        cmocka_unit_test(sw_reach_probe__handed_out_to_be_read),
        rig_test(sw_reach_move__in_steps_of_the_budget),
        rig_test(sw_reach_move__to_local_needs_the_right),
        rig_test(sw_reach_move__by_cma_across_rungs),
        rig_test(sw_reach_move__by_cma_to_a_page_that_was_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
