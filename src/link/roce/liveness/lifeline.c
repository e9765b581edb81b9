/* SPDX-License-Identifier: BSD-2-Clause */
/* The lines: connecting, what the two ends say, and deaths. lifeline_mads.c has what is said by
 * MADs, callers.c those that connect and are not known yet, patience.c what is known of processes
 * that do not answer. */

#include "link/roce/liveness/lifeline.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/queue/counters.h"
#include "link/death.h"
#include "link/engine.h"
#include "link/roce/liveness/lifeline_impl.h"
#include "link/roce/liveness/liveness.h"
#include "link/roce/liveness/tcp.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/qp/death.h"
#include "wire/liveness.h"

#define LINES_MAX 4096u
#define EVENTS_MAX 64u
#define IDLE_NS (10 * SW_NS_PER_S)          /* a line without a queue pair is closed then */
#define DEATH_GRACE_NS (100 * SW_NS_PER_MS) /* for a dead process's last packets, as on one host */
#define FORK_WAIT_NS (100 * SW_NS_PER_MS)

struct sw_lifelines sw_lifelines = {
    .epoll = -1, .due_ns = UINT64_MAX, .listeners = {{.fd = -1}, {.fd = -1}}};

static sw_lifeline_death_fn tell_death;

void sw_lifeline_on_death(sw_lifeline_death_fn tell)
{
    tell_death = tell;
}

static void plan_step(uint64_t due_ns)
{
    if (due_ns < atomic_load(&sw_lifelines.due_ns))
        atomic_store(&sw_lifelines.due_ns, due_ns);
}

void sw_lifeline_want_engine(void)
{
    atomic_store(&sw_lifelines.work, true);
    sw_engine_nudge();
}

/* When the next step of a death is due. */
static uint64_t death_due_ns(const struct sw_lifeline *line)
{
    return line->bury_ns && !line->is_buried ? line->bury_ns : UINT64_MAX;
}

/* ---- finding lines ---- */

/* Which of the two calls. Either comes to the same result. */
static bool is_caller(const struct in6_addr *own, const struct in6_addr *peer, uint32_t slot)
{
    const int order = memcmp(own, peer, sizeof(*own));
    return order ? order < 0 : sw_nic.slot < slot;
}

struct sw_lifeline *sw_lifeline_find(const struct in6_addr *source, const struct in6_addr *dest,
                                     uint32_t slot)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    struct sw_lifeline *line = sw_lifelines.lines;
    while (line &&
           (line->slot != slot || line->liveness.state == SW_LIVENESS_DEAD ||
            !IN6_ARE_ADDR_EQUAL(&line->source, source) || !IN6_ARE_ADDR_EQUAL(&line->dest, dest)))
        line = line->next;
    return line;
}

static struct sw_lifeline *make_line(const struct in6_addr *source, const struct in6_addr *dest,
                                     uint32_t ifindex, uint32_t slot)
{
    struct sw_lifeline *line = sw_lifelines.count < LINES_MAX ? calloc(1, sizeof(*line)) : NULL;
    if (!line)
        return NULL;
    line->source = *source;
    line->dest = *dest;
    line->ifindex = ifindex;
    line->slot = slot;
    line->fd = line->probe.fd = -1;
    sw_liveness_init(&line->liveness, is_caller(source, dest, slot));
    line->next = sw_lifelines.lines;
    sw_lifelines.lines = line;
    sw_lifelines.count++;
    return line;
}

/* ---- sockets ---- */

static void close_line(struct sw_lifeline *line)
{
    if (line->fd >= 0 && sw_tcp_cookie(line->fd) == line->cookie) {
        /* close() alone leaves it in the epoll if a child that was just forked has it, too. */
        epoll_ctl(sw_lifelines.epoll, EPOLL_CTL_DEL, line->fd, NULL);
        close(line->fd);
    }
    line->fd = -1;
    line->in_bytes = 0;
    line->is_connecting = line->owes_pong = false;
}

static void watch_line(struct sw_lifeline *line, int op)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = line};
    if (line->is_connecting)
        event.events = EPOLLOUT;
    epoll_ctl(sw_lifelines.epoll, op, line->fd, &event);
}

void sw_lifeline_adopt(struct sw_lifeline *line, int fd, bool is_connecting)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    close_line(line);
    line->fd = fd;
    line->cookie = sw_tcp_cookie(fd);
    line->is_connecting = is_connecting;
    watch_line(line, EPOLL_CTL_ADD);
}

/* Returns false if it could not be sent. */
bool sw_lifeline_say(struct sw_lifeline *line, const struct sw_liveness_word *word)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    uint8_t bytes[SW_LIVENESS_WORD_BYTES];
    if (line->fd < 0 || line->is_connecting || sw_tcp_cookie(line->fd) != line->cookie)
        return false;
    sw_liveness_word_encode(word, bytes);
    const int done = sw_tcp_send(line->fd, bytes, sizeof(bytes));
    if (done > 0 && done < (int)sizeof(bytes))
        shutdown(line->fd, SHUT_RDWR); /* half a word: the peer could not read the next */
    return done == (int)sizeof(bytes);
}

static enum sw_liveness_event event_of(int error)
{
    switch (error) {
    case -ECONNREFUSED:
        return SW_LIVENESS_REFUSED;
    case 0:
    case -ECONNRESET:
    case -EPIPE:
        return SW_LIVENESS_ENDED;
    default:
        return SW_LIVENESS_LOST;
    }
}

/* ---- the actions of the state machine ---- */

static void lifeline_call_peer(struct sw_lifeline *line, uint64_t now_ns)
{
    close_line(line);
    const int fd = sw_tcp_connect(&line->source, &line->dest, line->port, line->ifindex);
    if (fd >= 0)
        sw_lifeline_adopt(line, fd, true);
    else
        sw_lifeline_take(line, event_of(fd), now_ns);
}

void sw_lifeline_take(struct sw_lifeline *line, enum sw_liveness_event event, uint64_t now_ns)
{
    sw_lock_assert_held(&sw_lifelines.lock);
    char text[SW_ROCE_ADDRESS_TEXT];
    const enum sw_liveness_state before = line->liveness.state;
    const enum sw_liveness_step step = sw_liveness_take(&line->liveness, event, now_ns);
    if (line->liveness.state != before)
        sw_debug("process %u at %s: liveness %d to %d by %d", line->slot,
                 sw_roce_address_text(&line->dest, text), before, line->liveness.state, event);
    plan_step(line->liveness.due_ns);
    if (line->liveness.has_stood)
        sw_lifeline_stop_probing(line);
    switch (step) {
    case SW_LIVENESS_NOTHING:
        return;
    case SW_LIVENESS_ASK:
        sw_lifeline_mads_ask(line);
        return;
    case SW_LIVENESS_INVITE:
        line->invites = true;
        return;
    case SW_LIVENESS_CALL:
        lifeline_call_peer(line, now_ns);
        return;
    case SW_LIVENESS_HANG_UP:
        close_line(line);
        return;
    case SW_LIVENESS_BURY:
        close_line(line);
        line->bury_ns = now_ns + DEATH_GRACE_NS;
        sw_info("the process of slot %u at %s has died", line->slot,
                sw_roce_address_text(&line->dest, text));
        plan_step(line->bury_ns);
        return;
    }
}

/* ---- receiving ---- */

static void note_departure(struct sw_lifeline *line, const struct sw_liveness_word *word)
{
    struct sw_lifeline_departure *gone = &sw_lifelines.departures[sw_lifelines.departure_count++];
    *gone = (struct sw_lifeline_departure){line, word->to, word->from, word->mark};
}

/* The kernel may bring what the peer sends from this port to another process of this host, one that
 * is stopped. */
static void claim_flow(const struct sw_lifeline *line, uint16_t source_port, uint64_t now_ns)
{
    char text[SW_ROCE_ADDRESS_TEXT];
    const struct sw_arrival flow = {.source = line->dest,
                                    .dest = line->source,
                                    .ifindex = line->ifindex,
                                    .source_port = source_port};
    if (line->liveness.state == SW_LIVENESS_UP && source_port &&
        sw_port_claim_flow(sw_lifelines.port, &flow, now_ns))
        sw_debug("packets of %s from port %u may not come here: asked for",
                 sw_roce_address_text(&line->dest, text), source_port);
}

static void act_on_word(struct sw_lifeline *line, const struct sw_liveness_word *word,
                        uint64_t now_ns)
{
    const bool is_up = line->liveness.state == SW_LIVENESS_UP;
    switch (word->kind) {
    case SW_LIVENESS_WELCOME:
        if (!is_up)
            sw_lifeline_take(
                line, word->token == line->called ? SW_LIVENESS_PROVEN : SW_LIVENESS_ENDED, now_ns);
        break;
    case SW_LIVENESS_PING:
        line->owes_pong = is_up;
        line->ping = *word;
        sw_lifelines.owes |= is_up;
        claim_flow(line, word->port, now_ns);
        break;
    case SW_LIVENESS_PONG:
        sw_liveness_pong(&line->liveness, word->token, sw_tcp_rtt_ns(line->fd), now_ns);
        claim_flow(line, word->port, now_ns);
        break;
    case SW_LIVENESS_LEFT:
        if (is_up)
            note_departure(line, word);
        break;
    case SW_LIVENESS_GOODBYE:
        if (is_up)
            sw_lifeline_take(line, SW_LIVENESS_FAREWELL, now_ns);
        break;
    case SW_LIVENESS_HELLO:
        break;
    }
}

/* Reads one word, or a part of it. Returns false when there is no more for now. */
static bool hear_word(struct sw_lifeline *line, uint64_t now_ns)
{
    struct sw_liveness_word word;
    if (line->fd < 0 || sw_lifelines.departure_count == SW_LIFELINE_DEPARTURES)
        return false;
    const int got = sw_tcp_receive(line->fd, line->in + line->in_bytes,
                                   SW_LIVENESS_WORD_BYTES - line->in_bytes);
    if (got == -EAGAIN || got == -EINTR)
        return false;
    if (got > 0)
        line->in_bytes += (uint32_t)got;
    if (got > 0 && line->in_bytes < SW_LIVENESS_WORD_BYTES)
        return true;
    line->in_bytes = 0;
    if (got > 0 && sw_liveness_word_decode(line->in, &word))
        act_on_word(line, &word, now_ns);
    else
        sw_lifeline_take(line, event_of(got > 0 ? 0 : got), now_ns);
    return got > 0;
}

static void finish_call(struct sw_lifeline *line, uint64_t now_ns)
{
    const int error = sw_tcp_error(line->fd);
    if (error) {
        sw_lifeline_take(line, event_of(error), now_ns);
        return;
    }
    line->is_connecting = false;
    watch_line(line, EPOLL_CTL_MOD);
    sw_lifeline_take(line, SW_LIVENESS_TAKEN, now_ns);
    if (!line->liveness.calls)
        return;
    const struct sw_liveness_word hello = {.kind = SW_LIVENESS_HELLO,
                                           .port = sw_lifeline_callers_port(&line->source),
                                           .from = sw_nic.slot,
                                           .to = line->slot,
                                           .token = line->caller};
    sw_lifeline_say(line, &hello);
}

static void hear_lines(uint64_t now_ns)
{
    struct epoll_event event;
    uint32_t seen = 0;
    /* One event at a time: handling one may close the socket of another. */
    while (seen++ < EVENTS_MAX && sw_lifelines.departure_count < SW_LIFELINE_DEPARTURES &&
           epoll_wait(sw_lifelines.epoll, &event, 1, 0) == 1) {
        if (sw_lifeline_callers_take(event.data.ptr, now_ns))
            continue;
        struct sw_lifeline *line = event.data.ptr;
        if (line->is_connecting)
            finish_call(line, now_ns);
        for (uint32_t words = 0; words < EVENTS_MAX && hear_word(line, now_ns); words++)
            continue;
    }
    if (seen > EVENTS_MAX || sw_lifelines.departure_count == SW_LIFELINE_DEPARTURES)
        sw_lifeline_want_engine();
}

/* ---- the engine's part ---- */

bool sw_lifeline_owes(void)
{
    return sw_lifelines.owes;
}

/* Only the engine frees lines, so a line stays while the engine has not locked them. */
static void send_pong(struct sw_lifeline *line)
{
    const struct sw_liveness_word ping = line->ping;
    const struct sw_liveness_word pong = {
        .kind = SW_LIVENESS_PONG,
        .token = ping.token,
        .from = ping.to,
        .to = ping.from,
        .port = ping.port ? sw_roce_source_port(ping.to, ping.from) : 0};
    sw_lock_acquire(&sw_lifelines.lock);
    line->owes_pong = line->owes_pong && !sw_lifeline_say(line, &pong);
    sw_lifelines.owes |= line->owes_pong;
    sw_lock_release(&sw_lifelines.lock);
}

static struct sw_lifeline *next_line(struct sw_lifeline *line)
{
    sw_lock_acquire(&sw_lifelines.lock);
    line = line ? line->next : sw_lifelines.lines;
    sw_lock_release(&sw_lifelines.lock);
    return line;
}

void sw_lifeline_answer(void)
{
    sw_lock_assert_held(&sw_lifelines.port->rx_lock);
    sw_lifelines.owes = false;
    for (struct sw_lifeline *line = NULL; (line = next_line(line));)
        if (line->owes_pong) /* only the engine changes it */
            send_pong(line);
}

bool sw_lifeline_wants(void)
{
    return atomic_load(&sw_lifelines.work);
}

static void free_line(struct sw_lifeline *line)
{
    struct sw_lifeline **at = &sw_lifelines.lines;
    while (*at != line)
        at = &(*at)->next;
    *at = line->next;
    sw_lifelines.count--;
    close_line(line);
    sw_lifeline_stop_probing(line);
    free(line);
}

/* Returns false if the line was freed. */
static bool tend_line(struct sw_lifeline *line, uint64_t now_ns)
{
    if (now_ns >= line->liveness.due_ns)
        sw_lifeline_take(line, SW_LIVENESS_TIME, now_ns);
    if (line->users) {
        line->idle_ns = 0;
        return true;
    }
    if (!line->idle_ns)
        line->idle_ns = now_ns;
    const bool is_over = line->liveness.state == SW_LIVENESS_DEAD
                             ? line->is_buried
                             : now_ns >= line->idle_ns + IDLE_NS;
    if (!is_over) {
        plan_step(line->idle_ns + IDLE_NS);
        return true;
    }
    sw_lifeline_say(line, &(struct sw_liveness_word){.kind = SW_LIVENESS_GOODBYE});
    free_line(line);
    return false;
}

static void tend_lines(uint64_t now_ns)
{
    struct sw_lifeline *next;
    atomic_store(&sw_lifelines.due_ns, UINT64_MAX);
    plan_step(sw_lifeline_callers_tend(now_ns));
    for (struct sw_lifeline *line = sw_lifelines.lines; line; line = next) {
        next = line->next;
        if (!tend_line(line, now_ns))
            continue;
        plan_step(line->liveness.due_ns);
        plan_step(death_due_ns(line));
    }
}

static struct sw_lifeline *next_dead(uint64_t now_ns)
{
    sw_lock_acquire(&sw_lifelines.lock);
    struct sw_lifeline *line = sw_lifelines.lines;
    while (line && now_ns < death_due_ns(line))
        line = line->next;
    if (line) {
        line->is_buried = line->is_told;
        line->is_told = true;
    }
    sw_lock_release(&sw_lifelines.lock);
    return line;
}

/* By rdma_cm: link/death.h. The time counts from here: the engine may be late, and the program
 * needs a processor as well. */
static void lifeline_tell_first(struct sw_lifeline *line, uint64_t now_ns)
{
    sw_counter_add(sw_roce_device_at(&line->source), SW_PEER_DEATHS);
    const bool is_heard = tell_death && tell_death(&line->dest, line->slot);
    sw_lock_acquire(&sw_lifelines.lock);
    line->bury_ns = now_ns + (is_heard ? SW_DEATH_TOLD_FIRST_NS : 0);
    plan_step(line->bury_ns);
    sw_lock_release(&sw_lifelines.lock);
    sw_lifeline_want_engine(); /* rdma_cm is served before lines in the next round */
}

static void bury_lines(uint64_t now_ns)
{
    for (struct sw_lifeline *line; (line = next_dead(now_ns));) {
        if (line->is_buried)
            sw_roce_end_with_peer(line);
        else
            lifeline_tell_first(line, now_ns);
    }
}

bool sw_lifeline_is_due(uint64_t now_ns)
{
    return sw_lifelines.owes || atomic_load(&sw_lifelines.work) ||
           now_ns >= atomic_load(&sw_lifelines.due_ns);
}

uint64_t sw_lifeline_step(uint64_t now_ns)
{
    sw_lock_assert_held(&sw_lifelines.port->rx_lock);
    if (!atomic_exchange(&sw_lifelines.work, false) && now_ns < atomic_load(&sw_lifelines.due_ns))
        return atomic_load(&sw_lifelines.due_ns);
    sw_lock_acquire(&sw_lifelines.lock);
    sw_lifeline_mads_take(now_ns);
    if (sw_lifelines.epoll >= 0)
        hear_lines(now_ns);
    tend_lines(now_ns);
    const int epoll = sw_lifelines.epoll;
    sw_lock_release(&sw_lifelines.lock);
    sw_lifeline_mads_send();
    for (uint32_t i = 0; i < sw_lifelines.departure_count; i++)
        sw_roce_note_departure(&sw_lifelines.departures[i]);
    sw_lifelines.departure_count = 0;
    bury_lines(now_ns);
    if (!sw_lifelines.is_watched && epoll >= 0) {
        sw_engine_watch_once(epoll, SW_WATCH_LIVENESS);
        sw_lifelines.is_watched = true;
    }
    return sw_lifelines.owes || atomic_load(&sw_lifelines.work) ? now_ns
                                                                : atomic_load(&sw_lifelines.due_ns);
}

/* ---- queue pairs ---- */

bool sw_lifeline_is_self(const struct sw_roce_path *path, uint32_t slot)
{
    return slot == sw_nic.slot && IN6_ARE_ADDR_EQUAL(&path->source, &path->dest);
}

struct sw_lifeline *sw_lifeline_join(const struct sw_roce_path *path, uint32_t slot)
{
    if (sw_lifelines.is_off || !slot || slot > SW_SLOT_MAX || sw_lifeline_is_self(path, slot))
        return NULL;
    sw_lock_acquire(&sw_lifelines.lock);
    struct sw_lifeline *line = NULL;
    if (sw_lifeline_callers_open(path->is_ipv4)) {
        line = sw_lifeline_find(&path->source, &path->dest, slot);
        if (!line)
            line = make_line(&path->source, &path->dest, path->ifindex, slot);
    }
    if (line) {
        line->users++;
        sw_lifeline_take(line, SW_LIVENESS_JOINED, sw_clock_ns());
    }
    const bool speaks = line && (line->asks || line->invites);
    sw_lock_release(&sw_lifelines.lock);
    if (speaks)
        sw_lifeline_want_engine();
    return line;
}

void sw_lifeline_leave(struct sw_lifeline *line, uint32_t qpn, uint32_t dest_qpn, uint8_t mark)
{
    const struct sw_liveness_word left = {
        .kind = SW_LIVENESS_LEFT, .mark = mark, .from = qpn, .to = dest_qpn};
    sw_lock_acquire(&sw_lifelines.lock);
    if (line->liveness.state == SW_LIVENESS_UP)
        sw_lifeline_say(line, &left);
    const bool is_last = --line->users == 0;
    sw_lock_release(&sw_lifelines.lock);
    if (is_last)
        sw_lifeline_want_engine();
}

void sw_lifeline_meet(struct sw_lifeline *line)
{
    sw_lock_acquire(&sw_lifelines.lock);
    sw_lifeline_take(line, SW_LIVENESS_MET, sw_clock_ns());
    const bool speaks = line->asks;
    sw_lock_release(&sw_lifelines.lock);
    if (speaks)
        sw_lifeline_want_engine();
}

/* ---- begin and end ---- */

static void lifeline_on_event(uint64_t what)
{
    (void)what;
    sw_lifelines.is_watched = false; /* the epoll reports once */
    atomic_store(&sw_lifelines.work, true);
}

void sw_lifeline_start(struct sw_port *port)
{
    sw_lifelines.port = port;
    const char *text = getenv("SIDEWIRE_LIVENESS");
    sw_lifelines.is_off = text && !strcmp(text, "never");
    if (text && *text && strcmp(text, "auto") != 0 && !sw_lifelines.is_off)
        sw_warn("SIDEWIRE_LIVENESS=%s is not auto or never; using auto", text);
    sw_engine_handle(SW_WATCH_LIVENESS, lifeline_on_event);
}

/* Not for ever: it may be a signal handler that forks, of the thread that has the lock. */
void sw_lifeline_fork_prepare(void)
{
    const uint64_t until_ns = sw_clock_ns() + FORK_WAIT_NS;
    while (!sw_lock_try(&sw_lifelines.lock)) {
        if (sw_clock_ns() >= until_ns)
            return;
        sched_yield();
    }
    sw_lifelines.is_forking = true;
}

void sw_lifeline_fork_parent(void)
{
    if (!sw_lifelines.is_forking)
        return;
    sw_lifelines.is_forking = false;
    sw_lock_release(&sw_lifelines.lock);
}

void sw_lifeline_fork_child(void)
{
    sw_lifelines.lock = (struct sw_lock){0};
    sw_lifelines.is_forking = false;
    sw_lifeline_callers_fork_child(); /* first: it gives up the epoll, which is the parent's */
    while (sw_lifelines.lines)
        free_line(sw_lifelines.lines);
    sw_lifelines.mad_count = sw_lifelines.departure_count = 0;
    sw_lifelines.is_watched = sw_lifelines.owes = false;
    atomic_store(&sw_lifelines.work, false);
    atomic_store(&sw_lifelines.due_ns, UINT64_MAX);
}
