/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/process/proof.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd_pass.h"
#include "base/log.h"
#include "base/shm.h"
#include "device/queue/counters.h"
#include "link/names/registry.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

#define PROOF_MAGIC 0x7377666f6f7270aeull

enum proof_kind {
    PROOF_CHALLENGE, /* here is a file, and a nonce in memory */
    PROOF_ANSWER     /* the file's descriptor, or the nonce, or neither */
};

struct proof_message {
    uint64_t magic;
    uint32_t kind;
    int32_t file;     /* its number in the sender */
    uint64_t address; /* of the nonce there */
    uint64_t dev, ino;
    uint8_t nonce[SW_PROOF_NONCE_BYTES];
};

static int proof_send_message(int socket, const struct proof_message *message, int fd)
{
    return sw_fd_pass_send(socket, message, sizeof(*message), &fd, fd >= 0, MSG_DONTWAIT);
}

int sw_proof_begin(struct sw_proof *proof, int socket)
{
    struct stat info;
    *proof = (struct sw_proof){.file = -1};
    if (!sw_registry_same_user(socket, &proof->pid))
        return -EPERM;
    if (getrandom(proof->nonce, sizeof(proof->nonce), 0) != sizeof(proof->nonce))
        return -EAGAIN;
    proof->file = sw_shm_create("sidewire-proof", 0);
    if (proof->file < 0)
        return proof->file;
    int rc = fstat(proof->file, &info) ? -errno : 0;
    if (!rc) {
        proof->dev = info.st_dev;
        proof->ino = info.st_ino;
        const struct proof_message challenge = {
            .magic = PROOF_MAGIC,
            .kind = PROOF_CHALLENGE,
            .file = proof->file,
            .address = (uintptr_t)proof->nonce,
            .dev = info.st_dev,
            .ino = info.st_ino,
        };
        rc = proof_send_message(socket, &challenge, -1);
    }
    if (rc)
        sw_proof_end(proof);
    return rc;
}

void sw_proof_end(struct sw_proof *proof)
{
    if (proof->file >= 0)
        close(proof->file);
    proof->file = -1;
}

/* Whether the process that made the other end is still there, so that its number was not another
 * one's meanwhile. Kernels before 6.5 do not tell. */
static bool is_still_there(int socket)
{
    int pidfd = -1;
    socklen_t len = sizeof(pidfd);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len))
        return errno == ENOPROTOOPT || errno == EINVAL;
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};
    bool is_there = poll(&ended, 1, 0) == 0;
    close(pidfd);
    return is_there;
}

/* A descriptor of the file that was announced; -1: it cannot be opened, or is another one. */
static int open_theirs(pid_t pid, const struct proof_message *challenge)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, challenge->file);
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (!fstat(fd, &info) && info.st_dev == challenge->dev && info.st_ino == challenge->ino)
        return fd;
    close(fd);
    return -1;
}

static bool read_theirs(pid_t pid, const struct proof_message *challenge,
                        uint8_t nonce[SW_PROOF_NONCE_BYTES])
{
    struct iovec here = {nonce, SW_PROOF_NONCE_BYTES};
    struct iovec there = {(void *)(uintptr_t)challenge->address, SW_PROOF_NONCE_BYTES};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == SW_PROOF_NONCE_BYTES;
}

static int answer_challenge(struct sw_proof *proof, int socket,
                            const struct proof_message *challenge)
{
    struct proof_message out = {.magic = PROOF_MAGIC, .kind = PROOF_ANSWER, .file = -1};
    if (proof->looked_in)
        return -EPROTO; /* it was asked before */
    int fd = proof->pid > 0 ? open_theirs(proof->pid, challenge) : -1;
    bool may_look = fd >= 0 || (proof->pid > 0 && read_theirs(proof->pid, challenge, out.nonce));
    proof->looked_in = may_look && is_still_there(socket);
    if (!proof->looked_in)
        memset(out.nonce, 0, sizeof(out.nonce));
    int rc = proof_send_message(socket, &out, proof->looked_in ? fd : -1);
    if (fd >= 0)
        close(fd);
    return rc;
}

static bool is_proven(const struct sw_proof *proof, const struct proof_message *answer, int fd)
{
    struct stat theirs, ours;
    if (fd < 0) {
        uint8_t differs = 0;
        for (int i = 0; i < SW_PROOF_NONCE_BYTES; i++)
            differs |= (uint8_t)(answer->nonce[i] ^ proof->nonce[i]);
        return !differs;
    }
    return !fstat(fd, &theirs) && theirs.st_dev == proof->dev && theirs.st_ino == proof->ino &&
           !fstat(proof->file, &ours) && ours.st_dev == proof->dev && ours.st_ino == proof->ino;
}

/* Counted each time, told once for each process. */
static int refuse_process(const struct sw_proof *proof, bool they_may)
{
    static _Atomic pid_t told;
    const char *why = !they_may && !proof->looked_in ? "neither may look into the other"
                      : they_may                     ? "this process may not look into it"
                                                     : "it may not look into this process";
    char name[64] = "a process that is not visible from here (another PID namespace)";
    if (proof->pid > 0)
        snprintf(name, sizeof(name), "process %d", (int)proof->pid);
    sw_counter_add(NULL, SW_PEER_REFUSED);
    const pid_t who = proof->pid ? proof->pid : -1;
    if (atomic_exchange(&told, who) == who)
        return -EACCES;
    if (proof->is_spare)
        sw_info("%s is reached by packets: %s", name, why);
    else
        sw_warn("no direct connection with %s, though of this user: %s (as ptrace: capabilities, "
                "namespaces, PR_SET_DUMPABLE)",
                name, why);
    return -EACCES;
}

/* Returns the length; *fd is what came along, or -1. */
static ssize_t receive_message(int socket, struct proof_message *message, int *fd)
{
    size_t count;
    return sw_fd_pass_receive(socket, message, sizeof(*message), fd, 1, &count, MSG_DONTWAIT);
}

/* 1: proven; 0: read on. */
static int proof_take_message(struct sw_proof *proof, int socket, const struct proof_message *in,
                              int fd)
{
    if (in->kind == PROOF_CHALLENGE)
        return fd < 0 ? answer_challenge(proof, socket, in) : -EPROTO;
    if (in->kind != PROOF_ANSWER)
        return -EPROTO;
    bool they_may = is_proven(proof, in, fd);
    return they_may && proof->looked_in ? 1 : refuse_process(proof, they_may);
}

int sw_proof_step(struct sw_proof *proof, int socket)
{
    for (;;) {
        struct proof_message in;
        int fd;
        ssize_t len = receive_message(socket, &in, &fd);
        if (len == -EAGAIN || len == -EINTR)
            return 0;
        int rc = len < 0 ? (int)len : len == 0 ? -ECONNRESET : -EPROTO;
        if (len == (ssize_t)sizeof(in) && in.magic == PROOF_MAGIC)
            rc = proof_take_message(proof, socket, &in, fd);
        if (fd >= 0)
            close(fd);
        if (rc)
            return rc;
    }
}

int sw_proof_run(int socket, int timeout_ms, pid_t *pid)
{
    struct sw_proof proof;
    const uint64_t until_ns = sw_clock_ns() + (uint64_t)timeout_ms * SW_NS_PER_MS;
    int rc = sw_proof_begin(&proof, socket);
    if (rc)
        return rc;
    while ((rc = sw_proof_step(&proof, socket)) == 0) {
        struct pollfd ready = {.fd = socket, .events = POLLIN};
        const uint64_t now_ns = sw_clock_ns();
        if (now_ns >= until_ns) {
            rc = -ETIMEDOUT;
            break;
        }
        poll(&ready, 1, (int)((until_ns - now_ns) / SW_NS_PER_MS) + 1);
    }
    *pid = proof.pid;
    sw_proof_end(&proof);
    return rc == 1 ? 0 : rc;
}
