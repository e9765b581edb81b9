/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that two processes have, of the kind that is the argument: the owner frees it, or is
 * killed, while the other has it mapped. What the other still reads, by which codes, whether the
 * memory is taken until it lets go, and whether its context lives on.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/nvml.h"
#include "gpu/common/peer.h"
#include "gpu/common/samples.h"
#include "gpu/common/shared.h"

enum { USER_KILLED, OWNER_FREES, OWNER_KILLED, DEATHS };

static const char *const askers[] = {"user_killed", "owner_frees", "owner_killed"};

enum { BYTES = 64 << 20, MARK = 0x600df00d, WAIT_NS = 200000000 };

static enum shared_kind kind_named(const char *name)
{
    for (enum shared_kind kind = 0; kind < SHARED_KINDS; kind++)
        if (!strcmp(name, shared_name(kind)))
            return kind;
    return SHARED_IPC;
}

static void start_role(struct peer *peer, const char *role, enum shared_kind kind)
{
    char words[32];
    snprintf(words, sizeof(words), "%s-%s", role, shared_name(kind));
    peer_start(peer, words);
}

/* Makes memory, hands it out, and frees it when it is told to. */
static int run_owner(enum shared_kind kind)
{
    struct shared shared;
    struct peer_note note = {0};
    gpu_open();
    note.code = shared_make(&shared, kind, BYTES);
    if (!note.code)
        note.code = shared_export(&shared);
    if (!note.code)
        note.code = gpu.set(shared.pointer, MARK, 1);
    gpu.context_wait();
    note.handle = shared.handle;
    peer_send(PEER_SOCKET, &note, note.code ? -1 : shared.fd);
    while (peer_receive(PEER_SOCKET, &note, NULL)) {
        note.code = shared_free(&shared);
        peer_send(PEER_SOCKET, &note, -1);
    }
    return 0;
}

static void answer_read(const char *when, const struct shared *shared, size_t free_before)
{
    uint32_t seen = 0;
    gpu_pointer own = 0;
    const int code = gpu.to_host(&seen, shared->pointer, sizeof(seen));
    const int wait_code = gpu.context_wait();
    const int alloc_code = gpu.alloc(&own, 4096);
    answer_begin("after");
    answer_text("kind", shared_name(shared->kind));
    answer_text("when", when);
    answer_code("read", code);
    answer_number("is_same", seen == MARK);
    answer_code("context", wait_code);
    answer_code("new_alloc", alloc_code);
    size_t free_bytes = 0, total = 0;
    answer_code("mem_info", gpu.mem_info(&free_bytes, &total));
    answer_signed("mem_info_took", (int64_t)(free_before - free_bytes));
    answer_number("nvml_used", nvml_used_bytes());
    answer_end();
    if (!alloc_code)
        gpu.free(own);
}

static void ask_death(enum shared_kind kind, bool is_killed)
{
    struct peer peer;
    struct peer_note note;
    struct shared shared;
    int fd = -1;
    const size_t free_before = gpu_free_bytes();
    start_role(&peer, "owner", kind);
    peer_expect(peer.socket, &note, &fd);
    if (note.code || shared_open(&shared, kind, BYTES, fd, &note.handle)) {
        peer_end(&peer, SIGKILL);
        return;
    }
    answer_read("both live", &shared, free_before);
    if (is_killed) {
        peer_end(&peer, SIGKILL);
        clock_sleep(WAIT_NS);
        answer_read("the owner was killed", &shared, free_before);
    } else {
        peer_send(peer.socket, &note, -1);
        peer_expect(peer.socket, &note, NULL);
        answer_read("the owner has freed it", &shared, free_before);
        peer_end(&peer, 0);
        clock_sleep(WAIT_NS);
        answer_read("the owner has ended", &shared, free_before);
    }
    shared_close(&shared);
    if (fd >= 0)
        close(fd);
    answer_begin("let_go");
    answer_text("kind", shared_name(kind));
    answer_number("is_killed", is_killed);
    answer_signed("mem_info_took", (int64_t)(free_before - gpu_free_bytes()));
    answer_end();
}

/* The other way round: the one that has it mapped is killed, and the owner goes on. */
static int run_user(enum shared_kind kind)
{
    struct peer_note note;
    struct shared shared;
    int fd = -1;
    gpu_open();
    peer_expect(PEER_SOCKET, &note, &fd);
    note.code = shared_open(&shared, kind, BYTES, fd, &note.handle);
    peer_send(PEER_SOCKET, &note, -1);
    peer_receive(PEER_SOCKET, &note, NULL);
    return 0;
}

static void ask_user_death(enum shared_kind kind)
{
    struct peer peer;
    struct peer_note note = {0};
    struct shared shared;
    const size_t free_before = gpu_free_bytes();
    if (shared_make(&shared, kind, BYTES) || shared_export(&shared))
        return;
    gpu.set(shared.pointer, MARK, 1);
    start_role(&peer, "user", kind);
    note.handle = shared.handle;
    peer_send(peer.socket, &note, shared.fd);
    peer_expect(peer.socket, &note, NULL);
    peer_end(&peer, SIGKILL);
    clock_sleep(WAIT_NS);
    answer_read("the user was killed", &shared, free_before);
    shared_free(&shared);
}

static int run_asker(enum shared_kind kind, int which)
{
    gpu_open();
    nvml_open();
    if (which == USER_KILLED)
        ask_user_death(kind);
    else
        ask_death(kind, which == OWNER_KILLED);
    return 0;
}

/* Each death is asked for by a process of its own: one may cost it its context. */
static int ask_all(enum shared_kind kind)
{
    int result = 0;
    for (int i = 0; i < DEATHS; i++) {
        struct peer asker;
        start_role(&asker, askers[i], kind);
        const int status = peer_end(&asker, 0);
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : ANSWER_FAILED;
        answer_begin("asker");
        answer_text("role", askers[i]);
        answer_signed("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        answer_signed("status", code);
        answer_end();
        result = result ? result : code;
    }
    return result;
}

int main(int argc, char **argv)
{
    char role[32] = "";
    const char *words = argc > 1 ? argv[1] : "", *dash = strchr(words, '-');
    const enum shared_kind kind = kind_named(dash ? dash + 1 : words);
    if (!dash)
        return ask_all(kind);
    snprintf(role, sizeof(role), "%.*s", (int)(dash - words), words);
    for (int i = 0; i < DEATHS; i++)
        if (!strcmp(role, askers[i]))
            return run_asker(kind, i);
    return !strcmp(role, "user") ? run_user(kind) : run_owner(kind);
}
