/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/local.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "device/nic/netdev.h"
#include "device/nic/nic.h"
#include "link/direct/direct.h"
#include "link/direct/names.h"
#include "link/direct/proof.h"
#include "link/direct/registry.h"
#include "link/engine.h"
#include "link/link.h"
#include "rdmacm/agent.h"
#include "rdmacm/ports.h"
#include "rdmacm/wire.h"
#include "wire/bytes.h"

#define BACKLOG 1024
#define DOORS_MAX 64u
#define UNPROVEN_MAX 512u /* connections of those who have not shown that they may look into us */
#define LETTERS 32u       /* read at once */
#define ROUNDS 8u
#define SEEK_NS (100 * SW_NS_PER_MS) /* between looks for a process to trust */
#define TRUSTEES_TRIED 4u

static const struct sw_local_user *user;
static struct sw_wire *wires;
static struct sw_wire *peers[SW_SLOT_MAX + 1]; /* the connection that MADs for a process take */
static uint32_t door_count, unproven_count;
static int own = -1;
static struct served {
    struct served *next;
    int fd;
} * served;
static int entrusted = -1;                       /* by us ... */
static struct sw_wire *trustee;                  /* ... to whom; NULL: to nobody yet */
static uint64_t sought_ns;                       /* when one was looked for */
static uint64_t strangers[SW_SLOT_MAX / 64 + 1]; /* processes that may not be entrusted anything */
static uint64_t missed[SW_SLOT_MAX / 64 + 1]; /* processes that were to be sent something, and are
                                                 not there */

static void name_of(uint32_t slot, char out[SW_NAME_BYTES])
{
    snprintf(out, SW_NAME_BYTES, "sidewire.%u.cm", slot);
}

static struct sw_wire *add_wire(int fd)
{
    struct sw_wire *wire = aligned_alloc(64, (sizeof(*wire) + 63) & ~63ull);
    if (wire)
        memset(wire, 0, sizeof(*wire));
    int rc = wire ? sw_proof_begin(&wire->proof, fd) : -ENOMEM;
    if (rc) {
        if (rc == -EPERM)
            sw_debug("connection management: a process of another user is not talked to");
        free(wire);
        close(fd);
        return NULL;
    }
    wire->proof.is_spare = sw_direct.has_packets;
    wire->fd = fd;
    wire->pid = wire->proof.pid;
    wire->listener = wire->entrusted = -1;
    wire->last = &wire->first;
    wire->next = wires;
    wires = wire;
    sw_engine_watch(fd, wire, SW_WATCH_CM);
    return wire;
}

static void say_hello(struct sw_wire *wire)
{
    struct sw_letter hello = {
        .magic = SW_LETTER_MAGIC, .kind = SW_LETTER_HELLO, .slot = sw_nic.slot};
    sw_wire_put(wire, &hello);
}

/* -EAGAIN: it does not accept as fast as others connect. */
static int open_wire(const char *name, struct sw_wire **out)
{
    int fd = sw_name_connect(name);
    if (fd < 0)
        return fd;
    *out = add_wire(fd);
    return *out ? 0 : -ECONNREFUSED;
}

static int connect_to(const char *name, struct sw_wire **out)
{
    int rc = open_wire(name, out);
    if (!rc)
        say_hello(*out);
    return rc;
}

static void make_peer(struct sw_wire *wire)
{
    peers[wire->slot] = wire;
    wire->is_peer = true;
}

static int connect_to_slot(uint32_t slot)
{
    char name[SW_NAME_BYTES];
    struct sw_wire *wire = NULL;
    name_of(slot, name);
    int rc = connect_to(name, &wire);
    if (wire) {
        wire->slot = slot;
        make_peer(wire);
    }
    return rc;
}

/* The one that MADs for a process take; NULL: none yet. An answer goes back where the request came
 * from, which has been proven: it is there even if this process ends at once. */
static struct sw_wire *find_wire(uint32_t slot)
{
    struct sw_wire *peer = peers[slot] && !peers[slot]->is_dead ? peers[slot] : NULL;
    if (peer && peer->is_judged)
        return peer;
    for (struct sw_wire *wire = wires; wire; wire = wire->next)
        if (wire->slot == slot && wire->is_judged && !wire->is_strange && !wire->is_dead &&
            !wire->entrusts && wire->entrusted < 0) {
            if (!peer)
                make_peer(wire);
            return wire;
        }
    return peer;
}

int sw_local_send(uint32_t slot, const struct sw_cm_path *path, const uint8_t mad[SW_MAD_BYTES])
{
    if (slot < 1 || slot > SW_SLOT_MAX)
        return -ECONNREFUSED;
    const struct sw_letter letter = sw_letter_write(path, SW_LETTER_MAD, mad);
    struct sw_wire *wire = find_wire(slot);
    int rc = wire ? sw_wire_put(wire, &letter) : -ECONNRESET;
    if (rc != -ECONNRESET)
        return rc;
    rc = connect_to_slot(slot); /* perhaps again: a service may just have closed its door */
    if (rc == -ECONNREFUSED) {  /* its requests may be read after its end has been told */
        missed[slot / 64] |= 1ull << slot % 64;
        sw_wire_want_step();
    }
    return rc ? rc : sw_wire_put(peers[slot], &letter);
}

/* ---- trust ---- */

static bool send_trust(int wire_fd, int fd)
{
    struct sw_letter letter = {
        .magic = SW_LETTER_MAGIC, .kind = SW_LETTER_TRUST, .slot = sw_nic.slot};
    struct iovec iov = {&letter, sizeof(letter)};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    return sendmsg(wire_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(letter);
}

static void trust(uint32_t slot)
{
    char name[SW_NAME_BYTES];
    struct sw_wire *wire = NULL;
    name_of(slot, name);
    if (entrusted < 0 || trustee || slot == sw_nic.slot || slot > SW_SLOT_MAX ||
        strangers[slot / 64] >> slot % 64 & 1 || open_wire(name, &wire))
        return;
    wire->is_guest = wire->entrusts = true;
    wire->wanted_slot = slot;
    trustee = wire;
}

/* The process with the next slot, so that not all choose the same. */
static void seek_trustee(void)
{
    uint16_t slots[SW_SLOT_MAX];
    const uint64_t now_ns = sw_clock_ns();
    if (entrusted < 0 || trustee || now_ns - sought_ns < SEEK_NS)
        return;
    sought_ns = now_ns;
    uint32_t count = sw_registry_announcers("cm", slots, SW_SLOT_MAX);
    for (uint32_t tried = 0, last = sw_nic.slot; tried < TRUSTEES_TRIED && !trustee; tried++) {
        uint32_t best = 0, best_distance = SW_SLOT_MAX + 1;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t distance = (slots[i] + SW_SLOT_MAX - last) % SW_SLOT_MAX;
            if (slots[i] != sw_nic.slot && distance && distance < best_distance) {
                best = slots[i];
                best_distance = distance;
            }
        }
        if (!best)
            return;
        trust(best);
        last = best;
    }
}

void sw_local_entrust(int fd)
{
    entrusted = fd;
    seek_trustee();
}

/* ---- services ---- */

static struct sw_wire *find_door(uint64_t service_id, const struct in6_addr *address)
{
    for (struct sw_wire *wire = wires; wire; wire = wire->next)
        if (wire->is_door && !wire->is_dead && wire->service_id == service_id &&
            IN6_ARE_ADDR_EQUAL(&wire->address, address))
            return wire;
    return NULL;
}

static void close_a_door(void)
{
    struct sw_wire *oldest = NULL;
    for (struct sw_wire *wire = wires; wire; wire = wire->next)
        if (wire->is_door && !wire->is_dead)
            oldest = wire;
    if (oldest)
        sw_wire_end(oldest);
}

static int open_door(uint64_t service_id, const struct in6_addr *address, struct sw_wire **out)
{
    int rc = -ECONNREFUSED;
    for (enum sw_cm_port_key key = SW_CM_PORT_EXACT; key <= SW_CM_PORT_ANY && rc == -ECONNREFUSED;
         key++) {
        char name[SW_NAME_BYTES];
        sw_cm_port_service(service_id, address, key, name);
        rc = connect_to(name, out);
    }
    if (rc)
        return rc;
    (*out)->is_door = true;
    (*out)->service_id = service_id;
    (*out)->address = *address;
    if (++door_count > DOORS_MAX)
        close_a_door();
    return 0;
}

static void note_asked(struct sw_wire *wire, const struct sw_asked *asked)
{
    wire->asked[wire->asked_count++ % SW_WIRE_ASKED] = *asked;
}

static int ask(uint64_t service_id, const struct in6_addr *address, const struct sw_letter *letter)
{
    struct sw_wire *door = find_door(service_id, address);
    int rc = door ? 0 : open_door(service_id, address, &door);
    if (rc)
        return rc;
    if (letter->kind == SW_LETTER_MAD && !door->is_strange) {
        struct sw_asked asked = {.local_comm_id = sw_be32_load(letter->mad + SW_MAD_HEADER_BYTES)};
        memcpy(asked.peer_gid, letter->local_gid, 16);
        note_asked(door, &asked);
    }
    return sw_wire_put(door, letter);
}

int sw_local_ask(uint64_t service_id, const struct in6_addr *address, const struct sw_cm_path *path,
                 bool is_packet, const uint8_t mad[SW_MAD_BYTES])
{
    struct sw_letter letter =
        sw_letter_write(path, is_packet ? SW_LETTER_PACKET : SW_LETTER_MAD, mad);
    int rc = ask(service_id, address, &letter);
    return rc == -ECONNRESET ? ask(service_id, address, &letter) : rc; /* it has just closed */
}

void sw_local_serve(int listener)
{
    struct served *entry = malloc(sizeof(*entry));
    if (!entry)
        return;
    *entry = (struct served){served, listener};
    served = entry;
    sw_engine_watch_fd(listener, SW_WATCH_CM_LISTENER);
}

static void count_unproven(struct sw_wire *wire, bool counts)
{
    unproven_count += counts - wire->is_counted;
    wire->is_counted = counts;
}

/* They must not use up our descriptors: the oldest goes. */
static void bound_unproven(void)
{
    struct sw_wire *oldest = NULL;
    if (unproven_count <= UNPROVEN_MAX)
        return;
    for (struct sw_wire *wire = wires; wire; wire = wire->next)
        if (wire->is_counted)
            oldest = wire;
    if (!oldest)
        return;
    count_unproven(oldest, false);
    sw_wire_end(oldest);
}

static void accept_from(int listener)
{
    for (uint32_t i = 0; i < BACKLOG; i++) {
        int fd = sw_fd_own(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd < 0)
            break;
        struct sw_wire *wire = add_wire(fd);
        if (wire) {
            count_unproven(wire, true);
            bound_unproven();
        }
        if (wire && listener != own) {
            wire->is_guest = true;
            wire->listener = listener;
            say_hello(wire);
        }
    }
}

/* No request is lost: what has been sent is still read, and the next finds the door closed. */
void sw_local_unserve(int listener)
{
    struct served **at = &served;
    while (*at && (*at)->fd != listener)
        at = &(*at)->next;
    struct served *entry = *at;
    if (entry)
        *at = entry->next;
    free(entry);
    shutdown(listener, SHUT_RD);
    accept_from(listener);
    sw_engine_unwatch(listener);
    close(listener);
    for (struct sw_wire *wire = wires; wire; wire = wire->next)
        if (wire->listener == listener) {
            shutdown(wire->fd, SHUT_RD);
            wire->listener = -1;
            if (!wire->is_judged)
                sw_wire_end(wire); /* it has sent nothing yet */
        }
}

/* ---- the engine ---- */

static void accept_wires(uint64_t what)
{
    int listener = (int)(what >> 4);
    pthread_mutex_lock(&sw_rdmacm_lock);
    struct served *entry = served; /* else it was closed meanwhile, and the number is another's */
    while (entry && entry->fd != listener)
        entry = entry->next;
    if (entry)
        accept_from(listener);
    pthread_mutex_unlock(&sw_rdmacm_lock);
}

static struct sw_cm_path path_of(const struct sw_letter *letter)
{
    struct sw_cm_path path = {
        .ifindex = letter->ifindex,
        .pkey = letter->pkey,
        .slot = (uint16_t)(letter->kind == SW_LETTER_MAD ? letter->slot : 0),
        .traffic_class = letter->traffic_class,
        .hop_limit = letter->hop_limit,
    };
    memcpy(path.local_gid, letter->local_gid, 16);
    memcpy(path.remote_gid, letter->remote_gid, 16);
    return path;
}

static void take(struct sw_wire *wire, const struct sw_letter *letter, size_t len)
{
    if (len != sizeof(*letter) || letter->magic != SW_LETTER_MAGIC || letter->slot < 1 ||
        letter->slot > SW_SLOT_MAX || letter->kind > SW_LETTER_TRUST)
        return;
    strangers[letter->slot / 64] &= ~(1ull << letter->slot % 64);
    if (!wire->slot) {
        wire->slot = letter->slot;
        if (!wire->is_door && !wire->is_guest && !peers[wire->slot])
            make_peer(wire);
        if (!trustee && !wire->is_dead)
            trust(wire->slot);
    }
    if (letter->kind == SW_LETTER_HELLO || letter->kind == SW_LETTER_TRUST)
        return;
    /* Answers come through the door: with its end, the end of that process is told. */
    if (wire->is_door && (!peers[wire->slot] || peers[wire->slot]->is_dead))
        make_peer(wire);
    const struct sw_cm_path path = path_of(letter);
    user->receive(&path, letter->mad);
}

/* From somebody whom nothing is believed that a packet could not say: it may hand on a request of
 * another host, all else is of this one. */
static void take_strange(const struct sw_letter *letter, size_t len)
{
    union ibv_gid source;
    uint64_t service_id;
    if (len != sizeof(*letter) || letter->magic != SW_LETTER_MAGIC ||
        letter->kind != SW_LETTER_PACKET)
        return;
    memcpy(source.raw, letter->remote_gid, sizeof(source.raw));
    if (!sw_cm_asks(letter->mad, SW_MAD_BYTES, &service_id) && !sw_netdev_is_local_gid(&source))
        return;
    const struct sw_cm_path path = path_of(letter);
    user->packet(&path, letter->mad);
}

/* The first letter of a connection may bring a descriptor. */
static bool hear_first(struct sw_wire *wire)
{
    struct sw_letter letter;
    struct iovec iov = {&letter, sizeof(letter)};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t got = recvmsg(wire->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return errno == ECONNRESET || errno == EINTR;
    if (got == 0) {
        sw_wire_end(wire);
        return false;
    }
    int fd = -1;
    const struct cmsghdr *at = CMSG_FIRSTHDR(&message);
    if (at && at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(at), sizeof(fd));
    if (got == (ssize_t)sizeof(letter) && letter.kind == SW_LETTER_TRUST && wire->entrusted < 0) {
        wire->entrusted = sw_fd_own(fd);
        wire->is_guest = true;
    } else if (fd >= 0) {
        close(fd);
    }
    take(wire, &letter, (size_t)got);
    return true;
}

/* Returns whether there may be more. */
static bool hear(struct sw_wire *wire)
{
    static struct sw_letter letters[LETTERS];
    struct iovec iov[LETTERS];
    struct mmsghdr messages[LETTERS];
    for (uint32_t i = 0; i < LETTERS; i++) {
        iov[i] = (struct iovec){&letters[i], sizeof(letters[i])};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov[i], .msg_iovlen = 1}};
    }
    int count = recvmmsg(wire->fd, messages, LETTERS, MSG_DONTWAIT, NULL);
    if (count < 0)
        return errno == ECONNRESET || errno == EINTR; /* told once, then what still waits */
    for (int i = 0; i < count; i++) {
        if (messages[i].msg_len == 0) { /* its end */
            sw_wire_end(wire);
            return false;
        }
        if (wire->is_strange)
            take_strange(&letters[i], messages[i].msg_len);
        else
            take(wire, &letters[i], messages[i].msg_len);
    }
    return count == (int)LETTERS;
}

/* Whether letters may pass. */
static bool prove(struct sw_wire *wire)
{
    if (wire->is_judged || wire->is_dead)
        return wire->is_judged;
    int rc = sw_proof_step(&wire->proof, wire->fd);
    if (rc == 0)
        return false;
    sw_proof_end(&wire->proof);
    wire->is_strange = rc == -EACCES && sw_direct.has_packets && !wire->entrusts;
    wire->is_judged = rc > 0 || wire->is_strange;
    if (rc > 0)
        count_unproven(wire, false);
    if (wire->is_strange) {
        wire->asked_count = 0; /* whose requests they are, timers see to */
        sw_link_meet_stranger();
    }
    if (rc < 0 && wire->entrusts)
        strangers[wire->wanted_slot / 64] |= 1ull << wire->wanted_slot % 64;
    if (!wire->is_judged || (wire->entrusts && !send_trust(wire->fd, entrusted)))
        sw_wire_end(wire);
    else if (wire->first)
        sw_engine_watch_room(wire->fd, wire, SW_WATCH_CM, true);
    return wire->is_judged;
}

static void serve_wire(uint64_t what)
{
    struct sw_wire *wire = (struct sw_wire *)(uintptr_t)what;
    pthread_mutex_lock(&sw_rdmacm_lock);
    if (!prove(wire)) {
        pthread_mutex_unlock(&sw_rdmacm_lock);
        return;
    }
    for (uint32_t round = 0; !wire->is_dead && round < ROUNDS; round++)
        if (!(wire->slot || wire->is_strange ? hear(wire) : hear_first(wire)))
            break;
    if (!wire->is_dead)
        sw_wire_put_waiting(wire);
    pthread_mutex_unlock(&sw_rdmacm_lock);
}

bool sw_local_has_ended(void)
{
    return sw_wire_has_ended();
}

/* Whether the process that a connection was with lives; then there is one to it again. */
static bool lives(const struct sw_wire *old)
{
    const uint32_t slot = old->slot;
    if (!slot)
        return false;
    if (peers[slot] && !peers[slot]->is_dead)
        return peers[slot]->pid == old->pid;
    for (struct sw_wire *wire = wires; wire; wire = wire->next)
        if (wire->slot == slot && !wire->is_dead && !wire->is_door && !wire->is_guest) {
            make_peer(wire);
            return wire->pid == old->pid;
        }
    int rc = connect_to_slot(slot);
    return rc ? rc != -ECONNREFUSED : peers[slot]->pid == old->pid;
}

static void bury(struct sw_wire *wire)
{
    const uint32_t asked = wire->asked_count < SW_WIRE_ASKED ? wire->asked_count : SW_WIRE_ASKED;
    if (wire->slot && peers[wire->slot] == wire)
        peers[wire->slot] = NULL;
    const bool is_gone = (wire->is_peer || asked) && !lives(wire);
    struct sw_wire *peer = peers[wire->slot];
    for (uint32_t i = 0; i < asked; i++) {
        if (is_gone)
            user->unanswered(wire->asked[i].local_comm_id, wire->asked[i].peer_gid);
        else if (peer) /* perhaps it is about to end, and closes one socket after another */
            note_asked(peer, &wire->asked[i]);
    }
    if (is_gone && wire->is_peer)
        user->gone(wire->slot);
    if (wire->entrusted >= 0)
        user->inherit(wire->slot, wire->entrusted);
    if (trustee == wire) {
        trustee = NULL;
        sought_ns = 0;
        seek_trustee();
    }
    door_count -= wire->is_door;
    count_unproven(wire, false);
    /* A child that has just been forked may have it, too: closing it here would not end that. */
    sw_engine_unwatch(wire->fd);
    close(wire->fd);
    if (!wire->is_judged)
        sw_proof_end(&wire->proof);
    sw_wire_drop_waiting(wire);
    free(wire);
}

static void tell_missed(void)
{
    for (uint32_t i = 0; i < sizeof(missed) / sizeof(missed[0]); i++)
        for (; missed[i]; missed[i] &= missed[i] - 1) {
            const uint32_t slot = 64 * i + (uint32_t)__builtin_ctzll(missed[i]);
            if (!peers[slot] || peers[slot]->is_dead)
                user->gone(slot);
        }
}

void sw_local_step(void)
{
    if (!sw_wire_take_ended())
        return;
    struct sw_wire *dead = NULL;
    for (struct sw_wire **at = &wires; *at;) {
        struct sw_wire *wire = *at;
        if (!wire->is_dead) {
            at = &wire->next;
            continue;
        }
        *at = wire->next;
        wire->next = dead;
        dead = wire;
    }
    while (dead) {
        struct sw_wire *wire = dead;
        dead = wire->next;
        bury(wire);
    }
    tell_missed();
}

void sw_local_init(const struct sw_local_user *the_user)
{
    user = the_user;
    sw_engine_handle(SW_WATCH_CM, serve_wire);
    sw_engine_handle(SW_WATCH_CM_LISTENER, accept_wires);
}

int sw_local_open(void)
{
    if (own >= 0)
        return 0;
    char name[SW_NAME_BYTES];
    name_of(sw_nic.slot, name);
    int fd = sw_name_bind(SOCK_SEQPACKET, name);
    if (fd < 0)
        return fd;
    if (listen(fd, BACKLOG)) {
        int error = errno;
        close(fd);
        return -error;
    }
    own = fd;
    sw_local_serve(fd);
    return 0;
}

void sw_local_fork_child(void)
{
    /* The parent's: its sockets are closed here, or it would seem to live on. */
    for (struct sw_wire *wire = wires; wire; wire = wire->next) {
        close(wire->fd);
        if (!wire->is_judged)
            sw_proof_end(&wire->proof);
        if (wire->entrusted >= 0)
            close(wire->entrusted);
    }
    wires = trustee = NULL;
    entrusted = -1;
    for (struct served *entry = served; entry; entry = entry->next)
        if (entry->fd == own)
            close(own); /* ports.c closes the others */
    served = NULL;
    own = -1;
    door_count = unproven_count = 0;
    memset(peers, 0, sizeof(peers));
    memset(missed, 0, sizeof(missed));
    sw_wire_take_ended();
}
