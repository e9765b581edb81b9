/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/iwarp/linger.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/lock.h"
#include "link/engine.h"
#include "link/iwarp/socket.h"

#define PATIENCE_NS (3 * SW_NS_PER_S)
#define LOOK_NS (2 * SW_NS_PER_MS)
#define DROP_BYTES 4096u
#define DROPS_MAX 64
#define ENDS_MAX 1024u
#define ENDS_PARTS 16u            /* and of the descriptors one in so many */
#define LOSSES_MAX (4 * ENDS_MAX) /* from here on peers lose our last bytes */
#define LOSSES_PARTS 4u

struct socket_end {
    struct socket_end *next;
    int fd;
    uint8_t *bytes;
    size_t len, at;
    uint64_t until_ns;
    bool waits, has_ended;
    bool is_delivered; /* all that we had to say */
};

static struct {
    struct sw_lock lock;
    struct socket_end *list;
    atomic_bool any; /* on the list; to be looked at without the lock */
} ends;

/* Whether all of it is sent, or never will be. */
static bool send_rest(struct socket_end *end)
{
    while (end->at < end->len) {
        const ssize_t sent =
            sw_iwarp_socket_send(end->fd, end->bytes + end->at, end->len - end->at);
        if (sent < 0)
            return sent != -EAGAIN;
        end->at += (size_t)sent;
    }
    return true;
}

/* Whether the peer has ended, too. */
static bool drop_bytes(const struct socket_end *end)
{
    uint8_t dropped[DROP_BYTES];
    for (int i = 0; i < DROPS_MAX; i++) {
        const ssize_t got = sw_iwarp_socket_receive(end->fd, dropped, sizeof(dropped));
        if (got <= 0)
            return got != -EAGAIN;
    }
    return false;
}

/* Whether the socket can be closed. */
static bool step_end(struct socket_end *end)
{
    if (!end->has_ended && send_rest(end)) {
        end->has_ended = true;
        sw_iwarp_socket_end(end->fd);
    }
    return end->has_ended && (!end->waits || drop_bytes(end));
}

static void free_end(struct socket_end *end)
{
    close(end->fd);
    free(end->bytes);
    free(end);
}

/* To close a socket takes from the peer what it has not got yet, where it has said more itself. */
static bool is_delivered(struct socket_end *end)
{
    int queued_bytes;
    if (!end->is_delivered && end->has_ended)
        end->is_delivered = ioctl(end->fd, SIOCOUTQ, &queued_bytes) || !queued_bytes;
    return end->is_delivered;
}

/* A peer that does not end keeps a descriptor: the oldest of too many goes, of those that have
 * nothing to lose if there are such ones. */
static void bound_ends(void)
{
    const uint32_t most = sw_fds_share(ENDS_PARTS, ENDS_MAX);
    struct socket_end **oldest = NULL, **delivered = NULL;
    uint32_t count = 0;
    for (struct socket_end **at = &ends.list; *at; at = &(*at)->next, count++)
        oldest = at;
    if (count <= most)
        return;
    for (struct socket_end **at = &ends.list; *at; at = &(*at)->next)
        if (is_delivered(*at))
            delivered = at;
    struct socket_end **out =
        delivered || count <= sw_fds_share(LOSSES_PARTS, LOSSES_MAX) ? delivered : oldest;
    if (!out)
        return;
    struct socket_end *end = *out;
    *out = end->next;
    free_end(end);
}

void sw_iwarp_linger(int fd, uint8_t *bytes, size_t len, bool waits)
{
    struct socket_end *end = calloc(1, sizeof(*end));
    if (!end) {
        close(fd);
        free(bytes);
        return;
    }
    *end = (struct socket_end){.fd = fd,
                               .bytes = bytes,
                               .len = len,
                               .until_ns = sw_clock_ns() + PATIENCE_NS,
                               .waits = waits};
    if (step_end(end)) {
        free_end(end);
        return;
    }
    sw_lock_acquire(&ends.lock);
    end->next = ends.list;
    ends.list = end;
    bound_ends();
    atomic_store_explicit(&ends.any, true, memory_order_relaxed);
    sw_lock_release(&ends.lock);
    if (!sw_engine_is_self())
        sw_engine_kick();
}

bool sw_iwarp_lingers(void)
{
    return atomic_load_explicit(&ends.any, memory_order_relaxed);
}

uint64_t sw_iwarp_linger_step(uint64_t now_ns)
{
    sw_lock_acquire(&ends.lock);
    for (struct socket_end **at = &ends.list; *at;) {
        struct socket_end *end = *at;
        if (!step_end(end) && now_ns < end->until_ns) {
            at = &end->next;
            continue;
        }
        *at = end->next;
        free_end(end);
    }
    const bool any = ends.list != NULL;
    atomic_store_explicit(&ends.any, any, memory_order_relaxed);
    sw_lock_release(&ends.lock);
    return any ? now_ns + LOOK_NS : UINT64_MAX;
}

void sw_iwarp_linger_fork_child(void)
{
    ends.lock = (struct sw_lock){0};
    while (ends.list) {
        struct socket_end *end = ends.list;
        ends.list = end->next;
        free_end(end);
    }
    atomic_store(&ends.any, false);
}
