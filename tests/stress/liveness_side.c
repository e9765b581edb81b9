/* SPDX-License-Identifier: BSD-2-Clause */
#include "liveness_side.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KNOWN_MS 1000 /* after the kernel has ended it: let_die() */
#define PATIENT 18    /* a timeout of a second */
#define PAUSE_US 2000

static bool owns(pid_t pid, unsigned long inode, int *count)
{
    char path[64], wanted[64], seen[64];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    DIR *dir = opendir(path);
    VU_TRUE(dir);
    *count = 0;
    for (struct dirent *entry; (entry = readdir(dir)); ++*count) {
        const ssize_t len = readlinkat(dirfd(dir), entry->d_name, seen, sizeof(seen) - 1);
        seen[len > 0 ? len : 0] = 0;
        found |= !strcmp(seen, wanted);
    }
    closedir(dir);
    return found;
}

enum { TCP_STANDS = 0x01, TCP_LISTENS = 0x0a };

/* The port of one in that state; 0: it has none. */
static uint16_t tcp_port(const char *table, pid_t pid, unsigned int wanted)
{
    char line[512];
    unsigned int port, state;
    unsigned long inode;
    int count;
    FILE *file = fopen(table, "re");
    VU_TRUE(file);
    uint16_t found = 0;
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "%*d: %*[0-9A-F]:%x %*s %x %*s %*s %*s %*u %*d %lu", &port, &state,
                   &inode) == 3 &&
            state == wanted && owns(pid, inode, &count))
            found = (uint16_t)port;
    fclose(file);
    return found;
}

uint16_t side_port_of(pid_t pid)
{
    const uint16_t port = tcp_port("/proc/net/tcp", pid, TCP_LISTENS);
    VU_CHECK(port, "process %d does not listen", (int)pid);
    return port;
}

int side_descriptors_of(pid_t pid)
{
    int count;
    owns(pid, 0, &count);
    return count;
}

bool side_is_by_packets(void)
{
    const char *link = getenv("SIDEWIRE_LINK");
    return getenv("VU_HOSTS") || (link && !strcmp(link, "roce"));
}

void side_tell(int control)
{
    char word = 'r';
    vu_put(control, &word, 1);
}

/* Thirty processes that spin leave so little of two processors that the kernel's own threads wait
 * for seconds on some kernels, and with them what all others ask of it. */
bool side_step(struct traffic *traffic, bool initiate)
{
    const bool goes_on = traffic_step(traffic, initiate);
    if (goes_on)
        usleep(PAUSE_US);
    return goes_on;
}

/* Waits for a peer that takes no part in docs/liveness.md and may get no processor for long: until
 * its first packet is here, it is a plain one, and retries count as asked. */
static void hear_peer(struct side *side, struct traffic *traffic)
{
    char word;
    while (!vu_try_get(side->sock, &word, 1, 0))
        VU_TRUE(side_step(traffic, false));
}

/* The other one may get no processor, either, but it is waited for. */
static void be_heard(struct side *side, struct traffic *traffic)
{
    while (!traffic->completed)
        VU_TRUE(side_step(traffic, true));
    side_tell(side->sock);
}

void side_connect(struct side *side, struct traffic *traffic, uint8_t mark)
{
    const struct scenario *scenario = side->scenario;
    const bool is_first = scenario->kind == LINELESS && mark == MARK_THERE;
    traffic_memory(traffic, &side->dev, mark);
    traffic->retries = is_first ? 7 : scenario->retries;
    VU_TRUE(traffic_connect(traffic, side->sock, mark, is_first ? PATIENT : scenario->timeout));
    if (scenario->kind == LINELESS)
        (is_first ? be_heard : hear_peer)(side, traffic);
}

void side_run(struct traffic *traffic, unsigned int ms)
{
    for (uint64_t end = vu_now_ms() + ms; vu_now_ms() < end;)
        VU_CHECK(side_step(traffic, true), "%s", ibv_wc_status_str(traffic->failed));
}

void there_traffic(struct side *side)
{
    struct traffic traffic;
    side_connect(side, &traffic, MARK_THERE);
    while (side_step(&traffic, true))
        continue;
    _exit(0); /* the other one went away */
}

uint64_t side_ended_ms(const struct side *side)
{
    uint64_t ms;
    vu_get(side->control, &ms, sizeof(ms));
    return ms;
}

void side_report_death(const struct side *side)
{
    const uint64_t now_ms = vu_now_ms(), since_ms = side_ended_ms(side),
                   took_ms = now_ms > since_ms ? now_ms - since_ms : 0;
    printf("%s: known after %llu ms\n", side->scenario->name, (unsigned long long)took_ms);
    fflush(stdout);
    VU_CHECK(took_ms < KNOWN_MS, "known after %llu ms", (unsigned long long)took_ms);
}

void side_await_line(struct traffic *traffic)
{
    for (uint64_t end = vu_now_ms() + 15000; side_is_by_packets() && vu_now_ms() < end;) {
        if (tcp_port("/proc/net/tcp", getpid(), TCP_STANDS) ||
            tcp_port("/proc/net/tcp6", getpid(), TCP_STANDS))
            return;
        traffic ? side_run(traffic, 20) : vu_sleep_ms(20);
    }
}
