/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PMI-1, as MPICH's Hydra and Slurm's plugin pmi2 serve it: lines of "name=value" words over the
 * socket PMI_FD, a question and its answer at a time. What comes is not trusted: a line has a
 * bound, and each wait the deadline.
 *
 * A process that says "init" and ends without "finalize" counts as one that has crashed. So this
 * finalizes at once, and whether a rank ends well is known by its exit status alone. In a process
 * of MPI that library does it later itself, and nobody may do it before.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/launch/meeting.h"
#include "collectives/launch/way.h"
#include "common/time/clock.h"

#define PMI_KEY "sidewire-coll-meet"

enum { PMI_LINE_MAX = 2048, PMI_NAME_MAX = 300 };

struct pmi_wire {
    int fd;
    uint64_t deadline_ns;
    char line[PMI_LINE_MAX];
    size_t used; /* bytes behind the line's end */
    size_t length;
    struct sw_coll_error *error;
};

/* ---- bytes ---- */

static bool pmi_write(const struct pmi_wire *wire, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t put = send(wire->fd, text, bytes, MSG_NOSIGNAL);
        if (put < 0 && errno == ENOTSOCK)
            put = write(wire->fd, text, bytes);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        text += put;
        bytes -= (size_t)put;
    }
    return true;
}

/* More bytes; NULL, or why there are none. */
static const char *pmi_read_more(struct pmi_wire *wire)
{
    struct pollfd ready = {.fd = wire->fd, .events = POLLIN};
    if (wire->used == sizeof(wire->line))
        return "its line has no end";
    for (;;) {
        const uint64_t now_ns = mover_now_ns();
        if (now_ns >= wire->deadline_ns)
            return "it does not answer: not all ranks have come to it";
        const uint64_t left_ms = (wire->deadline_ns - now_ns) / NS_PER_MS + 1;
        const int count = poll(&ready, 1, left_ms > 1000 ? 1000 : (int)left_ms);
        if (count < 0 && errno != EINTR)
            return strerror(errno);
        if (count <= 0)
            continue;
        const ssize_t got =
            read(wire->fd, wire->line + wire->used, sizeof(wire->line) - wire->used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? strerror(errno) : "it has closed the connection";
        wire->used += (size_t)got;
        return NULL;
    }
}

/* The next line is in `line`, ended by 0. It may get to a terminal: a byte that would steer that is
 * shown as '?'. */
static const char *pmi_read_line(struct pmi_wire *wire)
{
    const char *wrong = NULL;
    memmove(wire->line, wire->line + wire->length, wire->used - wire->length);
    wire->used -= wire->length;
    wire->length = 0;
    char *end;
    while (!(end = memchr(wire->line, '\n', wire->used)) && !wrong)
        wrong = pmi_read_more(wire);
    if (!end)
        return wrong;
    *end = '\0';
    for (char *at = wire->line; at < end; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    wire->length = (size_t)(end - wire->line) + 1;
    return NULL;
}

/* ---- words ---- */

/* The value of a word of the line, up to the next space. */
static bool pmi_word(const char *line, const char *name, char *value, size_t room)
{
    const size_t bytes = strlen(name);
    for (const char *word = line; *word; word += strcspn(word, " ")) {
        word += strspn(word, " ");
        if (strncmp(word, name, bytes) != 0 || word[bytes] != '=')
            continue;
        const char *text = word + bytes + 1;
        const size_t length = strcspn(text, " ");
        if (length >= room)
            return false;
        memcpy(value, text, length);
        value[length] = '\0';
        return true;
    }
    return false;
}

/* Asks, and takes the answer of that name. */
__attribute__((format(printf, 3, 4))) static enum sw_coll_status
pmi_ask(struct pmi_wire *wire, const char *answer, const char *format, ...)
{
    char question[PMI_LINE_MAX], value[PMI_LINE_MAX]; /* any word of a line fits */
    va_list arguments;
    va_start(arguments, format);
    const int bytes = vsnprintf(question, sizeof(question), format, arguments);
    va_end(arguments);
    const char *wrong = NULL;
    if (bytes < 0 || (size_t)bytes >= sizeof(question) || !pmi_write(wire, question, (size_t)bytes))
        wrong = "it has closed the connection";
    if (!wrong)
        wrong = pmi_read_line(wire);
    if (wrong)
        return coll_launch_say(
            wire->error, mover_now_ns() >= wire->deadline_ns ? SW_COLL_TIMEOUT : SW_COLL_SYSTEM,
            "the launcher (PMI): %s", wrong);
    if (!pmi_word(wire->line, "cmd", value, sizeof(value)) || strcmp(value, answer) != 0)
        return coll_launch_say(wire->error, SW_COLL_PROTOCOL,
                               "the launcher (PMI) answers '%.80s', not with '%s'", wire->line,
                               answer);
    if (pmi_word(wire->line, "rc", value, sizeof(value)) && strcmp(value, "0") != 0)
        return coll_launch_say(wire->error, SW_COLL_SYSTEM, "the launcher (PMI) refuses: '%.80s'",
                               wire->line);
    return SW_COLL_OK;
}

static enum sw_coll_status pmi_ask_value(struct pmi_wire *wire, const char *answer,
                                         const char *name, char *value, size_t room,
                                         const char *question)
{
    const enum sw_coll_status status = pmi_ask(wire, answer, "%s", question);
    if (status || pmi_word(wire->line, name, value, room))
        return status;
    return coll_launch_say(wire->error, SW_COLL_PROTOCOL,
                           "the launcher (PMI) answers '%.80s', without %s", wire->line, name);
}

/* ---- the meeting ---- */

static enum sw_coll_status pmi_exchange(struct pmi_wire *wire, struct sw_coll_launch *launch)
{
    char space[PMI_NAME_MAX], word[COLL_MEETING_BYTES], question[2 * PMI_NAME_MAX];
    enum sw_coll_status status =
        pmi_ask(wire, "response_to_init", "cmd=init pmi_version=1 pmi_subversion=1\n");
    if (!status)
        status = pmi_ask_value(wire, "my_kvsname", "kvsname", space, sizeof(space),
                               "cmd=get_my_kvsname\n");
    if (!status && !launch->rank)
        status = coll_meeting_choose(launch, word, wire->error);
    if (!status && !launch->rank)
        status = pmi_ask(wire, "put_result", "cmd=put kvsname=%s key=" PMI_KEY " value=%s\n", space,
                         word);
    if (!status)
        status = pmi_ask(wire, "barrier_out", "cmd=barrier_in\n");
    if (status || !launch->rank)
        return status;
    snprintf(question, sizeof(question), "cmd=get kvsname=%s key=" PMI_KEY "\n", space);
    status = pmi_ask_value(wire, "get_result", "value", word, sizeof(word), question);
    return status ? status : coll_meeting_take(launch, word, wire->error);
}

bool coll_launch_has_pmi(void)
{
    uint32_t fd = 0;
    return getenv("PMI_RANK") && getenv("PMI_SIZE") && coll_launch_number("PMI_FD", &fd) &&
           fcntl((int)fd, F_GETFD) >= 0;
}

enum sw_coll_status coll_launch_pmi(struct sw_coll_launch *launch, uint64_t deadline_ns,
                                    struct sw_coll_error *error)
{
    struct pmi_wire wire = {.deadline_ns = deadline_ns, .error = error};
    uint32_t fd = 0;
    if (!coll_launch_number("PMI_FD", &fd) || !coll_launch_number("PMI_RANK", &launch->rank) ||
        !coll_launch_number("PMI_SIZE", &launch->size) || launch->rank >= launch->size)
        return coll_launch_say(error, SW_COLL_INVALID, "PMI_RANK=%.20s of PMI_SIZE=%.20s",
                               getenv("PMI_RANK"), getenv("PMI_SIZE"));
    wire.fd = (int)fd;
    if (coll_launch_slurm_is_local())
        launch->local_size = launch->size;
    snprintf(launch->launcher, sizeof(launch->launcher), "PMI of %s",
             coll_launch_has_slurm() ? "Slurm" : "mpiexec");
    enum sw_coll_status status = pmi_exchange(&wire, launch);
    if (!status && !dlsym(RTLD_DEFAULT, "MPI_Init"))
        status = pmi_ask(&wire, "finalize_ack", "cmd=finalize\n");
    return status;
}
