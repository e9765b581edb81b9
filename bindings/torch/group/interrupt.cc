/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SIGINT has a handler here, in front of the one that is there, which it calls. It wakes a thread.
 * That one asks the main thread, by a call that Python makes between two steps of a program, behind
 * handlers of signals. If that does not come, the main thread is in a wait of torch's, or computes.
 */
#include "torch/group/interrupt.hpp"

#include <cerrno>
#include <csignal>
#include <pthread.h>
#include <semaphore.h>
#include <set>
#include <time.h>
#include <unistd.h>

#include <pybind11/pybind11.h>

namespace sidewire_torch
{

static const unsigned MAIN_THREAD_MAY_TAKE_MS = 300, LOOK_EVERY_MS = 5;

/* Never freed, as threads outlive the library's own variables. */
struct Interrupts {
    std::mutex lock;
    std::set<c10::intrusive_ptr<Work>> works; /* with futures that have not ended */
    pid_t process = 0;                        /* which the thread is of */
    std::atomic<bool> is_ended{false};
};

static Interrupts &interrupts()
{
    static Interrupts *const all = new Interrupts;
    return *all;
}

static sem_t came;
static struct sigaction before; /* what the handler calls */
static volatile sig_atomic_t is_inside;
static std::atomic<unsigned> asked{0}, answered{0};

/* Somebody may have put a handler in front of this one, and this one in front of that again. */
static void note_interrupt(int number, siginfo_t *info, void *context)
{
    if (is_inside)
        return;
    is_inside = 1;
    const int error = errno;
    sem_post(&came);
    errno = error;
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else
        before.sa_handler(number);
    is_inside = 0;
}

/* A program may have changed it since. Where none is there a SIGINT ends the process, or nothing.
 */
static void handle_interrupts()
{
    struct sigaction now;
    if (sigaction(SIGINT, nullptr, &now))
        return;
    const bool is_own = now.sa_flags & SA_SIGINFO && now.sa_sigaction == note_interrupt;
    if (is_own ||
        (!(now.sa_flags & SA_SIGINFO) && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)))
        return;
    before = now;
    now.sa_flags |= SA_SIGINFO;
    now.sa_sigaction = note_interrupt;
    sigaction(SIGINT, &now, nullptr);
}

/* A handler that does not raise is none to end a wait for. Its exceptions are not known before. */
static bool handler_raises()
{
    namespace py = pybind11;
    py::gil_scoped_acquire lock;
    try {
        py::module_ signal = py::module_::import("signal");
        return signal.attr("getsignal")(SIGINT).is(signal.attr("default_int_handler"));
    } catch (py::error_already_set &) {
        return false;
    }
}

static int answer_question(void *)
{
    answered.store(asked.load());
    return 0;
}

static bool has_futures()
{
    Interrupts &all = interrupts();
    std::lock_guard<std::mutex> guard(all.lock);
    return !all.is_ended && !all.works.empty();
}

static void interrupt_futures()
{
    Interrupts &all = interrupts();
    std::set<c10::intrusive_ptr<Work>> works;
    {
        std::lock_guard<std::mutex> guard(all.lock);
        works.swap(all.works);
    }
    for (const auto &work : works)
        work->interrupt();
}

/* A wait may begin after the interrupt, as long as the main thread has not come to its handler. */
static void follow_interrupt()
{
    const unsigned question = asked.fetch_add(1) + 1;
    unsigned waited_ms = 0;
    if (Py_AddPendingCall(answer_question, nullptr))
        return; /* there are too many: nothing is known */
    while (answered.load() < question && !interrupts().is_ended.load()) {
        if (waited_ms >= MAIN_THREAD_MAY_TAKE_MS && has_futures() && handler_raises())
            interrupt_futures();
        usleep(LOOK_EVERY_MS * 1000);
        waited_ms += LOOK_EVERY_MS;
    }
}

static void *interrupts_thread(void *)
{
    for (;;) {
        while (sem_wait(&came))
            continue;
        follow_interrupt();
    }
    return nullptr;
}

/* With the lock. The thread takes no signals. */
static bool start_interrupts(Interrupts &all)
{
    pthread_t thread;
    sigset_t every, old;
    if (all.process == getpid())
        return true;
    sem_init(&came, 0, 0);
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &old);
    const bool is_started = !pthread_create(&thread, nullptr, interrupts_thread, nullptr);
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    if (is_started) {
        pthread_detach(thread);
        all.process = getpid();
    }
    return is_started;
}

void watch_interrupts()
{
    Interrupts &all = interrupts();
    std::lock_guard<std::mutex> guard(all.lock);
    if (!all.is_ended && start_interrupts(all))
        handle_interrupts();
}

void watch_future(const c10::intrusive_ptr<Work> &work)
{
    Interrupts &all = interrupts();
    watch_interrupts();
    std::lock_guard<std::mutex> guard(all.lock);
    if (!all.is_ended)
        all.works.insert(work);
}

void forget_future(Work &work)
{
    Interrupts &all = interrupts();
    auto held = c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(&work);
    std::lock_guard<std::mutex> guard(all.lock);
    all.works.erase(held);
}

void end_interrupts()
{
    Interrupts &all = interrupts();
    std::set<c10::intrusive_ptr<Work>> works;
    std::lock_guard<std::mutex> guard(all.lock);
    all.is_ended = true;
    works.swap(all.works);
}

} // namespace sidewire_torch
