/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who connects to the TCP port of lifelines, and has not shown yet that it was told to: anybody.
 * A few of them have a second for one word; the oldest makes room for the next. The token of that
 * word is made of the addresses and slots of both by a key of this process, so nothing is
 * remembered of whom it was given to: whoever could hear packets to the UDP port of that address.
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
#include "link/roce/liveness/lifeline_impl.h"
#include "link/roce/liveness/liveness.h"
#include "link/roce/liveness/tcp.h"
#include "link/roce/port/path.h"
#include "wire/liveness.h"

#define CALLERS 16u
#define PATIENCE_NS SW_NS_PER_S
#define ACCEPTS_MAX 16u
#define PAUSE_NS (100 * SW_NS_PER_MS) /* where there is no descriptor for another one */

enum role { CALLER, CALLED }; /* who says the token */

static struct caller {
    int fd; /* -1: free */
    uint64_t since_ns;
    struct in6_addr own, peer;
    uint32_t in_bytes;
    uint8_t in[SW_LIVENESS_WORD_BYTES];
} callers[CALLERS];

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

bool sw_callers_open(bool is_ipv4)
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

uint16_t sw_callers_port(const struct in6_addr *own)
{
    return sw_lifelines.listeners[sw_roce_is_ipv4(own)].port;
}

void sw_callers_describe(const struct sw_lifeline *line, struct sw_liveness_mad *out)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    out->port = sw_callers_port(&line->source);
    out->caller = token_of(&line->source, &line->dest, line->slot, CALLER);
    out->called = token_of(&line->source, &line->dest, line->slot, CALLED);
}

/* ---- one who calls ---- */

static void callers_turn_away(struct caller *caller)
{
    epoll_ctl(sw_lifelines.epoll, EPOLL_CTL_DEL, caller->fd, NULL);
    close(caller->fd);
    caller->fd = -1;
    sw_counter_add(sw_roce_device_at(&caller->own), SW_LIVENESS_REFUSALS);
}

static struct caller *callers_make_room(void)
{
    struct caller *oldest = &callers[0];
    for (uint32_t i = 0; i < CALLERS; i++) {
        if (callers[i].fd < 0)
            return &callers[i];
        if (callers[i].since_ns < oldest->since_ns)
            oldest = &callers[i];
    }
    callers_turn_away(oldest);
    return oldest;
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
        if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM)
            pause_listening(listener, now_ns);
        if (fd < 0)
            return;
        struct caller *caller = callers_make_room();
        *caller = (struct caller){.fd = fd, .since_ns = now_ns, .own = own, .peer = peer};
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
    epoll_ctl(sw_lifelines.epoll, EPOLL_CTL_DEL, caller->fd, NULL);
    line->port = word.port;
    sw_lifeline_adopt(line, caller->fd, false);
    caller->fd = -1;
    sw_lifeline_say(line, &welcome);
    sw_lifeline_take(line, SW_LIVENESS_PROVEN, now_ns);
}

/* ---- events and time ---- */

bool sw_callers_take(void *what, uint64_t now_ns)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    for (int i = 0; i < 2; i++)
        if (what == &sw_lifelines.listeners[i]) {
            liveness_accept_callers(sw_lifelines.listeners[i].fd, now_ns);
            return true;
        }
    if ((uintptr_t)what < (uintptr_t)callers || (uintptr_t)what >= (uintptr_t)(callers + CALLERS))
        return false;
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

uint64_t sw_callers_tend(uint64_t now_ns)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    uint64_t next_ns = UINT64_MAX;
    if (sw_lifelines.epoll < 0)
        return next_ns;
    if (paused_ns && now_ns >= paused_ns)
        listen_again();
    for (uint32_t i = 0; i < CALLERS; i++) {
        struct caller *caller = &callers[i];
        if (caller->fd >= 0 && now_ns >= caller->since_ns + PATIENCE_NS)
            callers_turn_away(caller);
        if (caller->fd >= 0 && caller->since_ns + PATIENCE_NS < next_ns)
            next_ns = caller->since_ns + PATIENCE_NS;
    }
    return paused_ns ? sw_min_u64(paused_ns, next_ns) : next_ns;
}

void sw_callers_fork_child(void)
{
    if (sw_lifelines.epoll < 0)
        return;
    for (uint32_t i = 0; i < CALLERS; i++)
        if (callers[i].fd >= 0)
            close(callers[i].fd);
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
