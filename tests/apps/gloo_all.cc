// SPDX-License-Identifier: BSD-2-Clause
// gloo_all RANK RANKS STORE DEVICE GID_INDEX: what gloo's own benchmark runs over its ibverbs
// transport, with the result of each algorithm looked at. gloo's interface is C++, so this is, too.
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/pairwise_exchange.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using Context = std::shared_ptr<gloo::Context>;

static int rank;
static int ranks;
static uint64_t sent_bytes; // by this rank to others, at the least

static void check(bool good, const char *what, size_t at, size_t count)
{
    if (good)
        return;
    fprintf(stderr, "rank %d: WRONG: %s: number %zu of %zu\n", rank, what, at, count);
    exit(1);
}

static float number_of(int whose, size_t at)
{
    return float(whose + 1) * float(at % 1009 + 1); // sums of these are exact
}

static std::vector<float> numbers_of(int whose, size_t count)
{
    std::vector<float> numbers(count);
    for (size_t i = 0; i < count; i++)
        numbers[i] = number_of(whose, i);
    return numbers;
}

// An algorithm must outlive its sends, and only a later message tells of their end: all stay until
// the program ends.
template <class Algorithm, class... Args> static Algorithm &keep(Args &&...args)
{
    return *new Algorithm(std::forward<Args>(args)...);
}

template <class Algorithm>
static void check_sum(const Context &context, size_t count, const char *what)
{
    auto &numbers = keep<std::vector<float>>(count);
    auto &algorithm = keep<Algorithm>(context, std::vector<float *>{numbers.data()}, int(count));
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++)
            numbers[i] = number_of(rank + round, i);
        algorithm.run();
        for (size_t i = 0; i < count; i++) {
            float sum = 0;
            for (int whose = 0; whose < ranks; whose++)
                sum += number_of(whose + round, i);
            check(numbers[i] == sum, what, i, count);
        }
        sent_bytes += count * sizeof(float);
    }
}

static void check_broadcast(const Context &context, size_t count, int root)
{
    auto &numbers = keep<std::vector<float>>(numbers_of(rank, count));
    auto &algorithm = keep<gloo::BroadcastOneToAll<float>>(
        context, std::vector<float *>{numbers.data()}, int(count), root);
    algorithm.run();
    for (size_t i = 0; i < count; i++)
        check(numbers[i] == number_of(root, i), "broadcast", i, count);
    if (rank == root)
        sent_bytes += count * sizeof(float) * size_t(ranks - 1);
}

static void check_all(const Context &context)
{
    for (size_t count : {1, 100, 5000, 1 << 18}) {
        check_sum<gloo::AllreduceRing<float>>(context, count, "allreduce by ring");
        check_sum<gloo::AllreduceRingChunked<float>>(context, count,
                                                     "allreduce by ring, in chunks");
        check_sum<gloo::AllreduceHalvingDoubling<float>>(context, count, "allreduce by halves");
        for (int root = 0; root < ranks; root++)
            check_broadcast(context, count, root);
    }
    auto &to_all = keep<gloo::BarrierAllToAll>(context);
    auto &to_one = keep<gloo::BarrierAllToOne>(context);
    for (int round = 0; round < 100; round++) {
        to_all.run();
        to_one.run();
    }
    if (ranks % 2 == 0)
        keep<gloo::PairwiseExchange>(context, 1 << 20, 1).run();
    to_all.run();
}

static uint64_t device_bytes(const std::string &device)
{
    uint64_t words = 0;
    std::ifstream("/sys/class/infiniband/" + device + "/ports/1/counters/port_xmit_data") >> words;
    return 4 * words;
}

// All are done, and each may go: gloo takes the end of a peer for an error.
[[noreturn]] static void end_together(gloo::rendezvous::FileStore &store)
{
    std::vector<std::string> names;
    for (int i = 0; i < ranks; i++)
        names.push_back("done" + std::to_string(i));
    store.set(names[size_t(rank)], {'x'});
    store.wait(names);
    std::set_terminate([] { std::_Exit(0); });
    std::_Exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    rank = atoi(argv[1]);
    ranks = atoi(argv[2]);
    gloo::transport::ibverbs::attr attr{argv[4], 1, atoi(argv[5])};
    auto device = gloo::transport::ibverbs::CreateDevice(attr);
    gloo::rendezvous::FileStore store(argv[3]);
    auto context = keep<std::shared_ptr<gloo::rendezvous::Context>>(
        std::make_shared<gloo::rendezvous::Context>(rank, ranks));
    context->connectFullMesh(store, device);
    check_all(context);
    if (rank == 0)
        printf("%d ranks, %llu bytes to others by each, %llu by the device\n", ranks,
               (unsigned long long)sent_bytes, (unsigned long long)device_bytes(attr.name));
    fflush(stdout);
    end_together(store);
}
