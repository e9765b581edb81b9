/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/roce/outlet.h"

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
#include "link/roce/socket.h"
#include "wire/bytes.h"

#define OUTLETS 8u
#define ROOMS 32u
#define RING_BYTES ((size_t)ROOMS * SW_OUTLET_ROOM_BYTES) /* one huge page */
#define WANTED_MIN 64u                                    /* messages before one is opened */
#define WANTED_NS (1000 * SW_NS_PER_MS)                   /* in this time */
#define IDLE_NS (10000 * SW_NS_PER_MS)
#define SPLICED_MIN 16384u /* a shorter message is sooner copied */

enum { FREE = 0 };
#define FILLED UINT64_MAX

struct sw_outlet {
    struct sw_lock lock; /* of all that follows; but is_open may be read without */
    atomic_bool is_open;
    struct sw_port *port; /* whose, and for which path; or what is wanted */
    struct sw_roce_path path;
    uint32_t wanted;    /* an outlet; once there is one, a ring */
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

static struct sw_outlet outlets[OUTLETS];

/* Earlier kernels cut what is spliced into packets as they like. */
bool sw_outlet_is_possible(void)
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
static bool find_id(const struct sw_outlet *outlet, const uint8_t *bytes, ssize_t len_bytes,
                    uint16_t *id)
{
    const ssize_t all = SW_IPV4_BYTES + SW_UDP_BYTES + (ssize_t)sizeof(probe);
    if (len_bytes < all)
        return false;
    const uint8_t *ip = bytes + len_bytes - all;
    const uint16_t source_port = outlet->port->source_ports[true][outlet->path.sender];
    if (ip[0] != 0x45 || ip[9] != IPPROTO_UDP ||
        memcmp(ip + 12, outlet->path.source.s6_addr + 12, 4) != 0 ||
        sw_be16_load(ip + SW_IPV4_BYTES) != source_port ||
        memcmp(ip + SW_IPV4_BYTES + SW_UDP_BYTES, probe, sizeof(probe)) != 0)
        return false;
    *id = sw_be16_load(ip + 4);
    return true;
}

static bool learn_id(struct sw_outlet *outlet)
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
        &outlet->path.source, outlet->port->source_ports[true][outlet->path.sender], 0, &own);
    if (!sw_socket_set(outlet->fd, SOL_SOCKET, SO_TIMESTAMPING,
                       SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_SOFTWARE))
        return false;
    const bool is_known =
        sendto(outlet->fd, probe, sizeof(probe), 0, (struct sockaddr *)&own, len) ==
            sizeof(probe) &&
        find_id(outlet, shown, recvmsg(outlet->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT), &id) &&
        sw_socket_set(outlet->fd, SOL_SOCKET, SO_TIMESTAMPING, 0);
    if (is_known)
        outlet->next_id = (uint16_t)(id + 1);
    return is_known;
}

/* ---- opening and closing ---- */

static bool open_socket(struct sw_outlet *outlet)
{
    const struct sw_roce_path *path = &outlet->path;
    const bool is_ipv4 = path->is_ipv4;
    struct sockaddr_in6 own, peer;
    outlet->fd = sw_socket_udp(is_ipv4);
    if (outlet->fd < 0)
        return false;
    const unsigned int own_len = sw_roce_sockaddr(
        &path->source, outlet->port->source_ports[is_ipv4][path->sender], path->ifindex, &own);
    const unsigned int peer_len =
        sw_roce_sockaddr(&path->dest, path->dest_port, path->ifindex, &peer);
    const int level = is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6, fd = outlet->fd;
    sw_socket_set(fd, SOL_SOCKET, SO_RCVBUF, 0);
    return sw_socket_set(fd, level, is_ipv4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
                         is_ipv4 ? IP_PMTUDISC_DO : IPV6_PMTUDISC_DO) &&
           sw_socket_set(fd, SOL_SOCKET, SO_REUSEPORT, 1) &&
           bind(fd, (struct sockaddr *)&own, own_len) == 0 &&
           connect(fd, (struct sockaddr *)&peer, peer_len) == 0 &&
           sw_socket_set(fd, level, is_ipv4 ? IP_TOS : IPV6_TCLASS, path->traffic_class) &&
           (!path->hop_limit ||
            sw_socket_set(fd, level, is_ipv4 ? IP_TTL : IPV6_UNICAST_HOPS, path->hop_limit)) &&
           (!is_ipv4 || learn_id(outlet));
}

/* On a huge page where there are any: its messages are one piece each then. A forked child has no
 * use for it, and would make the parent copy it. */
static bool open_ring(struct sw_outlet *outlet)
{
    void *map =
        mmap(NULL, 2 * RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return false;
    outlet->map = map;
    outlet->ring = (uint8_t *)(((uintptr_t)map + RING_BYTES - 1) & ~(uintptr_t)(RING_BYTES - 1));
    madvise(outlet->ring, RING_BYTES, MADV_HUGEPAGE);
    return madvise(map, 2 * RING_BYTES, MADV_DONTFORK) == 0;
}

static void forget(struct sw_outlet *outlet)
{
    outlet->fd = outlet->pipe[0] = outlet->pipe[1] = -1;
    outlet->map = outlet->ring = NULL;
    outlet->wanted = outlet->next_room = outlet->segment_bytes = 0;
    outlet->is_spoilt = outlet->is_piped = false;
    outlet->heard_ns = 0;
    memset(outlet->sent_ns, 0, sizeof(outlet->sent_ns));
}

static void close_ring(struct sw_outlet *outlet)
{
    for (int i = 0; i < 2; i++)
        if (outlet->pipe[i] >= 0)
            close(outlet->pipe[i]);
    if (outlet->map)
        munmap(outlet->map, 2 * RING_BYTES);
    outlet->pipe[0] = outlet->pipe[1] = -1;
    outlet->map = outlet->ring = NULL;
}

static void close_outlet(struct sw_outlet *outlet)
{
    atomic_store(&outlet->is_open, false);
    if (outlet->fd >= 0)
        close(outlet->fd);
    close_ring(outlet);
    forget(outlet);
}

static bool open_pipe(struct sw_outlet *outlet)
{
    if (pipe2(outlet->pipe, O_CLOEXEC | O_NONBLOCK))
        return false;
    for (int i = 0; i < 2; i++)
        outlet->pipe[i] = sw_fd_own(outlet->pipe[i]);
    return true;
}

static void open_outlet(struct sw_outlet *outlet, uint64_t now_ns)
{
    forget(outlet);
    outlet->used_ns = now_ns;
    if (open_socket(outlet)) {
        atomic_store(&outlet->is_open, true);
        sw_debug("many messages to one address: by a connected socket");
        return;
    }
    sw_debug("no connected UDP socket: %s", strerror(errno));
    close_outlet(outlet);
    outlet->wanted_ns = now_ns + IDLE_NS; /* not again before */
}

void sw_outlet_want_ring(struct sw_outlet *outlet)
{
    if (outlet->map || !sw_outlet_is_possible() || outlet->wanted > WANTED_MIN ||
        ++outlet->wanted != WANTED_MIN)
        return;
    if (open_ring(outlet) && open_pipe(outlet)) {
        sw_debug("long messages to one address: their pages are spliced");
        return;
    }
    sw_debug("no splicing to a UDP socket: %s", strerror(errno));
    close_ring(outlet);
    outlet->wanted = WANTED_MIN + 1; /* not again */
}

void sw_outlet_want(struct sw_port *port, const struct sw_roce_path *path, uint64_t now_ns)
{
    struct sw_outlet *mine = NULL;
    if (!path->heard_ns || sw_roce_is_multicast(&path->dest))
        return;
    for (struct sw_outlet *outlet = outlets; outlet < outlets + OUTLETS; outlet++) {
        if (!sw_lock_try(&outlet->lock)) { /* it may be the path's */
            if (mine)
                sw_lock_release(&mine->lock);
            return;
        }
        const bool is_for_it = outlet->port == port && sw_roce_path_is_same(&outlet->path, path);
        const bool is_free = !atomic_load(&outlet->is_open) &&
                             (!outlet->port || now_ns > outlet->wanted_ns + WANTED_NS);
        struct sw_outlet *other = is_for_it || (!mine && is_free) ? mine : outlet;
        if (other)
            sw_lock_release(&other->lock);
        mine = other == outlet ? mine : outlet;
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
        open_outlet(mine, now_ns);
    sw_lock_release(&mine->lock);
}

void sw_outlet_tidy(uint64_t now_ns)
{
    for (struct sw_outlet *outlet = outlets; outlet < outlets + OUTLETS; outlet++)
        if (atomic_load(&outlet->is_open) && sw_lock_try(&outlet->lock)) {
            outlet->used_ns = outlet->was_used ? now_ns : outlet->used_ns;
            outlet->was_used = false;
            if (atomic_load(&outlet->is_open) && now_ns > outlet->used_ns + IDLE_NS)
                close_outlet(outlet);
            sw_lock_release(&outlet->lock);
        }
}

void sw_outlet_close_all(const struct sw_port *port)
{
    for (struct sw_outlet *outlet = outlets; outlet < outlets + OUTLETS; outlet++) {
        sw_lock_acquire(&outlet->lock);
        if (outlet->port == port) {
            if (atomic_load(&outlet->is_open))
                close_outlet(outlet);
            outlet->port = NULL;
        }
        sw_lock_release(&outlet->lock);
    }
}

void sw_outlet_fork_child(void)
{
    for (struct sw_outlet *outlet = outlets; outlet < outlets + OUTLETS; outlet++) {
        outlet->lock = (struct sw_lock){0};
        if (atomic_load(&outlet->is_open)) {
            outlet->map = NULL; /* MADV_DONTFORK */
            close_outlet(outlet);
        }
        outlet->port = NULL;
    }
}

/* ---- sending ---- */

struct sw_outlet *sw_outlet_claim(struct sw_port *port, const struct sw_roce_path *path)
{
    for (struct sw_outlet *outlet = outlets; outlet < outlets + OUTLETS; outlet++) {
        if (!atomic_load_explicit(&outlet->is_open, memory_order_relaxed) ||
            !sw_lock_try(&outlet->lock))
            continue;
        if (atomic_load(&outlet->is_open) && outlet->port == port &&
            sw_roce_path_is_same(&outlet->path, path)) {
            outlet->heard_ns =
                path->heard_ns > outlet->heard_ns ? path->heard_ns : outlet->heard_ns;
            outlet->was_used = true;
            return outlet;
        }
        sw_lock_release(&outlet->lock);
    }
    return NULL;
}

void sw_outlet_release(struct sw_outlet *outlet)
{
    if (outlet->is_spoilt) {
        sw_debug("an outlet is closed after an error: %s", strerror(outlet->error));
        close_outlet(outlet);
    }
    sw_lock_release(&outlet->lock);
}

bool sw_outlet_is_of(const struct sw_outlet *outlet, const struct sw_roce_path *path)
{
    return sw_roce_path_is_same(&outlet->path, path);
}

uint16_t sw_outlet_take_id(struct sw_outlet *outlet)
{
    return outlet->path.is_ipv4 ? outlet->next_id++ : 0;
}

/* The network keeps the order of a path, or loses: so what was sent before something that has
 * arrived is not on its way any more. */
uint8_t *sw_outlet_room(struct sw_outlet *outlet, uint16_t *ip_id)
{
    for (uint32_t tried = 0; outlet->map && tried < ROOMS; tried++) {
        const uint32_t room = outlet->next_room++ % ROOMS;
        if (outlet->sent_ns[room] != FREE && outlet->sent_ns[room] >= outlet->heard_ns)
            continue;
        outlet->sent_ns[room] = FILLED;
        *ip_id = sw_outlet_take_id(outlet);
        return outlet->ring + (size_t)room * SW_OUTLET_ROOM_BYTES;
    }
    return NULL;
}

/* All of these by the bare system calls: libc's are cancellation points, and locks are held. */
static int splice_out(struct sw_outlet *outlet, const uint8_t *room, uint32_t len_bytes)
{
    const struct iovec iov = {(void *)(uintptr_t)room, len_bytes};
    if (!outlet->is_piped &&
        syscall(SYS_vmsplice, outlet->pipe[1], &iov, 1ul, SPLICE_F_NONBLOCK) != (long)len_bytes)
        return -EPIPE;
    outlet->is_piped = true;
    const long done =
        syscall(SYS_splice, outlet->pipe[0], NULL, outlet->fd, NULL, (size_t)len_bytes, 0u);
    if (done != (long)len_bytes)
        return done < 0 ? -errno : -EPIPE;
    outlet->is_piped = false;
    return 0;
}

static int copy_out(const struct sw_outlet *outlet, const uint8_t *room, uint32_t len_bytes)
{
    const long done =
        syscall(SYS_sendto, outlet->fd, room, (size_t)len_bytes, MSG_DONTWAIT, NULL, 0u);
    return done == (long)len_bytes ? 0 : done < 0 ? -errno : -EPIPE;
}

/* What an ICMP message said of an earlier packet is told once; unconnected sockets do not tell. */
bool sw_outlet_is_old_news(int error)
{
    return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH || error == EINTR;
}

int sw_outlet_send(struct sw_outlet *outlet, const uint8_t *room, uint32_t len_bytes,
                   uint32_t segment_bytes)
{
    const bool splices = len_bytes >= SPLICED_MIN;
    int rc = 0;
    if (outlet->is_spoilt)
        return -EPIPE;
    if (outlet->segment_bytes != segment_bytes) {
        if (!sw_socket_set(outlet->fd, IPPROTO_UDP, UDP_SEGMENT, (int)segment_bytes))
            rc = -errno;
        outlet->segment_bytes = segment_bytes;
    }
    for (int tries = 0; !rc && tries < 4; tries++) {
        rc = splices ? splice_out(outlet, room, len_bytes) : copy_out(outlet, room, len_bytes);
        if (!sw_outlet_is_old_news(-rc))
            break;
        rc = tries == 3 ? rc : 0;
    }
    if (rc == -EAGAIN)
        return rc;
    outlet->sent_ns[(size_t)(room - outlet->ring) / SW_OUTLET_ROOM_BYTES] =
        splices ? sw_clock_ns() : FREE;
    outlet->is_spoilt = rc != 0;
    outlet->error = -rc;
    return rc;
}

void sw_outlet_give_up(struct sw_outlet *outlet, int error)
{
    outlet->is_spoilt = true;
    outlet->error = error;
}

bool sw_outlet_is_spoilt(const struct sw_outlet *outlet)
{
    return outlet->is_spoilt;
}

int sw_outlet_fd(const struct sw_outlet *outlet)
{
    return outlet->fd;
}

uint32_t sw_outlet_segment(const struct sw_outlet *outlet)
{
    return outlet->segment_bytes;
}
