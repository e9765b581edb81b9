/* SPDX-License-Identifier: BSD-2-Clause */
/* Strangers who call the port by which two sides know of each other's lives. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "liveness_side.h"

enum { CALLS = 1500, SILENT = 100, SPARE_FDS = 40 };

static uint64_t refusals(const struct vu_dev *dev)
{
    char path[128];
    unsigned long long count;
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/hw_counters/liveness_refused",
             ibv_get_device_name(dev->ctx->device));
    FILE *file = fopen(path, "re");
    VU_TRUE(file && fscanf(file, "%llu", &count) == 1);
    fclose(file);
    return count;
}

/* A good word, of one of the two to the other, but for its token. */
static void say_hello(const struct traffic *traffic, bool to_us, uint8_t words[24])
{
    enum { SLOT_SHIFT = 13 }; /* of a QPN */
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    VU_EQ(ibv_query_qp(traffic->ep.qp, &attr, IBV_QP_DEST_QPN, &init), 0);
    const uint32_t own = htonl(traffic->ep.qp->qp_num >> SLOT_SHIFT),
                   peer = htonl(attr.dest_qp_num >> SLOT_SHIFT),
                   slots[2] = {to_us ? peer : own, to_us ? own : peer};
    memcpy(words, "SW\1", 4);
    memcpy(words + 8, slots, sizeof(slots));
}

/* Says nothing, garbage, or a good word with a wrong token. */
static void call(const struct traffic *traffic, const uint16_t ports[2], int number,
                 int silent[SILENT])
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(ports[number & 1]),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t words[96];
    memset(words, number, sizeof(words));
    if (number % 3 == 1)
        say_hello(traffic, number & 1, words);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    VU_TRUE(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0 && number % 3)
        send(fd, words, number % 4 < 2 ? 24 : sizeof(words), MSG_NOSIGNAL);
    if (silent[number % SILENT] >= 0)
        close(silent[number % SILENT]);
    silent[number % SILENT] = fd;
}

void there_is_called(struct side *side)
{
    const pid_t self = getpid();
    vu_put(side->sock, &self, sizeof(self));
    there_traffic(side);
}

/* They come from the peer's own address, thousands of them, and change nothing. */
void here_meets_strangers(struct side *side)
{
    struct traffic traffic;
    pid_t pid;
    int silent[SILENT];
    const uint64_t refused = refusals(&side->dev);
    vu_get(side->sock, &pid, sizeof(pid));
    side_connect(side, &traffic, MARK_HERE);
    side_run(&traffic, 300);
    const uint16_t ports[2] = {side_port_of(pid), side_port_of(getpid())};
    const int before = side_descriptors_of(pid);
    memset(silent, -1, sizeof(silent));
    for (int i = 0; i < 2 * CALLS; i++) {
        call(&traffic, ports, i, silent);
        side_run(&traffic, 1);
    }
    const int after = side_descriptors_of(pid);
    VU_CHECK(after < before + SPARE_FDS, "descriptors grew from %d to %d", before, after);
    /* A process that gets no processor does not tell what it has counted. */
    uint64_t seen = 0;
    for (uint64_t end = vu_now_ms() + 50000; seen != 2 * CALLS && vu_now_ms() < end;) {
        side_run(&traffic, 100);
        seen = refusals(&side->dev) - refused;
    }
    VU_EQ(seen, 2 * CALLS);
    side_tell(side->control);
    for (uint64_t end = vu_now_ms() + 30000; traffic_step(&traffic, true);)
        VU_TRUE(vu_now_ms() < end);
    side_report_death(side);
}
