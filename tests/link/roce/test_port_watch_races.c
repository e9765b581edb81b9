/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All orders in which the engine, threads of the program and the network can meet at a port's
 * watch, with up to two switches that nobody waits for. However they meet, a packet must not be
 * left to an engine that sleeps.
 *
 * The real functions run, in threads of which one has its turn at a time. At each access to what
 * they share the turn may go to another one. The epoll is played.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/lock.h"
#include "link/engine.h"

static void take_turn(void);
static void wait_for(bool (*is_there)(void));

static bool is_unlocked(void);
static bool is_locked;

static void lock_watch(struct sw_lock *lock)
{
    (void)lock;
    take_turn();
    wait_for(is_unlocked);
    is_locked = true;
}

static void unlock_watch(struct sw_lock *lock)
{
    (void)lock;
    is_locked = false;
}

static struct { /* the engine's epoll, and what it says of the port's */
    bool is_armed;
    int packets;
} port;

static void arm_port(int fd, enum sw_watch_kind kind)
{
    (void)fd;
    (void)kind;
    take_turn();
    port.is_armed = true;
}

static void disarm_port(int fd, enum sw_watch_kind kind)
{
    (void)fd;
    (void)kind;
    take_turn();
    port.is_armed = false;
}

#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#define atomic_load(at) (take_turn(), atomic_load_explicit(at, memory_order_seq_cst))
#define atomic_store(at, value) \
    (take_turn(), atomic_store_explicit(at, value, memory_order_seq_cst))
#define atomic_exchange(at, value) \
    (take_turn(), atomic_exchange_explicit(at, value, memory_order_seq_cst))
#define sw_lock_acquire lock_watch
#define sw_lock_release unlock_watch
#define sw_engine_watch_once arm_port
#define sw_engine_watch_nothing disarm_port
#include "link/roce/port_watch.c" /* NOLINT: its accesses are counted */

/* ---- whose turn it is ---- */

enum { ACTORS_MAX = 4, POINTS_MAX = 200, SWITCHES_MAX = 2 };

typedef void (*actor_fn)(void);

static struct actor {
    actor_fn act;
    bool (*awaits)(void); /* not its turn before that; NULL: it can go on */
    bool is_done;
    pthread_t thread;
} actors[ACTORS_MAX];

static struct {
    int chosen, count;
} path[POINTS_MAX]; /* what was chosen at each point, of how many */

static int actor_count, current, depth, switches;
static bool is_over; /* nobody can go on */
static pthread_mutex_t baton = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t passed = PTHREAD_COND_INITIALIZER;
static _Thread_local int self;

static bool can_go(int at)
{
    return !actors[at].is_done && (!actors[at].awaits || actors[at].awaits());
}

/* The next path goes another way at the last point where there is one. */
static int choose_way(int count)
{
    assert_in_range(depth, 0, POINTS_MAX - 1);
    if (path[depth].count == 0)
        path[depth].count = count;
    assert_int_equal(path[depth].count, count);
    return path[depth++].chosen;
}

/* Chooses the actor that goes on: the current one first, if it can. */
static void pass_on(void)
{
    int able[ACTORS_MAX], count = 0;
    const bool goes_on = can_go(current);
    if (goes_on)
        able[count++] = current;
    for (int i = 0; i < actor_count && (!goes_on || switches < SWITCHES_MAX); i++)
        if (i != current && can_go(i))
            able[count++] = i;
    is_over = count == 0;
    if (is_over)
        return;
    const int next = able[count > 1 ? choose_way(count) : 0];
    switches += goes_on && next != current;
    current = next;
}

static void await_turn(void)
{
    pthread_cond_broadcast(&passed);
    while (current != self && !is_over)
        pthread_cond_wait(&passed, &baton);
    if (is_over) { /* it would wait for ever */
        pthread_mutex_unlock(&baton);
        pthread_exit(NULL);
    }
}

static void take_turn(void)
{
    pass_on();
    if (current != self || is_over)
        await_turn();
}

static void wait_for(bool (*is_there)(void))
{
    while (!is_there()) {
        actors[self].awaits = is_there;
        take_turn();
        actors[self].awaits = NULL;
    }
}

static bool is_unlocked(void)
{
    return !is_locked;
}

static void *run_actor(void *arg)
{
    self = (int)((struct actor *)arg - actors);
    pthread_mutex_lock(&baton);
    await_turn();
    actors[self].act();
    actors[self].is_done = true;
    pass_on();
    pthread_cond_broadcast(&passed);
    pthread_mutex_unlock(&baton);
    return NULL;
}

/* ---- the engine, the program and the network, as far as the watch is concerned ---- */

enum { LOOKS_MAX = 3 };

static struct sw_port_watch watch;
static atomic_bool sleeps, idle;
static bool was_kicked, looks; /* `looks`: the engine sleeps for a tick at most */
static int looked;

static bool engine_has_reason(void)
{
    return (port.is_armed && port.packets) || was_kicked || (looks && looked < LOOKS_MAX);
}

/* roce.c, step_engine() and roce_wants_step(); engine.c, wait_ns(). */
static void act_engine(void)
{
    for (;;) {
        wait_for(engine_has_reason);
        const bool is_told = port.is_armed && port.packets;
        looked += looks;
        was_kicked = false;
        if (is_told) {
            port.is_armed = false;
            sw_port_watch_told(&watch);
        }
        atomic_store(&idle, false);
        if (atomic_load(&sleeps)) {
            port.packets = 0;
            sw_port_watch_begin(&watch, 0);
        }
        atomic_store(&idle, true);
        looks = !atomic_load(&watch.is_on);
    }
}

static void poll_and_end(void)
{
    take_turn();
    port.packets = 0;
    if (sw_port_watch_end(&watch, 0, &sleeps) && atomic_load(&idle) &&
        atomic_exchange(&idle, false))
        was_kicked = true;
}

static void go_to_sleep(void)
{
    atomic_store(&sleeps, true);
    sw_port_watch_begin(&watch, 0);
}

static void poll_then_sleep(void)
{
    poll_and_end();
    go_to_sleep();
}

static void bring_packet(void)
{
    take_turn();
    port.packets++;
}

static void bring_two(void)
{
    bring_packet();
    bring_packet();
}

/* ---- all paths ---- */

static bool next_path(void)
{
    for (; depth > 0 && path[depth - 1].chosen + 1 == path[depth - 1].count; depth--)
        path[depth - 1].chosen = path[depth - 1].count = 0;
    if (depth == 0)
        return false;
    path[depth - 1].chosen++;
    return true;
}

static void begin_world(bool was_asleep, bool is_on)
{
    watch = (struct sw_port_watch){0};
    atomic_init(&watch.is_on, is_on);
    atomic_init(&sleeps, was_asleep);
    atomic_init(&idle, true);
    port.is_armed = is_on;
    port.packets = 0;
    is_locked = was_kicked = false;
    looks = !is_on;
    looked = current = depth = switches = 0;
    is_over = false;
}

static void run_actors(void)
{
    pthread_mutex_lock(&baton);
    current = -1;
    for (int i = 0; i < actor_count; i++) {
        actors[i].is_done = false;
        actors[i].awaits = NULL;
        assert_int_equal(pthread_create(&actors[i].thread, NULL, run_actor, &actors[i]), 0);
    }
    current = 0;
    pthread_cond_broadcast(&passed);
    pthread_mutex_unlock(&baton);
    for (int i = 0; i < actor_count; i++)
        pthread_join(actors[i].thread, NULL);
}

static void explore_paths(bool was_asleep, bool is_on, const actor_fn *acts, int count)
{
    actor_count = count;
    for (int i = 0; i < count; i++)
        actors[i].act = acts[i];
    memset(path, 0, sizeof(path));
    int paths = 0;
    do {
        begin_world(was_asleep, is_on);
        run_actors();
        paths++;
        /* Nobody can go on. The next packet has to wake the engine, or it looks by itself. */
        if (atomic_load_explicit(&sleeps, memory_order_relaxed) && port.packets && !looks)
            fail_msg("path %d: packets wait, and nobody receives", paths);
        if (atomic_load_explicit(&watch.is_on, memory_order_relaxed) && !port.is_armed)
            fail_msg("path %d: the watch is on, and no packet wakes the engine", paths);
    } while (next_path());
    printf("%d paths\n", paths);
    assert_true(paths > 100);
}

static void who_ends_it_meets_who_goes_to_sleep(void **state)
{
    (void)state;
    explore_paths(false, true, (actor_fn[]){act_engine, poll_and_end, go_to_sleep, bring_packet},
                  4);
}

static void who_ends_it_sleeps_already(void **state)
{
    (void)state;
    explore_paths(true, true, (actor_fn[]){act_engine, poll_and_end, bring_two}, 3);
}

static void one_thread_ends_it_and_sleeps(void **state)
{
    (void)state;
    explore_paths(false, true, (actor_fn[]){act_engine, poll_then_sleep, bring_two}, 3);
}

static void two_begin_it(void **state)
{
    (void)state;
    explore_paths(false, false, (actor_fn[]){act_engine, go_to_sleep, go_to_sleep, bring_packet},
                  4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_ends_it_meets_who_goes_to_sleep),
        cmocka_unit_test(who_ends_it_sleeps_already),
        cmocka_unit_test(one_thread_ends_it_and_sleeps),
        cmocka_unit_test(two_begin_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
