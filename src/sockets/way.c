/* SPDX-License-Identifier: BSD-2-Clause */
#include "sockets/way.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "sockets/rdma.h"
#include "sockets/real.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sw_published_header *header; /* records follow */
static int published_fd = -1;

static struct sw_published_record *own_records(void)
{
    return (struct sw_published_record *)(header + 1);
}

/* Under the lock. Pages that no record was ever in take no memory. */
static bool way_publish_records(void)
{
    if (header)
        return true;
    size_t size = sizeof(*header) + SW_PUBLISHED_CAPACITY * sizeof(struct sw_published_record);
    int fd = memfd_create(SW_PUBLISHED_NAME, MFD_CLOEXEC);
    void *made = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
        made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (made == MAP_FAILED) {
        sw_warn("sockets: nothing is published for `sidewire status`: %s", strerror(errno));
        if (fd >= 0)
            SW_REAL(close)(fd);
        return false;
    }
    /* Out of the way of programs that count on low numbers. */
    int high = SW_REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 512);
    if (high >= 0) {
        SW_REAL(close)(fd);
        fd = high;
    }
    published_fd = fd;
    header = made;
    header->magic = SW_PUBLISHED_MAGIC;
    header->capacity = SW_PUBLISHED_CAPACITY;
    header->pid = (int32_t)getpid();
    return true;
}

/* Under the lock: a free record, -1: all are in use. */
static int record_find(void)
{
    static uint32_t at;
    for (uint32_t i = 0; i < SW_PUBLISHED_CAPACITY; i++) {
        uint32_t number = i < header->used ? (at + i) % header->used : i;
        if (own_records()[number].way == SW_WAY_NONE) {
            if (number >= header->used)
                __atomic_store_n(&header->used, number + 1, __ATOMIC_RELEASE);
            at = number;
            return (int)number;
        }
    }
    return -1;
}

static void record_write(int number, const struct sw_published_record *what)
{
    struct sw_published_record *record = &own_records()[number];
    uint32_t seq = record->seq;
    /* Nothing of what follows becomes visible before it: no fence, which TSan does not know. */
    __atomic_exchange_n(&record->seq, seq + 1, __ATOMIC_ACQ_REL);
    size_t head = sizeof(record->seq);
    memcpy((char *)record + head, (const char *)what + head, sizeof(*record) - head);
    __atomic_store_n(&record->seq, seq + 2, __ATOMIC_RELEASE);
}

static void addresses_of(struct sw_sock *sock, int fd, struct sw_published_record *out)
{
    socklen_t local = sizeof(out->local), peer = sizeof(out->peer);
    int rs = sw_sock_rs(sock);
    if (sw_way_is_rdma((int)out->way) && rs >= 0) {
        sw_rdma.rgetsockname(rs, &out->local.sa, &local);
        sw_rdma.rgetpeername(rs, &out->peer.sa, &peer);
    } else {
        SW_REAL(getsockname)(fd, &out->local.sa, &local);
        if (out->way == SW_WAY_LISTEN || SW_REAL(getpeername)(fd, &out->peer.sa, &peer))
            out->peer.sa.sa_family = AF_UNSPEC;
    }
}

/* "10.0.0.1:80", "[::1]:80" */
static const char *way_print_address(const union sw_address *address, char out[SW_ADDRESS_TEXT])
{
    char text[INET6_ADDRSTRLEN];
    if (address->sa.sa_family == AF_INET)
        snprintf(out, SW_ADDRESS_TEXT, "%s:%u",
                 inet_ntop(AF_INET, &address->in.sin_addr, text, sizeof(text)),
                 ntohs(address->in.sin_port));
    else if (address->sa.sa_family == AF_INET6)
        snprintf(out, SW_ADDRESS_TEXT, "[%s]:%u",
                 inet_ntop(AF_INET6, &address->in6.sin6_addr, text, sizeof(text)),
                 ntohs(address->in6.sin6_port));
    else
        snprintf(out, SW_ADDRESS_TEXT, "-");
    return out;
}

/* Programs that fall back do not do so unheard: the first connection of either direction is told as
 * a warning. */
static void say_way(const struct sw_published_record *what)
{
    static atomic_bool warned[3];
    static const char *const words[] = {
        [SW_WAY_DIRECT] = "rdma direct", [SW_WAY_ROCE] = "rdma roce", [SW_WAY_TCP] = "tcp"};
    char local[SW_ADDRESS_TEXT], peer[SW_ADDRESS_TEXT];
    way_print_address(&what->local, local);
    way_print_address(&what->peer, peer);
    bool listens = what->way == SW_WAY_LISTEN;
    bool is_fallback = what->way == SW_WAY_TCP || (listens && *what->reason);
    bool is_first = is_fallback && !atomic_exchange(&warned[listens ? 2 : what->incoming], true);
    enum sw_log_level level = is_first ? SW_LOG_WARN : SW_LOG_INFO;
    const char *more = is_first ? " (later ones are told with SIDEWIRE_LOG=info)" : "";
    if (listens)
        sw_log(level, "sockets: fd %d listens at %s by %s%s%s%s", what->fd, local,
               is_fallback ? "tcp only" : "rdma and tcp", is_fallback ? ": " : "", what->reason,
               more);
    else
        sw_log(level, "sockets: fd %d %s %s (local %s) by %s: %s%s", what->fd,
               what->incoming ? "from" : "to", peer, local, words[what->way], what->reason, more);
}

void sw_way_tell(struct sw_sock *sock, int fd, enum sw_way way, bool incoming, const char *reason)
{
    int saved_errno = errno;
    struct sw_published_record what = {.way = way, .fd = fd, .incoming = incoming};
    addresses_of(sock, fd, &what);
    snprintf(what.reason, sizeof(what.reason), "%s", reason);
    atomic_store_explicit(&sock->way, (int)way, memory_order_release);
    pthread_mutex_lock(&lock);
    if (way_publish_records()) {
        if (sock->record < 0)
            sock->record = record_find();
        if (sock->record >= 0)
            record_write(sock->record, &what);
        else
            header->untold++;
    }
    pthread_mutex_unlock(&lock);
    say_way(&what);
    errno = saved_errno;
}

void sw_way_forget(struct sw_sock *sock)
{
    pthread_mutex_lock(&lock);
    if (sock->record >= 0)
        record_write(sock->record, &(struct sw_published_record){.way = SW_WAY_NONE});
    sock->record = -1;
    pthread_mutex_unlock(&lock);
}

void sw_way_forked(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (!header)
        return;
    munmap(header, sizeof(*header) + SW_PUBLISHED_CAPACITY * sizeof(struct sw_published_record));
    SW_REAL(close)(published_fd);
    header = NULL;
    published_fd = -1;
}

static bool way_can_bind(const union sw_address *address)
{
    union sw_address any_port = *address;
    any_port.in.sin_port = 0; /* at the same place in both */
    int fd = SW_REAL(socket)(address->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t len = address->sa.sa_family == AF_INET ? sizeof(address->in) : sizeof(address->in6);
    bool bound = fd >= 0 && SW_REAL(bind)(fd, &any_port.sa, len) == 0;
    if (fd >= 0)
        SW_REAL(close)(fd);
    return bound;
}

/* Each program may connect to these, which no interface needs to have: 127.0.0.2, 0.0.0.0. */
static bool is_loopback(const union sw_address *address)
{
    if (address->sa.sa_family == AF_INET)
        return (ntohl(address->in.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET ||
               address->in.sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_LOOPBACK(&address->in6.sin6_addr) ||
           IN6_IS_ADDR_UNSPECIFIED(&address->in6.sin6_addr);
}

static bool way_same_address(const struct sockaddr *own, const union sw_address *address)
{
    if (!own || own->sa_family != address->sa.sa_family)
        return false;
    if (own->sa_family == AF_INET)
        return ((const struct sockaddr_in *)own)->sin_addr.s_addr == address->in.sin_addr.s_addr;
    return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)own)->sin6_addr,
                              &address->in6.sin6_addr);
}

static bool has_interface(const union sw_address *address)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all))
        return false;
    const struct ifaddrs *one = all;
    while (one && !way_same_address(one->ifa_addr, address))
        one = one->ifa_next;
    bool found = one != NULL;
    freeifaddrs(all);
    return found;
}

/* An address that cannot be bound to is another host's: that is quick to find. One that can be need
 * not be ours, as hosts that take over addresses set net.ipv4.ip_nonlocal_bind. */
bool sw_way_is_here(const union sw_address *peer)
{
    return way_can_bind(peer) && (is_loopback(peer) || has_interface(peer));
}

/* As link/link.c decides it. */
enum sw_way sw_way_of_peer(const union sw_address *peer, const char **reason)
{
    const char *link = getenv("SIDEWIRE_LINK"), *direct = getenv("SIDEWIRE_DIRECT");
    if (link && !strcmp(link, "roce")) {
        *reason = "SIDEWIRE_LINK=roce";
        return SW_WAY_ROCE;
    }
    bool wants_direct = link && !strcmp(link, "direct");
    if (!wants_direct && direct && !strcmp(direct, "off")) {
        *reason = "SIDEWIRE_DIRECT=off";
        return SW_WAY_ROCE;
    }
    if (!sw_way_is_here(peer)) {
        *reason = "the peer is on another host";
        return SW_WAY_ROCE;
    }
    *reason = "the peer is on this host";
    return SW_WAY_DIRECT;
}
