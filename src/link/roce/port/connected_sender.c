/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/roce/port/connected_sender.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "base/minmax.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/socket.h"
#include "wire/bytes.h"

#define CONNECTED_SENDERS 8u
#define ROOMS 32u
#define RING_BYTES ((size_t)ROOMS * SW_CONNECTED_SENDER_ROOM_BYTES) /* one huge page */
#define WANTED_MIN 64u                  /* messages before one is opened */
#define WANTED_NS (1000 * SW_NS_PER_MS) /* in this time */
#define IDLE_NS (10000 * SW_NS_PER_MS)
#define SPLICED_MIN 16384u /* a shorter message is sooner copied */

enum { FREE = 0 };
#define FILLED UINT64_MAX

struct sw_connected_sender {
    struct sw_lock lock; /* of all that follows; but is_open may be read without */
    atomic_bool is_open;
    struct sw_port *port; /* whose, and for which path; or what is wanted */
    struct sw_roce_path path;
    uint32_t wanted;    /* a connected sender; once there is one, a ring */
    uint64_t wanted_ns; /* since when that is counted */
    bool was_used;      /* since the last look */
    uint64_t used_ns;

    int fd, pipe[2];
    void *map; /* NULL: there is no ring */
    uint8_t *ring;
    uint32_t next_room, segment_bytes;
    uint16_t next_id;
    int error; /* something was lost, why: to be closed */
    bool is_spoilt;
    bool is_piped;           /* a message waits in the pipe */
    uint64_t heard_ns;       /* what was sent before has arrived or is lost */
    uint64_t sent_ns[ROOMS]; /* FREE, FILLED, or when what lies there was sent */
};

static struct sw_connected_sender senders[CONNECTED_SENDERS];

/* Earlier kernels cut what is spliced into packets as they like. */
bool sw_connected_sender_is_possible(void)
{
    static atomic_int known; /* 1: yes, 2: no */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer)
        return answer == 1;
    struct utsname name;
    unsigned int major = 0, minor = 0;
    const char *wish = getenv("SIDEWIRE_SPLICE");
    bool can = uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
               (major > 6 || (major == 6 && minor >= 5));
    if (wish && *wish && strcmp(wish, "auto") != 0 && strcmp(wish, "never") != 0)
        sw_warn("SIDEWIRE_SPLICE=%s is neither auto nor never: taken as auto", wish);
    can = can && !(wish && strcmp(wish, "never") == 0);
    atomic_store_explicit(&known, can ? 1 : 2, memory_order_relaxed);
    return can;
}

/* ---- which identification the kernel gives to the next message ---- */

static const char probe[8] = "sidewire";

/* The headers of the probe, which are at the end of what was shown, but for its text. */
static bool find_id(const struct sw_connected_sender *sender, const uint8_t *bytes,
                    ssize_t len_bytes, uint16_t *id)
{
    const ssize_t all = SW_IPV4_BYTES + SW_UDP_BYTES + (ssize_t)sizeof(probe);
    if (len_bytes < all)
        return false;
    const uint8_t *ip = bytes + len_bytes - all;
    const uint16_t source_port = sender->port->source_ports[true][sender->path.sender];
    if (ip[0] != 0x45 || ip[9] != IPPROTO_UDP ||
        memcmp(ip + 12, sender->path.source.s6_addr + 12, 4) != 0 ||
        sw_be16_load(ip + SW_IPV4_BYTES) != source_port ||
        memcmp(ip + SW_IPV4_BYTES + SW_UDP_BYTES, probe, sizeof(probe)) != 0)
        return false;
    *id = sw_be16_load(ip + 4);
    return true;
}

static bool learn_id(struct sw_connected_sender *sender)
{
    uint8_t shown[256], control[512];
    struct iovec iov = {shown, sizeof(shown)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct sockaddr_in6 own;
    uint16_t id;
    const unsigned int len = sw_roce_sockaddr(
        &sender->path.source, sender->port->source_ports[true][sender->path.sender], 0, &own);
    if (!sw_socket_set(sender->fd, SOL_SOCKET, SO_TIMESTAMPING,
                       SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_SOFTWARE))
        return false;
    const bool is_known =
        sendto(sender->fd, probe, sizeof(probe), 0, (struct sockaddr *)&own, len) ==
            sizeof(probe) &&
        find_id(sender, shown, recvmsg(sender->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT), &id) &&
        sw_socket_set(sender->fd, SOL_SOCKET, SO_TIMESTAMPING, 0);
    if (is_known)
        sender->next_id = (uint16_t)(id + 1);
    return is_known;
}

/* ---- opening and closing ---- */

static bool connected_sender_open_socket(struct sw_connected_sender *sender)
{
    const struct sw_roce_path *path = &sender->path;
    const bool is_ipv4 = path->is_ipv4;
    struct sockaddr_in6 own, peer;
    sender->fd = sw_socket_udp(is_ipv4);
    if (sender->fd < 0)
        return false;
    const unsigned int own_len = sw_roce_sockaddr(
        &path->source, sender->port->source_ports[is_ipv4][path->sender], path->ifindex, &own);
    const unsigned int peer_len =
        sw_roce_sockaddr(&path->dest, path->dest_port, path->ifindex, &peer);
    const int level = is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6, fd = sender->fd;
    sw_socket_set(fd, SOL_SOCKET, SO_RCVBUF, 0);
    return sw_socket_set(fd, level, is_ipv4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
                         is_ipv4 ? IP_PMTUDISC_DO : IPV6_PMTUDISC_DO) &&
           sw_socket_set(fd, SOL_SOCKET, SO_REUSEPORT, 1) &&
           bind(fd, (struct sockaddr *)&own, own_len) == 0 &&
           connect(fd, (struct sockaddr *)&peer, peer_len) == 0 &&
           sw_socket_set(fd, level, is_ipv4 ? IP_TOS : IPV6_TCLASS, path->traffic_class) &&
           (!path->hop_limit ||
            sw_socket_set(fd, level, is_ipv4 ? IP_TTL : IPV6_UNICAST_HOPS, path->hop_limit)) &&
           (!is_ipv4 || learn_id(sender));
}

/* On a huge page where there are any: its messages are one piece each then. A forked child has no
 * use for it, and would make the parent copy it. */
static bool connected_sender_open_ring(struct sw_connected_sender *sender)
{
    void *map =
        mmap(NULL, 2 * RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return false;
    sender->map = map;
    sender->ring = (uint8_t *)(((uintptr_t)map + RING_BYTES - 1) & ~(uintptr_t)(RING_BYTES - 1));
    madvise(sender->ring, RING_BYTES, MADV_HUGEPAGE);
    return madvise(map, 2 * RING_BYTES, MADV_DONTFORK) == 0;
}

static void reset_sender(struct sw_connected_sender *sender)
{
    sender->fd = sender->pipe[0] = sender->pipe[1] = -1;
    sender->map = sender->ring = NULL;
    sender->wanted = sender->next_room = sender->segment_bytes = 0;
    sender->is_spoilt = sender->is_piped = false;
    sender->heard_ns = 0;
    memset(sender->sent_ns, 0, sizeof(sender->sent_ns));
}

static void close_ring(struct sw_connected_sender *sender)
{
    for (int i = 0; i < 2; i++)
        if (sender->pipe[i] >= 0)
            close(sender->pipe[i]);
    if (sender->map)
        munmap(sender->map, 2 * RING_BYTES);
    sender->pipe[0] = sender->pipe[1] = -1;
    sender->map = sender->ring = NULL;
}

static void close_connected(struct sw_connected_sender *sender)
{
    atomic_store(&sender->is_open, false);
    if (sender->fd >= 0)
        close(sender->fd);
    close_ring(sender);
    reset_sender(sender);
}

static bool open_pipe(struct sw_connected_sender *sender)
{
    if (pipe2(sender->pipe, O_CLOEXEC | O_NONBLOCK))
        return false;
    for (int i = 0; i < 2; i++)
        sender->pipe[i] = sw_fd_own(sender->pipe[i]);
    return true;
}

static void open_connected(struct sw_connected_sender *sender, uint64_t now_ns)
{
    reset_sender(sender);
    sender->used_ns = now_ns;
    if (connected_sender_open_socket(sender)) {
        atomic_store(&sender->is_open, true);
        sw_debug("many messages to one address: by a connected socket");
        return;
    }
    sw_debug("no connected UDP socket: %s", strerror(errno));
    close_connected(sender);
    sender->wanted_ns = now_ns + IDLE_NS; /* not again before */
}

void sw_connected_sender_want_ring(struct sw_connected_sender *sender)
{
    if (sender->map || !sw_connected_sender_is_possible() || sender->wanted > WANTED_MIN ||
        ++sender->wanted != WANTED_MIN)
        return;
    if (connected_sender_open_ring(sender) && open_pipe(sender)) {
        sw_debug("long messages to one address: their pages are spliced");
        return;
    }
    sw_debug("no splicing to a UDP socket: %s", strerror(errno));
    close_ring(sender);
    sender->wanted = WANTED_MIN + 1; /* not again */
}

void sw_connected_sender_want(struct sw_port *port, const struct sw_roce_path *path,
                              uint64_t now_ns)
{
    struct sw_connected_sender *mine = NULL;
    if (!path->heard_ns || sw_roce_is_multicast(&path->dest))
        return;
    for (struct sw_connected_sender *sender = senders; sender < senders + CONNECTED_SENDERS;
         sender++) {
        if (!sw_lock_try(&sender->lock)) { /* it may be the path's */
            if (mine)
                sw_lock_release(&mine->lock);
            return;
        }
        const bool is_for_it = sender->port == port && sw_roce_path_is_same(&sender->path, path);
        const bool is_free = !atomic_load(&sender->is_open) &&
                             (!sender->port || now_ns > sender->wanted_ns + WANTED_NS);
        struct sw_connected_sender *other = is_for_it || (!mine && is_free) ? mine : sender;
        if (other)
            sw_lock_release(&other->lock);
        mine = other == sender ? mine : sender;
        if (is_for_it)
            break;
    }
    if (!mine)
        return;
    if (!sw_roce_path_is_same(&mine->path, path) || mine->port != port ||
        now_ns > mine->wanted_ns + WANTED_NS) {
        mine->port = port;
        mine->path = *path;
        mine->wanted = 0;
        mine->wanted_ns = now_ns;
    }
    if (!atomic_load(&mine->is_open) && now_ns >= mine->wanted_ns && ++mine->wanted >= WANTED_MIN)
        open_connected(mine, now_ns);
    sw_lock_release(&mine->lock);
}

bool sw_connected_sender_tidy(uint64_t now_ns)
{
    bool has_open = false;
    for (struct sw_connected_sender *sender = senders; sender < senders + CONNECTED_SENDERS;
         sender++) {
        if (atomic_load(&sender->is_open) && sw_lock_try(&sender->lock)) {
            sender->used_ns = sender->was_used ? now_ns : sender->used_ns;
            sender->was_used = false;
            if (atomic_load(&sender->is_open) && now_ns > sender->used_ns + IDLE_NS)
                close_connected(sender);
            sw_lock_release(&sender->lock);
        }
        has_open |= atomic_load(&sender->is_open);
    }
    return has_open;
}

void sw_connected_sender_close_all(const struct sw_port *port)
{
    for (struct sw_connected_sender *sender = senders; sender < senders + CONNECTED_SENDERS;
         sender++) {
        sw_lock_acquire(&sender->lock);
        if (sender->port == port) {
            if (atomic_load(&sender->is_open))
                close_connected(sender);
            sender->port = NULL;
        }
        sw_lock_release(&sender->lock);
    }
}

void sw_connected_sender_fork_child(void)
{
    for (struct sw_connected_sender *sender = senders; sender < senders + CONNECTED_SENDERS;
         sender++) {
        sender->lock = (struct sw_lock){0};
        if (atomic_load(&sender->is_open)) {
            sender->map = NULL; /* MADV_DONTFORK */
            close_connected(sender);
        }
        sender->port = NULL;
    }
}

/* ---- sending ---- */

struct sw_connected_sender *sw_connected_sender_claim(struct sw_port *port,
                                                      const struct sw_roce_path *path)
{
    for (struct sw_connected_sender *sender = senders; sender < senders + CONNECTED_SENDERS;
         sender++) {
        if (!atomic_load_explicit(&sender->is_open, memory_order_relaxed) ||
            !sw_lock_try(&sender->lock))
            continue;
        if (atomic_load(&sender->is_open) && sender->port == port &&
            sw_roce_path_is_same(&sender->path, path)) {
            sender->heard_ns = sw_max_u64(path->heard_ns, sender->heard_ns);
            sender->was_used = true;
            return sender;
        }
        sw_lock_release(&sender->lock);
    }
    return NULL;
}

void sw_connected_sender_release(struct sw_connected_sender *sender)
{
    sw_lock_assert_held(&sender->lock);
    if (sender->is_spoilt) {
        sw_debug("a connected sender is closed after an error: %s", strerror(sender->error));
        close_connected(sender);
    }
    sw_lock_release(&sender->lock);
}

bool sw_connected_sender_is_of(const struct sw_connected_sender *sender,
                               const struct sw_roce_path *path)
{
    return sw_roce_path_is_same(&sender->path, path);
}

uint16_t sw_connected_sender_take_id(struct sw_connected_sender *sender)
{
    return sender->path.is_ipv4 ? sender->next_id++ : 0;
}

/* The network keeps the order of a path, or loses: so what was sent before something that has
 * arrived is not on its way any more. */
uint8_t *sw_connected_sender_room(struct sw_connected_sender *sender, uint16_t *ip_id)
{
    for (uint32_t tried = 0; sender->map && tried < ROOMS; tried++) {
        const uint32_t room = sender->next_room++ % ROOMS;
        if (sender->sent_ns[room] != FREE && sender->sent_ns[room] >= sender->heard_ns)
            continue;
        sender->sent_ns[room] = FILLED;
        *ip_id = sw_connected_sender_take_id(sender);
        return sender->ring + (size_t)room * SW_CONNECTED_SENDER_ROOM_BYTES;
    }
    return NULL;
}

/* All of these by the bare system calls: libc's are cancellation points, and locks are held. */
static int splice_out(struct sw_connected_sender *sender, const uint8_t *room, uint32_t len_bytes)
{
    const struct iovec iov = {(void *)(uintptr_t)room, len_bytes};
    if (!sender->is_piped &&
        syscall(SYS_vmsplice, sender->pipe[1], &iov, 1ul, SPLICE_F_NONBLOCK) != (long)len_bytes)
        return -EPIPE;
    sender->is_piped = true;
    const long done =
        syscall(SYS_splice, sender->pipe[0], NULL, sender->fd, NULL, (size_t)len_bytes, 0u);
    if (done != (long)len_bytes)
        return done < 0 ? -errno : -EPIPE;
    sender->is_piped = false;
    return 0;
}

static int copy_out(const struct sw_connected_sender *sender, const uint8_t *room,
                    uint32_t len_bytes)
{
    const long done =
        syscall(SYS_sendto, sender->fd, room, (size_t)len_bytes, MSG_DONTWAIT, NULL, 0u);
    return done == (long)len_bytes ? 0 : done < 0 ? -errno : -EPIPE;
}

/* The error of an ICMP message for an earlier packet is told once; unconnected sockets do not
 * tell. */
bool sw_connected_sender_is_old_news(int error)
{
    return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH || error == EINTR;
}

int sw_connected_sender_send(struct sw_connected_sender *sender, const uint8_t *room,
                             uint32_t len_bytes, uint32_t segment_bytes)
{
    sw_lock_assert_held(&sender->lock);
    const bool splices = len_bytes >= SPLICED_MIN;
    int rc = 0;
    if (sender->is_spoilt)
        return -EPIPE;
    if (sender->segment_bytes != segment_bytes) {
        if (!sw_socket_set(sender->fd, IPPROTO_UDP, UDP_SEGMENT, (int)segment_bytes))
            rc = -errno;
        sender->segment_bytes = segment_bytes;
    }
    for (int tries = 0; !rc && tries < 4; tries++) {
        rc = splices ? splice_out(sender, room, len_bytes) : copy_out(sender, room, len_bytes);
        if (!sw_connected_sender_is_old_news(-rc))
            break;
        rc = tries == 3 ? rc : 0;
    }
    if (rc == -EAGAIN)
        return rc;
    sender->sent_ns[(size_t)(room - sender->ring) / SW_CONNECTED_SENDER_ROOM_BYTES] =
        splices ? sw_clock_ns() : FREE;
    sender->is_spoilt = rc != 0;
    sender->error = -rc;
    return rc;
}

void sw_connected_sender_give_up(struct sw_connected_sender *sender, int error)
{
    sender->is_spoilt = true;
    sender->error = error;
}

bool sw_connected_sender_is_spoilt(const struct sw_connected_sender *sender)
{
    return sender->is_spoilt;
}

int sw_connected_sender_fd(const struct sw_connected_sender *sender)
{
    return sender->fd;
}

uint32_t sw_connected_sender_segment(const struct sw_connected_sender *sender)
{
    return sender->segment_bytes;
}
