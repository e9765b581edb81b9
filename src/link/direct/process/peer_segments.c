/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/process/peer_segments.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/card_memory.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mappable.h"
#include "base/shm.h"
#include "link/direct/process/control.h"
#include "link/direct/process/peer.h"

/* Segments asked for at a time: so many answers always find room in the socket. */
#define ASKED_MAX 32u

static struct sw_peer_segment *find_segment(struct sw_peer *peer, uint32_t id)
{
    struct sw_peer_segment *segment = peer->segments[id % SW_SEGMENT_BUCKETS];
    while (segment && segment->id != id)
        segment = segment->next;
    return segment;
}

/* Whether a file really has these bytes: past its end a mapping has nothing but SIGBUS. */
static bool file_holds(int fd, uint64_t offset, uint64_t len_bytes)
{
    struct stat file;
    uint64_t bytes;
    if (len_bytes == 0 || offset + len_bytes < offset || fstat(fd, &file) ||
        !sw_mappable_bytes(&file, &bytes))
        return false;
    return offset + len_bytes <= ((bytes + 4095) & ~4095ull); /* the last page is there whole */
}

/* MAP_SYNC where there is such a thing: on persistent memory, what the owner's mapping of that kind
 * promises (device/memory/persist.h) must hold for the pages that we are the first to touch. */
static void *map_shared(int fd, uint64_t offset, uint64_t len_bytes, bool writable)
{
    const int prot = PROT_READ | (writable ? PROT_WRITE : 0);
    void *base = sw_map_sparse(NULL, len_bytes, prot, MAP_SHARED_VALIDATE | MAP_SYNC, fd, offset);
    if (!base)
        base = sw_map_sparse(NULL, len_bytes, prot, MAP_SHARED, fd, offset);
    return base ? base : MAP_FAILED;
}

void sw_peer_segments_map(struct sw_peer *peer, const struct sw_message *in, int fd)
{
    uint64_t page_offset = in->offset & ~4095ull;
    uint64_t len_bytes = in->len_bytes + (in->offset - page_offset);
    void *base = MAP_FAILED;
    const bool writable = fd >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
    if (fd >= 0 && file_holds(fd, in->offset, in->len_bytes))
        base = map_shared(fd, page_offset, len_bytes, writable);
    if (base != MAP_FAILED && sw_card_memory_is_file(fd) &&
        !sw_card_memory_add((uintptr_t)base, len_bytes)) {
        munmap(base, len_bytes);
        base = MAP_FAILED; /* its owner does it */
    }
    if (base != MAP_FAILED && !sw_fault_guard(base, len_bytes))
        sw_debug("segment %u of slot %u is not guarded: there are too many", in->id, peer->slot);
    pthread_mutex_lock(&peer->lock);
    peer->asked -= peer->asked > 0;
    struct sw_peer_segment *segment = find_segment(peer, in->id);
    if (segment && segment->state != SW_SEGMENT_MAPPED) {
        if (base != MAP_FAILED && segment->wants_writable && !writable) {
            /* Somebody wants to write to it who was not asked for when it was sent. */
            segment->state = segment->asked_again ? SW_SEGMENT_REFUSED : SW_SEGMENT_WANTED;
            segment->asked_again = true;
            atomic_store(&peer->segments_wanted, true);
        } else if (base != MAP_FAILED && segment->former && segment->len_bytes != len_bytes) {
            segment->state = SW_SEGMENT_REFUSED;
        } else if (base != MAP_FAILED) {
            segment->base = base;
            segment->writable = writable;
            segment->offset = page_offset;
            segment->len_bytes = len_bytes;
            segment->state = SW_SEGMENT_MAPPED;
            base = MAP_FAILED;
        } else {
            segment->state = SW_SEGMENT_REFUSED;
        }
    }
    pthread_mutex_unlock(&peer->lock);
    if (base != MAP_FAILED) {
        sw_card_memory_remove((uintptr_t)base);
        sw_fault_unguard(base);
        munmap(base, len_bytes);
    }
}

struct sw_peer_segment *sw_peer_segments_take_out(struct sw_peer *peer, uint32_t id)
{
    struct sw_peer_segment *gone = NULL;
    pthread_mutex_lock(&peer->lock);
    for (struct sw_peer_segment **at = &peer->segments[id % SW_SEGMENT_BUCKETS]; *at;
         at = &(*at)->next) {
        if ((*at)->id == id) {
            gone = *at;
            *at = gone->next;
            break;
        }
    }
    pthread_mutex_unlock(&peer->lock);
    return gone;
}

void sw_peer_segments_ask(struct sw_peer *peer)
{
    if (!atomic_exchange(&peer->segments_wanted, false))
        return;
    pthread_mutex_lock(&peer->lock);
    for (uint32_t i = 0; i < SW_SEGMENT_BUCKETS; i++) {
        for (struct sw_peer_segment *segment = peer->segments[i]; segment;
             segment = segment->next) {
            if (segment->state != SW_SEGMENT_WANTED)
                continue;
            struct sw_message out = {
                .type = SW_MESSAGE_SEGMENT_GET, .version = SW_PUB_VERSION, .id = segment->id};
            if (peer->asked < ASKED_MAX && sw_control_send(peer->socket, &out, NULL, 0) == 0) {
                segment->state = SW_SEGMENT_ASKED;
                peer->asked++;
            } else {
                atomic_store(&peer->segments_wanted, true); /* the peer is slow to read: later */
            }
        }
    }
    pthread_mutex_unlock(&peer->lock);
}
