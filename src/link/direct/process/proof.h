/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A proof between the two ends of a connected Unix socket that each process may look into the
 * other, as ptrace(2) has it. The same user ID is not enough: another container, another set of
 * capabilities or a process that forbids it (PR_SET_DUMPABLE) makes two strangers of one number.
 *
 * The kernel decides. Each side makes an unnamed file and says its number. The other opens it by
 * /proc/PID/fd, where the kernel checks PTRACE_MODE_READ, and sends the descriptor back: nobody
 * else could have it. The descriptor is opened with O_PATH, so opening it does nothing and
 * reveals nothing. Where /proc does not show the process, a nonce is read from its memory instead
 * (process_vm_readv(2), PTRACE_MODE_ATTACH). The PID is that of the socket's other end, so a
 * process in the middle can prove nothing but itself.
 *
 * Both directions are needed: a process that may look into us may have what we hand out, and only
 * one that we may look into is believed.
 */
#ifndef SW_LINK_DIRECT_PROCESS_PROOF_H
#define SW_LINK_DIRECT_PROCESS_PROOF_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SW_PROOF_NONCE_BYTES 16

struct sw_proof { /* does not move meanwhile: the other side reads the nonce */
    uint8_t nonce[SW_PROOF_NONCE_BYTES];
    int file;
    dev_t dev;
    ino_t ino;
    pid_t pid;      /* of the other end */
    bool looked_in; /* we could open their file; they have it back */
    bool is_spare;  /* without it packets serve: a refusal is no trouble. Set after begin(). */
};

/* Begins it on a connected SEQPACKET socket: the other end must be of this user. 0, or a negative
 * errno (then there is nothing to end). */
int sw_proof_begin(struct sw_proof *proof, int socket);
/* Takes messages that have come. 1: proven both ways, and what follows is of the side that asked
 * for it; 0: not yet; -EACCES: refused, counted and logged; another negative errno: no such
 * peer. */
int sw_proof_step(struct sw_proof *proof, int socket);
void sw_proof_end(struct sw_proof *proof);
/* All of it, waiting for `timeout_ms` at most. 0, or a negative errno. */
int sw_proof_run(int socket, int timeout_ms, pid_t *pid);

#endif
