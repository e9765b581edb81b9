/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/process/newcomer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fds.h"
#include "base/log.h"
#include "device/queue/counters.h"
#include "link/direct/process/proof.h"
#include "link/direct/process/state.h"
#include "link/engine.h"
#include "link/engine_pause.h"
#include "link/link.h"

#define NEWCOMERS_MAX 64u
#define NEWCOMERS_PARTS 16u /* and of the descriptors one in so many */
#define ACCEPTS_MAX 64u     /* at once */

struct sw_newcomer {
    _Alignas(16) struct sw_proof proof;
    struct sw_newcomer *next;
    int fd;
};
static struct sw_newcomer *newcomers;

static void forget_newcomer(struct sw_newcomer *newcomer)
{
    struct sw_newcomer **at = &newcomers;
    while (*at != newcomer)
        at = &(*at)->next;
    *at = newcomer->next;
    sw_proof_end(&newcomer->proof);
    free(newcomer);
}

static void turn_down(struct sw_newcomer *newcomer)
{
    sw_engine_unwatch(newcomer->fd);
    close(newcomer->fd);
    forget_newcomer(newcomer);
}

/* Callers that connect and prove nothing must not use up our descriptors: the oldest goes. */
static void bound_newcomers(void)
{
    const uint32_t most = sw_fds_share(NEWCOMERS_PARTS, NEWCOMERS_MAX);
    uint32_t count = 0;
    for (struct sw_newcomer *at = newcomers, *next; at; at = next) {
        next = at->next;
        if (++count > most)
            turn_down(at);
    }
}

/* A connection to us: has it prove that it may ask. */
static void meet_newcomer(int fd)
{
    struct sw_newcomer *newcomer = aligned_alloc(16, sizeof(*newcomer));
    int rc = newcomer ? sw_proof_begin(&newcomer->proof, fd) : -ENOMEM;
    if (rc) {
        if (rc == -EPERM) {
            sw_counter_add(NULL, SW_PEER_REFUSED);
            sw_info("refused an attachment by another user");
        }
        close(fd);
        free(newcomer);
        return;
    }
    newcomer->proof.is_spare = sw_direct.has_packets;
    newcomer->fd = fd;
    newcomer->next = newcomers;
    newcomers = newcomer;
    sw_engine_watch(fd, newcomer, SW_WATCH_NEW);
    bound_newcomers();
}

void sw_newcomer_accept(void)
{
    for (uint32_t i = 0; i < ACCEPTS_MAX; i++) {
        const int fd =
            sw_fd_own(accept4(sw_direct.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd < 0 && sw_accept_is_short(-errno))
            sw_engine_pause(sw_direct.listener, NULL, SW_WATCH_LISTENER);
        if (fd < 0)
            return;
        if (sw_direct.off)
            close(fd);
        else
            meet_newcomer(fd);
    }
}

void sw_newcomer_fork_child(void)
{
    for (struct sw_newcomer *at = newcomers, *next; at; at = next) {
        next = at->next;
        close(at->fd);
        sw_proof_end(&at->proof);
        free(at);
    }
    newcomers = NULL;
}

void sw_newcomer_prove(struct sw_newcomer *newcomer)
{
    int rc = sw_proof_step(&newcomer->proof, newcomer->fd);
    if (rc < 0) {
        if (rc == -EACCES)
            sw_link_meet_stranger();
        turn_down(newcomer);
    } else if (rc > 0) {
        const int fd = newcomer->fd;
        forget_newcomer(newcomer);
        sw_engine_unwatch(fd);
        sw_engine_watch_fd(fd, SW_WATCH_PROVEN);
    }
}
