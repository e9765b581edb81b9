/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A descriptor of VMM memory that is taken out of its owner by pidfd_getfd(), with nothing sent:
 * whether the kernel allows it, and whether the driver takes what comes of it.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu/common/answer.h"
#include "gpu/common/peer.h"
#include "gpu/common/samples.h"
#include "gpu/common/shared.h"

enum { BYTES = 2 << 20, MARK = 0x7e1eca57 };

static int run_owner(void)
{
    struct shared shared;
    struct peer_note note = {0};
    gpu_open();
    note.code = shared_make(&shared, SHARED_VMM, BYTES);
    if (!note.code)
        note.code = shared_export(&shared);
    if (!note.code)
        note.code = gpu.set(shared.pointer, MARK, 1);
    gpu.context_wait();
    note.number[0] = (uint64_t)shared.fd;
    peer_send(PEER_SOCKET, &note, -1);
    peer_receive(PEER_SOCKET, &note, NULL);
    return 0;
}

static int take_descriptor(pid_t pid, int its)
{
    const int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    answer_begin("pidfd_open");
    answer_errno("errno", pidfd < 0 ? -errno : 0);
    answer_end();
    const uint64_t start = clock_ns();
    const int fd = (int)syscall(SYS_pidfd_getfd, pidfd, its, 0);
    const int error = fd < 0 ? -errno : 0;
    answer_begin("pidfd_getfd");
    answer_errno("errno", error);
    answer_number("ns", clock_ns() - start);
    answer_end();
    close(pidfd);
    return fd;
}

int main(int argc, char **argv)
{
    struct peer peer;
    struct peer_note note;
    struct shared shared;
    uint32_t seen = 0;
    (void)argv;
    if (argc > 1)
        return run_owner();
    gpu_open();
    peer_start(&peer, "owner");
    peer_expect(peer.socket, &note, NULL);
    gpu_must(note.code, "making VMM memory");
    const int fd = take_descriptor(peer.pid, (int)note.number[0]);
    const int code =
        fd < 0 ? GPU_INVALID_HANDLE : shared_open(&shared, SHARED_VMM, BYTES, fd, &note.handle);
    if (!code)
        gpu.to_host(&seen, shared.pointer, sizeof(seen));
    answer_begin("seen");
    answer_code("code", code);
    answer_number("is_same", seen == MARK);
    answer_end();
    if (!code)
        shared_close(&shared);
    peer_send(peer.socket, &note, -1);
    peer_end(&peer, 0);
    return 0;
}
