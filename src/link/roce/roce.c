/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The port's life, and who receives: a program that polls completions does so by itself, the engine
 * when there is none, or where it is to (handoff.h).
 */
#include "link/roce/roce.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/minmax.h"
#include "device/queue/cq_impl.h"
#include "link/engine.h"
#include "link/engine_cpus.h"
#include "link/roce/attend.h"
#include "link/roce/deliver.h"
#include "link/roce/group.h"
#include "link/roce/handoff.h"
#include "link/roce/impair.h"
#include "link/roce/liveness/lifeline.h"
#include "link/roce/poll_pace.h"
#include "link/roce/port/connected_sender.h"
#include "link/roce/port/port.h"
#include "link/roce/port/tx.h"
#include "link/roce/qp/delayed_ack.h"
#include "link/roce/qp/qp.h"
#include "link/roce/qp/respond.h"

#define TIMERS_NS (100 * SW_NS_PER_US) /* a program that polls runs them no more often */
#define TIDY_NS SW_NS_PER_S
#define RECENT_NS (2 * SW_NS_PER_MS) /* who has posted will post again */
#define LINGER_NS (2 * SW_NS_PER_MS)
#define SETTLE_ROUNDS 64 /* of packets that wait: more than a window */
#define EARLY_SLOTS 2048 /* packets kept that came before their turn; of one QP at most half */

struct sw_roce_kept {
    struct sw_early_slot slots[EARLY_SLOTS];
    struct sw_early_copy copies[EARLY_SLOTS];
};

struct sw_roce sw_roce = {.port = {.epoll = -1}, .due_ns = UINT64_MAX};

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/* Pollers of the QP's completions receive from now on, or no longer. An XRC target's completions go
 * to queues of its domain, whichever. */
static void change_wired(struct sw_qp *qp, uint32_t change)
{
    atomic_fetch_add(&qp->send_cq->wired, change);
    atomic_fetch_add(&qp->recv_cq->wired, change);
    if (qp->xrcd)
        atomic_fetch_add(&sw_nic.wired, change);
    if (!qp->rules->is_datagram)
        atomic_fetch_add(&sw_roce.connected, change);
}

bool sw_roce_is_listed(const struct sw_qp *qp)
{
    return atomic_load_explicit(&sw_roce.open, memory_order_relaxed) &&
           atomic_load_explicit(&sw_roce.qps[qp->index], memory_order_relaxed) == qp;
}

void sw_roce_list(struct sw_qp *qp)
{
    if (atomic_exchange(&sw_roce.qps[qp->index], qp) != qp) {
        atomic_store(&sw_roce.timers[qp->index], UINT64_MAX);
        change_wired(qp, 1);
    }
    sw_qp_set_add(&sw_roce.listed, qp->index);
}

void sw_roce_wake_at(uint64_t due_ns)
{
    uint64_t seen = atomic_load_explicit(&sw_roce.due_ns, memory_order_relaxed);
    while (due_ns < seen && !atomic_compare_exchange_weak(&sw_roce.due_ns, &seen, due_ns))
        ;
}

void sw_roce_set_timer(const struct sw_qp *qp, uint64_t due_ns)
{
    atomic_store(&sw_roce.timers[qp->index], due_ns);
    if (due_ns != UINT64_MAX)
        sw_roce_wake_at(due_ns);
}

void sw_roce_bury(struct sw_roce_qp *r)
{
    r->next = atomic_load(&sw_roce.done);
    while (!atomic_compare_exchange_weak(&sw_roce.done, &r->next, r))
        ;
    sw_engine_nudge();
}

static void free_buried(void)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    if (!atomic_load_explicit(&sw_roce.done, memory_order_relaxed))
        return;
    struct sw_roce_qp *r = atomic_exchange(&sw_roce.done, NULL), *next;
    for (; r; r = next) {
        next = r->next;
        if (r->receives)
            sw_responder_release(&r->responder);
        free(r->ring);
        free(r);
    }
}

static uint32_t receive_packets(bool all, bool is_polled, uint64_t now_ns)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    free_buried();
    if (__builtin_expect(sw_faults_live != NULL, 0))
        sw_roce_impair_release(now_ns);
    sw_batch_gather(&sw_roce.port);
    uint32_t count = sw_port_receive(&sw_roce.port, now_ns, all);
    if (all && sw_port_is_drained(&sw_roce.port))
        atomic_store_explicit(&sw_roce.heard_ns, now_ns, memory_order_relaxed);
    sw_roce_deliver_end(is_polled);
    sw_batch_gather_end();
    if (count)
        atomic_store_explicit(&sw_roce.moved_ns, now_ns, memory_order_relaxed);
    return count;
}

void sw_roce_receive_all(uint64_t now_ns)
{
    receive_packets(true, false, now_ns);
}

void sw_roce_hand_on(void)
{
    if (!atomic_load_explicit(&sw_roce.open, memory_order_acquire) ||
        !sw_lock_try(&sw_roce.port.rx_lock))
        return;
    receive_packets(true, false, sw_clock_ns());
    sw_lock_release(&sw_roce.port.rx_lock);
}

/* The port looks for no packets of it any more. */
static void roce_strike_off(struct sw_qp *qp)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    sw_qp_set_remove(&sw_roce.listed, qp->index);
    atomic_store(&sw_roce.qps[qp->index], NULL);
    change_wired(qp, -1u);
}

void sw_roce_forget(struct sw_qp *qp)
{
    if (!atomic_load_explicit(&sw_roce.open, memory_order_acquire) ||
        atomic_load(&sw_roce.qps[qp->index]) != qp)
        return;
    sw_lock_acquire(&sw_roce.port.rx_lock);
    sw_delayed_ack_send(false);
    sw_delayed_ack_forget(qp);
    /* Requests that have come are acknowledged, as hardware would have done by now. */
    receive_packets(true, false, sw_clock_ns());
    roce_strike_off(qp);
    sw_lock_release(&sw_roce.port.rx_lock);
}

bool sw_roce_unlist(struct sw_qp *qp)
{
    sw_mutex_assert_held(&sw_nic.lock);
    if (!sw_roce_is_listed(qp))
        return true;
    if (!sw_lock_try(&sw_roce.port.rx_lock)) /* who receives may want the NIC's lock */
        return false;
    const bool has_lock = sw_lock_try(&qp->lock);
    if (has_lock && qp->link != &sw_roce_qp_ops) /* it was not connected anew meanwhile */
        roce_strike_off(qp);
    if (has_lock)
        sw_lock_release(&qp->lock);
    sw_lock_release(&sw_roce.port.rx_lock);
    return has_lock;
}

/* Packets that wait in the sockets of the port are for other processes, too. */
static void leave_port(uint64_t until_ns)
{
    uint64_t now_ns = sw_clock_ns();
    sw_port_leave(&sw_roce.port);
    while ((receive_packets(true, false, now_ns) || sw_roce.port.due_ns != UINT64_MAX) &&
           (now_ns = sw_clock_ns()) < until_ns)
        ;
}

/* A program that ends with the message it waited for need not destroy anything first. The priority
 * has it run after the destructors without one, of programs that still want to hear something. */
__attribute__((destructor(1000))) static void acknowledge_at_exit(void)
{
    if (!atomic_load_explicit(&sw_roce.open, memory_order_acquire))
        return;
    /* Not for ever: it may be this thread that holds the locks, in a signal handler. */
    const uint64_t until_ns = sw_clock_ns() + LINGER_NS;
    for (bool has_more = true; has_more && sw_clock_ns() < until_ns; sched_yield()) {
        if (!sw_lock_try(&sw_roce.port.rx_lock))
            continue;
        sw_delayed_ack_send(false);
        has_more = sw_delayed_ack_any_waits();
        if (!has_more)
            leave_port(until_ns);
        sw_lock_release(&sw_roce.port.rx_lock);
    }
}

static bool is_time(uint64_t now_ns)
{
    return now_ns >= atomic_load_explicit(&sw_roce.due_ns, memory_order_relaxed);
}

/* Drives a QP whose timer has run out. Returns when to try again; UINT64_MAX: it has been driven,
 * and has said when it wants to be the next time. */
static uint64_t drive_due(uint32_t index, uint64_t now_ns)
{
    struct sw_qp *qp = atomic_load_explicit(&sw_roce.qps[index], memory_order_acquire);
    if (!qp)
        return UINT64_MAX;
    if (!sw_lock_try(&qp->lock))
        return now_ns + SW_HANDOFF_LOOK_NS / 10;
    atomic_store(&sw_roce.timers[index], UINT64_MAX);
    if (qp->link == &sw_roce_qp_ops) {
        sw_roce_run_gaps(qp->link_state, now_ns);
        sw_roce_claim_own_flow(qp, now_ns);
        qp->link->progress(qp);
    }
    sw_lock_release(&qp->lock);
    return UINT64_MAX;
}

/* There may be thousands of QPs: only those are touched whose timers have run out. */
static void run_timers(uint64_t now_ns)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    uint64_t next_ns = UINT64_MAX;
    if (!is_time(now_ns))
        return;
    sw_roce.timers_ns = now_ns;
    atomic_store(&sw_roce.due_ns, UINT64_MAX);
    for (uint32_t i = sw_qp_set_next(&sw_roce.listed, 0); i < SW_MAX_QP;
         i = sw_qp_set_next(&sw_roce.listed, i + 1)) {
        const uint64_t due_ns = atomic_load(&sw_roce.timers[i]);
        next_ns = sw_min_u64(next_ns, due_ns > now_ns ? due_ns : drive_due(i, now_ns));
    }
    sw_roce_wake_at(next_ns);
}

void sw_roce_nudge(void)
{
    if (!atomic_load_explicit(&sw_roce.is_steady, memory_order_relaxed))
        sw_engine_nudge();
}

void sw_roce_note_post(uint64_t now_ns)
{
    atomic_store_explicit(&sw_roce.moved_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&sw_roce.signs.posted_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&sw_roce.signs.cpu, sched_getcpu(), memory_order_relaxed);
}

bool sw_roce_expects_packets(uint64_t now_ns)
{
    const uint64_t moved_ns = atomic_load_explicit(&sw_roce.moved_ns, memory_order_relaxed);
    return atomic_load_explicit(&sw_roce.connected, memory_order_relaxed) ||
           !sw_poll_pace_is_quiet(moved_ns, now_ns);
}

/* Whether the poll that has found so much is to give its processor away. */
static bool gives_way(uint32_t received, bool is_expected, uint64_t now_ns)
{
    const uint64_t returned_ns = atomic_load_explicit(&sw_roce.returned_ns, memory_order_relaxed);
    return (is_expected || received) &&
           sw_poll_pace_yields(&sw_roce.pace, received, returned_ns, now_ns);
}

static void watch_port(void)
{
    sw_port_watch_begin(&sw_roce.watch, sw_roce.port.epoll);
}

/* A program that looks at its memory polls now and then: for its peers' sake the watch stays. */
static bool is_watch_vain(uint32_t received, uint64_t now_ns)
{
    return sw_port_watch_is_vain(&sw_roce.watch, received, now_ns) &&
           !sw_handoff_is_served(
               atomic_load_explicit(&sw_roce.signs.served_ns, memory_order_relaxed), now_ns);
}

/* The engine looks from now on whether the program polls, as it sleeps through its packets. */
static void end_watch(void)
{
    if (sw_port_watch_end(&sw_roce.watch, sw_roce.port.epoll, &sw_roce.signs.sleeps))
        sw_engine_nudge();
}

uint32_t sw_roce_take_in(bool all, uint64_t now_ns)
{
    const bool runs_timers = is_time(now_ns) && now_ns >= sw_roce.timers_ns + TIMERS_NS;
    const uint32_t received = receive_packets(all || runs_timers, true, now_ns);
    if (runs_timers)
        run_timers(now_ns);
    if (!received)
        sw_delayed_ack_note_empty_poll();
    return received;
}

void sw_roce_poll(bool waits)
{
    if (!atomic_load_explicit(&sw_roce.open, memory_order_acquire))
        return;
    uint64_t now_ns = sw_clock_ns();
    atomic_store_explicit(&sw_roce.signs.polled_ns, now_ns, memory_order_relaxed);
    if (!atomic_load_explicit(&sw_roce.is_attended, memory_order_relaxed))
        atomic_store_explicit(&sw_roce.is_attended, true, memory_order_relaxed);
    if (!waits && atomic_load_explicit(&sw_roce.signs.sleeps, memory_order_relaxed))
        atomic_store_explicit(&sw_roce.signs.sleeps, false, memory_order_relaxed);
    const bool is_expected = sw_roce_expects_packets(now_ns);
    if (!is_expected && !waits &&
        !sw_poll_pace_glances(atomic_load_explicit(&sw_roce.looked_ns, memory_order_relaxed),
                              now_ns))
        return;
    atomic_store_explicit(&sw_roce.looked_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&sw_roce.signs.cpu, sched_getcpu(), memory_order_relaxed);
    if (waits) {
        sw_lock_acquire(&sw_roce.port.rx_lock);
        now_ns = sw_clock_ns();
    } else if (!sw_lock_try(&sw_roce.port.rx_lock)) {
        return;
    }
    sw_cq_hold_events();
    const uint32_t received = sw_roce_take_in(false, now_ns);
    const bool yields = gives_way(received, is_expected, now_ns),
               is_vain = sw_port_watch_is_on(&sw_roce.watch) && is_watch_vain(received, now_ns);
    sw_lock_release(&sw_roce.port.rx_lock);
    sw_cq_release_events();
    if (__builtin_expect(is_vain, 0))
        end_watch();
    if (!yields)
        return;
    sched_yield();
    atomic_store_explicit(&sw_roce.returned_ns, sw_clock_ns(), memory_order_relaxed);
}

/* The engine takes the timers back. */
static void end_steadiness(void)
{
    if (atomic_load_explicit(&sw_roce.is_steady, memory_order_relaxed) &&
        atomic_exchange(&sw_roce.is_steady, false))
        sw_engine_kick();
}

void sw_roce_take_over(void)
{
    atomic_store(&sw_roce.signs.sleeps, false);
    if (!atomic_load_explicit(&sw_roce.is_attended, memory_order_relaxed))
        atomic_store_explicit(&sw_roce.is_attended, true, memory_order_relaxed);
    if (sw_port_watch_is_on(&sw_roce.watch))
        end_watch();
    sw_engine_nudge(); /* it looks now and then whether the thread still does */
    end_steadiness();
}

/* The engine is not woken for it: it would find nothing, on the program's own processor. The next
 * packet wakes it. */
void sw_roce_mind(void)
{
    if (!atomic_load_explicit(&sw_roce.open, memory_order_acquire))
        return;
    if (sw_roce_attends()) {
        sw_engine_nudge();
        return;
    }
    if (sw_delayed_ack_any_unseen()) {
        sw_lock_acquire(&sw_roce.port.rx_lock);
        sw_delayed_ack_send(false);
        sw_lock_release(&sw_roce.port.rx_lock);
    }
    atomic_store(&sw_roce.signs.sleeps,
                 true); /* before it is seen if the port is watched: see on_port() */
    watch_port();
    end_steadiness();
}

void sw_roce_catch_up(void)
{
    if (!atomic_load_explicit(&sw_roce.open, memory_order_acquire))
        return;
    sw_lock_acquire(&sw_roce.port.rx_lock);
    sw_delayed_ack_send(false);
    for (int i = 0; i < SETTLE_ROUNDS && receive_packets(true, false, sw_clock_ns()); i++)
        ;
    sw_lock_release(&sw_roce.port.rx_lock);
}

static void on_port(uint64_t what)
{
    (void)what;
    sw_port_watch_told(&sw_roce.watch); /* then step_engine() reads `sleeps` */
    sw_handoff_wake(&sw_roce.handoff);
}

/* The engine leaves the processor of the thread that polls, or posted a moment ago, to it. */
static void mind_program(const struct sw_handoff *handoff, const struct sw_handoff_seen *seen,
                         uint64_t now_ns)
{
    if (handoff->receiver == SW_RECEIVER_ENGINE && !seen->sleeps)
        atomic_store_explicit(&sw_roce.is_attended, false, memory_order_relaxed);
    switch (sw_handoff_keep_off(handoff, seen, now_ns)) {
    case SW_KEEP_OFF_NONE:
        sw_engine_keep_off(-1);
        break;
    case SW_KEEP_OFF_PROGRAM:
        sw_engine_keep_off(atomic_load_explicit(&sw_roce.signs.cpu, memory_order_relaxed));
        break;
    case SW_KEEP_OFF_AS_BEFORE:
        break;
    }
}

/* What has come. `is_due`: all that waits must have been heard for what follows. True: look again
 * at once, since it does not sleep after packets came. */
static bool receive_arrivals(struct sw_handoff *handoff, bool is_due, uint64_t now_ns)
{
    /* The engine has heard lately of the sockets that matter, unless it has slept meanwhile. */
    const enum sw_intake intake =
        sw_handoff_intake(handoff, is_due, sw_engine_spins() || sw_roce.amid_until_ns);
    if (intake == SW_INTAKE_NOTHING)
        return false;
    const uint32_t mads = sw_roce.mads,
                   received = receive_packets(intake == SW_INTAKE_ALL, false, sw_clock_ns());
    /* A program that manages connections sleeps between their messages. */
    const bool comes_again =
        received > sw_roce.mads - mads && handoff->receiver == SW_RECEIVER_ENGINE;
    if (comes_again)
        atomic_store_explicit(&sw_roce.busy, true, memory_order_relaxed);
    sw_handoff_learn(handoff, received, now_ns);
    return comes_again;
}

/* Closes sockets that are idle. Returns when to look again: a process that sleeps is woken for it,
 * or it would hold them until its next packet. What was opened since the last look gets another. */
static uint64_t tidy_port(uint64_t now_ns)
{
    if (now_ns - sw_roce.tidy_ns < TIDY_NS)
        return sw_roce.tidy_ns + TIDY_NS;
    const bool has_receiving = sw_port_tidy(&sw_roce.port, now_ns),
               has_sending = sw_connected_sender_tidy(now_ns);
    sw_roce.tidy_ns = now_ns;
    return has_receiving || has_sending ? now_ns + TIDY_NS : UINT64_MAX;
}

/* The port's and the lifelines' work but receiving; returns when they are due again. */
static uint64_t step_port(bool owes, uint64_t now_ns)
{
    if (owes && sw_port_is_drained(&sw_roce.port)) {
        sw_delayed_ack_send(false); /* who is told that this process runs has its ACKs */
        sw_lifeline_answer();
    }
    const uint64_t lifeline_due_ns = sw_lifeline_step(now_ns);
    if (sw_faults_live)
        sw_roce_impair_plan();
    const uint64_t tidy_due_ns = tidy_port(now_ns);
    return sw_min_u64(sw_min_u64(sw_roce.port.due_ns, lifeline_due_ns), tidy_due_ns);
}

/* When the timers of QPs are due; a program that posts again need not ring for its timer. */
static uint64_t timers_due_ns(uint64_t posted_ns, uint64_t now_ns)
{
    const uint64_t due_ns = atomic_load_explicit(&sw_roce.due_ns, memory_order_relaxed);
    return now_ns < posted_ns + RECENT_NS ? sw_min_u64(due_ns, now_ns + SW_HANDOFF_LOOK_NS)
                                          : due_ns;
}

static uint64_t step_engine(uint64_t now_ns)
{
    if (!atomic_load_explicit(&sw_roce.open, memory_order_acquire))
        return UINT64_MAX;
    struct sw_handoff *handoff = &sw_roce.handoff;
    const struct sw_handoff_seen seen = sw_roce_signs_read(&sw_roce.signs);
    const enum sw_receiver receiver = sw_handoff_look(handoff, &seen, now_ns);
    mind_program(handoff, &seen, now_ns);
    if (!sw_lock_try(&sw_roce.port.rx_lock)) { /* somebody receives */
        const uint64_t again_ns = sw_handoff_yield(handoff, now_ns);
        if (!sw_lifeline_is_due(now_ns))
            return again_ns;
        sw_lock_acquire(&sw_roce.port.rx_lock); /* and may not have a processor meanwhile */
    }
    sw_cq_hold_events();
    const bool owes = sw_lifeline_owes();
    const bool is_due = is_time(now_ns) || now_ns >= sw_roce.port.due_ns || owes;
    const bool comes_again = receive_arrivals(handoff, is_due, now_ns);
    const uint64_t acks_due_ns = sw_delayed_ack_step(now_ns);
    free_buried();
    run_timers(now_ns);
    uint64_t due_ns = step_port(owes, now_ns);
    const bool is_amid = now_ns < sw_roce.amid_until_ns;
    atomic_store_explicit(&sw_roce.is_steady, receiver == SW_RECEIVER_STEADY, memory_order_relaxed);
    sw_lock_release(&sw_roce.port.rx_lock);
    if (sw_cq_release_events())
        sched_yield(); /* the program answers before the engine gets ready to sleep */
    if (sw_receiver_is_engine(receiver)) {
        if (is_amid) /* the program waits for the rest, too, so nothing is lost by looking */
            return now_ns;
        if (!(comes_again && sw_engine_goes_on()))
            watch_port();
    }
    if (receiver != SW_RECEIVER_STEADY) /* which runs them itself */
        due_ns = sw_min_u64(due_ns, timers_due_ns(seen.posted_ns, now_ns));
    return sw_min_u64(due_ns, sw_handoff_due_ns(handoff, acks_due_ns));
}

static bool roce_wants_step(void)
{
    if (!atomic_load(&sw_roce.open))
        return false;
    const bool has_timers =
        !sw_port_watch_is_on(&sw_roce.watch) || atomic_load(&sw_roce.due_ns) != UINT64_MAX;
    return atomic_load(&sw_roce.done) || sw_lifeline_wants() ||
           (has_timers && !atomic_load(&sw_roce.is_steady));
}

static bool roce_was_busy(void)
{
    return atomic_exchange_explicit(&sw_roce.busy, false, memory_order_relaxed);
}

static const struct sw_engine_part engine_part = {
    .step = step_engine, .wants = roce_wants_step, .was_busy = roce_was_busy};

void sw_roce_start(void)
{
    sw_engine_add(&engine_part);
    sw_engine_handle(SW_WATCH_PORT, on_port);
    sw_lifeline_start(&sw_roce.port);
    if (sw_faults_live)
        sw_roce_impair_start();
}

static int open_port(bool is_needed)
{
    int rc = sw_port_open(&sw_roce.port, SW_ROCE_PORT, sw_nic.slot, sw_roce_deliver, NULL);
    if (rc == -EADDRINUSE && is_needed)
        sw_port_tell_holder(SW_ROCE_PORT, true);
    if (rc)
        return rc;
    struct sw_roce_kept *kept =
        mmap(NULL, sizeof(*kept), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (kept == MAP_FAILED) {
        sw_port_close(&sw_roce.port);
        return -ENOMEM;
    }
    sw_roce.kept = kept;
    sw_early_pool_init(&sw_roce.pool, kept->slots, kept->copies, EARLY_SLOTS);
    sw_roce.watch = (struct sw_port_watch){0};
    atomic_store_explicit(&sw_roce.open, true, memory_order_release);
    sw_roce_group_open();
    sw_engine_nudge();
    return 0;
}

int sw_roce_open(bool is_needed)
{
    pthread_mutex_lock(&open_lock);
    int rc = atomic_load(&sw_roce.open) ? 0 : open_port(is_needed);
    pthread_mutex_unlock(&open_lock);
    return rc;
}

void sw_roce_fork_child(void)
{
    pthread_mutex_init(&open_lock, NULL);
    sw_roce_group_fork_child();
    sw_lifeline_fork_child();
    if (!atomic_exchange(&sw_roce.open, false))
        return;
    sw_roce_impair_fork_child();
    sw_delayed_ack_fork_child();
    sw_batch_fork_child();
    sw_port_close(&sw_roce.port); /* the QPs' states are the parent's: left alone */
    sw_roce.port.rx_lock = (struct sw_lock){0};
    if (sw_roce.kept)
        munmap(sw_roce.kept, sizeof(*sw_roce.kept));
    sw_roce.kept = NULL;
    atomic_store(&sw_roce.done, NULL);
    atomic_store(&sw_roce.due_ns, UINT64_MAX);
    atomic_store(&sw_roce.connected, 0);
    atomic_store(&sw_roce.signs.sleeps, false);
    for (uint32_t i = 0; i < SW_MAX_QP; i++) {
        sw_qp_set_remove(&sw_roce.listed, i);
        atomic_store(&sw_roce.qps[i], NULL);
    }
}
