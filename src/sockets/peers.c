/* SPDX-License-Identifier: BSD-2-Clause */
#include "sockets/peers.h"

#include <linux/tcp.h>
#include <string.h>

#include "base/clock.h"
#include "sockets/real.h"

/* How long a host that did not answer is not asked again. */
#define SILENT_NS (30 * SW_NS_PER_S)

/* Brief: closed with fewer messages, in both directions together, and within this time. A
 * connection that lives longer is rare enough for its cost not to matter. */
enum { MESSAGES_FEW = 256 };
#define BRIEF_NS SW_NS_PER_S
/* So many in succession are believed, as long as they follow each other within this time. */
enum { BRIEF_MANY = 8 };
#define BRIEF_PAUSE_NS SW_NS_PER_S

enum { PLACES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    struct in6_addr address;
    uint64_t until_ns;
} silent[PLACES];

static struct brief {
    struct in6_addr address;
    in_port_t port;
    unsigned count; /* in succession */
    uint64_t last_ns;
} brief[PLACES];

struct in6_addr sw_peers_key_of(const union sw_address *address)
{
    struct in6_addr key = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    if (address->sa.sa_family == AF_INET6)
        return address->in6.sin6_addr;
    memcpy(&key.s6_addr[12], &address->in.sin_addr, 4);
    return key;
}

static unsigned peers_place_of(const struct in6_addr *key, in_port_t port)
{
    unsigned hash = port;
    for (int i = 0; i < 16; i++)
        hash = hash * 31 + key->s6_addr[i];
    return hash % PLACES;
}

bool sw_peers_is_silent(const union sw_address *peer)
{
    struct in6_addr key = sw_peers_key_of(peer);
    unsigned place = peers_place_of(&key, 0);
    pthread_mutex_lock(&lock);
    bool known = !memcmp(&silent[place].address, &key, sizeof(key)) &&
                 sw_clock_ns() < silent[place].until_ns;
    pthread_mutex_unlock(&lock);
    return known;
}

void sw_peers_note_silent(const union sw_address *peer)
{
    struct in6_addr key = sw_peers_key_of(peer);
    unsigned place = peers_place_of(&key, 0);
    pthread_mutex_lock(&lock);
    silent[place].address = key;
    silent[place].until_ns = sw_clock_ns() + SILENT_NS;
    pthread_mutex_unlock(&lock);
}

/* Under the lock: what is known of a server. Two that share a place forget each other. */
static struct brief *find_brief(const union sw_address *peer, uint64_t now_ns)
{
    struct in6_addr key = sw_peers_key_of(peer);
    in_port_t port = peer->in.sin_port; /* at the same place in both */
    struct brief *found = &brief[peers_place_of(&key, port)];
    if (found->port != port || memcmp(&found->address, &key, sizeof(key)) ||
        now_ns - found->last_ns > BRIEF_PAUSE_NS)
        *found = (struct brief){.address = key, .port = port, .last_ns = now_ns};
    return found;
}

bool sw_peers_is_brief(const union sw_address *peer)
{
    pthread_mutex_lock(&lock); /* before the clock is read: it is later than what is noted */
    bool is_brief = find_brief(peer, sw_clock_ns())->count >= BRIEF_MANY;
    pthread_mutex_unlock(&lock);
    return is_brief;
}

void sw_peers_begin(struct sw_sock *sock, const union sw_address *peer)
{
    sock->asked = *peer;
    sock->asked_ns = sw_clock_ns();
}

/* For a connection by TCP the kernel counts the segments, each of which is a message or a part of
 * one. False: it never was one, or the descriptor is another by now. */
static bool count_messages(const struct sw_sock *sock, int fd, uint64_t *out)
{
    if (sw_way_is_rdma(sw_sock_way(sock))) {
        *out = atomic_load_explicit(&sock->messages, memory_order_relaxed);
        return true;
    }
    struct tcp_info info;
    socklen_t len = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (SW_REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, &info, &len) || !info.tcpi_segs_in)
        return false;
    *out = (uint64_t)info.tcpi_data_segs_in + info.tcpi_data_segs_out;
    return true;
}

void sw_peers_end(struct sw_sock *sock, int fd)
{
    uint64_t messages;
    if (!sock->asked_ns || !count_messages(sock, fd, &messages))
        return;
    pthread_mutex_lock(&lock);
    uint64_t now_ns = sw_clock_ns();
    struct brief *known = find_brief(&sock->asked, now_ns);
    bool was_brief = messages < MESSAGES_FEW && now_ns - sock->asked_ns < BRIEF_NS;
    known->count = was_brief ? known->count + 1 : 0;
    known->last_ns = now_ns;
    pthread_mutex_unlock(&lock);
}

void sw_peers_forked(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
