/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/paired/callers.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd_pass.h"
#include "base/fds.h"
#include "base/log.h"
#include "base/minmax.h"
#include "device/queue/counters.h"
#include "link/callers.h"
#include "link/engine.h"
#include "link/engine_pause.h"
#include "link/iwarp/socket.h"
#include "link/names/names.h"
#include "link/names/registry.h"
#include "link/paired/call.h"
#include "link/paired/hosts.h"
#include "link/paired/paired.h"
#include "link/paired/socket.h"
#include "link/paired/trial.h"
#include "link/roce/datagram.h"
#include "link/roce/port/stream.h"
#include "link/roce/roce.h"

#define CALLERS 256u
#define CALLERS_PARTS 16u /* and of the descriptors one in so many */
#define ADDRESS_PARTS 2u  /* of these an address has one in so many */
#define GRACE_NS (100 * SW_NS_PER_MS)
#define ACCEPTS 16 /* in one step */
#define OWN_NAME "tcp"

struct caller {
    struct sw_caller place; /* the first member */
    int fd;                 /* -1: free */
    bool was_handed_on;
    struct in6_addr own, peer;
    struct sw_iwarp_start start;
};

/* What goes with a descriptor from process to process: the request, as it came. */
struct handed {
    uint32_t magic;
    uint32_t len_bytes;
    uint8_t bytes[SW_MPA_FRAME_MAX];
};
#define HANDED_MAGIC 0x53774850u

static struct {
    pthread_mutex_t lock; /* of opening it */
    atomic_bool is_open;
    int socket, handover; /* of TCP; what other processes hand on */
    struct caller *callers;
    struct sw_callers unproven;
} listening = {.lock = PTHREAD_MUTEX_INITIALIZER, .socket = -1, .handover = -1};

static bool callers_hear(struct sw_caller *place);
static void callers_refuse(struct sw_caller *place);
static const struct sw_callers_rule unproven_rule = {
    .places_max = CALLERS,
    .fds_parts = CALLERS_PARTS,
    .address_parts = ADDRESS_PARTS,
    .patience_ns = SW_IWARP_REQUEST_NS,
    .grace_ns = GRACE_NS,
    .hear = callers_hear,
    .turn_away = callers_refuse,
};

/* ---- opening ---- */

static void tell_busy(int rc)
{
    sw_error("TCP port %u, at which queue pairs are called, cannot be had (%s): another user or "
             "program has it; SIDEWIRE_TCP_PORT names another one, the same on all hosts",
             sw_paired_port(), strerror(-rc));
}

static void close_sockets(void)
{
    if (listening.socket >= 0)
        close(listening.socket);
    if (listening.handover >= 0)
        close(listening.handover);
    free(listening.callers);
    listening.socket = listening.handover = -1;
    listening.callers = NULL;
    listening.is_open = false;
}

static int callers_open_locked(bool is_needed)
{
    char name[SW_NAME_BYTES];
    const int on = 1;
    sw_registry_name(sw_nic.slot, OWN_NAME, name);
    listening.callers = calloc(CALLERS, sizeof(*listening.callers));
    if (!listening.callers)
        return -ENOMEM;
    listening.unproven = (struct sw_callers){.rule = &unproven_rule};
    for (uint32_t i = 0; i < CALLERS; i++)
        listening.callers[i].fd = -1;
    listening.handover = sw_name_bind(SOCK_DGRAM, name);
    if (listening.handover < 0)
        return listening.handover;
    if (setsockopt(listening.handover, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)))
        return -errno;
    listening.socket = sw_paired_listen();
    if (listening.socket < 0) {
        if (is_needed)
            tell_busy(listening.socket);
        return listening.socket;
    }
    sw_engine_watch(listening.socket, sw_paired_tag(SW_PAIRED_LISTENER, 0), SW_WATCH_PAIRED);
    sw_engine_watch(listening.handover, sw_paired_tag(SW_PAIRED_LISTENER, 1), SW_WATCH_PAIRED);
    listening.is_open = true;
    return 0;
}

int sw_paired_listen_start(bool is_needed)
{
    int rc = 0;
    pthread_mutex_lock(&listening.lock);
    if (!listening.is_open) {
        rc = callers_open_locked(is_needed);
        if (rc)
            close_sockets();
    }
    pthread_mutex_unlock(&listening.lock);
    return rc;
}

void sw_paired_listen_stop(void)
{
    pthread_mutex_init(&listening.lock, NULL);
    for (uint32_t i = 0; listening.is_open && i < CALLERS; i++)
        if (listening.callers[i].fd >= 0)
            close(listening.callers[i].fd);
    close_sockets();
}

/* ---- a caller's end ---- */

static int take_fd(struct caller *caller)
{
    const int fd = caller->fd;
    sw_engine_unwatch(fd);
    sw_callers_remove(&listening.unproven, &caller->place);
    caller->fd = -1;
    return fd;
}

static void drop_caller(struct caller *caller)
{
    close(take_fd(caller));
}

/* It has asked for nothing: nothing of it shall stay in the kernel, either. */
static void callers_refuse(struct sw_caller *place)
{
    struct caller *caller = (struct caller *)place;
    sw_counter_add(NULL, SW_TCP_STRANGERS);
    sw_iwarp_socket_abort(take_fd(caller));
}

/* It may call again, or be called. */
static void put_off(struct caller *caller, const struct sw_pairing *request,
                    enum sw_pairing_kind why)
{
    const struct sw_pairing later = {.kind = (uint8_t)why,
                                     .own_qpn = request->peer_qpn,
                                     .peer_qpn = request->own_qpn,
                                     .own_psn = SW_PAIRING_PSN_OPEN,
                                     .peer_psn = SW_PAIRING_PSN_OPEN,
                                     .nonce = request->nonce};
    uint8_t private_data[SW_PAIRING_BYTES];
    sw_pairing_encode(&later, private_data);
    sw_iwarp_start_reject(&caller->start, private_data, sizeof(private_data));
    sw_iwarp_socket_send(caller->fd, caller->start.out, caller->start.out_len);
    drop_caller(caller);
}

/* ---- a queue pair of this process ---- */

/* Whether it comes from the one that the program has named. */
static bool is_peers(const struct sw_paired *p, const struct caller *caller,
                     const struct sw_pairing *request)
{
    return request->own_qpn == p->qp->dest_qpn && IN6_ARE_ADDR_EQUAL(&caller->peer, &p->peer) &&
           IN6_ARE_ADDR_EQUAL(&caller->own, &p->own);
}

/* Whether it is that one, and not connected already. */
static bool is_meant(const struct sw_paired *p, const struct caller *caller,
                     const struct sw_pairing *request)
{
    const struct sw_qp *qp = p->qp;
    return (p->is_trial || !qp->link_state) && !sw_paired_is_own(p) && !p->outcome.has_begun &&
           is_peers(p, caller, request) && request->own_psn == qp->attr.rq_psn &&
           (qp->state == IBV_QPS_RTR || request->peer_psn == qp->attr.sq_psn);
}

/* It connects nothing (call.c): the peer can be called by now, so that is not put off any longer.
 * It costs the peer a connection, as the call does here. */
static void hear_inquiry(struct sw_paired *p)
{
    if (p->is_trial || p->is_inquiry || p->qp->link_state || p->qp->state != IBV_QPS_RTS)
        return;
    sw_debug("QP 0x%x: its peer is ready", p->qp->qpn);
    p->gap_ns = p->again_ns = 0;
    sw_paired_look();
}

/* If two calls cross, that of the lower end counts; for a trial its rule decides. */
static bool is_crossed(const struct sw_paired *p)
{
    return !p->is_trial && !p->is_inquiry && p->fd >= 0 && sw_paired_is_lower(p);
}

/* Whether the connection is the queue pair's now. */
static bool accept_call(struct sw_paired *p, struct caller *caller,
                        const struct sw_pairing *request)
{
    const struct sw_qp *qp = p->qp;
    const bool is_ready = qp->state != IBV_QPS_RTR;
    const struct sw_pairing reply = {
        .kind = SW_PAIRING_REPLY,
        .skills = SW_PAIRING_SKILLS,
        .own_qpn = qp->qpn,
        .peer_qpn = qp->dest_qpn,
        .own_psn = is_ready ? qp->attr.sq_psn : SW_PAIRING_PSN_OPEN,
        .peer_psn = qp->attr.rq_psn,
        .nonce = request->nonce,
    };
    uint8_t private_data[SW_PAIRING_BYTES];
    sw_pairing_encode(&reply, private_data);
    const struct sw_iwarp_start_config config = sw_paired_config(private_data);
    sw_iwarp_start_accept(&caller->start, &config, sw_clock_ns());
    if (sw_iwarp_socket_send(caller->fd, caller->start.out, caller->start.out_len) !=
        caller->start.out_len)
        return false;
    sw_paired_drop_call(p);
    p->claimed_psn = request->peer_psn;
    const int fd = take_fd(caller);
    if (sw_paired_begin(p, fd, &caller->start, false, NULL, 0))
        close(fd);
    return true;
}

enum offered { OFFER_TAKEN, OFFER_HEARD, OFFER_STRANGE };

static enum offered offer_to_qp(struct sw_qp *qp, struct caller *caller,
                                const struct sw_pairing *request)
{
    sw_lock_assert_held(&qp->lock);
    enum offered found = OFFER_STRANGE;
    struct sw_paired *p = sw_paired_of(qp);
    const bool had_one = p;
    if (!p)
        p = sw_paired_try(qp);
    if (p && request->own_psn == SW_PAIRING_PSN_OPEN) {
        if (is_peers(p, caller, request)) {
            hear_inquiry(p);
            found = OFFER_HEARD;
        }
    } else if (p && is_meant(p, caller, request) && !is_crossed(p) &&
               sw_paired_tell_trial(p, SW_FALLBACK_CALLED)) {
        if (p->is_trial)
            sw_paired_take_over(p);
        if (accept_call(p, caller, request))
            found = OFFER_TAKEN;
    }
    if (p && found != OFFER_TAKEN && !had_one && p->is_trial)
        sw_paired_remove(p);
    return found;
}

static void offer_call(struct caller *caller, const struct sw_pairing *request)
{
    enum offered found = OFFER_STRANGE;
    if (sw_paired_trials_are_on())
        sw_roce_catch_up(); /* UDP passes if packets of the caller wait */
    pthread_mutex_lock(&sw_nic.lock);
    struct sw_qp *qp = sw_qp_find(request->peer_qpn);
    const bool is_there = qp;
    if (qp) {
        sw_lock_acquire(&qp->lock);
        found = offer_to_qp(qp, caller, request);
        sw_lock_release(&qp->lock);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    if (found == OFFER_TAKEN)
        return;
    if (found == OFFER_STRANGE)
        sw_counter_add(NULL, SW_TCP_STRANGERS);
    if (caller->start.state == SW_IWARP_REQUESTED)
        put_off(caller, request, is_there ? SW_PAIRING_LATER : SW_PAIRING_NOBODY);
    else
        drop_caller(caller);
}

/* ---- one of another process ---- */

static bool is_alive(uint32_t slot)
{
    struct sockaddr_un to;
    socklen_t to_len;
    char name[SW_NAME_BYTES];
    sw_registry_name(slot, "", name);
    return sw_name_find(name, &to, &to_len);
}

enum handing { HANDED_ON, HANDED_LATER, HANDED_NOBODY };

static enum handing callers_hand_on(struct caller *caller, uint32_t slot)
{
    struct handed handed = {.magic = HANDED_MAGIC, .len_bytes = caller->start.in_len};
    struct sockaddr_un to;
    socklen_t to_len;
    char name[SW_NAME_BYTES];
    sw_registry_name(slot, OWN_NAME, name);
    if (caller->was_handed_on || !sw_name_find(name, &to, &to_len))
        return HANDED_NOBODY;
    memcpy(handed.bytes, caller->start.in, caller->start.in_len);
    const int rc = sw_fd_pass_send_to(listening.handover, (const struct sockaddr *)&to, to_len,
                                      &handed, sizeof(handed), &caller->fd, 1, MSG_DONTWAIT);
    if (rc)
        return rc == -ECONNREFUSED ? HANDED_NOBODY : HANDED_LATER;
    drop_caller(caller);
    return HANDED_ON;
}

/* A process that lives may not listen yet. */
static void refuse_call(struct caller *caller, const struct sw_pairing *request, uint32_t slot,
                        enum handing handing)
{
    const bool may_come = handing == HANDED_LATER || caller->was_handed_on || is_alive(slot);
    put_off(caller, request, may_come ? SW_PAIRING_LATER : SW_PAIRING_GONE);
}

/* ---- for datagrams ---- */

/* The connection is the port's now: what it brings for others is handed on from there. */
static void take_datagrams(struct caller *caller, const struct sw_pairing *request)
{
    const struct sw_pairing reply = {.kind = SW_PAIRING_REPLY, .nonce = request->nonce};
    uint8_t private_data[SW_PAIRING_BYTES];
    sw_pairing_encode(&reply, private_data);
    const struct sw_iwarp_start_config config = sw_paired_config(private_data);
    sw_iwarp_start_accept(&caller->start, &config, sw_clock_ns());
    struct sw_stream_origin origin = {.source = caller->peer,
                                      .dest = caller->own,
                                      .ifindex = sw_paired_scope(caller->fd),
                                      .has_crc = caller->start.terms.crc};
    if (sw_iwarp_socket_send(caller->fd, caller->start.out, caller->start.out_len) !=
        caller->start.out_len) {
        drop_caller(caller);
        return;
    }
    const int fd = take_fd(caller);
    if (sw_roce_take_stream(fd, &origin))
        close(fd);
    else
        sw_hosts_note_stream(&origin.source);
}

/* One whose process is not there is taken, too: connection management answers for it. */
static void hear_datagrams(struct caller *caller, const struct sw_pairing *request)
{
    const uint32_t slot = sw_qpn_slot(request->peer_qpn);
    enum handing handing = HANDED_NOBODY;
    if (slot && slot != sw_nic.slot)
        handing = callers_hand_on(caller, slot);
    if (handing == HANDED_NOBODY)
        take_datagrams(caller, request);
    else if (handing == HANDED_LATER)
        put_off(caller, request, SW_PAIRING_LATER);
}

/* ---- asking ---- */

static void hear_request(struct caller *caller)
{
    const struct sw_mpa_frame *frame = &caller->start.peer;
    struct sw_pairing request;
    const bool is_pairing = sw_pairing_decode(frame->private_data, frame->private_len, &request);
    if (is_pairing && request.kind == SW_PAIRING_DATAGRAMS) {
        hear_datagrams(caller, &request);
        return;
    }
    if (!is_pairing || request.kind != SW_PAIRING_REQUEST) {
        sw_debug("a call to TCP port %u names no queue pair", sw_paired_port());
        sw_counter_add(NULL, SW_TCP_STRANGERS);
        drop_caller(caller);
        return;
    }
    const uint32_t slot = sw_qpn_slot(request.peer_qpn);
    if (slot == sw_nic.slot) {
        offer_call(caller, &request);
        return;
    }
    const enum handing handing = callers_hand_on(caller, slot);
    if (handing != HANDED_ON)
        refuse_call(caller, &request, slot, handing);
}

/* It has said nothing that counts. */
static void drop_stranger(struct caller *caller)
{
    sw_callers_doubt(&listening.unproven, &caller->peer, sw_clock_ns());
    drop_caller(caller);
}

static void callers_take_bytes(struct caller *caller, const uint8_t *bytes, size_t len)
{
    sw_iwarp_start_take(&caller->start, bytes, len);
    if (caller->start.state == SW_IWARP_REQUESTED)
        hear_request(caller);
    else if (caller->start.state != SW_IWARP_AWAITED)
        drop_stranger(caller);
}

void sw_paired_caller_ready(uint32_t which)
{
    uint8_t bytes[SW_MPA_FRAME_MAX + 1];
    struct caller *caller = listening.is_open && which < CALLERS ? &listening.callers[which] : NULL;
    if (!caller || caller->fd < 0)
        return;
    const ssize_t got = sw_iwarp_socket_receive(caller->fd, bytes, sizeof(bytes));
    if (got == -EAGAIN)
        return;
    if (got <= 0)
        drop_stranger(caller);
    else
        callers_take_bytes(caller, bytes, (size_t)got);
}

static bool callers_hear(struct sw_caller *place)
{
    struct caller *caller = (struct caller *)place;
    sw_paired_caller_ready((uint32_t)(caller - listening.callers));
    return caller->fd >= 0;
}

/* NULL: the socket is none of TCP, and is closed. */
static struct caller *add_caller(int fd)
{
    const struct sw_iwarp_start_config config = {.revision = 2};
    struct in6_addr own, peer;
    if (!sw_paired_ends(fd, &own, &peer)) {
        close(fd);
        return NULL;
    }
    const uint64_t now_ns = sw_clock_ns();
    sw_callers_make_room(&listening.unproven, &peer, now_ns);
    struct caller *caller = listening.callers;
    while (caller->fd >= 0)
        caller++;
    *caller = (struct caller){.fd = fd, .own = own, .peer = peer};
    sw_callers_add(&listening.unproven, &caller->place, &peer, now_ns);
    sw_iwarp_start_listen(&caller->start, &config, now_ns);
    sw_engine_watch(fd, sw_paired_tag(SW_PAIRED_CALLER, (uint32_t)(caller - listening.callers)),
                    SW_WATCH_PAIRED);
    return caller;
}

/* ---- what the sockets show ---- */

struct arrival {
    struct handed handed;
    int fd;
    bool is_ours; /* from a process of this user, as the kernel says */
};

static bool callers_read_handed(struct arrival *out)
{
    struct ucred from;
    size_t count;
    const ssize_t got =
        sw_fd_pass_receive_from(listening.handover, &out->handed, sizeof(out->handed), &out->fd, 1,
                                &count, &from, MSG_DONTWAIT);
    out->is_ours = got == (ssize_t)sizeof(out->handed) && from.uid == geteuid() &&
                   out->handed.magic == HANDED_MAGIC && out->handed.len_bytes <= SW_MPA_FRAME_MAX;
    return got >= 0;
}

static void callers_take_handed(void)
{
    struct arrival arrival;
    for (int i = 0; i < ACCEPTS && callers_read_handed(&arrival); i++) {
        if (arrival.fd < 0)
            continue;
        if (!arrival.is_ours) {
            close(arrival.fd);
            continue;
        }
        struct caller *caller = add_caller(sw_fd_own(arrival.fd));
        if (!caller)
            continue;
        caller->was_handed_on = true;
        callers_take_bytes(caller, arrival.handed.bytes, arrival.handed.len_bytes);
    }
}

void sw_paired_listen_ready(uint32_t which)
{
    if (!listening.is_open)
        return;
    if (which == 1) {
        callers_take_handed();
        return;
    }
    for (int i = 0; i < ACCEPTS; i++) {
        if (sw_callers_are_awaited(&listening.unproven, sw_clock_ns())) {
            sw_engine_pause_briefly(listening.socket, sw_paired_tag(SW_PAIRED_LISTENER, 0),
                                    SW_WATCH_PAIRED);
            return;
        }
        const int fd = sw_paired_accept(listening.socket);
        if (sw_accept_is_short(fd))
            sw_engine_pause(listening.socket, sw_paired_tag(SW_PAIRED_LISTENER, 0),
                            SW_WATCH_PAIRED);
        if (fd < 0)
            return;
        struct caller *caller = add_caller(fd);
        if (caller) /* it has mostly asked already */
            sw_paired_caller_ready((uint32_t)(caller - listening.callers));
    }
}

uint64_t sw_paired_step_callers(uint64_t now_ns)
{
    return listening.is_open ? sw_callers_tend(&listening.unproven, now_ns) : UINT64_MAX;
}
