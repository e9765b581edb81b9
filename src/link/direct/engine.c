/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/engine.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/cq_impl.h"
#include "device/netdev.h"
#include "device/nic.h"
#include "device/qp_impl.h"
#include "device/xrc_impl.h"
#include "link/direct/datagram.h"
#include "link/direct/direct.h"

#define TICK_NS SW_NS_PER_MS /* between looks at sends that nobody may be polling for */
#define SPIN_NS \
    (50 * SW_NS_PER_US) /* how long to go on looking after having executed a peer's request */

/* An epoll tag is a pointer (16-byte aligned) or a descriptor shifted up, and the kind in the low
 * bits. */
static uint64_t tag_of(void *what, enum sw_watch_kind kind)
{
    return (uintptr_t)what | kind;
}

static void control(int op, int fd, uint64_t tag)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = tag};
    if (epoll_ctl(sw_direct.epoll, op, fd, &event))
        sw_error("engine cannot watch descriptor %d: %s", fd, strerror(errno));
}

void sw_engine_watch(int fd, void *what, enum sw_watch_kind kind)
{
    control(EPOLL_CTL_ADD, fd, tag_of(what, kind));
}

void sw_engine_rewatch(int fd, void *what, enum sw_watch_kind kind)
{
    control(EPOLL_CTL_MOD, fd, tag_of(what, kind));
}

void sw_engine_watch_fd(int fd)
{
    control(EPOLL_CTL_ADD, fd, (uint64_t)fd << 4 | SW_WATCH_NEW);
}

void sw_engine_unwatch(int fd)
{
    epoll_ctl(sw_direct.epoll, EPOLL_CTL_DEL, fd, NULL);
}

void sw_engine_kick(void)
{
    if (!sw_direct.running)
        return;
    uint64_t one = 1;
    ssize_t ignored = write(sw_direct.doorbell, &one, sizeof(one));
    (void)ignored;
}

void sw_engine_nudge(void)
{
    if (atomic_load(&sw_direct.idle) && atomic_exchange(&sw_direct.idle, false))
        sw_engine_kick();
}

static void port_event(void *arg, struct sw_netdev *dev, enum sw_netdev_change change)
{
    (void)arg;
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

static void drain_doorbell(void)
{
    uint64_t count;
    ssize_t ignored = read(sw_direct.doorbell, &count, sizeof(count));
    (void)ignored;
}

static void handle(uint64_t tag)
{
    void *what = (void *)(uintptr_t)(tag & ~15ull);
    switch ((enum sw_watch_kind)(tag & 15)) {
    case SW_WATCH_DOORBELL:
        drain_doorbell();
        break;
    case SW_WATCH_LISTENER:
        sw_attach_accept();
        break;
    case SW_WATCH_NETDEV:
        sw_netdev_monitor_drain();
        sw_netdev_refresh(port_event, NULL);
        break;
    case SW_WATCH_NEW:
        sw_attach_greet((int)(tag >> 4));
        break;
    case SW_WATCH_CLIENT:
        sw_attach_from_client(what);
        break;
    case SW_WATCH_PEER:
        sw_attach_from_peer(what);
        break;
    }
}

/* Drives every QP that has something to do. Returns whether any wants another look soon: sends
 * wait, or somebody else had the QP locked and may have missed what the doorbell was for. */
static bool drive_all(void)
{
    bool pending = false, armed = false;
    pthread_mutex_lock(&sw_nic.lock);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < SW_MAX_QP && seen < sw_nic.qp_count; i++) {
        struct sw_qp *qp = sw_nic.qps[i];
        if (!qp)
            continue;
        seen++;
        armed |= qp->rules->is_datagram && atomic_load(&qp->recv_cq->pub->armed) != SW_CQ_DISARMED;
        bool overflow = sw_cq_is_overrun(qp->send_cq) || sw_cq_is_overrun(qp->recv_cq) ||
                        (qp->xrcd && sw_xrcd_is_overrun(qp, false));
        if (!sw_qp_has_work(qp) && !overflow)
            continue;
        if (sw_lock_try(&qp->lock)) {
            sw_cq_tell_overflow(qp->send_cq);
            sw_cq_tell_overflow(qp->recv_cq);
            if (qp->xrcd)
                sw_xrcd_is_overrun(qp, true);
            if (overflow && qp->state != IBV_QPS_ERR && qp->state != IBV_QPS_RESET)
                sw_qp_fail(qp, IBV_EVENT_QP_FATAL);
            else
                sw_direct_drive(qp);
            sw_lock_release(&qp->lock);
        } else {
            pending = true;
        }
        pending |= sw_qp_has_work(qp);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return sw_datagram_serve(armed) || pending;
}

/* True if nothing wants the engine: then it may sleep until rung. Called after `idle` was set. */
static bool nothing_to_do(void)
{
    if (atomic_load(&sw_direct.work))
        return false;
    bool work = false;
    pthread_mutex_lock(&sw_nic.lock);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < SW_MAX_QP && seen < sw_nic.qp_count && !work; i++) {
        if (!sw_nic.qps[i])
            continue;
        seen++;
        work = atomic_load(&sw_nic.qps[i]->tx_pending) || atomic_load(&sw_nic.qps[i]->rx_pending);
    }
    pthread_mutex_unlock(&sw_nic.lock);
    return !work;
}

/* How long to sleep; UINT64_MAX: until rung. */
static uint64_t wait_ns(uint64_t now_ns, uint64_t next_ns, bool pending, bool spinning)
{
    if (spinning)
        return 0;
    if (pending)
        next_ns = now_ns + TICK_NS < next_ns ? now_ns + TICK_NS : next_ns;
    if (next_ns == UINT64_MAX) {
        atomic_store(&sw_direct.idle, true);
        return nothing_to_do() ? UINT64_MAX : TICK_NS;
    }
    return next_ns <= now_ns ? 0 : next_ns - now_ns;
}

/* Moderated events are due to the microsecond; kernels before 5.11 sleep in milliseconds. */
static int wait_events(struct epoll_event *events, int room, uint64_t sleep_ns)
{
#ifdef SYS_epoll_pwait2
    if (sleep_ns % SW_NS_PER_MS && sleep_ns != UINT64_MAX) {
        struct timespec sleep = {.tv_sec = (time_t)(sleep_ns / SW_NS_PER_S),
                                 .tv_nsec = (long)(sleep_ns % SW_NS_PER_S)};
        long count = syscall(SYS_epoll_pwait2, sw_direct.epoll, events, room, &sleep, NULL, 0);
        if (count >= 0)
            return (int)count;
    }
#endif
    int sleep_ms =
        sleep_ns == UINT64_MAX ? -1 : (int)((sleep_ns + SW_NS_PER_MS - 1) / SW_NS_PER_MS);
    return epoll_wait(sw_direct.epoll, events, room, sleep_ms);
}

static uint64_t earlier(uint64_t one_ns, uint64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

static void *engine_main(void *arg)
{
    (void)arg;
    uint64_t worked_ns = 0;
    for (;;) {
        uint64_t now_ns = sw_clock_ns();
        uint64_t next_ns = earlier(sw_attach_step(now_ns), sw_bind_reap(now_ns));
        bool pending = drive_all();
        next_ns = earlier(next_ns, sw_cq_moderation_step(now_ns));
        if (atomic_exchange(&sw_direct.served, false))
            worked_ns = now_ns;
        uint64_t sleep_ns = wait_ns(now_ns, next_ns, pending, now_ns - worked_ns < SPIN_NS);
        struct epoll_event events[32];
        int count = wait_events(events, 32, sleep_ns);
        atomic_store(&sw_direct.idle, false);
        for (int i = 0; i < count; i++)
            handle(events[i].data.u64);
    }
    return NULL;
}

int sw_engine_start(void)
{
    sw_direct.doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sw_direct.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (sw_direct.doorbell < 0 || sw_direct.epoll < 0)
        return -errno;
    sw_engine_watch(sw_direct.doorbell, NULL, SW_WATCH_DOORBELL);
    sw_engine_watch(sw_direct.listener, NULL, SW_WATCH_LISTENER);
    int monitor = sw_netdev_monitor_fd();
    if (monitor >= 0)
        sw_engine_watch(monitor, NULL, SW_WATCH_NETDEV);

    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&sw_direct.thread, NULL, engine_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        sw_error("cannot start the engine thread: %s", strerror(rc));
        return -rc;
    }
    pthread_setname_np(sw_direct.thread, "sidewire");
    sw_direct.running = true;
    return 0;
}
