/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A member of a group without a target: a namespace is a file that it writes nothing to. It tells
 * each event in a line on standard output, and takes orders on standard input: "leave", "reserve N"
 * (a registrant with that key), "refuse" (takes that come), "lose", "grow", "quiesce SLOT CIRN" (a
 * controller), "status", "end". To fence a former, it kills it.
 *
 * usage: member NQN NAME GROUP-PORT TIMEOUT-MS MEDIUM NAMESPACES COPY-PORT...
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nvme/target/group/group.h"

static struct nvg_group *group;
static struct nvg_event event;
static uint64_t epochs[NVG_NSID_MAX + 1];
static uint64_t next_id;
static bool refuses;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fence_formers(void)
{
    for (uint32_t i = 0; i < event.former_count; i++)
        if (event.formers[i].pid != getpid())
            kill(event.formers[i].pid, SIGKILL);
}

static void show_status(void)
{
    static struct nvg_status status;
    nvg_status_of(group, &status);
    printf("status role=%d leader=%s quorum=%d members=", status.role, status.leader,
           status.has_quorum);
    for (uint32_t i = 0; i < status.member_count; i++)
        printf("%s%s%s", i ? "," : "", status.members[i].name,
               status.members[i].is_here ? "" : "(left)");
    for (uint32_t i = 0; i < status.namespace_count; i++)
        printf(" %u=%s:%d:%" PRIu64, status.namespaces[i].about.nsid, status.namespaces[i].member,
               status.namespaces[i].phase, status.namespaces[i].epoch);
    printf("\n");
}

/* False: it is over. */
static bool take_event(void)
{
    static const char *const names[] = {[NVG_STANDBY] = "STANDBY",
                                        [NVG_TAKE] = "TAKE",
                                        [NVG_SERVE] = "SERVE",
                                        [NVG_RELEASE] = "RELEASE",
                                        [NVG_RESIZED] = "RESIZED",
                                        [NVG_MEMBERS] = "MEMBERS",
                                        [NVG_COMMITTED] = "COMMITTED",
                                        [NVG_RESERVED] = "RESERVED",
                                        [NVG_QUIESCE] = "QUIESCE",
                                        [NVG_QUIETED] = "QUIETED",
                                        [NVG_CALM_DOWN] = "CALM_DOWN",
                                        [NVG_DISK_IS] = "DISK_IS",
                                        [NVG_STOP] = "STOP"};
    if (event.kind != NVG_MEMBERS)
        printf("%.3f %s nsid=%u epoch=%" PRIu64 " member=%s formers=%u id=%" PRIu64
               " status=%d disk=%u key=%" PRIu64 " cirn=%" PRIu64 " quiet=%d %s\n",
               now_s(), names[event.kind], event.nsid, event.epoch, event.member,
               event.former_count, event.id, event.status, event.disk_error,
               event.reservation.count ? event.reservation.registrants[0].key : 0,
               event.controller.lost.instance.cirn, (int)event.quiet, event.text);
    if (event.kind == NVG_QUIESCE) /* those of odd numbers are its own */
        nvg_quieted(group, &event.controller,
                    event.controller.lost.instance.cirn % 2 ? NVT_QUIET : NVT_QUIET_UNKNOWN);
    if (event.kind == NVG_CALM_DOWN)
        nvg_calmed(group, event.id);
    if (event.kind == NVG_TAKE && refuses) {
        printf("nsid=%u is not taken over: as it was asked to\n", event.nsid);
        nvg_failed(group, event.nsid, event.epoch);
    }
    if (event.kind == NVG_TAKE && !refuses) {
        fence_formers();
        nvg_taken(group, event.nsid, event.epoch, 1 << 20);
    }
    if (event.kind == NVG_SERVE)
        epochs[event.nsid] = event.epoch;
    if (event.kind == NVG_RELEASE)
        nvg_released(group, event.nsid, event.epoch);
    return event.kind != NVG_STOP;
}

static bool take_order(char *line)
{
    if (!strncmp(line, "leave", 5))
        nvg_leave(group);
    refuses |= !strncmp(line, "refuse", 6);
    if (!strncmp(line, "lose", 4))
        nvg_lost(group, 1, epochs[1], "as it was asked to");
    if (!strncmp(line, "grow", 4))
        nvg_resized(group, 1, epochs[1], 2 << 20);
    if (!strncmp(line, "status", 6))
        show_status();
    if (!strncmp(line, "reserve ", 8)) {
        struct nvt_reservation reservation = {.generation = (uint32_t)next_id, .count = 1};
        reservation.registrants[0].key = strtoull(line + 8, NULL, 10);
        const int code = nvg_reserve(group, 1, epochs[1], &reservation, ++next_id);
        if (code)
            printf("refused %d\n", code);
    }
    if (!strncmp(line, "disk ", 5))
        printf("said %d\n", nvg_disk(group, 1, (uint32_t)atoi(line + 5)));
    if (!strncmp(line, "move ", 5)) {
        uint64_t epoch = 0;
        line[strcspn(line, "\n")] = 0;
        printf("moves %d\n", nvg_move(group, &(struct nvg_moved){.nsid = 1}, line + 5, &epoch));
    }
    if (!strncmp(line, "quiesce ", 8)) {
        struct nvg_controller of = {.lost.instance = {.cntlid = 7, .ciu = 1}};
        unsigned slot = 0;
        if (sscanf(line + 8, "%u %" SCNu64, &slot, &of.lost.instance.cirn) == 2)
            of.slot = (uint8_t)slot;
        printf("asked %d\n", nvg_quiesce(group, &of));
    }
    return strncmp(line, "end", 3);
}

static void join(int argc, char **argv)
{
    static struct nvg_namespace namespaces[NVG_NAMESPACES_MAX];
    struct nvg_settings settings = {.nqn = argv[1],
                                    .member = argv[2],
                                    .group_address = "127.0.0.1",
                                    .group_port = argv[3],
                                    .timeout_ms = (uint32_t)atoi(argv[4]),
                                    .namespace_count = (uint32_t)atoi(argv[6]),
                                    .namespaces = namespaces,
                                    .open_ms = 50000};
    char error[512];
    for (uint32_t i = 0; i < settings.namespace_count; i++) {
        namespaces[i] =
            (struct nvg_namespace){.nsid = i + 1, .block_bytes = 512, .size_bytes = 1 << 20};
        snprintf(namespaces[i].medium, sizeof(namespaces[i].medium), "%s", argv[5]);
    }
    for (int i = 7; i < argc; i++)
        settings.copies[settings.copy_count++] =
            (struct nvg_copy){.address = "127.0.0.1", .port = argv[i]};
    const int code = nvg_open(&settings, &group, error, sizeof(error));
    if (code) {
        printf("failed %d: %s\n", code, error);
        exit(1);
    }
    const struct nvg_identity *identity = nvg_identity_of(group);
    struct nvg_namespace ns;
    printf("%.3f joined slot=%u serial=%s nguid=", now_s(), identity->slot, identity->serial);
    if (nvg_namespace_of(group, 1, &ns))
        for (int i = 0; i < NVG_UUID_BYTES; i++)
            printf("%02x", ns.nguid[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    char line[256];
    bool goes_on = argc > 7;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0); /* poll() sees no line that stdio has read */
    if (goes_on)
        join(argc, argv);
    while (goes_on) {
        struct pollfd polled[2] = {{.fd = nvg_fd(group), .events = POLLIN},
                                   {.fd = 0, .events = POLLIN}};
        poll(polled, 2, -1);
        while (goes_on && nvg_next(group, &event))
            goes_on = take_event();
        if (goes_on && polled[1].revents)
            goes_on = fgets(line, sizeof(line), stdin) && take_order(line);
    }
    if (group)
        nvg_close(group);
    return 0;
}
