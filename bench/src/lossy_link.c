/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A link between two network namespaces that loses frames: a TAP device in each, and this process
 * between them. Frames have no offloads, so each has one segment of TCP. Which ones are lost is
 * decided by a seed. Says "ready" once both devices are there, and ends by a signal.
 *
 * usage: lossy_link NAMESPACE NAMESPACE DEVICE LOST_PER_MILLE SEED
 */
#include "endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FRAME_BYTES 65536u
#define FRAMES_IN_TURN 64 /* of one direction before the other has its turn */
#define ETHERNET_BYTES 14u

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

static void pass_frames(int from, int to, unsigned long lost_per_mille)
{
    static unsigned char frame[FRAME_BYTES];
    for (int i = 0; i < FRAMES_IN_TURN; i++) {
        const ssize_t len = read(from, frame, sizeof(frame));
        if (len <= 0)
            return;
        if (is_ip(frame, len) && lossy_next_random() % 1000 < lost_per_mille)
            continue;
        while (write(to, frame, (size_t)len) < 0 && errno == EAGAIN)
            ;
    }
}

int main(int argc, char **argv)
{
    if (argc != 6)
        bench_die("usage: lossy_link NAMESPACE NAMESPACE DEVICE LOST_PER_MILLE SEED");
    const unsigned long lost_per_mille = strtoul(argv[4], NULL, 10);
    random_state = strtoull(argv[5], NULL, 10);
    struct pollfd taps[2];
    for (int i = 0; i < 2; i++)
        taps[i] = (struct pollfd){open_tap(argv[1 + i], argv[3]), POLLIN, 0};
    printf("ready\n");
    fflush(stdout);
    while (poll(taps, 2, -1) > 0 || errno == EINTR)
        for (int i = 0; i < 2; i++)
            if (taps[i].revents & POLLIN)
                pass_frames(taps[i].fd, taps[!i].fd, lost_per_mille);
    bench_die("poll: %s", strerror(errno));
}
