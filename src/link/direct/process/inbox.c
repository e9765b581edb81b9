/* SPDX-License-Identifier: BSD-2-Clause */
/* Inboxes: one per client slot, created by the first QP towards it or by its attachment, whichever
 * comes first. */
#include "link/direct/process/inbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/shm.h"
#include "device/nic/nic.h"
#include "link/direct/datagram/receive.h"
#include "link/direct/process/attach.h"
#include "link/direct/process/block.h"
#include "link/direct/process/state.h"
#include "link/engine.h"

/* How long an access section of a living peer may hold up a deregistration. A section copies at
 * most a few MiB, so only a stopped process takes longer; its mapping then is of pages nobody uses
 * any more. */
#define ACCESS_WAIT_NS (1 * SW_NS_PER_S)
/* The same for a client that was found stopped the last time: each wait would be in vain. */
#define STOPPED_WAIT_NS (2 * SW_NS_PER_MS)
/* No block in use counts from 0, which is what it reads as while it is wiped. */
#define FIRST_COUNT 2u
/* A client may be inside again by the time that it has been waited for: so often at most. */
#define EVICTIONS 64
#define KEPT_BLOCKS 256u /* at least */
#define KEPT_BYTES 8192  /* of each: the line of counters, and the first records */

/*
 * Address ranges that inboxes have left. A poller looks at the next record of a QP without a lock,
 * so it may still hold the address of an inbox that is gone: the range then reads as zeroes, or as
 * another inbox, and the poller finds out under the QP's lock that there is nothing. Ranges are
 * used again and never unmapped. Guarded by direct.lock.
 */
struct range {
    struct range *next;
    uint8_t *base;
};
static struct range *free_ranges;

static uint8_t *range_take(int fd)
{
    struct range *range = free_ranges;
    uint8_t *base = sw_map_sparse(range ? range->base : NULL, SW_INBOX_BYTES,
                                  PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!base)
        return NULL;
    if (range) {
        free_ranges = range->next;
        free(range);
    }
    return base;
}

static void range_give(uint8_t *base)
{
    struct range *range = malloc(sizeof(*range));
    if (!sw_map_sparse(base, SW_INBOX_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ||
        !range) {
        free(range); /* the range stays mapped, out of use */
        return;
    }
    range->base = base;
    range->next = free_ranges;
    free_ranges = range;
}

static struct sw_inbox *create_inbox(uint32_t slot)
{
    static uint64_t numbers;
    sw_mutex_assert_held(&sw_direct.lock);
    struct sw_inbox *inbox = calloc(1, sizeof(*inbox));
    if (!inbox)
        return NULL;
    inbox->number = ++numbers;
    inbox->slot = slot;
    inbox->socket = -1;
    uint64_t len_bytes = SW_INBOX_BYTES;
    inbox->fd = sw_fd_own(sw_shm_create_most("sidewire-inbox", SW_INBOX_BYTES_MIN, &len_bytes));
    inbox->blocks = sw_inbox_blocks(len_bytes);
    inbox->base = inbox->fd < 0 ? NULL : range_take(inbox->fd);
    if (!inbox->base) {
        sw_error("no shared memory for the inbox of slot %u: %s", slot, strerror(errno));
        if (inbox->fd >= 0)
            close(inbox->fd);
        free(inbox);
        return NULL;
    }
    ((struct sw_inbox_header *)inbox->base)->probe_read = sw_nic.nonce;
    sw_datagram_open(inbox);
    sw_lock_acquire(&sw_direct.list_lock);
    inbox->next = sw_direct.inboxes;
    sw_direct.inboxes = inbox;
    sw_lock_release(&sw_direct.list_lock);
    return inbox;
}

bool sw_inbox_unlink_unused(struct sw_inbox **at)
{
    sw_mutex_assert_held(&sw_direct.lock);
    sw_lock_acquire(&sw_direct.list_lock);
    const bool unused = sw_inbox_unused(*at);
    if (unused)
        *at = (*at)->next;
    sw_lock_release(&sw_direct.list_lock);
    return unused;
}

/* A dead client's inbox is not handed out again. */
struct sw_inbox *sw_inbox_get(uint32_t slot)
{
    sw_mutex_assert_held(&sw_direct.lock);
    for (struct sw_inbox *inbox = sw_direct.inboxes; inbox; inbox = inbox->next)
        if (inbox->slot == slot && !atomic_load(&inbox->dead))
            return inbox;
    return create_inbox(slot);
}

bool sw_inbox_has_client(uint32_t slot)
{
    bool has = false;
    sw_lock_acquire(&sw_direct.list_lock);
    for (const struct sw_inbox *at = sw_direct.inboxes; at && !has; at = at->next)
        has = at->slot == slot && !atomic_load(&at->dead) &&
              __atomic_load_n(&at->socket, __ATOMIC_RELAXED) >= 0;
    sw_lock_release(&sw_direct.list_lock);
    return has;
}

/* So many first blocks are used while that is enough: their memory is there already. */
static uint32_t kept_blocks(const struct sw_inbox *inbox)
{
    sw_mutex_assert_held(&sw_direct.lock);
    const uint32_t count = KEPT_BLOCKS + 2 * inbox->users;
    return sw_min_u32(count, inbox->blocks);
}

int sw_inbox_take(uint32_t slot, struct sw_inbox **out, uint32_t *index)
{
    int rc = -ENOMEM;
    pthread_mutex_lock(&sw_direct.lock);
    struct sw_inbox *inbox = sw_inbox_get(slot);
    for (uint32_t tried = 0; inbox && tried < KEPT_BLOCKS + inbox->blocks; tried++) {
        uint32_t candidate =
            inbox->turn++ % (tried < KEPT_BLOCKS ? kept_blocks(inbox) : inbox->blocks);
        uint64_t bit = 1ull << candidate % 64;
        if (__atomic_fetch_or(&inbox->used[candidate / 64], bit, __ATOMIC_SEQ_CST) & bit)
            continue;
        inbox->users++;
        *out = inbox;
        *index = candidate;
        uint32_t never_used = 0;
        atomic_compare_exchange_strong(&sw_inbox_block(inbox->base, candidate)->access_seq,
                                       &never_used, FIRST_COUNT);
        rc = 0;
        break;
    }
    pthread_mutex_unlock(&sw_direct.lock);
    return rc;
}

/* Whether a block has memory in its first pages only. False as well where nobody can tell. */
static bool is_hardly_used(const struct sw_inbox *inbox, off_t at)
{
    return sw_shm_is_hole(inbox->fd, (uint64_t)at + KEPT_BYTES, SW_BLOCK_BYTES - KEPT_BYTES);
}

/* Word by word: the engine may look at one meanwhile, to see whether a record has come. It holds no
 * lock, and takes what it sees for a hint. */
static void clear_words(struct sw_block *block, size_t len_bytes)
{
    _Atomic uint64_t *words = (_Atomic uint64_t *)(void *)block;
    for (size_t i = 0; i < len_bytes / sizeof(*words); i++)
        atomic_store_explicit(&words[i], 0, memory_order_relaxed);
}

/* Zero for the next binding. The memory is given back, but for the first pages of the first blocks:
 * a connection that comes and goes needs no others, and none of them anew. */
static void wipe_block(struct sw_inbox *inbox, uint32_t index)
{
    const off_t at = (off_t)(SW_INBOX_FIRST_BLOCK + (uint64_t)index * SW_BLOCK_BYTES);
    struct sw_block *block = sw_inbox_block(inbox->base, index);
    pthread_mutex_lock(&sw_direct.lock);
    const bool is_kept = index < kept_blocks(inbox);
    pthread_mutex_unlock(&sw_direct.lock);
    if (is_kept && is_hardly_used(inbox, at))
        clear_words(block, KEPT_BYTES);
    else if (fallocate(inbox->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, SW_BLOCK_BYTES))
        clear_words(block, SW_BLOCK_BYTES);
}

/* Its death may not have been seen yet: the engine may be the one who waits for it. */
static bool inbox_is_gone(const struct sw_inbox *inbox)
{
    return atomic_load(&inbox->dead) ||
           sw_attach_has_hung_up(__atomic_load_n(&inbox->socket, __ATOMIC_RELAXED));
}

static bool wait_until(struct sw_inbox *inbox, uint32_t index, uint64_t *deadline)
{
    struct sw_block *block = sw_inbox_block(inbox->base, index);
    uint32_t seen = atomic_load_explicit(&block->access_seq, memory_order_seq_cst);
    if (!(seen & 1))
        return true;
    if (!*deadline)
        *deadline =
            sw_clock_ns() + (atomic_load(&inbox->stopped) ? STOPPED_WAIT_NS : ACCESS_WAIT_NS);
    for (uint32_t spins = 0;; spins++) {
        if (atomic_load_explicit(&block->access_seq, memory_order_acquire) != seen ||
            atomic_load(&inbox->dead))
            return true;
        if (spins % 4096 == 4095 && inbox_is_gone(inbox))
            return true;
        sw_cpu_relax();
        if (spins % 256 != 255)
            continue;
        sched_yield();
        if (sw_clock_ns() > *deadline) {
            atomic_store(&inbox->stopped, true);
            return false;
        }
    }
}

bool sw_inbox_wait(struct sw_inbox *inbox, uint32_t index)
{
    uint64_t deadline = 0;
    return wait_until(inbox, index, &deadline);
}

/* From here on no client's QP gets into the block that knows its count, or a former one. Returns
 * where the next tenant counts from; 0: somebody stays inside. */
static uint32_t evict_block(struct sw_inbox *inbox, uint32_t index)
{
    struct sw_block *block = sw_inbox_block(inbox->base, index);
    for (int tries = 0; tries < EVICTIONS && sw_inbox_wait(inbox, index); tries++) {
        uint32_t seen = atomic_load(&block->access_seq);
        if ((seen & 1) && !inbox_is_gone(inbox))
            continue;
        uint32_t next = (seen + 2) & ~1u;
        next = next ? next : FIRST_COUNT;
        if (atomic_compare_exchange_strong(&block->access_seq, &seen, next))
            return next;
    }
    return 0;
}

struct sw_inside sw_inbox_give(struct sw_inbox *inbox, uint32_t index)
{
    const uint32_t seq = evict_block(inbox, index);
    const bool quiet = seq != 0;
    struct sw_inside inside = {0};
    if (quiet) {
        wipe_block(inbox, index);
        atomic_store(&sw_inbox_block(inbox->base, index)->access_seq, seq);
    } else {
        const uint32_t count = atomic_load(&sw_inbox_block(inbox->base, index)->access_seq);
        if (count & 1)
            inside = (struct sw_inside){inbox->number, index, count};
    }
    pthread_mutex_lock(&sw_direct.lock);
    if (quiet) /* else the block stays out of use until its client is gone */
        __atomic_fetch_and(&inbox->used[index / 64], ~(1ull << index % 64), __ATOMIC_SEQ_CST);
    inbox->users--;
    bool unused = sw_inbox_unused(inbox);
    pthread_mutex_unlock(&sw_direct.lock);
    if (unused)
        sw_engine_kick(); /* it frees the inbox */
    return inside;
}

/* An inbox that is gone has no client any more. */
bool sw_inbox_is_inside(const struct sw_inside *inside)
{
    bool is_inside = false;
    if (!inside->inbox)
        return false;
    sw_lock_acquire(&sw_direct.list_lock);
    const struct sw_inbox *at = sw_direct.inboxes;
    while (at && at->number != inside->inbox)
        at = at->next;
    if (at)
        is_inside =
            !inbox_is_gone(at) &&
            atomic_load(&sw_inbox_block(at->base, inside->block)->access_seq) == inside->count;
    sw_lock_release(&sw_direct.list_lock);
    return is_inside;
}

static void wait_client(struct sw_inbox *inbox)
{
    bool quiet = true, known = atomic_load(&inbox->stopped);
    uint64_t deadline = 0; /* for all blocks together: a client is stopped as a whole */
    for (uint32_t word = 0; word < SW_INBOX_BLOCKS / 64; word++) {
        uint64_t used = __atomic_load_n(&inbox->used[word], __ATOMIC_SEQ_CST);
        while (used) {
            uint32_t bit = (uint32_t)__builtin_ctzll(used);
            used &= used - 1;
            quiet &= wait_until(inbox, word * 64 + bit, &deadline);
        }
    }
    if (quiet)
        atomic_store(&inbox->stopped, false);
    else if (!known)
        sw_warn("a peer (slot %u) is stopped inside an access; not waiting for it", inbox->slot);
}

void sw_inbox_wait_all(void)
{
    sw_lock_acquire(&sw_direct.list_lock);
    for (struct sw_inbox *inbox = sw_direct.inboxes; inbox; inbox = inbox->next) {
        inbox->users++; /* keeps it, so that one stopped client does not hold up the engine */
        sw_lock_release(&sw_direct.list_lock);
        wait_client(inbox);
        sw_lock_acquire(&sw_direct.list_lock);
        inbox->users--;
    }
    sw_lock_release(&sw_direct.list_lock);
}

bool sw_inbox_unused(const struct sw_inbox *inbox)
{
    sw_mutex_assert_held(&sw_direct.lock);
    /* Nobody attached (any more, or ever: the client died before it could), and no QP of ours. */
    return inbox->users == 0 && inbox->socket < 0 && inbox->client_nonce != sw_nic.nonce &&
           !sw_datagram_waits(inbox);
}

void sw_inbox_free(struct sw_inbox *inbox)
{
    sw_datagram_close(inbox);
    range_give(inbox->base);
    close(inbox->fd);
    free(inbox);
}
