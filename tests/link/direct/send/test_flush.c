/* SPDX-License-Identifier: BSD-2-Clause */
/* The target's part of a FLUSH for persistence, also of memory that this machine has not. */
#include <semaphore.h>
#include <sidewire/flush.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/memory/persist.h"
#include "device/memory/sync_job.h"
#include "link/direct/process/block.h"
#include "link/direct/serve/responder.h"
#include "link_rig.h"

#define LONG_BYTES (9u << 20) /* three steps */
#define DISK 0x103002u

/* A disk that hangs, where it is said to. */
static atomic_bool is_hung;
static sem_t is_mended, told;

int msync(void *addr, size_t len, int flags)
{
    while (atomic_load(&is_hung) && sem_wait(&is_mended))
        ;
    return (int)syscall(SYS_msync, addr, len, flags);
}

static void tell(void)
{
    sem_post(&told);
}

static struct sw_pub_mr *entry_of(const struct rig *rig)
{
    return &sw_nic.pub->mrs[sw_key_index(sw_mr_key(rig->mr))];
}

/* Makes the region one of [va, va + len) that becomes persistent in some way. */
static void set_region(struct rig *rig, void *va, uint64_t len_bytes, enum sw_persist how)
{
    struct sw_pub_mr *entry = entry_of(rig);
    entry->va = entry->iova = (uintptr_t)va;
    entry->len_bytes = len_bytes;
    entry->persist = how;
    entry->access |= IBV_ACCESS_FLUSH_PERSISTENT;
    rig->qp->attr.qp_access_flags |= IBV_ACCESS_FLUSH_PERSISTENT;
}

static uint8_t *map(void)
{
    uint8_t *at =
        mmap(NULL, LONG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static struct sw_record *flush_record(struct rig *rig, uint64_t addr, uint64_t len_bytes)
{
    struct sw_record *record = rig_request(rig, SW_REC_FLUSH);
    record->rkey = sw_mr_key(rig->mr);
    record->remote_addr = addr;
    record->compare_add = len_bytes;
    record->swap = IBV_FLUSH_PERSISTENT | IBV_FLUSH_RANGE << 8;
    return record;
}

static struct sw_record *whole_region(struct rig *rig)
{
    struct sw_record *record = flush_record(rig, 0, 0);
    record->swap = IBV_FLUSH_PERSISTENT | IBV_FLUSH_MR << 8;
    return record;
}

static void serve_to_the_end(struct rig *rig)
{
    for (int i = 0; i < 5000 && !sw_serve_run(rig->qp, rig->d); i++)
        usleep(1000);
}

static void sw_execute_flush__by_cpu(void **state)
{
    struct rig *rig = *state;
    set_region(rig, rig->bytes, RIG_BYTES, SW_PERSIST_BY_CPU);
    assert_true(rig_serve(rig, whole_region(rig)));
    rig_answer(rig, 0);
    assert_true(rig_serve(rig, flush_record(rig, (uintptr_t)rig->bytes + 100, 0)));
    rig_answer(rig, 1);
    assert_int_equal(rig->d->serve.flushing.done_bytes, 0);
    rig_is_answered(rig, SW_ACK);
}

/* A card's memory: a read pushes what was written before it. */
static void sw_execute_flush__by_read(void **state)
{
    struct rig *rig = *state;
    set_region(rig, rig->bytes, RIG_BYTES, SW_PERSIST_BY_READ);
    assert_true(rig_serve(rig, flush_record(rig, (uintptr_t)rig->bytes + 101, 3)));
    assert_false(sw_flushing_goes_on(&rig->d->serve.flushing));
    rig_is_answered(rig, SW_ACK);
}

/* A long FLUSH is done in steps, and the engine goes on with it by itself. */
static void sw_execute_flush__by_cpu_in_steps(void **state)
{
    struct rig *rig = *state;
    uint8_t *at = map();
    set_region(rig, at, LONG_BYTES, SW_PERSIST_BY_CPU);
    assert_false(rig_serve(rig, whole_region(rig)));
    uint64_t first = rig->d->serve.flushing.done_bytes;
    assert_true(first > 0 && first < LONG_BYTES);
    assert_true(atomic_load(&rig->qp->rx_pending));
    assert_false(sw_serve_run(rig->qp, rig->d));
    assert_int_equal(rig->d->serve.flushing.done_bytes, 2 * first);
    assert_true(sw_serve_run(rig->qp, rig->d));
    rig_answer(rig, 0);
    assert_int_equal(rig->d->serve.flushing.done_bytes, 0);
    assert_false(atomic_load(&rig->qp->rx_pending));
    munmap(at, LONG_BYTES);
}

static void sw_execute_flush__shrinks_meanwhile(void **state)
{
    struct rig *rig = *state;
    uint8_t *at = map();
    set_region(rig, at, LONG_BYTES, SW_PERSIST_BY_CPU);
    struct sw_record *record = flush_record(rig, (uintptr_t)at, LONG_BYTES);
    assert_false(rig_serve(rig, record));
    munmap(at + 4096, LONG_BYTES - 4096);
    record->compare_add = 64;
    assert_true(sw_serve_run(rig->qp, rig->d));
    rig_answer(rig, 0);
    munmap(at, 4096);
}

static void sw_execute_flush__key_goes_meanwhile(void **state)
{
    struct rig *rig = *state;
    uint8_t *at = map();
    set_region(rig, at, LONG_BYTES, SW_PERSIST_BY_CPU);
    assert_false(rig_serve(rig, whole_region(rig)));
    uint64_t word = atomic_exchange(&entry_of(rig)->key_word, 0);
    munmap(at, LONG_BYTES);
    assert_true(sw_serve_run(rig->qp, rig->d));
    rig_is_answered(rig, SW_NAK_ACCESS);
    atomic_store(&entry_of(rig)->key_word, word);
}

static void sw_execute_flush__by_sync(void **state)
{
    struct rig *rig = *state;
    set_region(rig, rig->bytes, RIG_BYTES, SW_PERSIST_BY_SYNC);
    if (!rig_serve(rig, whole_region(rig)))
        serve_to_the_end(rig);
    rig_is_answered(rig, SW_ACK);
    assert_null(rig->d->serve.flushing.job);
}

/* Other regions of its disk have all the threads. A FLUSH of nothing needs none. The engine takes
 * the other one up again. */
static void sw_execute_flush__waits_for_a_thread(void **state)
{
    struct rig *rig = *state;
    struct sw_sync_job *job;
    int others = 0;
    set_region(rig, rig->bytes, RIG_BYTES, SW_PERSIST_BY_SYNC);
    entry_of(rig)->persist = sw_persist_word(SW_PERSIST_BY_SYNC, DISK);
    atomic_store(&is_hung, true);
    while ((job = sw_sync_job_start(DISK, (uintptr_t)rig->bytes, 1, tell))) {
        others++;
        sw_sync_job_drop(job);
    }
    assert_true(rig_serve(rig, flush_record(rig, (uintptr_t)rig->bytes, 0)));
    rig_answer(rig, 0);
    assert_false(rig_serve(rig, whole_region(rig)));
    assert_null(rig->d->serve.flushing.job);
    assert_true(atomic_load(&rig->qp->rx_pending));
    for (int i = 0; i < others; i++)
        sem_post(&is_mended);
    for (int i = 0; i < others; i++)
        while (sem_wait(&told))
            ;
    atomic_store(&is_hung, false);
    serve_to_the_end(rig);
    rig_is_answered(rig, SW_ACK);
}

static void sw_execute_flush__sync_fails(void **state)
{
    struct rig *rig = *state;
    uint8_t *nowhere = (uint8_t *)(uintptr_t)4096; /* below vm.mmap_min_addr */
    set_region(rig, nowhere, LONG_BYTES, SW_PERSIST_BY_SYNC);
    if (!rig_serve(rig, whole_region(rig)))
        serve_to_the_end(rig);
    rig_is_answered(rig, SW_NAK_OPERATIONAL);
    rig_is_dead(rig, IBV_EVENT_QP_FATAL);
}

/* The QP goes while its job is under way. */
static void sw_execute_flush__abandoned(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 20; i++) {
        set_region(rig, rig->bytes, RIG_BYTES, SW_PERSIST_BY_SYNC);
        rig_serve(rig, whole_region(rig));
        rig_drop(rig);
        rig_connect(rig, 0);
    }
}

static void sw_execute_flush__refused(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 4; i++) {
        set_region(rig, rig->bytes, RIG_BYTES, SW_PERSIST_BY_SYNC);
        struct sw_record *record = flush_record(rig, (uintptr_t)rig->bytes, RIG_BYTES);
        if (i == 0)
            record->compare_add++;
        if (i == 1)
            record->rkey ^= 1;
        if (i == 2)
            entry_of(rig)->access &= ~(unsigned int)IBV_ACCESS_FLUSH_PERSISTENT;
        if (i == 3)
            record->swap = 0; /* neither visible nor persistent */
        assert_true(rig_serve(rig, record));
        rig_is_answered(rig, i == 3 ? SW_NAK_INVALID : SW_NAK_ACCESS);
        rig_drop(rig);
        rig_connect(rig, 0);
    }
}

int main(void)
{
    sem_init(&is_mended, 0, 0);
    sem_init(&told, 0, 0);
    const struct CMUnitTest tests[] = {
        rig_test(sw_execute_flush__by_cpu),
        rig_test(sw_execute_flush__by_read),
        rig_test(sw_execute_flush__by_cpu_in_steps),
        rig_test(sw_execute_flush__shrinks_meanwhile),
        rig_test(sw_execute_flush__key_goes_meanwhile),
        rig_test(sw_execute_flush__by_sync),
        rig_test(sw_execute_flush__waits_for_a_thread),
        rig_test(sw_execute_flush__sync_fails),
        rig_test(sw_execute_flush__abandoned),
        rig_test(sw_execute_flush__refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
