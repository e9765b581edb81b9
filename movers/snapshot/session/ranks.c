/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/serve/thread.h"
#include "sidewire/coll.h"
#include "snapshot/session/ranks.h"
#include "snapshot/session/status.h"

enum vote_state { VOTE_NONE, VOTE_ASKED, VOTE_ANSWERED };

struct snap_ranks {
    struct sw_coll *coll;
    uint32_t rank, world, timeout_ms;
    int wake_fd;
    struct snap_vote *all; /* of the thread */
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t asked;
    enum vote_state state;
    bool is_closing;
    struct snap_answer answer;   /* `mine` is what is asked */
    struct sw_snap_error broken; /* how the communicator has failed: nothing is asked any more */
};

static bool ranks_closing(struct snap_ranks *ranks)
{
    pthread_mutex_lock(&ranks->lock);
    const bool is_closing = ranks->is_closing;
    pthread_mutex_unlock(&ranks->lock);
    return is_closing;
}

/* Gathers the votes. What the communicator says of it; REVOKED: the handle is being closed. */
static enum sw_coll_status gather_votes(struct snap_ranks *ranks, const struct snap_vote *mine,
                                        struct sw_coll_error *error)
{
    const struct sw_coll_call call = {.kind = SW_COLL_ALL_GATHER,
                                      .type = SW_COLL_U8,
                                      .send = mine,
                                      .recv = ranks->all,
                                      .count = sizeof(*mine)};
    struct sw_coll_request *request;
    enum sw_coll_status status =
        sw_coll_post(ranks->coll, &call, sw_coll_deadline_ms(ranks->timeout_ms), error, &request);
    while (!status) {
        uint32_t which;
        status = sw_coll_wait_any(ranks->coll, &request, 1, 0, &which, error);
        if (ranks_closing(ranks))
            return SW_COLL_REVOKED;
        if (status == SW_COLL_OK)
            return sw_coll_test(request, error);
        if (status == SW_COLL_AGAIN)
            status = SW_COLL_OK;
    }
    return status;
}

/* What the votes come to. */
static void count_votes(const struct snap_ranks *ranks, struct snap_answer *answer)
{
    const struct snap_vote *mine = &answer->mine;
    struct sw_snap_error *error = &answer->error;
    uint32_t latest = ranks->rank;
    memcpy(answer->nonce, ranks->all[0].nonce, sizeof(answer->nonce));
    for (uint32_t i = 0; i < ranks->world; i++) {
        if (ranks->all[i].phase != mine->phase) {
            snap_error_set(error, SW_SNAP_OTHER_RANK, "rank %u is not where this one is", i);
            return;
        }
        if (ranks->all[i].step > ranks->all[latest].step)
            latest = i;
    }
    if (ranks->all[latest].step != mine->step) {
        snap_error_set(error, SW_SNAP_SKIPPED, "rank %u begins step %llu, this one %llu", latest,
                       (unsigned long long)ranks->all[latest].step, (unsigned long long)mine->step);
        return;
    }
    for (uint32_t i = 0; i < ranks->world; i++) {
        struct snap_vote *vote = &ranks->all[i];
        vote->why[sizeof(vote->why) - 1] = 0;
        if (vote->step != mine->step) { /* it comes to this step, or to a later one */
            snap_error_plain(error, SW_SNAP_AGAIN);
            return;
        }
        if (vote->status) {
            snap_error_set(error, SW_SNAP_OTHER_RANK, "rank %u: %s", i, vote->why);
            return;
        }
    }
    snap_error_plain(error, SW_SNAP_OK);
}

static void run_vote(struct snap_ranks *ranks, struct snap_answer *answer)
{
    struct sw_coll_error error;
    do {
        const enum sw_coll_status status = gather_votes(ranks, &answer->mine, &error);
        if (status) {
            snap_error_set(&answer->error, SW_SNAP_OTHER_RANK, "%s",
                           status == SW_COLL_REVOKED ? "the handle was closed" : error.text);
            ranks->broken = answer->error;
            return;
        }
        count_votes(ranks, answer);
    } while (answer->error.status == SW_SNAP_AGAIN);
}

static void *serve_votes(void *context)
{
    struct snap_ranks *ranks = context;
    pthread_mutex_lock(&ranks->lock);
    for (;;) {
        while (!ranks->is_closing && ranks->state != VOTE_ASKED)
            pthread_cond_wait(&ranks->asked, &ranks->lock);
        if (ranks->is_closing)
            break;
        struct snap_answer answer = ranks->answer;
        pthread_mutex_unlock(&ranks->lock);
        if (ranks->broken.status)
            answer.error = ranks->broken;
        else
            run_vote(ranks, &answer);
        pthread_mutex_lock(&ranks->lock);
        ranks->answer = answer;
        ranks->state = VOTE_ANSWERED;
        (void)!write(ranks->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    }
    pthread_mutex_unlock(&ranks->lock);
    return NULL;
}

enum sw_snap_status sw_snap_options_from_launcher(struct sw_snap_options *options,
                                                  struct sw_snap_error *error)
{
    struct sw_coll_options coll;
    struct sw_coll_error why;
    sw_coll_options_init(&coll);
    coll.timeout_ms = options->rank_timeout_ms;
    if (error)
        *error = (struct sw_snap_error){0};
    if (sw_coll_options_from_launcher(&coll, &why))
        return snap_error_set(error, SW_SNAP_INVALID, "%s", why.text);
    if (coll.size > SW_SNAP_RANKS_MAX)
        return snap_error_set(error, SW_SNAP_INVALID, "rank %u of %u; there are up to %d",
                              coll.rank, coll.size, SW_SNAP_RANKS_MAX);
    options->rank = coll.rank;
    options->world = coll.size;
    options->meet = NULL;
    return SW_SNAP_OK;
}

static enum sw_snap_status open_communicator(struct snap_ranks *ranks,
                                             const struct sw_snap_options *options,
                                             struct sw_snap_error *error)
{
    struct sw_coll_options coll;
    struct sw_coll_error why;
    sw_coll_options_init(&coll);
    coll.rank = options->rank;
    coll.size = options->world;
    coll.meet = options->meet;
    coll.timeout_ms = options->rank_timeout_ms;
    coll.spin_us = 0; /* the processor is the program's */
    if (!options->meet) {
        const enum sw_coll_status found = sw_coll_options_from_launcher(&coll, &why);
        if (!found && (coll.rank != options->rank || coll.size != options->world))
            return snap_error_set(error, SW_SNAP_INVALID,
                                  "the launcher says rank %u of %u, the options %u of %u",
                                  coll.rank, coll.size, options->rank, options->world);
        if (found)
            return snap_error_set(error, SW_SNAP_INVALID, "%s", why.text);
    }
    const enum sw_coll_status status = sw_coll_open(&coll, &why, &ranks->coll);
    if (!status)
        return SW_SNAP_OK;
    const enum sw_snap_status is = status == SW_COLL_NO_MEMORY ? SW_SNAP_NO_MEMORY
                                   : status == SW_COLL_ADDRESS ? SW_SNAP_ADDRESS
                                   : status == SW_COLL_VERSION ? SW_SNAP_VERSION
                                   : status == SW_COLL_INVALID ? SW_SNAP_INVALID
                                   : status == SW_COLL_SYSTEM  ? SW_SNAP_SYSTEM
                                                               : SW_SNAP_OTHER_RANK;
    return snap_error_set(error, is, "the ranks do not meet: %s", why.text);
}

/* Whether all could open their sinks. */
static enum sw_snap_status open_vote(struct snap_ranks *ranks, const struct sw_snap_error *mine,
                                     uint8_t nonce[16], struct sw_snap_error *error)
{
    struct snap_answer answer = {.mine = {.phase = SNAP_PHASE_OPEN, .status = mine->status}};
    memcpy(answer.mine.nonce, nonce, sizeof(answer.mine.nonce));
    snprintf(answer.mine.why, sizeof(answer.mine.why), "%.159s", mine->text);
    run_vote(ranks, &answer);
    if (answer.error.status)
        return snap_error_set(error, answer.error.status, "%s", answer.error.text);
    memcpy(nonce, answer.nonce, sizeof(answer.nonce));
    return SW_SNAP_OK;
}

enum sw_snap_status snap_ranks_open(const struct sw_snap_options *options, int wake_fd,
                                    const struct sw_snap_error *mine, uint8_t nonce[16],
                                    struct sw_snap_error *error, struct snap_ranks **ranks)
{
    struct snap_ranks *made = calloc(1, sizeof(*made));
    if (!made || !(made->all = calloc(options->world, sizeof(*made->all)))) {
        free(made);
        return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    }
    made->rank = options->rank;
    made->world = options->world;
    made->timeout_ms = options->rank_timeout_ms;
    made->wake_fd = wake_fd;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->asked, NULL);
    enum sw_snap_status status = open_communicator(made, options, error);
    if (!status)
        status = open_vote(made, mine, nonce, error);
    if (!status && mover_thread_start(&made->thread, serve_votes, made))
        status = snap_error_set(error, SW_SNAP_SYSTEM, "no thread for the ranks");
    if (status) {
        sw_coll_close(made->coll);
        snap_ranks_forget(made);
        return status;
    }
    *ranks = made;
    return SW_SNAP_OK;
}

void snap_ranks_forget(struct snap_ranks *ranks)
{
    if (!ranks)
        return;
    free(ranks->all);
    free(ranks);
}

void snap_ranks_close(struct snap_ranks *ranks)
{
    if (!ranks)
        return;
    pthread_mutex_lock(&ranks->lock);
    ranks->is_closing = true;
    pthread_cond_signal(&ranks->asked);
    pthread_mutex_unlock(&ranks->lock);
    sw_coll_wake(ranks->coll);
    pthread_join(ranks->thread, NULL);
    sw_coll_close(ranks->coll);
    pthread_cond_destroy(&ranks->asked);
    pthread_mutex_destroy(&ranks->lock);
    snap_ranks_forget(ranks);
}

void snap_ranks_ask(struct snap_ranks *ranks, const struct snap_vote *vote)
{
    pthread_mutex_lock(&ranks->lock);
    ranks->answer = (struct snap_answer){.mine = *vote};
    ranks->state = VOTE_ASKED;
    pthread_cond_signal(&ranks->asked);
    pthread_mutex_unlock(&ranks->lock);
}

bool snap_ranks_asking(struct snap_ranks *ranks)
{
    pthread_mutex_lock(&ranks->lock);
    const bool is_asking = ranks->state != VOTE_NONE;
    pthread_mutex_unlock(&ranks->lock);
    return is_asking;
}

bool snap_ranks_answer(struct snap_ranks *ranks, struct snap_answer *answer)
{
    pthread_mutex_lock(&ranks->lock);
    const bool is_there = ranks->state == VOTE_ANSWERED;
    if (is_there) {
        *answer = ranks->answer;
        ranks->state = VOTE_NONE;
    }
    pthread_mutex_unlock(&ranks->lock);
    return is_there;
}
