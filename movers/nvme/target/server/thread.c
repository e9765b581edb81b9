/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/thread.h"

#include <limits.h>
#include <sys/eventfd.h>

#include "common/time/clock.h"
#include "common/time/deadline.h"
#include "nvme/target/model/memory.h"
#include "nvme/target/model/worker.h"
#include "nvme/target/server/gate.h"
#include "nvme/target/server/server.h"

enum { LOOK_US = 200, OTHERS_SLEEP_MS = 1000, PROBE_MS = 30000 };

/* Turns of the loop for each look at the clock, which takes as long as a turn in vain. */
enum { TURNS = 16 };

static bool is_first(const struct nvr_thread *thread)
{
    return thread->base->number == 0;
}

/* ---- the others ---- */

/* From here on nothing changes but by the caller, until it lets the others go. */
static void stop_other_threads(struct nvr_thread *thread)
{
    struct nvr_server *server = thread->server;
    if (server->thread_count > 1) {
        nvt_gate_close(&server->gate);
        server->is_alone = true;
    }
    server->target.now_ns = thread->base->now_ns;
}

static void wake_up(struct nvr_thread *thread)
{
    thread->wants_wake = false;
    (void)eventfd_write(thread->wake_watch.fd, 1);
}

/* ---- queues that end ---- */

static bool is_due(const struct nvr_queue *queue, uint64_t now_ns)
{
    if (queue->is_over)
        return !queue->queue.under_way;
    if (queue->is_draining && !queue->is_drained && now_ns < queue->drain_by_ns)
        return false;
    return !queue->answers || now_ns >= queue->close_by_ns;
}

static bool any_is_due(const struct nvr_thread *thread, uint64_t now_ns)
{
    for (const struct list_node *node = list_first(&thread->ending); node;
         node = list_after(&thread->ending, node))
        if (is_due(LIST_MEMBER(node, struct nvr_queue, node), now_ns))
            return true;
    return false;
}

/* One that has ended, and waits for a disk: the disk wakes the thread. */
static bool any_keeps_awake(const struct nvr_thread *thread)
{
    for (const struct list_node *node = list_first(&thread->ending); node;
         node = list_after(&thread->ending, node))
        if (!LIST_MEMBER(node, struct nvr_queue, node)->is_over)
            return true;
    return false;
}

static bool has_more(const struct nvr_thread *thread, uint64_t now_ns)
{
    return thread->wants_wake || nvt_slices_any(&thread->base->slices) ||
           any_is_due(thread, now_ns);
}

/* The change may have left answers and I/O with any of them. */
static void let_others_go(struct nvr_thread *thread)
{
    struct nvr_server *server = thread->server;
    for (uint32_t i = 0; i < server->thread_count; i++) {
        (void)nvt_thread_feed(server->threads[i].base, true);
        nvr_sends_post(&server->threads[i]);
        (void)nvt_uring_submit(&server->threads[i].uring);
    }
    if (server->thread_count == 1)
        return;
    for (uint32_t i = 0; i < server->thread_count; i++)
        if (has_more(&server->threads[i], thread->base->now_ns))
            wake_up(&server->threads[i]);
    server->is_alone = false;
    nvt_gate_open(&server->gate);
}

/* ---- a turn ---- */

/* Something rare is under way: then a turn has everything for itself. */
static void begin_turn(struct nvr_thread *thread, uint64_t now_ns)
{
    struct nvr_server *server = thread->server;
    if (server->thread_count > 1) {
        nvt_gate_enter(&server->gate, thread->base->number);
        if (server->target.serial) {
            nvt_gate_leave(&server->gate, thread->base->number);
            stop_other_threads(thread);
            thread->has_stopped = true;
        }
    }
    thread->base->now_ns = now_ns;
    if (server->is_alone)
        server->target.now_ns = now_ns;
}

static void end_turn(struct nvr_thread *thread)
{
    struct nvr_server *server = thread->server;
    if (thread->has_stopped)
        let_others_go(thread);
    else if (server->thread_count > 1)
        nvt_gate_leave(&server->gate, thread->base->number);
    thread->has_stopped = false;
}

/*
 * Answers some of the I/O that has ended. A disk may say of all its requests at once that they have
 * ended, and does nothing until it has the next ones. So these are looked for after each two
 * answers. It is in vain where requests end while they are submitted: then a list of many costs
 * less.
 */
static bool end_io(struct nvr_thread *thread)
{
    uint64_t moved_bytes = 0;
    bool any = false;
    while (nvt_uring_reap(&thread->uring, &moved_bytes)) {
        nvr_sends_post(thread);
        any = true;
        if (!nvt_pace_ends_more(nvt_uring_is_prompt(&thread->uring), moved_bytes))
            break;
    }
    return any;
}

static bool poll_once(struct nvr_thread *thread)
{
    bool any = false;
    for (uint32_t i = 0; i < thread->device_count; i++)
        any = nvr_device_poll(thread->server, &thread->devices[i]) || any;
    any = nvt_thread_feed(thread->base, thread->server->is_alone) || any;
    any = nvt_slices_run(&thread->base->slices, NVT_SLICES_NS) || any;
    any = nvt_uring_poll(&thread->uring) || any;
    nvr_sends_post(thread);
    any = nvt_uring_submit(&thread->uring) || any;
    return end_io(thread) || any;
}

static bool is_over(const struct nvr_thread *thread, uint64_t now_ns)
{
    struct nvr_server *server = thread->server;
    if (!is_first(thread))
        return atomic_load_explicit(&server->is_done, memory_order_acquire);
    return server->stop_ns && (!server->queue_count || now_ns >= server->stop_ns);
}

/* Commands for when the others stand still. */
static bool has_later(const struct nvr_thread *thread)
{
    return !list_is_empty(&thread->later) || thread->base->is_fed_alone;
}

/* What a turn has found; all of it may be others' business as soon as it is over. */
struct turn {
    bool any, is_over, stays_awake, wants_quiet;
    uint32_t under_way; /* requests at the disk */
    uint64_t spin_ns;
};

static void note_library(struct nvr_thread *thread, uint64_t now_ns)
{
    if (thread->uring.awaited)
        nvt_pace_note_library(&thread->pace, now_ns);
}

static void take_turn(struct nvr_thread *thread, uint64_t now_ns, struct turn *turn)
{
    struct nvr_server *server = thread->server;
    begin_turn(thread, now_ns);
    note_library(thread, now_ns); /* before its last request ends: the thread may have slept long */
    turn->under_way = nvt_uring_under_way(&thread->uring);
    const bool yields = nvt_pace_yields(&thread->pace, turn->under_way, now_ns);
    turn->any = false;
    for (int i = 0; i < TURNS; i++) {
        const bool any = poll_once(thread);
        turn->any = any || turn->any;
        if (has_later(thread) || nvt_gate_is_wanted(&server->gate) || (yields && !any))
            break;
    }
    turn->is_over = is_over(thread, now_ns);
    turn->stays_awake = any_keeps_awake(thread);
    turn->wants_quiet =
        has_later(thread) || any_is_due(thread, now_ns) ||
        (is_first(thread) && (now_ns >= thread->tick_ns || nvt_worker_has_done(&server->worker)));
    turn->under_way = nvt_uring_under_way(&thread->uring);
    note_library(thread, now_ns);
    turn->spin_ns = nvt_pace_spin_ns(&thread->pace, turn->under_way, now_ns);
    end_turn(thread);
}

/* ---- while the others stand still ---- */

/* Queues that are to end, once their answers have been said, and those that have ended. */
static void sweep_ending(struct nvr_thread *thread, uint64_t now_ns)
{
    struct list_node *next;
    for (struct list_node *node = list_first(&thread->ending); node; node = next) {
        next = list_after(&thread->ending, node);
        struct nvr_queue *queue = LIST_MEMBER(node, struct nvr_queue, node);
        if (!is_due(queue, now_ns))
            continue;
        if (queue->is_over)
            nvr_queue_free(queue);
        else if (nvr_queue_drain(queue, now_ns)) {
            nvr_queue_end(queue); /* ends no other queue, but may list more */
            next = list_first(&thread->ending);
        }
    }
}

/* For Connect. A host says that of an I/O queue when it has the connections of all of them, which
 * takes long where many hosts come at the same time. */
enum { CONNECT_MS = 10000, CONNECT_EXPECTED_MS = 30000 };

/* A peer that connects and then asks for no controller keeps nothing here. */
static void cut_silent(struct nvr_server *server, uint64_t now_ns)
{
    for (uint32_t i = 0; i < NVR_QUEUES_MAX && server->queue_count; i++) {
        struct nvr_queue *queue = server->queues[i];
        if (!queue || queue->queue.ctrl)
            continue;
        const uint64_t limit_ms = queue->is_expected ? CONNECT_EXPECTED_MS : CONNECT_MS;
        if (now_ns > queue->created_ns + limit_ms * NS_PER_MS)
            nvr_transport.cut(&queue->queue);
    }
}

/* A host without a keep-alive time need say nothing. One that has vanished, with its device, says
 * nothing either, and would keep its controller for ever. */
static void probe_idle(struct nvr_server *server, uint64_t now_ns)
{
    if (now_ns < server->probe_ns)
        return;
    server->probe_ns = now_ns + PROBE_MS * NS_PER_MS;
    for (uint32_t i = 0; i < NVR_QUEUES_MAX && server->queue_count; i++) {
        struct nvr_queue *queue = server->queues[i];
        if (queue && queue->is_established && !queue->is_listed && !queue->is_over)
            nvr_send_probe(queue);
    }
}

static void work_quietly(struct nvr_thread *thread, uint64_t now_ns)
{
    struct nvr_server *server = thread->server;
    stop_other_threads(thread);
    nvr_queue_run_later(thread);
    if (is_first(thread))
        (void)nvt_worker_reap(&server->worker);
    sweep_ending(thread, now_ns);
    if (is_first(thread) && now_ns >= thread->tick_ns) {
        thread->tick_ns = nvt_target_tick(&server->target, now_ns);
        cut_silent(server, now_ns);
        probe_idle(server, now_ns);
        if (server->tick)
            server->tick(server->tick_context);
    }
    let_others_go(thread);
}

/* ---- what is not of the data path ---- */

void nvr_watch_drain(struct mover_watch *watch)
{
    eventfd_t count;
    (void)eventfd_read(watch->fd, &count);
}

/* Connections, signals, commands, and whatever wakes it. Waits until there is something, or
 * timeout_ms have passed. */
static void thread_look_around(struct nvr_thread *thread, int timeout_ms)
{
    struct mover_watch *watch;
    bool has_stopped = false;
    mover_loop_wait(&thread->loop, timeout_ms);
    while ((watch = mover_loop_next(&thread->loop))) {
        if (!watch->is_own && !has_stopped) {
            stop_other_threads(thread);
            has_stopped = true;
        }
        watch->ready(watch);
    }
    if (has_stopped)
        let_others_go(thread);
}

static bool arm_all(struct nvr_thread *thread)
{
    for (uint32_t i = 0; i < thread->device_count; i++)
        if (!nvr_device_arm(&thread->devices[i]))
            return false;
    return true;
}

/* Sleeps until something comes, or until_ns. Work that others leave here after the turn wakes
 * it. False: there is something already. */
static bool sleep_until(struct nvr_thread *thread, uint64_t now_ns, uint64_t until_ns)
{
    begin_turn(thread, now_ns);
    const bool is_armed = arm_all(thread);
    nvt_uring_doze(&thread->uring);
    /* An event that came before the request to be woken keeps it awake. */
    const bool may_sleep =
        is_armed && !poll_once(thread) && !has_later(thread) && !any_keeps_awake(thread);
    end_turn(thread);
    if (may_sleep)
        thread_look_around(thread, mover_ms_until(until_ns, now_ns, INT_MAX));
    nvt_uring_rouse(&thread->uring);
    return may_sleep;
}

void nvr_thread_run(struct nvr_thread *thread)
{
    uint64_t busy_ns = mover_now_ns(), look_ns = 0;
    struct turn turn = {0};
    bool has_slept = false;
    for (;;) {
        const uint64_t now_ns = mover_now_ns();
        if (has_slept) /* it has looked around, too */
            look_ns = now_ns + LOOK_US * NS_PER_US;
        has_slept = false;
        const uint32_t before = turn.under_way;
        take_turn(thread, now_ns, &turn);
        if (turn.is_over)
            break;
        if (turn.any) {
            nvt_pace_note_pause(&thread->pace, before, now_ns, now_ns - busy_ns);
            busy_ns = now_ns;
        }
        if (turn.wants_quiet)
            work_quietly(thread, now_ns);
        const bool is_idle = !turn.any && now_ns - busy_ns >= turn.spin_ns;
        if (is_idle && !turn.stays_awake) {
            has_slept = sleep_until(thread, now_ns,
                                    is_first(thread) ? thread->tick_ns
                                                     : now_ns + OTHERS_SLEEP_MS * NS_PER_MS);
        } else if (is_idle || now_ns >= look_ns) {
            thread_look_around(thread, 0);
            look_ns = now_ns + LOOK_US * NS_PER_US;
        }
    }
    nvt_uring_doze(&thread->uring); /* who drains it sleeps, too */
}

void nvr_thread_drain(struct nvr_thread *thread)
{
    poll_once(thread);
    sweep_ending(thread, mover_now_ns());
}
