// SPDX-License-Identifier: BSD-2-Clause
// gloo_broadcast RANK STORE tcp ADDRESS BYTES ROUNDS
// gloo_broadcast RANK STORE ibverbs DEVICE GID_INDEX BYTES ROUNDS
//
// Rank 0 broadcasts to rank 1, which says that it is ready, and measures from there until it has
// the bytes: one of gloo's rounds. Each round's bytes are other ones, and looked at. gloo's
// interface is C++, so this is.
#include "gloo_ranks.hpp"

#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/ibverbs/device.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

static constexpr int warm_up = 20; // rounds that are not counted

static std::shared_ptr<gloo::transport::Device> open_device(char **&arg)
{
    const std::string transport = *arg++;
    if (transport == "tcp") {
        gloo::transport::tcp::attr attr;
        attr.hostname = *arg++;
        return gloo::transport::tcp::CreateDevice(attr);
    }
    gloo::transport::ibverbs::attr attr{arg[0], 1, atoi(arg[1])};
    arg += 2;
    return gloo::transport::ibverbs::CreateDevice(attr);
}

static void require_round(const std::vector<int> &numbers, int round)
{
    if (std::all_of(numbers.begin(), numbers.end(),
                    [round](int number) { return number == round; }))
        return;
    fprintf(stderr, "round %d: other bytes came\n", round);
    exit(1);
}

// Microseconds of each round that counts, of rank 1.
static std::vector<double> measure(gloo::Algorithm &broadcast, std::vector<int> &numbers, int rank,
                                   int rounds)
{
    std::vector<double> times;
    for (int round = 1; round <= rounds + warm_up; round++) {
        if (rank == 0)
            std::fill(numbers.begin(), numbers.end(), round);
        const auto start = Clock::now();
        broadcast.run();
        const std::chrono::duration<double, std::micro> took = Clock::now() - start;
        if (rank != 0)
            require_round(numbers, round);
        if (round > warm_up)
            times.push_back(took.count());
    }
    return times;
}

static void print_times(std::vector<double> times)
{
    std::sort(times.begin(), times.end());
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    printf("{\"median_us\": %.2f, \"mean_us\": %.2f, \"p99_us\": %.2f}\n", times[times.size() / 2],
           sum / double(times.size()), times[times.size() * 99 / 100]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const bool is_tcp = argc > 3 && std::string(argv[3]) == "tcp";
    if (argc != (is_tcp ? 7 : 8))
        return 2;
    const int rank = atoi(argv[1]);
    gloo::rendezvous::FileStore store(argv[2]);
    char **arg = argv + 3;
    auto device = open_device(arg);
    std::vector<int> numbers(size_t(atol(arg[0])) / sizeof(int));
    const int rounds = atoi(arg[1]);
    if (numbers.empty() || rounds < 1)
        return 2;
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
    context->connectFullMesh(store, device);
    // Its last sends end only with a later message's: it stays until the program ends.
    auto &broadcast =
        *new gloo::BroadcastOneToAll<int>(context, {numbers.data()}, int(numbers.size()));
    const auto times = measure(broadcast, numbers, rank, rounds);
    if (rank != 0)
        print_times(times);
    end_together(store, rank, 2);
}
