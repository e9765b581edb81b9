/* SPDX-License-Identifier: BSD-2-Clause */
#include "cli/meeting.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd_pass.h"
#include "base/shm.h"
#include "cli/refusal.h"
#include "cli/report.h"

enum { MEMORY_BYTES = 4096, PATIENCE_S = 5 };

static const uint32_t question = 0x51de317e, answer = 0x317e51de;

struct host {
    int memory_fd, event_fd, listen_fd;
    uint32_t *memory;
    struct sockaddr_un address;
    socklen_t address_len;
};

static void set_patience(int fd)
{
    struct timeval limit = {.tv_sec = PATIENCE_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static bool host_open(struct host *host, struct sw_meeting *out)
{
    out->stage = SW_MEETING_MEMORY;
    host->memory_fd = sw_shm_create("sidewire-doctor", MEMORY_BYTES);
    if (host->memory_fd < 0) {
        out->err = -host->memory_fd;
        return false;
    }
    host->memory = sw_shm_map(host->memory_fd, MEMORY_BYTES, true);
    if (!host->memory)
        return false;
    *host->memory = question;
    out->stage = SW_MEETING_EVENTFD;
    host->event_fd = eventfd(0, EFD_CLOEXEC);
    if (host->event_fd < 0)
        return false;
    out->stage = SW_MEETING_SOCKET;
    host->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (host->listen_fd < 0)
        return false;
    out->stage = SW_MEETING_BIND;
    host->address.sun_family = AF_UNIX;
    int len = snprintf(host->address.sun_path + 1, sizeof(host->address.sun_path) - 1,
                       "sidewire.doctor.%d", (int)getpid());
    host->address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    set_patience(host->listen_fd);
    return bind(host->listen_fd, (struct sockaddr *)&host->address, host->address_len) == 0 &&
           listen(host->listen_fd, 1) == 0;
}

static void host_close(struct host *host)
{
    if (host->memory)
        munmap(host->memory, MEMORY_BYTES);
    if (host->memory_fd >= 0)
        close(host->memory_fd);
    if (host->event_fd >= 0)
        close(host->event_fd);
    if (host->listen_fd >= 0)
        close(host->listen_fd);
}

/* Sends (fd >= 0) or receives one byte with a descriptor. Returns the descriptor received, 0 when
 * sent, or -1. */
static int pass_descriptor(int socket_fd, int fd)
{
    char byte = 0;
    size_t count;
    if (fd >= 0)
        return sw_fd_pass_send(socket_fd, &byte, 1, &fd, 1, 0) ? -1 : 0;
    return sw_fd_pass_receive(socket_fd, &byte, 1, &fd, 1, &count, 0) == 1 ? fd : -1;
}

/* Connects, takes the memory, answers in it. The exit status is the stage that failed. */
static void play_guest(const struct host *host)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        _exit(SW_MEETING_SOCKET);
    set_patience(fd);
    if (connect(fd, (const struct sockaddr *)&host->address, host->address_len))
        _exit(SW_MEETING_CONNECT);
    int memory_fd = pass_descriptor(fd, -1);
    if (memory_fd < 0)
        _exit(SW_MEETING_PASS);
    uint32_t *memory = sw_shm_map(memory_fd, MEMORY_BYTES, true);
    if (!memory || *memory != question)
        _exit(SW_MEETING_VERIFY);
    *memory = answer;
    _exit(SW_MEETING_DONE);
}

static void meet_guest(struct host *host, struct sw_meeting *out)
{
    out->stage = SW_MEETING_FORK;
    pid_t pid = fork();
    if (pid < 0)
        return;
    if (pid == 0)
        play_guest(host);
    out->stage = SW_MEETING_CONNECT;
    int fd = accept4(host->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    out->err = fd < 0 ? errno : 0;
    if (fd >= 0) {
        out->stage = SW_MEETING_PASS;
        bool sent = pass_descriptor(fd, host->memory_fd) == 0;
        out->err = sent ? 0 : errno;
        close(fd);
        if (sent)
            out->stage = SW_MEETING_DONE;
    }
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) < (int)out->stage)
        out->stage = (enum sw_meeting_stage)WEXITSTATUS(status);
    if (out->stage == SW_MEETING_DONE && *host->memory != answer)
        out->stage = SW_MEETING_VERIFY;
}

void sw_meeting_try(struct sw_meeting *out)
{
    struct host host = {.memory_fd = -1, .event_fd = -1, .listen_fd = -1};
    out->err = 0;
    if (host_open(&host, out))
        meet_guest(&host, out);
    else if (!out->err)
        out->err = errno;
    host_close(&host);
}

void sw_meeting_report(const struct sw_meeting *meeting, struct sw_report *report)
{
    static const char *const calls[] = {
        [SW_MEETING_MEMORY] = "shared memory (memfd_create, or a file in /dev/shm or /tmp)",
        [SW_MEETING_EVENTFD] = "eventfd",
        [SW_MEETING_SOCKET] = "a Unix socket",
        [SW_MEETING_BIND] = "an abstract Unix socket",
        [SW_MEETING_FORK] = "fork",
        [SW_MEETING_CONNECT] = "the connection of two processes",
        [SW_MEETING_PASS] = "handing a descriptor over a Unix socket",
        [SW_MEETING_VERIFY] = "memory shared by two processes",
    };
    bool met = meeting->stage == SW_MEETING_DONE;
    struct sw_finding *finding = sw_report_add(
        report, SW_GROUP_MACHINE, met ? SW_VERDICT_YES : SW_VERDICT_NO, "processes can meet");
    if (met)
        sw_finding_detail(finding, "abstract Unix socket, shared memory handed over it");
    else if (meeting->err)
        sw_refusal_explain(finding, calls[meeting->stage], meeting->err,
                           "CONFIG_UNIX, CONFIG_EVENTFD or CONFIG_SHMEM");
    else
        sw_finding_detail(finding, "%s does not work here", calls[meeting->stage]);
}
