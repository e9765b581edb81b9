/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Being within an agent, and waiting. A thread that waits is in the agent only while it polls, and
 * sleeps outside, so others may post and cancel meanwhile. An event that one takes from the
 * descriptors may be what another sleeps for: a thread that ends a wait or changes something kicks
 * the others, and no sleep is longer than SLEEP_MS.
 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "module.h"

#define NS_PER_S 1000000000ull

/* Signals are looked for at least every ROUND_MS. */
enum { SLEEP_MS = 20, ROUND_MS = 100, YIELD_US = 20, YIELDS_MAX = 50 };

static unsigned generation;

static void enter_child(void)
{
    generation++;
}

void py_watch_forks(void)
{
    static bool is_watched;
    if (!is_watched)
        pthread_atfork(NULL, NULL, enter_child);
    is_watched = true;
}

unsigned py_generation(void)
{
    return generation;
}

bool py_is_forked(const struct py_agent *agent)
{
    return agent->generation != generation;
}

bool py_enter_quietly(struct py_stay *stay, struct py_agent *agent)
{
    if (py_is_forked(agent)) /* another thread of the parent may have had the lock */
        return false;
    *stay = (struct py_stay){.agent = agent, .thread = PyEval_SaveThread()};
    agent->callers++;
    pthread_mutex_lock(&agent->lock);
    agent->callers--;
    if (agent->handle)
        return true;
    py_leave(stay);
    return false;
}

static bool is_ending;
static pthread_t ended_by;

void py_end(void)
{
    is_ending = true;
    ended_by = pthread_self();
}

static const char closed_text[] = "the agent is closed";

/* While the interpreter ends, threads that still run are daemons: an exception of theirs would be
 * noise. They sleep until the process is gone. */
void py_raise_closed(const char *text)
{
    if (is_ending && !pthread_equal(ended_by, pthread_self())) {
        PyEval_SaveThread();
        for (;;)
            pause();
    }
    py_raise(SW_XFER_INVALID, text);
}

bool py_enter(struct py_stay *stay, struct py_agent *agent)
{
    if (py_enter_quietly(stay, agent))
        return true;
    if (py_is_forked(agent))
        py_raise(SW_XFER_FORKED, sw_xfer_status_text(SW_XFER_FORKED));
    else
        py_raise_closed(closed_text);
    return false;
}

void py_leave(struct py_stay *stay)
{
    pthread_mutex_unlock(&stay->agent->lock);
    PyEval_RestoreThread(stay->thread);
}

void py_kick(struct py_agent *agent)
{
    const uint64_t sleepers = agent->sleepers;
    if (sleepers && write(agent->kick_fd, &sleepers, sizeof(sleepers)) < 0)
        return; /* full of kicks: they are awake */
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

bool py_deadline(PyObject *seconds, uint64_t *deadline_ns)
{
    *deadline_ns = SW_XFER_NEVER;
    if (!seconds || seconds == Py_None)
        return true;
    const double from_now = PyFloat_AsDouble(seconds);
    if (from_now == -1.0 && PyErr_Occurred())
        return false;
    if (isnan(from_now)) {
        PyErr_SetString(PyExc_ValueError, "a time is a number of seconds");
        return false;
    }
    if (from_now < 1e9)
        *deadline_ns = now_ns() + (from_now > 0 ? (uint64_t)(from_now * 1e9) : 0);
    return true;
}

bool py_seconds(PyObject *args, PyObject *words, const char *name, uint64_t *deadline_ns)
{
    char *names[] = {(char *)name, NULL};
    PyObject *seconds = NULL;
    return PyArg_ParseTupleAndKeywords(args, words, "|O", names, &seconds) &&
           py_deadline(seconds, deadline_ns);
}

/* A lock of pthreads is not fair: a thread that takes it again at once keeps others out. */
static void let_others(struct py_agent *agent)
{
    for (int i = 0; i < YIELDS_MAX && agent->callers; i++)
        usleep(YIELD_US);
}

static void stay_sleep_for(struct py_agent *agent, int fd, uint64_t until_ns)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = agent->kick_fd, .events = POLLIN}};
    const uint64_t now = now_ns();
    const uint64_t left_ms = until_ns > now ? (until_ns - now + 999999) / 1000000 : 0;
    uint64_t kick;
    agent->sleepers++;
    poll(fds, 2, left_ms < SLEEP_MS ? (int)left_ms : SLEEP_MS);
    agent->sleepers--;
    if (fds[1].revents & POLLIN && read(agent->kick_fd, &kick, sizeof(kick)) < 0)
        return; /* another one has taken it */
}

enum waited { WAITS, READY, CLOSED };

static enum waited look_once(struct py_agent *agent, bool (*is_ready)(void *), void *arg,
                             bool wants_sleep, int *fd)
{
    enum waited waited = CLOSED;
    *fd = -1;
    pthread_mutex_lock(&agent->lock);
    if (agent->handle) {
        sw_xfer_poll(agent->handle);
        waited = is_ready(arg) ? READY : WAITS;
        if (waited == WAITS && wants_sleep && sw_xfer_arm(agent->handle))
            *fd = sw_xfer_fd(agent->handle);
    }
    pthread_mutex_unlock(&agent->lock);
    return waited;
}

static enum waited wait_round(struct py_agent *agent, bool (*is_ready)(void *), void *arg,
                              uint64_t deadline_ns, uint64_t spin_until_ns)
{
    enum waited waited;
    uint64_t now = now_ns();
    const uint64_t round_ns = now + ROUND_MS * 1000000ull;
    const uint64_t until_ns = deadline_ns < round_ns ? deadline_ns : round_ns;
    do {
        int fd;
        waited = look_once(agent, is_ready, arg, now >= spin_until_ns, &fd);
        if (fd >= 0)
            stay_sleep_for(agent, fd, until_ns);
        let_others(agent);
        now = now_ns();
    } while (waited == WAITS && now < until_ns);
    return waited;
}

int py_wait(struct py_agent *agent, bool (*is_ready)(void *arg), void *arg, uint64_t deadline_ns)
{
    const uint64_t spin_until_ns = now_ns() + agent->spin_us * 1000ull;
    enum waited waited;
    do {
        if (py_is_forked(agent)) {
            py_raise(SW_XFER_FORKED, sw_xfer_status_text(SW_XFER_FORKED));
            return -1;
        }
        PyThreadState *thread = PyEval_SaveThread();
        waited = wait_round(agent, is_ready, arg, deadline_ns, spin_until_ns);
        PyEval_RestoreThread(thread);
        if (waited == WAITS && PyErr_CheckSignals())
            return -1;
    } while (waited == WAITS && now_ns() < deadline_ns);
    py_kick(agent);
    if (waited == CLOSED)
        py_raise_closed(closed_text);
    return waited == CLOSED ? -1 : waited == READY;
}
