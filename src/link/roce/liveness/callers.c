/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Callers of the TCP port of lifelines: anyone may connect. A few of them have a second for one
 * word (link/callers.h). The token of that word is made of the addresses and slots of both by a key
 * of this process, so nothing is remembered of whom it was given to: any process that could hear
 * packets to the UDP port of that address.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "base/minmax.h"
#include "device/nic/nic.h"
#include "device/queue/counters.h"
#include "link/callers.h"
#include "link/engine_pause.h"
#include "link/roce/liveness/lifeline_impl.h"
#include "link/roce/liveness/liveness.h"
#include "link/roce/liveness/tcp.h"
#include "link/roce/port/path.h"
#include "wire/liveness.h"

#define CALLERS 16u
#define CALLERS_PARTS 32u /* and of the descriptors one in so many */
#define PATIENCE_NS SW_NS_PER_S
#define ACCEPTS_MAX 16u
#define PAUSE_NS (100 * SW_NS_PER_MS) /* where there is no descriptor for another one */

enum role { CALLER, CALLED }; /* who says the token */

static struct caller {
    struct sw_caller place; /* the first member */
    int fd;                 /* -1: free */
    struct in6_addr own, peer;
    uint32_t in_bytes;
    uint8_t in[SW_LIVENESS_WORD_BYTES];
} callers[CALLERS];

static bool liveness_hear(struct sw_caller *place);
static void liveness_refuse(struct sw_caller *place);
static const struct sw_callers_rule unproven_rule = {
    .places_max = CALLERS,
    .fds_parts = CALLERS_PARTS,
    .address_parts = 1,
    .patience_ns = PATIENCE_NS,
    .hear = liveness_hear,
    .turn_away = liveness_refuse,
};
static struct sw_callers unproven = {.rule = &unproven_rule};

static uint64_t paused_ns; /* until when nobody is let in; 0: not */

static uint64_t callers_word_of(const struct in6_addr *address, int half)
{
    uint64_t word;
    memcpy(&word, address->s6_addr + 8 * half, sizeof(word));
    return word;
}

static uint64_t token_of(const struct in6_addr *own, const struct in6_addr *peer, uint32_t slot,
                         enum role role)
{
    const struct sw_siphash_key *key = &sw_lifelines.key;
    uint64_t token = sw_siphash(key, callers_word_of(own, 0), callers_word_of(own, 1));
    token = sw_siphash(key, token, callers_word_of(peer, 0));
    token = sw_siphash(key, token, callers_word_of(peer, 1));
    return sw_siphash(key, token, (uint64_t)slot << 1 | role);
}

static bool watch_socket(int fd, void *what, int op)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = what};
    return epoll_ctl(sw_lifelines.epoll, op, fd, &event) == 0;
}

/* ---- listening ---- */

static bool callers_open_all(void)
{
    if (sw_lifelines.epoll >= 0)
        return true;
    if (getrandom(&sw_lifelines.key, sizeof(sw_lifelines.key), 0) != sizeof(sw_lifelines.key))
        return false;
    for (uint32_t i = 0; i < CALLERS; i++)
        callers[i].fd = -1;
    atomic_store(&sw_lifelines.due_ns, UINT64_MAX);
    sw_lifelines.epoll = sw_fd_own(epoll_create1(EPOLL_CLOEXEC));
    atomic_store(&sw_lifelines.work, true); /* it is to be watched */
    return sw_lifelines.epoll >= 0;
}

bool sw_lifeline_callers_open(bool is_ipv4)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    if (!callers_open_all())
        return false;
    if (sw_lifelines.listeners[is_ipv4].fd >= 0)
        return true;
    uint16_t port;
    const int fd = sw_tcp_listen(is_ipv4, &port);
    if (fd < 0 || !watch_socket(fd, &sw_lifelines.listeners[is_ipv4], EPOLL_CTL_ADD)) {
        sw_debug("no TCP port for lifelines: %s", strerror(fd < 0 ? -fd : errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    sw_lifelines.listeners[is_ipv4].fd = fd;
    sw_lifelines.listeners[is_ipv4].cookie = sw_tcp_cookie(fd);
    sw_lifelines.listeners[is_ipv4].port = port;
    return true;
}

uint16_t sw_lifeline_callers_port(const struct in6_addr *own)
{
    return sw_lifelines.listeners[sw_roce_is_ipv4(own)].port;
}

void sw_lifeline_callers_describe(const struct sw_lifeline *line, struct sw_liveness_mad *out)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    out->port = sw_lifeline_callers_port(&line->source);
    out->caller = token_of(&line->source, &line->dest, line->slot, CALLER);
    out->called = token_of(&line->source, &line->dest, line->slot, CALLED);
}

/* ---- one who calls ---- */

static int liveness_take_fd(struct caller *caller)
{
    const int fd = caller->fd;
    epoll_ctl(sw_lifelines.epoll, EPOLL_CTL_DEL, fd, NULL);
    sw_callers_remove(&unproven, &caller->place);
    caller->fd = -1;
    return fd;
}

static void callers_turn_away(struct caller *caller)
{
    close(liveness_take_fd(caller));
    sw_counter_add(sw_roce_device_at(&caller->own), SW_LIVENESS_REFUSALS);
}

static void pause_listening(int listener, uint64_t now_ns)
{
    paused_ns = now_ns + PAUSE_NS;
    epoll_ctl(sw_lifelines.epoll, EPOLL_CTL_DEL, listener, NULL);
}

static void liveness_accept_callers(int listener, uint64_t now_ns)
{
    struct in6_addr own, peer;
    for (uint32_t i = 0; i < ACCEPTS_MAX; i++) {
        const int fd = sw_tcp_accept(listener, &own, &peer);
        if (sw_accept_is_short(fd))
            pause_listening(listener, now_ns);
        if (fd < 0)
            return;
        sw_callers_make_room(&unproven, &peer, now_ns);
        struct caller *caller = callers;
        while (caller->fd >= 0)
            caller++;
        *caller = (struct caller){.fd = fd, .own = own, .peer = peer};
        sw_callers_add(&unproven, &caller->place, &peer, now_ns);
        if (!watch_socket(fd, caller, EPOLL_CTL_ADD))
            callers_turn_away(caller);
    }
}

/* NULL: it was not told to call. */
static struct sw_lifeline *line_of(const struct caller *caller, const struct sw_liveness_word *word)
{
    if (word->kind != SW_LIVENESS_HELLO || word->to != sw_nic.slot || !word->from ||
        word->from > SW_SLOT_MAX ||
        word->token != token_of(&caller->own, &caller->peer, word->from, CALLER))
        return NULL;
    struct sw_lifeline *line = sw_lifeline_find(&caller->own, &caller->peer, word->from);
    return line && !line->liveness.calls ? line : NULL;
}

static void hear_caller(struct caller *caller, uint64_t now_ns)
{
    struct sw_liveness_word word;
    const int got = sw_tcp_receive(caller->fd, caller->in + caller->in_bytes,
                                   SW_LIVENESS_WORD_BYTES - caller->in_bytes);
    if (got == -EAGAIN || got == -EINTR)
        return;
    if (got > 0)
        caller->in_bytes += (uint32_t)got;
    if (got > 0 && caller->in_bytes < SW_LIVENESS_WORD_BYTES)
        return;
    struct sw_lifeline *line = NULL;
    if (got > 0 && sw_liveness_word_decode(caller->in, &word))
        line = line_of(caller, &word);
    if (!line) {
        callers_turn_away(caller);
        return;
    }
    const struct sw_liveness_word welcome = {
        .kind = SW_LIVENESS_WELCOME,
        .token = token_of(&caller->own, &caller->peer, word.from, CALLED)};
    line->port = word.port;
    sw_lifeline_adopt(line, liveness_take_fd(caller), false);
    sw_lifeline_say(line, &welcome);
    sw_lifeline_take(line, SW_LIVENESS_PROVEN, now_ns);
}

static bool liveness_hear(struct sw_caller *place)
{
    struct caller *caller = (struct caller *)place;
    hear_caller(caller, sw_clock_ns());
    return caller->fd >= 0;
}

static void liveness_refuse(struct sw_caller *place)
{
    callers_turn_away((struct caller *)place);
}

/* ---- events and time ---- */

bool sw_lifeline_callers_take(void *what, uint64_t now_ns)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    for (int i = 0; i < 2; i++)
        if (what == &sw_lifelines.listeners[i]) {
            liveness_accept_callers(sw_lifelines.listeners[i].fd, now_ns);
            return true;
        }
    if ((uintptr_t)what < (uintptr_t)callers || (uintptr_t)what >= (uintptr_t)(callers + CALLERS))
        return false;
    if (((struct caller *)what)->fd >= 0) /* it may have made room in the same round */
        hear_caller(what, now_ns);
    return true;
}

static void listen_again(void)
{
    paused_ns = 0;
    for (int i = 0; i < 2; i++)
        if (sw_lifelines.listeners[i].fd >= 0)
            watch_socket(sw_lifelines.listeners[i].fd, &sw_lifelines.listeners[i], EPOLL_CTL_ADD);
}

uint64_t sw_lifeline_callers_tend(uint64_t now_ns)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    uint64_t next_ns = UINT64_MAX;
    if (sw_lifelines.epoll < 0)
        return next_ns;
    if (paused_ns && now_ns >= paused_ns)
        listen_again();
    next_ns = sw_callers_tend(&unproven, now_ns);
    return paused_ns ? sw_min_u64(paused_ns, next_ns) : next_ns;
}

void sw_lifeline_callers_fork_child(void)
{
    if (sw_lifelines.epoll < 0)
        return;
    for (uint32_t i = 0; i < CALLERS; i++)
        if (callers[i].fd >= 0)
            close(callers[i].fd);
    unproven = (struct sw_callers){.rule = &unproven_rule};
    for (int i = 0; i < 2; i++) {
        const int fd = sw_lifelines.listeners[i].fd;
        if (fd >= 0 && sw_tcp_cookie(fd) == sw_lifelines.listeners[i].cookie)
            close(fd);
        sw_lifelines.listeners[i].fd = -1;
    }
    close(sw_lifelines.epoll);
    sw_lifelines.epoll = -1;
    paused_ns = 0;
}
