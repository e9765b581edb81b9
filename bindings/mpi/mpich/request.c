/* SPDX-License-Identifier: BSD-2-Clause */
#include "request.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "../middle/later.h"
#include "communicator.h"

/* As long as MPI waits for one it asks without pause: then the processor is given away at times,
 * and MPI goes on with its messages, which it does not by itself in such a wait. */
enum { LOOKS_BUSY = 512, LOOKS_PER_POKE = 256, NAP_NS = 100000 };

struct pending {
    struct mpm_later *later;
    MPI_Comm communicator;
    const struct mpm_binding *binding; /* the communicator may be freed meanwhile */
    MPI_Request request;
    bool is_taken; /* out of the list: a thread completes it, or has done so */
    bool has_failed;
    uint32_t looks;
    struct pending *next;
};

/* Requests that no thread completes, and how many some thread does. The lock guards both,
 * `is_taken` and the thread; nobody calls MPI with it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_work = PTHREAD_COND_INITIALIZER;
static struct pending *first_pending;
static uint32_t completing;
static pthread_t helper;
static bool has_helper, helper_ends;

/* Lock held. A thread that waits for it and one that frees its communicator may both find it over:
 * one of them takes it. */
static void request_take(struct pending *pending)
{
    struct pending **link = &first_pending;
    while (*link != pending)
        link = &(*link)->next;
    *link = pending->next;
    pending->is_taken = true;
    completing++;
}

/* By the thread that has taken it. */
static void complete_pending(struct pending *pending)
{
    struct sw_coll_error error = {0};
    const MPI_Comm communicator = pending->communicator;
    bool has_failed = !mpm_later_end(pending->later, &error);
    pending->has_failed = has_failed;
    MPP_REAL(Grequest_complete)(pending->request); /* a thread that waits for it may free it now */
    pthread_mutex_lock(&lock);
    completing--;
    pthread_mutex_unlock(&lock);
    if (has_failed)
        mpp_fail(communicator, &error);
}

static void request_pause(struct pending *pending)
{
    pending->looks += pending->looks <= LOOKS_BUSY;
    if (pending->looks > LOOKS_BUSY || pending->looks % LOOKS_PER_POKE == 0)
        pending->binding->progress();
    if (pending->looks > LOOKS_BUSY)
        sched_yield();
}

enum standing { UNDER_WAY, OVER, TAKEN };

/* Where it is over, it is this thread's to complete. */
static enum standing request_look(struct pending *pending)
{
    pthread_mutex_lock(&lock);
    enum standing standing = pending->is_taken                   ? TAKEN
                             : mpm_later_is_over(pending->later) ? OVER
                                                                 : UNDER_WAY;
    if (standing == OVER)
        request_take(pending);
    pthread_mutex_unlock(&lock);
    return standing;
}

/* Whether it is still under way. */
static bool request_go_on(struct pending *pending)
{
    mpm_later_look();
    enum standing standing = request_look(pending);
    if (standing == OVER)
        complete_pending(pending);
    else if (standing == UNDER_WAY)
        request_pause(pending);
    else
        sched_yield(); /* another thread completes it */
    return standing == UNDER_WAY;
}

static int poll_pending(void *state, MPI_Status *status)
{
    (void)status;
    request_go_on(state);
    return MPI_SUCCESS;
}

/* MPICH calls it again where a request is not complete yet. */
static int wait_pending(int count, void **states, double timeout_s, MPI_Status *status)
{
    (void)timeout_s, (void)status;
    for (int i = 0; i < count; i++)
        while (request_go_on(states[i]))
            ;
    return MPI_SUCCESS;
}

static int query_pending(void *state, MPI_Status *status)
{
    const struct pending *pending = state;
    MPP_REAL(Status_set_elements)(status, MPI_BYTE, 0);
    MPP_REAL(Status_set_cancelled)(status, 0);
    status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
    return pending->has_failed ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int free_pending(void *state)
{
    free(state);
    return MPI_SUCCESS;
}

static int request_refuse(void *state, int is_complete)
{
    (void)state, (void)is_complete;
    return MPI_ERR_REQUEST;
}

static void *help_on(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!helper_ends) {
        if (!mpm_later_count()) {
            pthread_cond_wait(&has_work, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        mpm_later_look();
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Lock held. Signals are for the program's own threads. */
static bool start_helper(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    has_helper = !pthread_create(&helper, NULL, help_on, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return has_helper;
}

bool mpp_request_start(struct mpm_later *later, MPI_Comm communicator, MPI_Request *request)
{
    struct pending *pending = calloc(1, sizeof(*pending));
    if (!pending)
        return false;
    pending->later = later;
    pending->communicator = communicator;
    const struct mpm_group *group = mpp_group(communicator);
    pending->binding = group->binding;
    pending->looks = group->must_yield ? LOOKS_BUSY : 0;
    __typeof__(PMPIX_Grequest_start) *start =
        (__typeof__(PMPIX_Grequest_start) *)mpp_find(MPP_Xgrequest_start);
    if (start(query_pending, free_pending, request_refuse, poll_pending, wait_pending, pending,
              request)) {
        free(pending);
        return false;
    }
    pending->request = *request;
    pthread_mutex_lock(&lock);
    pending->next = first_pending;
    first_pending = pending;
    bool is_helped = has_helper || start_helper();
    pthread_cond_signal(&has_work);
    pthread_mutex_unlock(&lock);
    return is_helped;
}

/* NULL: there is none, or other threads complete them. */
static struct pending *request_take_next(MPI_Comm communicator)
{
    pthread_mutex_lock(&lock);
    struct pending *found = first_pending;
    while (found && found->communicator != communicator)
        found = found->next;
    if (found)
        request_take(found);
    pthread_mutex_unlock(&lock);
    return found;
}

static bool are_completing(void)
{
    pthread_mutex_lock(&lock);
    bool are_there = completing;
    pthread_mutex_unlock(&lock);
    return are_there;
}

void mpp_requests_complete(struct mpm_group *group, MPI_Comm communicator)
{
    mpm_later_drain(group);
    for (struct pending *pending; (pending = request_take_next(communicator));)
        complete_pending(pending);
    while (are_completing()) /* by other threads, with the group */
        sched_yield();
}

void mpp_requests_end(void)
{
    pthread_mutex_lock(&lock);
    bool had_helper = has_helper;
    has_helper = false;
    helper_ends = true;
    pthread_cond_signal(&has_work);
    pthread_mutex_unlock(&lock);
    if (had_helper)
        pthread_join(helper, NULL);
}
