/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/paired/hosts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/log.h"
#include "link/paired/socket.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"

#define HOSTS 256u
#define KNOWN_NS (300 * SW_NS_PER_S) /* then UDP is tried again */
#define UNANSWERED 2u                /* messages said again, in a row: then they go by TCP, too */

struct host {
    struct in6_addr address;
    uint64_t used_ns;
    uint64_t found_ns, streamed_ns;    /* 0: never */
    uint64_t carried_ns, by_packet_ns; /* when a message came, by TCP and by UDP; 0: never */
    uint32_t unanswered;               /* messages said again since one came */
    bool is_told;
};

static struct host hosts[HOSTS];
static atomic_uint count;
static atomic_bool has_found; /* for datagrams, ever: their sender asks each time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* With the lock held. NULL: it is not there. */
static struct host *find_host(const struct in6_addr *address)
{
    for (uint32_t i = 0; i < count; i++)
        if (IN6_ARE_ADDR_EQUAL(&hosts[i].address, address))
            return &hosts[i];
    return NULL;
}

/* A new one takes the place of that of which nothing was heard for longest. */
static struct host *have_host(const struct in6_addr *address, uint64_t now_ns)
{
    struct host *host = find_host(address);
    if (!host && count < HOSTS) {
        host = &hosts[count++];
        *host = (struct host){.address = *address};
    }
    if (!host) {
        host = &hosts[0];
        for (uint32_t i = 1; i < HOSTS; i++)
            if (hosts[i].used_ns < host->used_ns)
                host = &hosts[i];
        *host = (struct host){.address = *address};
    }
    host->used_ns = now_ns;
    return host;
}

static bool is_recent(uint64_t at_ns, uint64_t now_ns)
{
    return at_ns && now_ns < at_ns + KNOWN_NS;
}

void sw_hosts_note_found(const struct in6_addr *address)
{
    const uint64_t now_ns = sw_clock_ns();
    char text[SW_ROCE_ADDRESS_TEXT];
    pthread_mutex_lock(&lock);
    struct host *host = have_host(address, now_ns);
    const bool is_told = host->is_told;
    host->found_ns = now_ns;
    atomic_store(&has_found, true);
    host->is_told = true;
    pthread_mutex_unlock(&lock);
    if (!is_told) /* a warning: its owner may have meant UDP to pass */
        sw_warn("nothing comes from %s by UDP port %u, and TCP port %u answers: queue pairs to it "
                "go over TCP",
                sw_roce_address_text(address, text), SW_ROCE_PORT, sw_paired_port());
}

bool sw_hosts_is_found(const struct in6_addr *address)
{
    if (!atomic_load_explicit(&has_found, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&lock);
    const struct host *host = find_host(address);
    const bool is_found = host && is_recent(host->found_ns, sw_clock_ns());
    pthread_mutex_unlock(&lock);
    return is_found;
}

void sw_hosts_note_stream(const struct in6_addr *address)
{
    const uint64_t now_ns = sw_clock_ns();
    pthread_mutex_lock(&lock);
    have_host(address, now_ns)->streamed_ns = now_ns;
    pthread_mutex_unlock(&lock);
}

void sw_hosts_note_message(const struct in6_addr *address, bool is_carried)
{
    if (!atomic_load_explicit(&count, memory_order_relaxed))
        return;
    const uint64_t now_ns = sw_clock_ns();
    pthread_mutex_lock(&lock);
    struct host *host = find_host(address);
    if (host) {
        host->unanswered = 0;
        *(is_carried ? &host->carried_ns : &host->by_packet_ns) = now_ns;
        if (is_carried)
            atomic_store(&has_found, true);
    }
    pthread_mutex_unlock(&lock);
}

bool sw_hosts_wants_datagrams(const struct in6_addr *address)
{
    if (!atomic_load_explicit(&has_found, memory_order_relaxed))
        return false;
    const uint64_t now_ns = sw_clock_ns();
    pthread_mutex_lock(&lock);
    const struct host *host = find_host(address);
    const bool wants =
        host && (is_recent(host->found_ns, now_ns) ||
                 (is_recent(host->carried_ns, now_ns) && !is_recent(host->by_packet_ns, now_ns)));
    pthread_mutex_unlock(&lock);
    return wants;
}

bool sw_hosts_wants_copy(const struct in6_addr *address, bool is_again)
{
    if (!is_again && !atomic_load_explicit(&count, memory_order_relaxed))
        return false;
    const uint64_t now_ns = sw_clock_ns();
    pthread_mutex_lock(&lock);
    struct host *host = is_again ? have_host(address, now_ns) : find_host(address);
    if (is_again && host->unanswered < UNANSWERED)
        host->unanswered++;
    const bool wants =
        host && (host->unanswered == UNANSWERED || is_recent(host->streamed_ns, now_ns));
    pthread_mutex_unlock(&lock);
    return wants;
}

void sw_hosts_fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
}
