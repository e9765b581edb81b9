/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PMIx, which mpirun of Open MPI and srun --mpi=pmix serve. Its library is loaded when a process
 * was started so, and not before: most hosts have none.
 *
 * Rank 0 puts where to meet, and the others get it, which waits until it is there. There is no
 * fence: a rank that never comes would hold up all others there without a word, while at the
 * meeting it is named. The library counts its users, so an MPI library of this process is not
 * disturbed.
 *
 * Most of the library's functions wait for the launcher without a bound, which may be stopped. So a
 * thread asks, and is left to itself when the time is up.
 */
#include <stdlib.h>

#include "collectives/launch/way.h"

bool coll_launch_has_pmix(void)
{
    return getenv("PMIX_RANK") && getenv("PMIX_NAMESPACE");
}

#ifndef HAVE_PMIX

enum sw_coll_status coll_launch_pmix(struct sw_coll_launch *launch, uint64_t deadline_ns,
                                     struct sw_coll_error *error)
{
    (void)launch, (void)deadline_ns;
    return coll_launch_say(error, SW_COLL_NOT_SUPPORTED,
                           "this build has no PMIx, by which the launcher would tell where rank 0 "
                           "is: set SIDEWIRE_COLL_MEET to HOST:PORT of rank 0");
}

#else

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <pmix.h>

#include "collectives/launch/meeting.h"
#include "common/time/clock.h"

#define PMIX_MEETING "sidewire.coll.meet"

/* A thread that comes to the deadline by itself has better words for it: it gets a moment more. */
enum { PMIX_RETRY_MS = 20, PMIX_LAST_WORD_MS = 500 };

struct pmix_calls {
    __typeof__(PMIx_Init) *init;
    __typeof__(PMIx_Finalize) *finalize;
    __typeof__(PMIx_Get) *get;
    __typeof__(PMIx_Get_nb) *get_later;
    __typeof__(PMIx_Put) *put;
    __typeof__(PMIx_Commit) *commit;
    __typeof__(PMIx_Error_string) *text;
};

/* What a thread tells, of the library or our own. It may do so after nobody waits any more, so it
 * is freed by the last of both. */
struct pmix_answer {
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool is_there, is_abandoned;
    /* The library's thread tells where rank 0 is. */
    pmix_status_t status;
    char word[COLL_MEETING_BYTES];
    /* Our own tells all. */
    struct pmix_calls calls;
    struct sw_coll_launch launch;
    uint64_t deadline_ns;
    struct sw_coll_error error;
    enum sw_coll_status end;
};

/* ---- the library ---- */

static enum sw_coll_status pmix_load(struct pmix_calls *calls, struct sw_coll_error *error)
{
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    const char *wrong = library ? NULL : dlerror();
    const struct {
        const char *name;
        void **to;
    } names[] = {
        {"PMIx_Init", (void **)&calls->init},         {"PMIx_Finalize", (void **)&calls->finalize},
        {"PMIx_Get", (void **)&calls->get},           {"PMIx_Get_nb", (void **)&calls->get_later},
        {"PMIx_Put", (void **)&calls->put},           {"PMIx_Commit", (void **)&calls->commit},
        {"PMIx_Error_string", (void **)&calls->text},
    };
    for (size_t i = 0; library && i < sizeof(names) / sizeof(names[0]); i++) {
        *names[i].to = dlsym(library, names[i].name);
        if (!*names[i].to)
            wrong = names[i].name;
    }
    if (!wrong)
        return SW_COLL_OK;
    return coll_launch_say(error, SW_COLL_NOT_SUPPORTED,
                           "a launcher with PMIx has started this process, and libpmix cannot be "
                           "used (%.100s): install libpmix2, or set SIDEWIRE_COLL_MEET",
                           wrong);
}

static enum sw_coll_status pmix_fail(const struct pmix_calls *calls, const char *what,
                                     pmix_status_t status, struct sw_coll_error *error)
{
    const char *text = calls->text(status);
    return coll_launch_say(error, SW_COLL_SYSTEM, "the launcher (PMIx): %s: %.100s", what,
                           text ? text : "it does not say why");
}

/* ---- answers of threads ---- */

static void free_answer(struct pmix_answer *answer)
{
    pthread_cond_destroy(&answer->told);
    pthread_mutex_destroy(&answer->lock);
    free(answer);
}

static struct pmix_answer *make_answer(void)
{
    struct pmix_answer *answer = calloc(1, sizeof(*answer));
    pthread_condattr_t attributes;
    if (!answer)
        return NULL;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&answer->lock, NULL);
    pthread_cond_init(&answer->told, &attributes);
    pthread_condattr_destroy(&attributes);
    return answer;
}

/* A thread that waits may free it after this. */
static void tell_pmix_answer(struct pmix_answer *answer)
{
    pthread_mutex_lock(&answer->lock);
    answer->is_there = true;
    pthread_cond_signal(&answer->told);
    const bool is_abandoned = answer->is_abandoned;
    pthread_mutex_unlock(&answer->lock);
    if (is_abandoned)
        free_answer(answer);
}

/* False: the time is up, and the answer is the thread's. */
static bool await_pmix_answer(struct pmix_answer *answer, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    pthread_mutex_lock(&answer->lock);
    while (!answer->is_there && mover_now_ns() < deadline_ns)
        pthread_cond_timedwait(&answer->told, &answer->lock, &until);
    const bool is_there = answer->is_there;
    answer->is_abandoned = !is_there;
    pthread_mutex_unlock(&answer->lock);
    return is_there;
}

/* ---- numbers ---- */

static bool pmix_number(const struct pmix_calls *calls, const pmix_proc_t *of, const char *key,
                        uint32_t *number)
{
    pmix_value_t *value = NULL;
    if (calls->get(of, key, NULL, 0, &value) != PMIX_SUCCESS || !value)
        return false;
    const bool is_short = value->type == PMIX_UINT16;
    const bool is_number = is_short || value->type == PMIX_UINT32;
    if (is_number)
        *number = is_short ? value->data.uint16 : value->data.uint32;
    free(value);
    return is_number;
}

static enum sw_coll_status pmix_numbers(const struct pmix_calls *calls, const pmix_proc_t *self,
                                        struct sw_coll_launch *launch, struct sw_coll_error *error)
{
    pmix_proc_t all = *self;
    all.rank = PMIX_RANK_WILDCARD;
    launch->rank = self->rank;
    if (!pmix_number(calls, &all, PMIX_JOB_SIZE, &launch->size))
        return coll_launch_say(error, SW_COLL_PROTOCOL,
                               "the launcher (PMIx) does not say of how many ranks this is one");
    if (launch->rank >= launch->size)
        return coll_launch_say(error, SW_COLL_PROTOCOL,
                               "the launcher (PMIx) says that this is rank %u of %u", launch->rank,
                               launch->size);
    if (!pmix_number(calls, &all, PMIX_LOCAL_SIZE, &launch->local_size))
        launch->local_size = 0;
    if (!pmix_number(calls, self, PMIX_LOCAL_RANK, &launch->local_rank))
        launch->local_rank = 0;
    return SW_COLL_OK;
}

/* ---- where to meet ---- */

static enum sw_coll_status pmix_tell(const struct pmix_calls *calls, struct sw_coll_launch *launch,
                                     struct sw_coll_error *error)
{
    char word[COLL_MEETING_BYTES];
    pmix_value_t value = {.type = PMIX_STRING, .data = {.string = word}};
    enum sw_coll_status status = coll_meeting_choose(launch, word, error);
    if (status)
        return status;
    pmix_status_t code = calls->put(PMIX_GLOBAL, PMIX_MEETING, &value);
    if (code == PMIX_SUCCESS)
        code = calls->commit();
    return code == PMIX_SUCCESS ? SW_COLL_OK : pmix_fail(calls, "it takes no address", code, error);
}

static void take_pmix_word(pmix_status_t status, pmix_value_t *value, void *context)
{
    struct pmix_answer *answer = context;
    const bool has_word = status == PMIX_SUCCESS && value && value->type == PMIX_STRING &&
                          value->data.string && strlen(value->data.string) < sizeof(answer->word);
    if (has_word)
        strcpy(answer->word, value->data.string);
    answer->status = status == PMIX_SUCCESS && !has_word ? PMIX_ERR_BAD_PARAM : status;
    tell_pmix_answer(answer);
}

/* Asks once, and waits. The word is there, or PMIX_ERR_TIMEOUT, or what the library says. */
static pmix_status_t pmix_ask_once(const struct pmix_calls *calls, const pmix_proc_t *first,
                                   uint64_t deadline_ns, char word[COLL_MEETING_BYTES])
{
    struct pmix_answer *answer = make_answer();
    if (!answer)
        return PMIX_ERR_NOMEM;
    pmix_status_t status = calls->get_later(first, PMIX_MEETING, NULL, 0, take_pmix_word, answer);
    if (status == PMIX_SUCCESS && !await_pmix_answer(answer, deadline_ns))
        return PMIX_ERR_TIMEOUT;
    if (status == PMIX_SUCCESS) {
        status = answer->status;
        memcpy(word, answer->word, COLL_MEETING_BYTES);
    }
    free_answer(answer);
    return status;
}

static enum sw_coll_status pmix_hear(const struct pmix_calls *calls, const pmix_proc_t *self,
                                     struct sw_coll_launch *launch, uint64_t deadline_ns,
                                     struct sw_coll_error *error)
{
    const struct timespec pause = {.tv_nsec = PMIX_RETRY_MS * 1000 * 1000};
    char word[COLL_MEETING_BYTES];
    pmix_proc_t first = *self;
    first.rank = 0;
    for (;;) {
        const pmix_status_t status = pmix_ask_once(calls, &first, deadline_ns, word);
        if (status == PMIX_SUCCESS)
            return coll_meeting_take(launch, word, error);
        if (mover_now_ns() >= deadline_ns)
            return coll_launch_say(error, SW_COLL_TIMEOUT,
                                   "rank 0 has not told the launcher in time where to meet");
        if (status != PMIX_ERR_NOT_FOUND)
            return pmix_fail(calls, "where is rank 0?", status, error);
        nanosleep(&pause, NULL);
    }
}

static const char *pmix_launcher(const char *space)
{
    if (getenv("OMPI_COMM_WORLD_SIZE"))
        return "Open MPI";
    return strncmp(space, "slurm.", 6) ? "the launcher" : "Slurm";
}

static enum sw_coll_status ask_pmix(struct pmix_answer *to)
{
    struct sw_coll_launch *launch = &to->launch;
    pmix_proc_t self = {.rank = PMIX_RANK_UNDEF};
    const pmix_status_t code = to->calls.init(&self, NULL, 0);
    if (code != PMIX_SUCCESS)
        return pmix_fail(&to->calls, "it cannot be reached", code, &to->error);
    enum sw_coll_status status = pmix_numbers(&to->calls, &self, launch, &to->error);
    snprintf(launch->launcher, sizeof(launch->launcher), "PMIx of %s", pmix_launcher(self.nspace));
    if (!status)
        status = launch->rank ? pmix_hear(&to->calls, &self, launch, to->deadline_ns, &to->error)
                              : pmix_tell(&to->calls, launch, &to->error);
    if (!status)
        to->calls.finalize(NULL, 0);
    return status;
}

static void *run_pmix(void *context)
{
    struct pmix_answer *answer = context;
    answer->end = ask_pmix(answer);
    tell_pmix_answer(answer);
    return NULL;
}

/* The thread has no signals of the program. */
static int start_pmix_thread(struct pmix_answer *answer)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t every, before;
    sigfillset(&every);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    const int code = pthread_create(&thread, &attributes, run_pmix, answer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return code;
}

enum sw_coll_status coll_launch_pmix(struct sw_coll_launch *launch, uint64_t deadline_ns,
                                     struct sw_coll_error *error)
{
    struct pmix_answer *answer = make_answer();
    if (!answer)
        return coll_launch_say(error, SW_COLL_SYSTEM, "out of memory");
    answer->launch = *launch;
    answer->deadline_ns = deadline_ns;
    enum sw_coll_status status = pmix_load(&answer->calls, error);
    const int code = status ? 0 : start_pmix_thread(answer);
    if (code)
        status =
            coll_launch_say(error, SW_COLL_SYSTEM, "no thread can be started: %s", strerror(code));
    if (!status && !await_pmix_answer(answer, deadline_ns + PMIX_LAST_WORD_MS * NS_PER_MS))
        return coll_launch_say(error, SW_COLL_TIMEOUT, "the launcher (PMIx) does not answer");
    if (!status) {
        status = answer->end;
        *launch = answer->launch;
        if (status && error)
            *error = answer->error;
    }
    free_answer(answer);
    return status;
}

#endif
