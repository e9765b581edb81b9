/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes whose QPs we use: their tables, our inbox there, and the segments of their memory we
 * have mapped. */
#include "link/direct/process/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/card_memory.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/robust.h"
#include "device/nic/nic.h"
#include "link/direct/process/attach.h"
#include "link/direct/process/block.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/silence.h"
#include "link/direct/process/state.h"
#include "link/engine.h"

#define JUDGED_LOOK_NS 20000ull
#define LONGEST_LOOK_NS 1000000ull

static void init_self(struct sw_peer *peer)
{
    peer->self = true;
    peer->pid = getpid();
    peer->can_map = true;
    atomic_store(&peer->can_cma, false);
    peer->pub = sw_nic.pub;
    peer->pub_bytes = sw_nic.pub_bytes;
    struct sw_inbox *inbox = sw_inbox_get(peer->slot);
    if (!inbox)
        return;
    inbox->client_nonce = sw_nic.nonce;
    peer->inbox = inbox->base;
    peer->inbox_blocks = inbox->blocks;
    peer->doorbell = sw_engine.doorbell;
    atomic_store(&peer->state, SW_PEER_READY);
}

struct sw_peer *sw_peer_get(uint32_t slot)
{
    pthread_mutex_lock(&sw_direct.lock);
    struct sw_peer *peer = sw_direct.peers;
    while (peer && (peer->slot != slot || atomic_load(&peer->state) == SW_PEER_DEAD))
        peer = peer->next;
    if (!peer) {
        peer = calloc(1, sizeof(*peer));
        if (peer) {
            peer->slot = slot;
            peer->socket = peer->doorbell = -1;
            pthread_mutex_init(&peer->lock, NULL);
            if (slot == sw_nic.slot)
                init_self(peer);
            peer->next = sw_direct.peers;
            sw_direct.peers = peer;
            atomic_store(&sw_direct.work, true);
        }
    }
    if (peer)
        atomic_fetch_add(&peer->refs, 1);
    pthread_mutex_unlock(&sw_direct.lock);
    if (peer && atomic_load(&peer->state) == SW_PEER_IDLE)
        sw_engine_kick();
    return peer;
}

void sw_peer_put(struct sw_peer *peer)
{
    int state =
        atomic_load(&peer->state); /* not after the reference is gone: neither may be the peer */
    bool attached = state == SW_PEER_CONNECTING || state == SW_PEER_READY;
    if (atomic_fetch_sub(&peer->refs, 1) == 1 && !attached)
        sw_engine_kick(); /* it frees peers that nobody wants */
}

/* Twice, as nobody may look into a process that is just ending, either. The next time that one is
 * gone. */
#define REFUSALS 2u

enum sw_standing sw_peer_standing(struct sw_peer *peer)
{
    const uint32_t refusals = atomic_load(&peer->refusals);
    const int state = atomic_load(&peer->state);
    if (state == SW_PEER_READY)
        return SW_STANDING_ACCEPTED;
    if (refusals >= REFUSALS)
        return SW_STANDING_REFUSED;
    const bool is_tried = state == SW_PEER_IDLE && atomic_load(&peer->retry_at_ns) && !refusals;
    return state == SW_PEER_DEAD || is_tried ? SW_STANDING_GONE : SW_STANDING_UNKNOWN;
}

static struct sw_peer *get_other(uint32_t slot)
{
    return slot && slot != sw_nic.slot ? sw_peer_get(slot) : NULL;
}

static struct sw_silence silence;

/* The longer it waits, the longer between two looks: the one that is awaited may need this
 * processor, as many others do that begin together. */
static void pause_look(uint64_t waited_ns)
{
    const uint64_t share_ns = waited_ns / 4;
    const uint64_t ns = share_ns < JUDGED_LOOK_NS    ? JUDGED_LOOK_NS
                        : share_ns > LONGEST_LOOK_NS ? LONGEST_LOOK_NS
                                                     : share_ns;
    const struct timespec pause = {.tv_nsec = (long)ns};
    nanosleep(&pause, NULL);
}

struct sw_peer *sw_peer_meet(uint32_t slot)
{
    struct sw_peer *peer = get_other(slot);
    if (!peer || sw_engine_is_self())
        return peer;
    const uint64_t begun_ns = sw_clock_ns(), patience_ns = sw_silence_patience(&silence, begun_ns);
    while (sw_peer_standing(peer) == SW_STANDING_UNKNOWN) {
        const uint64_t now_ns = sw_clock_ns();
        if (now_ns - begun_ns >= patience_ns) {
            sw_silence_note(&silence, now_ns, now_ns - begun_ns);
            break;
        }
        pause_look(now_ns - begun_ns);
    }
    return peer;
}

bool sw_peer_is_refused(uint32_t slot)
{
    struct sw_peer *peer = get_other(slot);
    if (!peer)
        return false;
    const enum sw_standing standing = sw_peer_standing(peer);
    sw_peer_put(peer);
    return standing == SW_STANDING_REFUSED;
}

bool sw_peer_has_ended(const struct sw_peer *peer)
{
    return !peer->self && sw_robust_has_ended(&peer->pub->header.life);
}

bool sw_peer_unused(const struct sw_peer *peer)
{
    sw_mutex_assert_held(&sw_direct.lock);
    int state = atomic_load(&peer->state);
    return (state == SW_PEER_DEAD || state == SW_PEER_IDLE) && !atomic_load(&peer->refs);
}

void sw_peer_ring(struct sw_peer *peer)
{
    if (peer->self)
        sw_engine_kick();
    else
        sw_engine_ring(peer->doorbell, 1);
}

void sw_peer_ring_ahead(struct sw_peer *peer)
{
    if (!peer->self)
        sw_engine_ring(peer->doorbell, SW_ENGINE_SOON);
}

/* Finds a segment, or makes one that the engine will ask for. */
static struct sw_peer_segment *find_or_want(struct sw_peer *peer, uint32_t id, bool writable,
                                            bool *wanted)
{
    sw_mutex_assert_held(&peer->lock);
    struct sw_peer_segment **bucket = &peer->segments[id % SW_SEGMENT_BUCKETS];
    struct sw_peer_segment *segment = *bucket;
    *wanted = false;
    while (segment && segment->id != id)
        segment = segment->next;
    if (segment) {
        segment->wants_writable |= writable;
        if (segment->state == SW_SEGMENT_MAPPED && writable && !segment->writable &&
            !segment->former) {
            /* It was mapped for a region that may only be read. Reads by that mapping go on. */
            segment->state = SW_SEGMENT_WANTED;
            segment->former = segment->base;
            segment->base = NULL;
            atomic_store(&peer->segments_wanted, true);
            *wanted = true;
        }
        return segment;
    }
    segment = calloc(1, sizeof(*segment));
    if (segment) {
        segment->id = id;
        segment->wants_writable = writable;
        segment->next = *bucket;
        *bucket = segment;
        atomic_store(&peer->segments_wanted, true);
        *wanted = true;
    }
    return segment;
}

/* The regions registered last are most likely the ones about to be used. */
#define EXPECT_REGIONS 64
#define EXPECT_LOOKS 1024

void sw_peer_expect_segments(struct sw_peer *peer)
{
    uint32_t last = atomic_load_explicit(&peer->pub->header.mr_last, memory_order_relaxed);
    bool wanted;
    if (!peer->can_map || last == 0)
        return;
    pthread_mutex_lock(&peer->lock);
    for (uint32_t looks = 0, found = 0; looks < EXPECT_LOOKS && found < EXPECT_REGIONS; looks++) {
        const struct sw_pub_mr *mr = &peer->pub->mrs[(last - looks) % SW_MAX_MR];
        if (!atomic_load_explicit(&mr->key_word, memory_order_acquire))
            continue;
        found++;
        const uint32_t handed = atomic_load_explicit(&mr->handed, memory_order_acquire);
        for (uint32_t i = 0; i < SW_MR_EXTENTS; i++) {
            uint32_t id = ((const volatile struct sw_pub_extent *)&mr->extents[i])->segment;
            if (i < mr->extent_count && id && handed != SW_HANDED_OUT_NOT)
                find_or_want(peer, id, handed == SW_HANDED_OUT_WRITE, &wanted);
        }
    }
    pthread_mutex_unlock(&peer->lock);
}

uint8_t *sw_peer_segment_at(struct sw_peer *peer, uint32_t id, uint64_t file_offset,
                            uint64_t len_bytes, bool writable, bool *refused)
{
    uint8_t *at = NULL;
    bool wanted;
    *refused = false;
    pthread_mutex_lock(&peer->lock);
    struct sw_peer_segment *segment = find_or_want(peer, id, writable, &wanted);
    if (wanted) {
        atomic_store(&sw_direct.work, true);
        sw_engine_kick();
    } else if (segment && segment->state == SW_SEGMENT_MAPPED && file_offset >= segment->offset &&
               file_offset - segment->offset <= segment->len_bytes &&
               len_bytes <= segment->len_bytes - (file_offset - segment->offset)) {
        at = segment->base + (file_offset - segment->offset);
    } else {
        *refused = segment &&
                   (segment->state == SW_SEGMENT_MAPPED || segment->state == SW_SEGMENT_REFUSED);
    }
    pthread_mutex_unlock(&peer->lock);
    return at;
}

void sw_peer_segment_free(struct sw_peer_segment *segment)
{
    uint8_t *const mapped[] = {segment->base, segment->former};
    for (int i = 0; i < 2; i++)
        if (mapped[i]) {
            sw_card_memory_remove((uintptr_t)mapped[i]);
            sw_fault_unguard(mapped[i]);
            munmap(mapped[i], segment->len_bytes);
        }
    free(segment);
}

void sw_peer_free(struct sw_peer *peer)
{
    for (uint32_t i = 0; i < SW_SEGMENT_BUCKETS; i++) {
        while (peer->segments[i]) {
            struct sw_peer_segment *segment = peer->segments[i];
            peer->segments[i] = segment->next;
            sw_peer_segment_free(segment);
        }
    }
    if (!peer->self) {
        sw_attach_end_proof(peer);
        if (peer->pub)
            munmap((void *)peer->pub, sizeof(struct sw_pub));
        if (peer->inbox)
            munmap(peer->inbox, SW_INBOX_BYTES);
        if (peer->socket >= 0)
            close(peer->socket);
        if (peer->doorbell >= 0)
            close(peer->doorbell);
    }
    pthread_mutex_destroy(&peer->lock);
    free(peer);
}
