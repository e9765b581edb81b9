/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A link between two network namespaces that loses frames, sends them twice, or lets the next one
 * pass: a TAP device in each, and this process between them. Frames have no offloads, so each has
 * one segment of TCP. Which ones they are is decided by a seed. Says "ready" once both devices are
 * there; SIGTERM and the end of its parent end it, and it says how many there were.
 *
 * usage: lossy_link NAMESPACE NAMESPACE DEVICE LOST_PER_MILLE SEED [DOUBLED_PER_MILLE
 *        SWAPPED_PER_MILLE]
 */
#include "endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#define FRAME_BYTES 65536u
#define FRAMES_IN_TURN 64 /* of one direction before the other has its turn */
#define ETHERNET_BYTES 14u
#define HELD_MS 2

static uint64_t random_state;

/* splitmix64 */
static uint64_t lossy_next_random(void)
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int open_tap(const char *space, const char *device)
{
    char path[256];
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    snprintf(path, sizeof(path), "/run/netns/%s", space);
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", device);
    const int at = open(path, O_RDONLY | O_CLOEXEC);
    if (at < 0 || setns(at, CLONE_NEWNET))
        bench_die("cannot enter %s: %s", path, strerror(errno));
    close(at);
    const int tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (tap < 0 || ioctl(tap, TUNSETIFF, &request))
        bench_die("no TAP device in %s: %s", space, strerror(errno));
    return tap;
}

/* ARP is not TCP's, and always passes. */
static bool is_ip(const unsigned char *frame, ssize_t len)
{
    return len > (ssize_t)ETHERNET_BYTES && !(frame[12] == 0x08 && frame[13] == 0x06);
}

static struct {
    unsigned long per_mille, count;
} lost, doubled, swapped;

static volatile sig_atomic_t has_ended;

static void lossy_note_end(int number)
{
    (void)number;
    has_ended = 1;
}

static bool draw_one(unsigned long per_mille, unsigned long *count)
{
    const bool is_drawn = lossy_next_random() % 1000 < per_mille;
    *count += is_drawn;
    return is_drawn;
}

/* One direction, and the frame that the next one passes; of 0 bytes: none. */
struct lossy_way {
    int from, to;
    size_t held_bytes;
    unsigned char held[FRAME_BYTES];
};

static void put_frame(const struct lossy_way *way, const unsigned char *frame, size_t bytes)
{
    while (write(way->to, frame, bytes) < 0 && errno == EAGAIN)
        ;
}

static void release_held(struct lossy_way *way)
{
    if (way->held_bytes)
        put_frame(way, way->held, way->held_bytes);
    way->held_bytes = 0;
}

static void pass_frame(struct lossy_way *way, const unsigned char *frame, size_t bytes)
{
    const bool is_subject = is_ip(frame, (ssize_t)bytes);
    if (is_subject && draw_one(lost.per_mille, &lost.count))
        return;
    if (is_subject && !way->held_bytes && draw_one(swapped.per_mille, &swapped.count)) {
        memcpy(way->held, frame, bytes);
        way->held_bytes = bytes;
        return;
    }
    put_frame(way, frame, bytes);
    if (is_subject && draw_one(doubled.per_mille, &doubled.count))
        put_frame(way, frame, bytes);
    release_held(way);
}

static void pass_frames(struct lossy_way *way)
{
    static unsigned char frame[FRAME_BYTES];
    for (int i = 0; i < FRAMES_IN_TURN; i++) {
        const ssize_t len = read(way->from, frame, sizeof(frame));
        if (len <= 0)
            return;
        pass_frame(way, frame, (size_t)len);
    }
}

/* Until the signal. A frame behind which none comes leaves after HELD_MS. */
static void run_link(struct lossy_way ways[2])
{
    struct pollfd taps[2] = {{ways[0].from, POLLIN, 0}, {ways[1].from, POLLIN, 0}};
    while (!has_ended) {
        const bool has_held = ways[0].held_bytes || ways[1].held_bytes;
        const int found = poll(taps, 2, has_held ? HELD_MS : -1);
        if (found < 0 && errno != EINTR)
            bench_die("poll: %s", strerror(errno));
        for (int i = 0; i < 2; i++)
            if (!found)
                release_held(&ways[i]);
            else if (found > 0 && taps[i].revents & POLLIN)
                pass_frames(&ways[i]);
    }
}

int main(int argc, char **argv)
{
    static struct lossy_way ways[2];
    if (argc != 6 && argc != 8)
        bench_die("usage: lossy_link NAMESPACE NAMESPACE DEVICE LOST_PER_MILLE SEED "
                  "[DOUBLED_PER_MILLE SWAPPED_PER_MILLE]");
    lost.per_mille = strtoul(argv[4], NULL, 10);
    random_state = strtoull(argv[5], NULL, 10);
    doubled.per_mille = argc == 8 ? strtoul(argv[6], NULL, 10) : 0;
    swapped.per_mille = argc == 8 ? strtoul(argv[7], NULL, 10) : 0;
    for (int i = 0; i < 2; i++)
        ways[i].from = ways[!i].to = open_tap(argv[1 + i], argv[3]);
    signal(SIGTERM, lossy_note_end);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    printf("ready\n");
    fflush(stdout);
    run_link(ways);
    printf("%lu lost, %lu doubled, %lu swapped\n", lost.count, doubled.count, swapped.count);
    return 0;
}
