/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that another process is given, in each of three ways: legacy IPC, VMM and pools by a
 * descriptor. Each step's code and time; whether both see the same bytes; what is refused: opening
 * in the same process, twice, a piece in the middle, nonsense.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/peer.h"
#include "gpu/common/samples.h"
#include "gpu/common/shared.h"

enum { BYTES = 2 << 20, MARK = 0x5ca1ab1e, REPLY = 0x0ddba11 };

static void answer_call(const char *what, const char *kind, int code)
{
    answer_begin(what);
    answer_text("kind", kind);
    answer_code("code", code);
    answer_end();
}

static int run_peer(enum shared_kind kind)
{
    struct peer_note note;
    struct shared shared, again;
    uint32_t seen = 0;
    int fd = -1;
    gpu_open();
    peer_expect(PEER_SOCKET, &note, &fd);
    int code = shared_open(&shared, kind, BYTES, fd, &note.handle);
    if (!code) {
        answer_call("read", shared_name(kind), gpu.to_host(&seen, shared.pointer, sizeof(seen)));
        answer_begin("seen");
        answer_text("kind", shared_name(kind));
        answer_number("is_same", seen == MARK);
        answer_end();
        code = gpu.set(shared.pointer, REPLY, 1);
        gpu.context_wait();
        if (!shared_open(&again, kind, BYTES, fd, &note.handle)) {
            answer_call("opened_twice", shared_name(kind), GPU_OK);
            shared_close(&again);
        }
    }
    note.code = code;
    peer_send(PEER_SOCKET, &note, -1);
    peer_expect(PEER_SOCKET, &note, NULL); /* the owner has looked */
    if (!code)
        shared_close(&shared);
    return 0;
}

static void answer_descriptor(int fd)
{
    char path[64], target[128] = "";
    if (fd < 0)
        return;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const ssize_t len = readlink(path, target, sizeof(target) - 1);
    answer_begin("descriptor");
    answer_text("target", len > 0 ? target : "?");
    answer_number("flags", (uint64_t)fcntl(fd, F_GETFL));
    answer_signed("size", lseek(fd, 0, SEEK_END));
    answer_end();
}

static void ask_refusals(const struct shared *shared)
{
    struct shared own;
    struct gpu_handle nonsense = {{1, 2, 3}};
    gpu_pointer pointer = 0;
    const char *kind = shared_name(shared->kind);
    const int code = shared_open(&own, shared->kind, BYTES, shared->fd, &shared->handle);
    answer_call("opened_by_its_owner", kind, code);
    if (!code)
        shared_close(&own);
    if (shared->kind != SHARED_IPC)
        return;
    answer_call("handle_of_the_middle", kind, gpu.ipc_get(&nonsense, shared->pointer + 4096));
    memset(&nonsense, 0x5a, sizeof(nonsense));
    answer_call("handle_of_nonsense", kind, gpu.ipc_open(&pointer, nonsense, GPU_IPC_LAZY_PEER));
}

static void ask_kind(enum shared_kind kind)
{
    struct shared shared;
    struct peer peer;
    struct peer_note note = {0};
    uint32_t seen = 0;
    if (shared_make(&shared, kind, BYTES) || shared_export(&shared))
        return;
    answer_descriptor(shared.fd);
    gpu_must(gpu.set(shared.pointer, MARK, 1), "cuMemsetD32");
    gpu_must(gpu.context_wait(), "cuCtxSynchronize");
    peer_start(&peer, shared_name(kind));
    note.handle = shared.handle;
    peer_send(peer.socket, &note, shared.fd);
    peer_expect(peer.socket, &note, NULL);
    gpu.to_host(&seen, shared.pointer, sizeof(seen));
    answer_begin("reply_seen");
    answer_text("kind", shared_name(kind));
    answer_code("code", note.code);
    answer_number("is_same", seen == REPLY);
    answer_end();
    peer_send(peer.socket, &note, -1);
    peer_end(&peer, 0);
    ask_refusals(&shared);
    shared_free(&shared);
}

/* VMM and IPC do not mix: what each says of the other's memory. */
static void ask_mixed(void)
{
    struct shared shared;
    struct gpu_handle handle;
    uint64_t made = 0;
    int fd = -1;
    if (shared_make(&shared, SHARED_VMM, BYTES))
        return;
    answer_call("ipc_of_vmm", "vmm", gpu.ipc_get(&handle, shared.pointer));
    shared_free(&shared);
    const struct gpu_allocation alone = shared_properties(GPU_HANDLE_NONE);
    const int code = gpu.create(&made, BYTES, &alone, 0);
    answer_call("export_of_what_is_not_shareable", "vmm",
                code ? code : gpu.export(&fd, made, GPU_HANDLE_DESCRIPTOR, 0));
    if (!code)
        gpu.release(made);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    answer_call("import_of_another_file", "vmm",
                gpu.import(&made, (void *)(intptr_t)null, GPU_HANDLE_DESCRIPTOR));
    close(null);
}

int main(int argc, char **argv)
{
    for (enum shared_kind kind = 0; kind < SHARED_KINDS; kind++)
        if (argc > 1 && !strcmp(argv[1], shared_name(kind)))
            return run_peer(kind);
    gpu_open();
    for (enum shared_kind kind = 0; kind < SHARED_KINDS; kind++)
        ask_kind(kind);
    ask_mixed();
    return 0;
}
