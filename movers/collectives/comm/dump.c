/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "collectives/comm/failure.h"
#include "collectives/comm/page.h"
#include "collectives/dump/write.h"
#include "common/time/clock.h"

#define FOLDER_VARIABLE "SIDEWIRE_COLL_DUMP"
#define SIGNAL_VARIABLE "SIDEWIRE_COLL_DUMP_SIGNAL"

enum { DUMP_PATH = 1024, DUMP_LINE = DUMP_PATH + 200 };

/* ---- the signal: one for the process, as long as a communicator wants it ---- */

static pthread_mutex_t signal_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction action_before;
static int signal_taken; /* 0: none */
static uint32_t signal_users;
static uint32_t signals_come;

static void count_signal(int number, siginfo_t *info, void *context)
{
    __atomic_fetch_add(&signals_come, 1, __ATOMIC_RELAXED);
    if (action_before.sa_flags & SA_SIGINFO)
        action_before.sa_sigaction(number, info, context);
    else if (action_before.sa_handler != SIG_DFL && action_before.sa_handler != SIG_IGN)
        action_before.sa_handler(number);
}

/* The processor raises these: were the handler to return, the faulty instruction would run again,
 * for ever. */
static bool is_fault(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE;
}

static bool take_dump_signal(int number)
{
    struct sigaction action = {.sa_sigaction = count_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    bool is_taken = true;
    sigemptyset(&action.sa_mask);
    if (is_fault(number))
        return false;
    pthread_mutex_lock(&signal_lock);
    if (!signal_users)
        is_taken = !sigaction(number, NULL, &action_before) && !sigaction(number, &action, NULL);
    else
        is_taken = number == signal_taken;
    if (is_taken) {
        signal_taken = number;
        signal_users++;
    }
    pthread_mutex_unlock(&signal_lock);
    return is_taken;
}

/* A handler that the program has set since stays. */
static void give_signal_back(void)
{
    struct sigaction now;
    pthread_mutex_lock(&signal_lock);
    if (!--signal_users && !sigaction(signal_taken, NULL, &now) && now.sa_flags & SA_SIGINFO &&
        now.sa_sigaction == count_signal)
        sigaction(signal_taken, &action_before, NULL);
    pthread_mutex_unlock(&signal_lock);
}

/* "USR1", "SIGUSR1" or a number. 0: it is none that can be caught. */
static int signal_of_text(const char *text)
{
    char *end;
    const long number = strtol(text, &end, 10);
    if (!strncasecmp(text, "SIG", 3))
        text += 3;
    if (end != text && !*end)
        return number > 0 && number < SIGRTMAX && number != SIGKILL && number != SIGSTOP
                   ? (int)number
                   : 0;
    for (int i = 1; i < SIGSYS; i++) {
        const char *name = sigabbrev_np(i);
        if (name && !strcasecmp(name, text))
            return i == SIGKILL || i == SIGSTOP ? 0 : i;
    }
    return 0;
}

/* ---- one dump ---- */

static enum sw_coll_status say_no_recorder(struct sw_coll_error *error)
{
    return coll_say(error, SW_COLL_NOT_SUPPORTED,
                    "this communicator records nothing (" COLL_PAGE_OFF "=off)");
}

static json_t *make_dump(struct sw_coll *coll, enum coll_dump_why why)
{
    const struct coll_dump_case how = {.why = why, .now_ns = mover_now_ns()};
    coll_page_refresh(coll, how.now_ns, true);
    return coll_dump_make(coll->recorder, &how);
}

/* Says where it is. */
static void save_dump(struct sw_coll *coll, enum coll_dump_why why)
{
    char path[DUMP_PATH] = "", line[DUMP_LINE];
    if (!coll->recorder || !coll->dump_folder)
        return;
    const int code = coll_dump_save(make_dump(coll, why), &coll->recorder->page, coll->dump_folder,
                                    path, sizeof(path));
    if (code)
        snprintf(line, sizeof(line), "rank %u: no dump in %.900s: %s", coll->site.rank,
                 coll->dump_folder, strerror(-code));
    else
        snprintf(line, sizeof(line), "rank %u: its last operations are in %s", coll->site.rank,
                 path);
    coll_log(&coll->options, line);
}

enum sw_coll_status sw_coll_dump_fd(struct sw_coll *coll, int fd, struct sw_coll_error *error)
{
    if (mover_is_forked(&coll->guard))
        return coll_say(error, SW_COLL_FORKED, "%s", sw_coll_status_text(SW_COLL_FORKED));
    if (!coll->recorder)
        return say_no_recorder(error);
    const int code = coll_dump_write(make_dump(coll, COLL_DUMP_CALLED), fd);
    return code ? coll_say(error, SW_COLL_SYSTEM, "the dump was not written: %s", strerror(-code))
                : SW_COLL_OK;
}

enum sw_coll_status sw_coll_dump(struct sw_coll *coll, const char *path,
                                 struct sw_coll_error *error)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return coll_say(error, SW_COLL_SYSTEM, "%.150s: %s", path, strerror(errno));
    const enum sw_coll_status status = sw_coll_dump_fd(coll, fd, error);
    if (close(fd) && !status)
        return coll_say(error, SW_COLL_SYSTEM, "%.150s: %s", path, strerror(errno));
    return status;
}

/* ---- when ---- */

bool coll_dump_open(struct sw_coll *coll)
{
    const char *folder = coll->options.dump_folder, *said = secure_getenv(SIGNAL_VARIABLE);
    char line[160];
    int number = coll->options.dump_signal;
    if (!folder)
        folder = secure_getenv(FOLDER_VARIABLE);
    coll->options.dump_folder = NULL; /* the caller's text may be gone by the time of a split */
    if (!folder || !*folder)
        return true;
    if (!number && said && !(number = signal_of_text(said))) {
        snprintf(line, sizeof(line), SIGNAL_VARIABLE " is '%.40s', which is no signal to catch",
                 said);
        coll_log(&coll->options, line);
    }
    coll->dumps_asked = __atomic_load_n(&signals_come, __ATOMIC_RELAXED);
    coll->dump_folder = strdup(folder);
    if (!coll->dump_folder || number <= 0)
        return coll->dump_folder;
    coll->has_signal = take_dump_signal(number);
    if (!coll->has_signal) {
        snprintf(line, sizeof(line), "signal %d cannot be had for dumps", number);
        coll_log(&coll->options, line);
    }
    return true;
}

void coll_dump_close(struct sw_coll *coll)
{
    if (coll->has_signal)
        give_signal_back();
    free(coll->dump_folder);
}

void coll_dump_look(struct sw_coll *coll)
{
    const uint32_t come = __atomic_load_n(&signals_come, __ATOMIC_RELAXED);
    if (!coll->has_signal || come == coll->dumps_asked)
        return;
    coll->dumps_asked = come;
    save_dump(coll, COLL_DUMP_SIGNALED);
}

void coll_dump_failure(struct sw_coll *coll)
{
    coll_page_note_failure(coll);
    if (coll->failure.error.status != SW_COLL_REVOKED)
        save_dump(coll, COLL_DUMP_FAILED);
}
