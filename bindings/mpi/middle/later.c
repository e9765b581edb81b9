/* SPDX-License-Identifier: BSD-2-Clause */
#include "later.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "settings.h"

struct mpm_later {
    struct mpm_work work;
    struct sw_coll_request *request;
    struct sw_coll_error error;
    enum sw_coll_status status;
    atomic_bool is_over;
    const void *kept; /* the type of a result that is unpacked at the end, as a program may free its
                       * own before; NULL: there is none */
    struct mpm_later *next;
};

/* Calls that are not over, in the order they were made. The lock guards the list, and each library
 * communicator that has one in it. Nobody calls MPI while holding it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpm_later *first, **last = &first;
static _Atomic uint32_t under_way;

void mpm_later_lock(void)
{
    pthread_mutex_lock(&lock);
}

void mpm_later_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* A thread that sees 0 may use communicators without the lock, and sees what others left there. */
uint32_t mpm_later_count(void)
{
    return atomic_load_explicit(&under_way, memory_order_acquire);
}

/* Lock held. The next one takes its place. */
static void leave_list(struct mpm_later **link)
{
    struct mpm_later *later = *link;
    *link = later->next;
    if (!later->next)
        last = link;
    later->work.group->later_count--;
    atomic_fetch_sub_explicit(&under_way, 1, memory_order_release);
    atomic_store_explicit(&later->is_over, true, memory_order_release);
}

/* Where one goes on, so have the ones before it: of each communicator only the first is asked. */
static void look_at_all(void)
{
    const struct mpm_group *waits = NULL;
    for (struct mpm_later **link = &first; *link;) {
        struct mpm_later *later = *link;
        if (later->work.group != waits)
            later->status = sw_coll_test(later->request, &later->error);
        if (later->work.group == waits || later->status == SW_COLL_AGAIN) {
            waits = later->work.group;
            link = &later->next;
        } else {
            leave_list(link);
        }
    }
}

void mpm_later_look(void)
{
    if (!mpm_later_count() || pthread_mutex_trylock(&lock))
        return;
    look_at_all();
    pthread_mutex_unlock(&lock);
}

bool mpm_later_is_over(const struct mpm_later *later)
{
    return atomic_load_explicit(&later->is_over, memory_order_acquire);
}

static bool keep_type(struct mpm_later *later)
{
    struct mpm_work *work = &later->work;
    if (!work->recv.is_copy || work->to.is.is_plain)
        return true;
    work->to.type = later->kept = work->recv.binding->keep_type(work->to.type);
    return later->kept != NULL;
}

static void free_later(struct mpm_later *later)
{
    if (later->kept)
        later->work.recv.binding->drop_type(later->kept);
    mpm_work_free(&later->work);
    free(later);
}

/* Lock held. */
static bool post_later(struct mpm_later *later, struct sw_coll_error *error)
{
    struct mpm_group *group = later->work.group;
    /* As of a call that blocks, there is no deadline. */
    if (sw_coll_post(group->coll, &later->work.call, sw_coll_deadline_ms(UINT32_MAX), error,
                     &later->request) != SW_COLL_OK)
        return false;
    later->next = NULL;
    *last = later;
    last = &later->next;
    group->later_count++;
    atomic_fetch_add_explicit(&under_way, 1, memory_order_relaxed);
    return true;
}

enum mpm_outcome mpm_later_begin(struct mpm_group *group, const struct mpm_call *call,
                                 struct sw_coll_error *error, struct mpm_later **out)
{
    if (group && group->state == MPM_NEW) {
        mpm_count_left(MPM_LEFT_EARLY);
        return MPM_NOT_OURS;
    }
    struct mpm_later *later = calloc(1, sizeof(*later));
    if (!later) {
        mpm_lack_memory(error);
        return MPM_FAILED;
    }
    enum mpm_outcome outcome = mpm_prepare(&later->work, group, call, error);
    if (outcome == MPM_NOT_OURS) {
        free(later);
        return outcome;
    }
    bool has_begun = outcome == MPM_DONE && (keep_type(later) || mpm_lack_memory(error));
    if (has_begun) {
        mpm_later_lock();
        has_begun = post_later(later, error);
        mpm_later_unlock();
    }
    if (!has_begun) {
        free_later(later);
        return MPM_FAILED;
    }
    *out = later;
    return MPM_DONE;
}

bool mpm_later_end(struct mpm_later *later, struct sw_coll_error *error)
{
    bool is_done = later->status == SW_COLL_OK;
    if (is_done)
        is_done = mpm_work_store(&later->work, error);
    else
        *error = later->error;
    free_later(later);
    return is_done;
}

void mpm_later_drain(struct mpm_group *group)
{
    for (;;) {
        mpm_later_lock();
        look_at_all();
        bool is_empty = !group->later_count;
        mpm_later_unlock();
        if (is_empty)
            return;
        group->binding->progress();
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

void mpm_later_forget(struct mpm_group *group)
{
    mpm_later_lock();
    for (struct mpm_later **link = &first; *link;) {
        struct mpm_later *later = *link;
        if (later->work.group == group) {
            later->status = later->error.status = SW_COLL_BROKEN;
            leave_list(link);
        } else {
            link = &later->next;
        }
    }
    mpm_later_unlock();
}
