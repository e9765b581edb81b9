/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/engine.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/robust.h"
#include "base/thread.h"
#include "device/nic/netdev.h"
#include "device/nic/nic.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "device/queue/srq_impl.h"
#include "device/queue/xrc_impl.h"
#include "link/engine_cpus.h"
#include "link/engine_pause.h"
#include "link/spin.h"

#define TICK_NS SW_NS_PER_MS          /* between looks at sends that nobody may be polling for */
#define LOCKED_NS (50 * SW_NS_PER_US) /* the same, at what a thread had locked that is to sleep */
#define TURN_NS (100 * SW_NS_PER_US)  /* the shortest that Linux allows */
#define SLACK_NS 1000ul               /* of sleeps; Linux takes 50 us where nobody asks for less */

struct sw_engine sw_engine = {.doorbell = -1, .epoll = -1};

#define MAX_PARTS 6
static const struct sw_engine_part *parts[MAX_PARTS];
static unsigned int part_count;
/* Some are set while the engine runs: those of rdma_cm, when the program first opens it. */
static _Atomic(sw_engine_handler) handlers[SW_WATCH_KINDS];
static struct sw_spin spin, awaiting; /* the engine's alone: for more work; what is announced */
static bool was_driven;               /* a queue pair, for its descriptor; the same */
static bool has_woken;                /* a program, by an event; the same */

void sw_engine_add(const struct sw_engine_part *part)
{
    for (unsigned int i = 0; i < part_count; i++)
        if (parts[i] == part)
            return; /* again in a forked child */
    assert(part_count < MAX_PARTS);
    parts[part_count++] = part;
}

void sw_engine_handle(enum sw_watch_kind kind, sw_engine_handler handler)
{
    /* Paired with the load in engine_handle_event(): what the handler needs is set up before it. */
    atomic_store_explicit(&handlers[kind], handler, memory_order_release);
}

/* An epoll tag is a pointer (16-byte aligned) or a descriptor shifted up, and the kind in the low
 * bits. */
static uint64_t engine_tag_of(void *what, enum sw_watch_kind kind)
{
    return (uintptr_t)what | kind;
}

/* A thread that asks to be told of a descriptor has set up what its handler needs. The kernel
 * orders that before the event; but the C memory model knows nothing of system calls, and
 * ThreadSanitizer not of those that wait_events() makes by itself. So it is also said with this
 * word. */
static atomic_uint watch_changes;

static int change_watch(int op, int fd, struct epoll_event *event)
{
    /* Paired with the load in wait_events(). */
    atomic_fetch_add_explicit(&watch_changes, 1, memory_order_release);
    return epoll_ctl(sw_engine.epoll, op, fd, event);
}

static void control_events(int op, int fd, uint64_t tag, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = tag};
    if (change_watch(op, fd, &event))
        sw_error("engine cannot watch descriptor %d: %s", fd, strerror(errno));
}

static void control_watch(int op, int fd, uint64_t tag)
{
    control_events(op, fd, tag, EPOLLIN | EPOLLRDHUP);
}

void sw_engine_watch(int fd, void *what, enum sw_watch_kind kind)
{
    control_watch(EPOLL_CTL_ADD, fd, engine_tag_of(what, kind));
}

void sw_engine_rewatch(int fd, void *what, enum sw_watch_kind kind)
{
    control_watch(EPOLL_CTL_MOD, fd, engine_tag_of(what, kind));
}

void sw_engine_watch_room(int fd, void *what, enum sw_watch_kind kind, bool wanted)
{
    control_events(EPOLL_CTL_MOD, fd, engine_tag_of(what, kind),
                   EPOLLIN | EPOLLRDHUP | (wanted ? EPOLLOUT : 0u));
}

void sw_engine_watch_fd(int fd, enum sw_watch_kind kind)
{
    control_watch(EPOLL_CTL_ADD, fd, (uint64_t)fd << 4 | kind);
}

void sw_engine_watch_once(int fd, enum sw_watch_kind kind)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT,
                                .data.u64 = engine_tag_of(NULL, kind)};
    if (change_watch(EPOLL_CTL_MOD, fd, &event) &&
        (errno != ENOENT || change_watch(EPOLL_CTL_ADD, fd, &event)))
        sw_error("engine cannot watch descriptor %d: %s", fd, strerror(errno));
}

void sw_engine_watch_nothing(int fd, enum sw_watch_kind kind)
{
    control_events(EPOLL_CTL_MOD, fd, engine_tag_of(NULL, kind), EPOLLONESHOT);
}

void sw_engine_unwatch(int fd)
{
    sw_engine_pause_forget(fd);
    epoll_ctl(sw_engine.epoll, EPOLL_CTL_DEL, fd, NULL);
}

void sw_engine_ring(int doorbell, uint64_t rings)
{
    if (!sw_fd_is_intact(doorbell))
        return; /* the program closed it by a raw system call: see wait_events() */
    ssize_t ignored = write(doorbell, &rings, sizeof(rings));
    (void)ignored; /* a full counter means it is ringing already */
}

void sw_engine_kick(void)
{
    if (sw_engine.running)
        sw_engine_ring(sw_engine.doorbell, 1);
}

bool sw_engine_is_self(void)
{
    return sw_engine.running && pthread_equal(pthread_self(), sw_engine.thread);
}

bool sw_engine_goes_on(void)
{
    return sw_spin_goes_on(&spin);
}

bool sw_engine_spins(void)
{
    return spin.since_ns;
}

void sw_engine_nudge(void)
{
    if (atomic_load(&sw_engine.idle) && atomic_exchange(&sw_engine.idle, false))
        sw_engine_kick();
}

/* What the parts are told of an interface. */
static void tell_parts(struct sw_netdev *dev, enum sw_netdev_change change)
{
    for (unsigned int i = 0; i < part_count; i++) {
        if (change == SW_NETDEV_GONE && parts[i]->netdev_gone)
            parts[i]->netdev_gone(dev);
        if (change == SW_NETDEV_MAC_CHANGE && parts[i]->netdev_readdressed)
            parts[i]->netdev_readdressed(dev);
    }
}

static void port_event(void *arg, struct sw_netdev *dev, enum sw_netdev_change change)
{
    (void)arg;
    if (change == SW_NETDEV_GONE || change == SW_NETDEV_MAC_CHANGE)
        return tell_parts(dev, change);
    enum ibv_event_type type = IBV_EVENT_GID_CHANGE;
    if (change == SW_NETDEV_PORT_UP)
        type = IBV_EVENT_PORT_ACTIVE;
    else if (change == SW_NETDEV_PORT_DOWN)
        type = IBV_EVENT_PORT_ERR;
    pthread_mutex_lock(&sw_nic.lock);
    for (struct sw_context *ctx = sw_nic.contexts; ctx; ctx = ctx->next)
        if (ctx->netdev == dev)
            sw_context_event(ctx, type, NULL);
    pthread_mutex_unlock(&sw_nic.lock);
}

static void drain_doorbell(uint64_t what)
{
    (void)what;
    uint64_t count = 0;
    const ssize_t got = read(sw_engine.doorbell, &count, sizeof(count));
    if (got == sizeof(count) && count >= SW_ENGINE_SOON)
        sw_spin_begin(&awaiting, sw_clock_ns());
}

static void netdev_changed(uint64_t what)
{
    (void)what;
    sw_netdev_monitor_drain();
    sw_netdev_refresh(port_event, NULL);
    for (unsigned int i = 0; i < part_count; i++)
        if (parts[i]->netdevs_changed)
            parts[i]->netdevs_changed();
}

static void engine_handle_event(uint64_t tag)
{
    sw_engine_handler handler = atomic_load_explicit(&handlers[tag & 15], memory_order_acquire);

    handler(tag & ~15ull);
}

/* Whether any part has more datagrams to deliver. */
static bool serve_datagrams(bool armed)
{
    bool more = false;
    for (unsigned int i = 0; i < part_count; i++)
        if (parts[i]->serve)
            more |= parts[i]->serve(armed);
    return more;
}

/* Returns whether it can go on at once. */
static bool progress_qp(struct sw_qp *qp)
{
    atomic_store_explicit(&sw_engine.driven, qp, memory_order_relaxed);
    qp->link->progress(qp);
    atomic_store_explicit(&sw_engine.driven, NULL, memory_order_relaxed);
    return sw_qp_goes_on(qp);
}

/* A program that an event wakes on this very processor wants the locks at once. */
static void drive_begin(void)
{
    sw_cq_hold_events();
    pthread_mutex_lock(&sw_nic.lock);
}

static void let_events_go(void)
{
    has_woken |= sw_cq_release_events();
}

static void drive_end(void)
{
    pthread_mutex_unlock(&sw_nic.lock);
    let_events_go();
}

void sw_engine_drive(uint32_t index, const struct sw_qp_ops *link)
{
    drive_begin();
    struct sw_qp *qp = index < SW_MAX_QP ? sw_nic.qps[index] : NULL;
    if (qp && qp->link == link) {
        was_driven = true;
        sw_lock_acquire(&qp->lock);
        progress_qp(qp);
        sw_lock_release(&qp->lock);
    }
    drive_end();
}

enum look { LOOK_WHEN_RUNG, LOOK_SOON, LOOK_SHORTLY, LOOK_AT_ONCE };

static enum look sooner_look(enum look one, enum look other)
{
    return one > other ? one : other;
}

/* Somebody has the QP locked, and may have missed what the doorbell was for. A thread that has
 * armed a CQ of it is about to sleep. */
static enum look look_at_locked(const struct sw_qp *qp)
{
    return sw_qp_is_armed(qp) ? LOOK_SHORTLY : LOOK_SOON;
}

/* One that has something to do. `overflow`: of a CQ, which the program is to hear of. */
static enum look drive_one(struct sw_qp *qp, bool overflow, uint64_t now_ns)
{
    const enum sw_poller poller = overflow ? SW_POLLER_NONE : sw_qp_poller(qp, now_ns);
    enum look look = LOOK_WHEN_RUNG;
    if (poller != SW_POLLER_NONE)
        return poller == SW_POLLER_STEADY ? LOOK_SOON : LOOK_SHORTLY;
    if (!sw_lock_try(&qp->lock))
        return look_at_locked(qp);
    sw_cq_tell_overflow(qp->send_cq);
    sw_cq_tell_overflow(qp->recv_cq);
    if (qp->xrcd)
        sw_xrcd_is_overrun(qp, true);
    if (overflow && qp->state != IBV_QPS_ERR && qp->state != IBV_QPS_RESET)
        sw_qp_fail(qp, IBV_EVENT_QP_FATAL);
    else if (progress_qp(qp))
        look = LOOK_AT_ONCE;
    sw_lock_release(&qp->lock);
    return look;
}

/* Drives every QP that has something to do. Returns when to look again. Soon: sends wait. At once:
 * one of them has moved as much as a turn may, and there is more. */
static enum look drive_all(uint64_t now_ns)
{
    enum look look = LOOK_WHEN_RUNG;
    bool armed = false;
    drive_begin();
    const struct sw_qp_set *set = atomic_load(&sw_nic.overran) ? &sw_nic.qp_set : &sw_nic.awake;
    for (uint32_t i = sw_qp_set_next(set, 0); i < SW_MAX_QP; i = sw_qp_set_next(set, i + 1)) {
        struct sw_qp *qp = sw_nic.qps[i];
        armed |= qp->rules->is_datagram && atomic_load(&qp->recv_cq->pub->armed) != SW_CQ_DISARMED;
        bool overflow = sw_cq_is_overrun(qp->send_cq) || sw_cq_is_overrun(qp->recv_cq) ||
                        (qp->xrcd && sw_xrcd_is_overrun(qp, false));
        if (!sw_qp_has_work(qp) && !overflow)
            continue;
        look = sooner_look(look, drive_one(qp, overflow, now_ns));
        if (sw_qp_has_work(qp))
            look = sooner_look(look, LOOK_SOON);
        if (sw_cq_has_held()) {
            drive_end();
            drive_begin();
        }
    }
    pthread_mutex_unlock(&sw_nic.lock);
    const bool more = serve_datagrams(armed);
    let_events_go();
    return more ? sooner_look(look, LOOK_SOON) : look;
}

/* True if nothing wants the engine: then it may sleep for long or until rung. Called after
 * `sw_engine.idle` was set. */
static bool nothing_to_do(void)
{
    for (unsigned int i = 0; i < part_count; i++)
        if (parts[i]->wants && parts[i]->wants())
            return false;
    bool work = false;
    pthread_mutex_lock(&sw_nic.lock);
    for (uint32_t i = sw_qp_set_next(&sw_nic.awake, 0); i < SW_MAX_QP && !work;
         i = sw_qp_set_next(&sw_nic.awake, i + 1)) {
        work = atomic_load(&sw_nic.qps[i]->tx_pending) || atomic_load(&sw_nic.qps[i]->rx_pending);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return !work;
}

static bool awaits_peer(const struct sw_qp *qp)
{
    const struct sw_rq *rq = qp->srq ? &qp->srq->rq : &qp->rq;
    return qp->xrcd || atomic_load_explicit(&qp->tx_pending, memory_order_relaxed) ||
           sw_rq_depth(rq);
}

bool sw_engine_is_awaited(void)
{
    bool found = false;
    pthread_mutex_lock(&sw_nic.lock);
    for (uint32_t i = sw_nic_first_qp(); i < SW_MAX_QP && !found; i = sw_nic_next_qp(i))
        found = awaits_peer(sw_nic.qps[i]);
    pthread_mutex_unlock(&sw_nic.lock);
    return found;
}

/* How long to sleep; UINT64_MAX: until rung. */
static uint64_t wait_ns(uint64_t now_ns, uint64_t next_ns, enum look look, bool spinning)
{
    if (spinning || look == LOOK_AT_ONCE)
        return 0;
    if (look != LOOK_WHEN_RUNG) {
        const uint64_t look_ns = now_ns + (look == LOOK_SOON ? TICK_NS : LOCKED_NS);
        next_ns = sw_min_u64(look_ns, next_ns);
    }
    if (next_ns <= now_ns)
        return 0;
    if (next_ns - now_ns > TICK_NS) {
        atomic_store(&sw_engine.idle, true);
        if (!nothing_to_do())
            return TICK_NS;
    }
    return next_ns == UINT64_MAX ? UINT64_MAX : next_ns - now_ns;
}

/* The program has closed the epoll by a raw system call. Work that can be done without it goes
 * on. */
static void wait_blindly(void)
{
    static bool told;
    if (!told)
        sw_error("the program closed descriptors of this library: peers and connections that come "
                 "or go are not seen any more");
    told = true;
    const struct timespec pause = {.tv_nsec = TICK_NS};
    nanosleep(&pause, NULL);
}

/* Moderated events are due to the microsecond; kernels before 5.11 sleep in milliseconds. */
static int sleep_until_event(struct epoll_event *events, int room, uint64_t sleep_ns)
{
#ifdef SYS_epoll_pwait2
    if (sleep_ns % SW_NS_PER_MS && sleep_ns != UINT64_MAX) {
        const struct timespec sleep = sw_time_of_ns(sleep_ns);
        long count = syscall(SYS_epoll_pwait2, sw_engine.epoll, events, room, &sleep, NULL, 0);
        if (count >= 0)
            return (int)count;
    }
#endif
    int sleep_ms =
        sleep_ns == UINT64_MAX ? -1 : (int)((sleep_ns + SW_NS_PER_MS - 1) / SW_NS_PER_MS);
    int count = epoll_wait(sw_engine.epoll, events, room, sleep_ms);
    if (count < 0 && errno != EINTR)
        wait_blindly();
    return count;
}

static int wait_events(struct epoll_event *events, int room, uint64_t sleep_ns)
{
    const int count = sleep_until_event(events, room, sleep_ns);
    /* Paired with change_watch(): the handlers find what they need. */
    (void)atomic_load_explicit(&watch_changes, memory_order_acquire);
    return count;
}

/* Whether all of it is the connection manager's: then queue pairs, of which there may be thousands,
 * need no look now. */
static bool is_connecting(const struct epoll_event *events, int count)
{
    int others = 0;
    for (int i = 0; i < count; i++) {
        const enum sw_watch_kind kind = events[i].data.u64 & 15;
        others +=
            kind != SW_WATCH_CM && kind != SW_WATCH_CM_LISTENER && kind != SW_WATCH_CM_CHANNEL;
    }
    return count > 0 && others == 0;
}

/* The latest first: the connection manager's was there before the links', which receive for it. */
static uint64_t step_parts(uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    for (unsigned int i = part_count; i-- > 0;)
        if (parts[i]->step)
            next_ns = sw_min_u64(next_ns, parts[i]->step(now_ns));
    return next_ns;
}

/* A stream whose segments wake the engine one by one costs the sender an interrupt of another
 * processor for each. */
static bool has_worked(void)
{
    bool busy = was_driven;
    was_driven = false;
    for (unsigned int i = 0; i < part_count; i++)
        busy |= parts[i]->was_busy && parts[i]->was_busy();
    return busy;
}

/* Asks for short turns: since Linux 6.12 who wants less at a time may interrupt who wants more, so
 * a program that spins on memory does not keep the engine waiting for the end of its turn. And for
 * sleeps as short as it says. */
static void want_short_turns(void)
{
    prctl(PR_SET_TIMERSLACK, SLACK_NS);
    struct { /* struct sched_attr of sched_setattr(2), which glibc has only from 2.41 */
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attr = {.size = 48};
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) || attr.policy != SCHED_OTHER)
        return;
    attr.runtime_ns = TURN_NS;
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *engine_main(void *arg)
{
    (void)arg;
    spin = awaiting = (struct sw_spin){0}; /* a forked child's begins anew */
    want_short_turns();
    sw_engine_cpus_start();
    if (!sw_robust_hold(&sw_nic.pub->header.life))
        sw_debug("peers see the end of this process when its sockets are closed");
    uint64_t look_ns = 0; /* when to look at all queue pairs again */
    enum look look = LOOK_WHEN_RUNG;
    for (;;) {
        uint64_t now_ns = sw_clock_ns();
        uint64_t next_ns = sw_min_u64(step_parts(now_ns), sw_engine_pause_step(now_ns));
        if (now_ns >= look_ns) {
            look = drive_all(now_ns);
            look_ns = 0;
        } else {
            next_ns = sw_min_u64(next_ns, look_ns);
        }
        next_ns = sw_min_u64(next_ns, sw_cq_moderation_step(now_ns));
        const bool awaits = sw_spin_await(&awaiting, has_woken, now_ns);
        const bool spinning = sw_spin_round(&spin, has_worked(), now_ns) || awaits;
        has_woken = false;
        uint64_t sleep_ns = wait_ns(now_ns, next_ns, look, spinning);
        struct epoll_event events[32];
        int count = wait_events(events, 32, sleep_ns);
        atomic_store(&sw_engine.idle, false);
        if (!is_connecting(events, count))
            look_ns = 0;
        else if (look_ns == 0)
            look_ns = now_ns + TICK_NS;
        for (int i = 0; i < count; i++)
            engine_handle_event(events[i].data.u64);
    }
    return NULL;
}

int sw_engine_open(void)
{
    sw_engine.doorbell = sw_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    sw_engine.epoll = sw_fd_own(epoll_create1(EPOLL_CLOEXEC));
    if (sw_engine.doorbell < 0 || sw_engine.epoll < 0) {
        int err = errno;
        sw_engine_close();
        return -err;
    }
    handlers[SW_WATCH_DOORBELL] = drain_doorbell;
    handlers[SW_WATCH_NETDEV] = netdev_changed;
    sw_engine_watch(sw_engine.doorbell, NULL, SW_WATCH_DOORBELL);
    int monitor = sw_netdev_monitor_fd();
    if (monitor >= 0)
        sw_engine_watch(monitor, NULL, SW_WATCH_NETDEV);
    return 0;
}

void sw_engine_close(void)
{
    if (sw_engine.doorbell >= 0)
        close(sw_engine.doorbell);
    if (sw_engine.epoll >= 0)
        close(sw_engine.epoll);
    sw_engine.doorbell = sw_engine.epoll = -1;
    sw_engine_pause_clear();
    atomic_store(&sw_engine.idle, false);
    sw_engine.running = false;
}

int sw_engine_start(void)
{
    const int rc = sw_thread_start(&sw_engine.thread, NULL, engine_main, NULL);
    if (rc) {
        sw_error("cannot start the engine thread: %s", strerror(rc));
        return -rc;
    }
    pthread_setname_np(sw_engine.thread, "sidewire");
    sw_engine.running = true;
    return 0;
}
