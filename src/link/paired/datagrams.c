/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Datagrams over TCP (docs/tcp.md): those of UD queue pairs, and the messages of connection
 * management. A process has a connection to each process that it sends datagrams to; it alone sends
 * on it. So nobody gets what is for another by saying that he is that.
 *
 * The first datagram calls. Datagrams that wait for the call, or for room in TCP, have bounds
 * (waiting.h); those that have no place there are dropped and counted, as by a network.
 *
 *   RESTING: no connection; not to be called before `due_ns`
 *   CALLING: TCP connects
 *   ASKED:   the request is out
 *   OPEN
 */
#include "link/paired/datagrams.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/random.h"
#include "device/queue/counters.h"
#include "link/death.h"
#include "link/engine.h"
#include "link/iwarp/socket.h"
#include "link/paired/callers.h"
#include "link/paired/hosts.h"
#include "link/paired/paired.h"
#include "link/paired/socket.h"
#include "link/paired/trial.h"
#include "link/paired/waiting.h"
#include "link/roce/port/mad_slot.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "wire/bytes.h"
#include "wire/iwarp/carried.h"
#include "wire/iwarp/crc32c.h"

#define WAYS_MAX 256u
#define CONNECT_NS (5 * SW_NS_PER_S)
#define PATIENCE_NS (50 * SW_NS_PER_MS) /* with a reply, at first: its process may be stopped */
#define PATIENCE_MAX_NS SW_NS_PER_S
#define GAP_NS SW_NS_PER_MS /* after a call in vain; each time twice as long */
#define GAP_MAX_NS (100 * SW_NS_PER_MS)
#define QUEUED_MAX_NS (5 * SW_NS_PER_S) /* nothing waits longer */
#define IDLE_NS (10 * SW_NS_PER_S)
#define ANYBODY_IDLE_NS SW_NS_PER_S /* who took the connection may be stopped by the next time */
#define STALL_NS (5 * SW_NS_PER_S)  /* that a peer takes nothing */
#define ROOM_WAIT_MS 2
#define CALL_WAITS 3
#define STUCK_NS (100 * SW_NS_PER_MS) /* that nobody waits for room where it was in vain */
#define LINGER_NS SW_NS_PER_S         /* a call may have to be made more than once */
#define NAP_NS (100 * SW_NS_PER_US)   /* the processor is for the caller */
#define REPLY_BYTES 1024u

enum way_state { RESTING, CALLING, ASKED, OPEN };

struct way {
    enum way_state state;
    struct in6_addr own, peer;
    uint32_t scope;
    uint32_t slot; /* of the peer's process; 0: any of its host */
    int fd;
    bool has_crc;
    bool was_refused; /* nobody listens at the host, so the process is gone */
    uint32_t msn;
    uint64_t due_ns; /* OPEN: not used */
    uint64_t used_ns, called_ns;
    uint64_t gap_ns, patience_ns;
    uint64_t stuck_until_ns;
    uint64_t nonce;
    struct sw_waiting waiting;
    uint8_t private_data[SW_PAIRING_BYTES];
    struct sw_iwarp_start start;
};

static pthread_mutex_t ways_lock = PTHREAD_MUTEX_INITIALIZER;
static struct way *ways[WAYS_MAX];
static _Atomic uint64_t look_ns = UINT64_MAX; /* when the engine looks */
static bool carries_all;                      /* who is reached so listens as long as it lives */

static void datagrams_look_by(uint64_t at_ns)
{
    uint64_t seen = atomic_load(&look_ns);
    while (at_ns < seen && !atomic_compare_exchange_weak(&look_ns, &seen, at_ns))
        ;
}

static void *datagrams_tag_of(uint32_t which)
{
    return sw_paired_tag(SW_PAIRED_DATAGRAMS, which);
}

static void drop_waiting(struct way *w, enum sw_counter counter)
{
    if (w->waiting.frames)
        sw_counter_add_many(sw_roce_device_at(&w->own), counter, w->waiting.frames);
    sw_waiting_free(&w->waiting);
}

/* ---- a call ---- */

static void close_way(struct way *w)
{
    if (w->fd < 0)
        return;
    sw_engine_unwatch(w->fd);
    close(w->fd);
    w->fd = -1;
}

/* Nothing is tried for a while; what waits goes on waiting, or is dropped. */
static void rest_way(struct way *w, const char *why, bool keeps, uint64_t now_ns)
{
    char text[SW_ROCE_ADDRESS_TEXT];
    sw_debug("no datagrams by TCP to %s: %s", sw_roce_address_text(&w->peer, text), why);
    close_way(w);
    if (!keeps || now_ns >= w->waiting.since_ns + QUEUED_MAX_NS)
        drop_waiting(w, SW_TX_DROP_UNREACHABLE);
    w->gap_ns = w->gap_ns ? sw_min_u64(2 * w->gap_ns, GAP_MAX_NS) : GAP_NS;
    w->state = RESTING;
    w->due_ns = now_ns + w->gap_ns;
    datagrams_look_by(w->due_ns);
}

/* The call has failed. */
static void fail_way(struct way *w, int err, uint64_t now_ns)
{
    w->was_refused = err == ECONNREFUSED && carries_all && w->slot;
    rest_way(w, strerror(err), false, now_ns);
}

static void datagrams_begin_call(struct way *w, uint32_t which, uint64_t now_ns)
{
    const struct sw_pairing request = {.kind = SW_PAIRING_DATAGRAMS,
                                       .peer_qpn = sw_qpn_make(w->slot, 0),
                                       .nonce = w->nonce = sw_random64()};
    sw_pairing_encode(&request, w->private_data);
    const struct sw_iwarp_start_config config = sw_paired_config(w->private_data);
    sw_iwarp_start_connect(&w->start, &config, now_ns);
    if (!w->waiting.bytes) /* else it counts what is there */
        w->msn = 0;
    w->called_ns = now_ns;
    w->fd = sw_paired_connect(&w->own, &w->peer, w->scope);
    if (w->fd < 0) {
        const int err = -w->fd;
        w->fd = -1;
        fail_way(w, err, now_ns);
        return;
    }
    sw_paired_set_patience(w->fd, STALL_NS);
    w->state = CALLING;
    w->due_ns = now_ns + CONNECT_NS;
    sw_engine_watch(w->fd, datagrams_tag_of(which), SW_WATCH_PAIRED);
    sw_engine_watch_room(w->fd, datagrams_tag_of(which), SW_WATCH_PAIRED, true);
    datagrams_look_by(w->due_ns);
    if (!sw_engine_is_self())
        sw_engine_kick();
}

/* TCP is connected, or has failed. */
static void datagrams_send_request(struct way *w, uint32_t which, uint64_t now_ns)
{
    const int err = sw_paired_error(w->fd);
    const ssize_t sent = err ? -err : sw_iwarp_socket_send(w->fd, w->start.out, w->start.out_len);
    if (sent == -EAGAIN)
        return;
    if (sent != w->start.out_len) {
        fail_way(w, sent < 0 ? (int)-sent : EPIPE, now_ns);
        return;
    }
    w->patience_ns = w->patience_ns ? sw_min_u64(2 * w->patience_ns, PATIENCE_MAX_NS) : PATIENCE_NS;
    w->state = ASKED;
    w->due_ns =
        now_ns + sw_max_u64(w->patience_ns, sw_paired_answer_ns(w->fd, w->called_ns, now_ns));
    sw_engine_watch_room(w->fd, datagrams_tag_of(which), SW_WATCH_PAIRED, false);
    datagrams_look_by(w->due_ns);
}

static bool datagrams_is_right_reply(const struct way *w, enum sw_pairing_kind kind)
{
    struct sw_pairing reply;
    return sw_pairing_decode(w->start.peer.private_data, w->start.peer.private_len, &reply) &&
           reply.kind == kind && reply.nonce == w->nonce;
}

/* ---- an open one ---- */

/* The peer has closed it, or TCP gave it up. The next datagram calls again. */
static void lose_way(struct way *w)
{
    close_way(w);
    drop_waiting(w, SW_TX_DROP_UNREACHABLE);
    w->state = RESTING;
    w->due_ns = w->gap_ns = w->patience_ns = 0;
}

/* Sends what waits. Whether all is out, or the connection is lost. */
static bool drain_waiting(struct way *w, uint32_t which)
{
    struct sw_waiting *waiting = &w->waiting;
    while (sw_waiting_len(waiting)) {
        const ssize_t sent =
            sw_iwarp_socket_send(w->fd, waiting->bytes + waiting->from, sw_waiting_len(waiting));
        if (sent == -EAGAIN)
            return false;
        if (sent <= 0) {
            lose_way(w);
            return true;
        }
        waiting->from += (uint32_t)sent;
        waiting->since_ns = sw_clock_ns();
    }
    if (!waiting->bytes)
        return true;
    sw_waiting_free(waiting);
    sw_engine_watch_room(w->fd, datagrams_tag_of(which), SW_WATCH_PAIRED, false);
    return true;
}

static void open_way(struct way *w, uint32_t which)
{
    char text[SW_ROCE_ADDRESS_TEXT];
    w->state = OPEN;
    w->gap_ns = w->patience_ns = w->stuck_until_ns = 0;
    w->has_crc = w->start.terms.crc;
    sw_info("datagrams to %s go over TCP, port %u%s", sw_roce_address_text(&w->peer, text),
            sw_paired_port(), w->has_crc ? ", with CRCs" : "");
    if (!drain_waiting(w, which))
        sw_engine_watch_room(w->fd, datagrams_tag_of(which), SW_WATCH_PAIRED, true);
}

static void datagrams_take_reply(struct way *w, uint32_t which, uint64_t now_ns)
{
    uint8_t bytes[REPLY_BYTES];
    const ssize_t got = sw_iwarp_socket_receive(w->fd, bytes, sizeof(bytes));
    if (got == -EAGAIN)
        return;
    if (got <= 0) {
        rest_way(w, "closed", true, now_ns);
        return;
    }
    const size_t used = sw_iwarp_start_take(&w->start, bytes, (size_t)got);
    if (w->start.state == SW_IWARP_ASKED)
        return;
    if (w->start.state == SW_IWARP_OPEN && used == (size_t)got &&
        datagrams_is_right_reply(w, SW_PAIRING_REPLY))
        open_way(w, which);
    else
        rest_way(w, "not now", datagrams_is_right_reply(w, SW_PAIRING_LATER), now_ns);
}

/* The peer has nothing to say on it. */
static void watch_open(struct way *w, uint32_t which)
{
    uint8_t byte;
    if (sw_iwarp_socket_receive(w->fd, &byte, 1) != -EAGAIN)
        lose_way(w);
    else
        drain_waiting(w, which);
}

/* ---- which one ---- */

static void free_way(uint32_t which)
{
    close_way(ways[which]);
    drop_waiting(ways[which], SW_TX_DROP_STALLED);
    free(ways[which]);
    ways[which] = NULL;
}

static bool is_way_to(const struct way *w, const struct sw_roce_path *path, uint32_t slot)
{
    return w->slot == slot && w->scope == path->ifindex &&
           IN6_ARE_ADDR_EQUAL(&w->peer, &path->dest) && IN6_ARE_ADDR_EQUAL(&w->own, &path->source);
}

static struct way *add_way(const struct sw_roce_path *path, uint32_t slot, uint32_t *which)
{
    uint32_t place = 0;
    for (uint32_t i = 0; i < WAYS_MAX && ways[place]; i++)
        if (!ways[i] || ways[i]->used_ns < ways[place]->used_ns)
            place = i;
    struct way *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    if (ways[place])
        free_way(place);
    w->fd = -1;
    w->own = path->source;
    w->peer = path->dest;
    w->scope = path->ifindex;
    w->slot = slot;
    ways[place] = w;
    *which = place;
    return w;
}

static struct way *find_way(const struct sw_roce_path *path, uint32_t slot, uint32_t *which)
{
    static uint32_t last; /* mostly it is the same again */
    for (uint32_t i = 0; i < WAYS_MAX; i++) {
        const uint32_t at = (last + i) % WAYS_MAX;
        if (ways[at] && is_way_to(ways[at], path, slot)) {
            *which = last = at;
            return ways[at];
        }
    }
    return add_way(path, slot, which);
}

/* ---- sending ---- */

/* Whether there is room by now. The peer may hold it up, which need not read: so this is in vain
 * once in a while only. */
static bool await_room(struct way *w, uint32_t which, uint64_t now_ns)
{
    struct pollfd room = {.fd = w->fd, .events = POLLOUT};
    if (now_ns < w->stuck_until_ns)
        return false;
    if (poll(&room, 1, ROOM_WAIT_MS) <= 0) {
        w->stuck_until_ns = now_ns + STUCK_NS;
        return false;
    }
    return drain_waiting(w, which) && w->state == OPEN;
}

enum sent { SENT, DROPPED, LOST };

static enum sent send_pieces(struct way *w, uint32_t which, struct iovec pieces[3])
{
    ssize_t sent = 0;
    if (w->state == OPEN && !w->waiting.bytes) {
        sent = sw_iwarp_socket_send_pieces(w->fd, pieces, 3);
        if (sent < 0 && sent != -EAGAIN)
            return LOST;
    }
    if (sent > 0 && (size_t)sent == pieces[0].iov_len + pieces[1].iov_len + pieces[2].iov_len)
        return SENT;
    const bool has_place = w->state != RESTING || w->waiting.bytes;
    if (!has_place ||
        !sw_waiting_add(&w->waiting, pieces, 3, sent > 0 ? (size_t)sent : 0, sw_clock_ns())) {
        sw_counter_add(sw_roce_device_at(&w->own),
                       has_place ? SW_TX_DROP_STALLED : SW_TX_DROP_UNREACHABLE);
        return DROPPED;
    }
    if (w->state == OPEN)
        sw_engine_watch_room(w->fd, datagrams_tag_of(which), SW_WATCH_PAIRED, true);
    return SENT;
}

/* Before the two have agreed on CRCs there is one, which nobody looks at if they do not. */
static enum sent send_frame(struct way *w, uint32_t which, const struct sw_carried *datagram)
{
    uint8_t head[SW_CARRIED_HEAD_BYTES], trailer[SW_FPDU_TRAILER_MAX];
    const bool has_crc = w->state != OPEN || w->has_crc;
    struct sw_carried carried = *datagram;
    uint32_t crc = 0;
    carried.msn = w->msn + 1;
    sw_carried_encode(&carried, head);
    if (has_crc) {
        crc = sw_crc32c_add(0, head, sizeof(head));
        crc = sw_crc32c_add(crc, carried.packet, carried.len_bytes);
    }
    struct iovec pieces[] = {
        {head, sizeof(head)}, {(void *)carried.packet, carried.len_bytes}, {trailer, 0}};
    pieces[2].iov_len = sw_fpdu_finish(crc, sw_carried_ulpdu_len(&carried), has_crc, trailer);
    const enum sent sent = send_pieces(w, which, pieces);
    if (sent == SENT)
        w->msn++;
    return sent;
}

/* A program that sends faster than the call is answered goes on with it by itself. */
static void await_call(struct way *w, uint32_t which, uint64_t now_ns)
{
    for (int i = 0; i < CALL_WAITS && (w->state == CALLING || w->state == ASKED); i++) {
        struct pollfd word = {.fd = w->fd, .events = w->state == CALLING ? POLLOUT : POLLIN};
        if (now_ns < w->stuck_until_ns)
            return;
        if (poll(&word, 1, ROOM_WAIT_MS) <= 0)
            w->stuck_until_ns = now_ns + STUCK_NS;
        else if (w->state == CALLING)
            datagrams_send_request(w, which, sw_clock_ns());
        else
            datagrams_take_reply(w, which, sw_clock_ns());
    }
}

static void send_by(struct way *w, uint32_t which, const struct sw_carried *datagram)
{
    const uint64_t now_ns = sw_clock_ns();
    w->used_ns = now_ns;
    if (w->state == RESTING && now_ns >= w->due_ns)
        datagrams_begin_call(w, which, now_ns);
    if (sw_waiting_len(&w->waiting) > SW_WAITING_OWN_BYTES / 2)
        await_call(w, which, now_ns);
    if (w->state == OPEN && w->waiting.bytes && !drain_waiting(w, which) &&
        sw_waiting_len(&w->waiting) > SW_WAITING_OWN_BYTES / 2)
        await_room(w, which, now_ns);
    if (w->state == RESTING && now_ns >= w->due_ns)
        datagrams_begin_call(w, which, now_ns);
    if (send_frame(w, which, datagram) != LOST)
        return;
    lose_way(w);
    datagrams_begin_call(w, which, now_ns);
    send_frame(w, which, datagram);
}

/* 0: any process of the host. */
static uint32_t datagrams_slot_of(const uint8_t *packet, uint32_t len_bytes)
{
    uint32_t slot = sw_qpn_slot(sw_be24_load(packet + 5));
    if (!slot)
        slot = sw_roce_mad_packet_slot(packet, len_bytes);
    return slot <= SW_SLOT_MAX ? slot : 0;
}

static void send_datagram(const struct sw_roce_path *path, uint16_t source_port,
                          const uint8_t *packet, uint32_t len_bytes)
{
    static bool has_listened;
    const struct sw_carried datagram = {.traffic_class = path->traffic_class,
                                        .hop_limit = path->hop_limit,
                                        .source_port = source_port,
                                        .len_bytes = len_bytes,
                                        .packet = packet};
    uint32_t which;
    pthread_mutex_lock(&ways_lock);
    if (!has_listened) { /* for the answers; where it cannot, that was said */
        has_listened = true;
        sw_paired_listen_start(!sw_paired_trials_are_on());
    }
    struct way *w = len_bytes <= SW_CARRIED_PACKET_MAX
                        ? find_way(path, datagrams_slot_of(packet, len_bytes), &which)
                        : NULL;
    if (w)
        send_by(w, which, &datagram);
    else
        sw_counter_add(sw_roce_device_at(&path->source), SW_TX_DROP_UNREACHABLE);
    pthread_mutex_unlock(&ways_lock);
}

/* ---- the engine ---- */

void sw_paired_datagrams_ready(uint32_t which)
{
    const uint64_t now_ns = sw_clock_ns();
    pthread_mutex_lock(&ways_lock);
    struct way *w = which < WAYS_MAX ? ways[which] : NULL;
    if (w && w->state == CALLING)
        datagrams_send_request(w, which, now_ns);
    else if (w && w->state == ASKED)
        datagrams_take_reply(w, which, now_ns);
    else if (w && w->state == OPEN)
        watch_open(w, which);
    pthread_mutex_unlock(&ways_lock);
}

/* Returns when to look again; 0: it is done with. */
static uint64_t step_way(struct way *w, uint32_t which, uint64_t now_ns)
{
    if (w->was_refused) { /* its connections end, whose messages would wait for an answer */
        w->was_refused = false;
        sw_death_tell_process(&w->peer, w->slot);
    }
    const uint64_t idle_ns = w->used_ns + (w->slot ? IDLE_NS : ANYBODY_IDLE_NS);
    if (w->state == ASKED && now_ns >= w->due_ns) /* it may have come while we stood still */
        datagrams_take_reply(w, which, now_ns);
    if ((w->state == CALLING || w->state == ASKED) && now_ns >= w->due_ns)
        rest_way(w, "no answer", w->state == ASKED, now_ns);
    if (w->state == RESTING && w->waiting.bytes && now_ns >= w->due_ns)
        datagrams_begin_call(w, which, now_ns);
    if (w->state == CALLING || w->state == ASKED || (w->state == RESTING && w->waiting.bytes))
        return w->due_ns;
    return w->waiting.bytes || now_ns < idle_ns ? sw_max_u64(idle_ns, now_ns + SW_NS_PER_S) : 0;
}

uint64_t sw_paired_step_datagrams(uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    if (now_ns < atomic_load(&look_ns))
        return atomic_load(&look_ns);
    atomic_store(&look_ns, UINT64_MAX);
    pthread_mutex_lock(&ways_lock);
    for (uint32_t i = 0; i < WAYS_MAX; i++) {
        const uint64_t due_ns = ways[i] ? step_way(ways[i], i, now_ns) : UINT64_MAX;
        if (due_ns)
            next_ns = sw_min_u64(next_ns, due_ns);
        else
            free_way(i);
    }
    pthread_mutex_unlock(&ways_lock);
    datagrams_look_by(next_ns);
    return atomic_load(&look_ns);
}

static bool carry_all(const struct sw_roce_path *path, bool is_message)
{
    (void)path;
    (void)is_message;
    return true;
}

/* A message that may pass by UDP goes by both ways: it is what shows whether UDP passes. */
static bool carry_found(const struct sw_roce_path *path, bool is_message)
{
    return is_message ? sw_hosts_is_found(&path->dest) : sw_hosts_wants_datagrams(&path->dest);
}

static bool copy_message(const struct sw_roce_path *path, bool is_again)
{
    return sw_hosts_wants_copy(&path->dest, is_again);
}

static const struct sw_port_carrier carrier_of_all = {.wants = carry_all, .send = send_datagram};
static const struct sw_port_carrier carrier_of_found = {.wants = carry_found,
                                                        .copies = copy_message,
                                                        .heard = sw_hosts_note_message,
                                                        .send = send_datagram};

void sw_paired_datagrams_start(bool all)
{
    carries_all = all;
    sw_port_set_carrier(all ? &carrier_of_all : &carrier_of_found);
}

/* Until when it is worth waiting for what waits to be sent; 0: nothing waits. */
static uint64_t datagrams_wait_until(void)
{
    uint64_t until_ns = 0;
    if (pthread_mutex_trylock(&ways_lock))
        return UINT64_MAX;
    for (uint32_t i = 0; i < WAYS_MAX; i++)
        if (ways[i] && ways[i]->waiting.bytes)
            until_ns = sw_max_u64(until_ns, ways[i]->waiting.since_ns + LINGER_NS);
    pthread_mutex_unlock(&ways_lock);
    return until_ns;
}

void sw_paired_datagrams_settle(void)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const uint64_t until_ns = sw_clock_ns() + LINGER_NS;
    for (uint64_t now_ns = sw_clock_ns(); sw_engine.running && !sw_engine_is_self() &&
                                          now_ns < until_ns && now_ns < datagrams_wait_until();
         now_ns = sw_clock_ns())
        nanosleep(&nap, NULL);
}

/* A program ends with a farewell whose call has just begun. */
__attribute__((destructor)) static void settle_at_exit(void)
{
    sw_paired_datagrams_settle();
}

/* The connections are its parent's. */
void sw_paired_datagrams_fork_child(void)
{
    pthread_mutex_init(&ways_lock, NULL);
    for (uint32_t i = 0; i < WAYS_MAX; i++) {
        if (!ways[i])
            continue;
        if (ways[i]->fd >= 0)
            close(ways[i]->fd);
        sw_waiting_free(&ways[i]->waiting);
        free(ways[i]);
        ways[i] = NULL;
    }
    atomic_store(&look_ns, UINT64_MAX);
}
