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
    struct mpm_later *later; /* NULL: it is complete */
    MPI_Comm communicator;
    MPI_Request request;
    bool has_failed;
    uint32_t looks;
    struct pending *next;
};

/* Those that are not complete. The lock guards list and thread; nobody calls MPI with it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_work = PTHREAD_COND_INITIALIZER;
static struct pending *first_pending;
static pthread_t helper;
static bool has_helper, helper_ends;

static void request_leave_list(const struct pending *pending)
{
    pthread_mutex_lock(&lock);
    struct pending **link = &first_pending;
    while (*link != pending)
        link = &(*link)->next;
    *link = pending->next;
    pthread_mutex_unlock(&lock);
}

static void complete_pending(struct pending *pending)
{
    struct sw_coll_error error = {0};
    request_leave_list(pending);
    const MPI_Comm communicator = pending->communicator;
    bool has_failed = !mpm_later_end(pending->later, &error);
    pending->has_failed = has_failed;
    pending->later = NULL;
    MPP_REAL(Grequest_complete)(pending->request); /* a thread that waits for it may free it now */
    if (has_failed)
        mpp_fail(communicator, &error);
}

static void request_pause(struct pending *pending)
{
    pending->looks += pending->looks <= LOOKS_BUSY;
    if (pending->looks > LOOKS_BUSY || pending->looks % LOOKS_PER_POKE == 0)
        mpp_group(pending->communicator)->binding->progress();
    if (pending->looks > LOOKS_BUSY)
        sched_yield();
}

static int poll_pending(void *state, MPI_Status *status)
{
    (void)status;
    struct pending *pending = state;
    if (!pending->later)
        return MPI_SUCCESS;
    mpm_later_look();
    if (mpm_later_is_over(pending->later))
        complete_pending(pending);
    else
        request_pause(pending);
    return MPI_SUCCESS;
}

static int wait_pending(int count, void **states, double timeout_s, MPI_Status *status)
{
    (void)timeout_s;
    for (int i = 0; i < count; i++) {
        const struct pending *pending = states[i];
        while (pending->later)
            poll_pending(states[i], status);
    }
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
    pending->looks = mpp_group(communicator)->must_yield ? LOOKS_BUSY : 0;
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

static struct pending *find_pending(MPI_Comm communicator)
{
    pthread_mutex_lock(&lock);
    struct pending *found = first_pending;
    while (found && found->communicator != communicator)
        found = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

void mpp_requests_complete(struct mpm_group *group, MPI_Comm communicator)
{
    mpm_later_drain(group);
    for (struct pending *pending; (pending = find_pending(communicator));)
        complete_pending(pending);
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
