/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time slices: two processes that each launch kernels of 10 us to 100 ms, one after another, for
 * the same while. Each kernel says when it began and ended by the device's timer: so it is seen how
 * long one process runs before the other does, how large the gaps are, and which share each had.
 */
#include <string.h>

#include "gpu/common/answer.h"
#include "gpu/common/kernels.h"
#include "gpu/common/peer.h"
#include "gpu/common/samples.h"

enum { KERNELS_MAX = 32768, AHEAD = 4 }; /* more than 10 us kernels of 300 ms */

static const struct {
    uint64_t first_ns, second_ns, kernels_ns;
} pairs[] = {{10000, 10000, 300000000},
             {10000, 1000000, 300000000},
             {1000000, 1000000, 500000000},
             {1000000, 100000000, 1000000000},
             {10000000, 10000000, 1000000000}};

static struct {
    struct kernels kernels;
    void *stream;
    gpu_pointer out;
    uint64_t stamps[KERNELS_MAX][2];
} side;

static void open_side(void)
{
    gpu_open();
    kernels_load(&side.kernels);
    gpu_must(gpu.stream_create(&side.stream, GPU_STREAM_NON_BLOCKING, 0), "cuStreamCreate");
    gpu_must(gpu.alloc(&side.out, sizeof(side.stamps)), "cuMemAlloc");
}

/* Launches kernels of that length for that long, a few ahead; gives their number. */
static uint64_t run_kernels(uint64_t each_ns, uint64_t all_ns)
{
    const uint64_t start = clock_ns();
    uint64_t count = 0;
    while (count < KERNELS_MAX && clock_ns() - start < all_ns) {
        if (kernels_spin(&side.kernels, side.stream, each_ns, side.out + 16 * count))
            break;
        count++;
        if (count % AHEAD == 0)
            gpu.stream_wait(side.stream);
    }
    gpu_must(gpu.stream_wait(side.stream), "cuStreamSynchronize");
    gpu_must(gpu.to_host(side.stamps, side.out, 16 * (count ? count : 1)), "cuMemcpyDtoH");
    return count;
}

/* What a process saw of its own kernels. Those that took longer than they were to were interrupted;
 * a gap is longer than a launch. */
static void answer_side(const char *who, uint64_t each_ns, uint64_t count)
{
    static struct samples lengths, gaps;
    uint64_t busy_ns = 0;
    lengths.count = gaps.count = 0;
    for (uint64_t i = 0; i < count; i++) {
        samples_add(&lengths, side.stamps[i][1] - side.stamps[i][0]);
        busy_ns += side.stamps[i][1] - side.stamps[i][0];
        if (i)
            samples_add(&gaps, side.stamps[i][0] - side.stamps[i - 1][1]);
    }
    answer_begin("side");
    answer_text("who", who);
    answer_number("each_ns", each_ns);
    answer_number("kernels", count);
    answer_number("device_wanted_ns", each_ns * count);
    answer_number("device_busy_ns", busy_ns);
    if (count) {
        answer_number("device_first_ns", side.stamps[0][0]);
        answer_number("device_last_ns", side.stamps[count - 1][1]);
    }
    samples_answer(&lengths, "device_length");
    samples_answer(&gaps, "device_gap");
    answer_end();
}

static int run_second(void)
{
    struct peer_note note = {0};
    open_side();
    peer_send(PEER_SOCKET, &note, -1);
    while (peer_receive(PEER_SOCKET, &note, NULL)) {
        const uint64_t count = run_kernels(note.number[0], note.number[1]);
        answer_side("second", note.number[0], count);
        peer_send(PEER_SOCKET, &note, -1);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct peer peer;
    struct peer_note note;
    (void)argv;
    if (argc > 1)
        return run_second();
    open_side();
    answer_side("alone", 1000000, run_kernels(1000000, is_brief() ? 5000000 : 100000000));
    peer_start(&peer, "second");
    peer_expect(peer.socket, &note, NULL);
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        const uint64_t all_ns = is_brief() ? 3000000 : pairs[i].kernels_ns;
        note.number[0] = pairs[i].second_ns;
        note.number[1] = all_ns;
        peer_send(peer.socket, &note, -1);
        const uint64_t count = run_kernels(pairs[i].first_ns, all_ns);
        answer_side("first", pairs[i].first_ns, count);
        peer_expect(peer.socket, &note, NULL);
    }
    peer_end(&peer, 0);
    return 0;
}
