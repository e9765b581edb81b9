// SPDX-License-Identifier: BSD-2-Clause
// gloo_all_reduce RANK RANKS FOLDER ADDRESS ALGORITHM WAITING BYTES TIMES
//
// The time of gloo's all-reduce over TCP, as its own benchmark takes it, which no package has; for
// bench/lib/coll_gloo.py. Each rank is ready when FOLDER/ready.RANK is there, and begins when
// FOLDER/go is. It prints when it began, when it had the first result (both by CLOCK_MONOTONIC),
// and the mean of those behind the warm-ups. The first result and the last one are checked.
//
// WAITING is that of gloo: "async" (a thread of its own moves data), "sync" (the caller does), or
// "busy" (and polls). "ring_new" and "bcube_new" are of its newer interface, which knows "async".
#include "gloo_ranks.hpp"

#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using ContextPointer = std::shared_ptr<gloo::rendezvous::Context>;
using Numbers = std::vector<float>;

static constexpr int warm_up = 20;

static double now_s()
{
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    return now.count();
}

static void await_go(const std::string &folder, int rank)
{
    std::ofstream(folder + "/ready." + std::to_string(rank)).put('x').flush();
    while (access((folder + "/go").c_str(), F_OK))
        usleep(1000);
}

// Whole numbers, so that any order gives the same sums.
static void fill(Numbers &numbers, int rank)
{
    for (size_t i = 0; i < numbers.size(); i++)
        numbers[i] = float(int(i % 1000) + rank);
}

static void require_sums(const Numbers &numbers, int size)
{
    for (size_t i = 0; i < numbers.size(); i++) {
        const float right = float(size * int(i % 1000) + size * (size - 1) / 2);
        if (numbers[i] < right || numbers[i] > right) {
            fprintf(stderr, "element %zu is %g, and not %g\n", i, double(numbers[i]),
                    double(right));
            exit(1);
        }
    }
}

static std::function<void()> make_new(const ContextPointer &context, Numbers &numbers,
                                      gloo::detail::AllreduceOptionsImpl::Algorithm algorithm)
{
    auto options = std::make_shared<gloo::AllreduceOptions>(context);
    using Sum = void (*)(void *, const void *, const void *, size_t);
    options->setAlgorithm(algorithm);
    options->setReduceFunction(Sum(&gloo::sum<float>));
    options->setOutput(numbers.data(), numbers.size());
    return [options] { gloo::allreduce(*options); };
}

template <typename Algorithm>
static std::function<void()> make_old(const ContextPointer &context, Numbers &numbers)
{
    // What it has sent may end only with a later message: it stays until the program ends.
    auto *algorithm =
        new Algorithm(context, std::vector<float *>{numbers.data()}, int(numbers.size()));
    return [algorithm] { algorithm->run(); };
}

// Sums in place, each time it is called. Empty: no algorithm has that name.
static std::function<void()> make_sum(const std::string &name, const ContextPointer &context,
                                      Numbers &numbers)
{
    if (name == "ring_new")
        return make_new(context, numbers, gloo::detail::AllreduceOptionsImpl::RING);
    if (name == "bcube_new")
        return make_new(context, numbers, gloo::detail::AllreduceOptionsImpl::BCUBE);
    if (name == "ring")
        return make_old<gloo::AllreduceRing<float>>(context, numbers);
    if (name == "ring_chunked")
        return make_old<gloo::AllreduceRingChunked<float>>(context, numbers);
    if (name == "halving_doubling")
        return make_old<gloo::AllreduceHalvingDoubling<float>>(context, numbers);
    if (name == "bcube")
        return make_old<gloo::AllreduceBcube<float>>(context, numbers);
    return nullptr;
}

static ContextPointer connect(gloo::rendezvous::FileStore &store, int rank, int size,
                              const std::string &address, const std::string &waiting)
{
    gloo::transport::tcp::attr attr;
    attr.hostname = address;
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    auto device = gloo::transport::tcp::CreateDevice(attr);
    context->connectFullMesh(store, device);
    for (int i = 0; waiting != "async" && i < size; i++)
        if (i != rank)
            context->getPair(i)->setSync(true, waiting == "busy");
    return context;
}

int main(int argc, char **argv)
{
    if (argc != 9)
        return 2;
    const int rank = atoi(argv[1]), size = atoi(argv[2]), times = atoi(argv[8]);
    Numbers numbers(size_t(atol(argv[7])) / sizeof(float));
    fill(numbers, rank);
    await_go(argv[3], rank);
    const double begun_s = now_s();
    gloo::rendezvous::FileStore store(argv[3]);
    const auto context = connect(store, rank, size, argv[4], argv[6]);
    const auto sum = make_sum(argv[5], context, numbers);
    if (!sum || numbers.empty() || times < 1)
        return 2;
    sum();
    const double first_s = now_s();
    require_sums(numbers, size);
    for (int i = 0; i < warm_up; i++)
        sum();
    const double start_s = now_s();
    for (int i = 0; i < times; i++)
        sum();
    const double time_s = (now_s() - start_s) / times;
    fill(numbers, rank);
    sum();
    require_sums(numbers, size);
    printf("{\"begun_s\": %.9f, \"first_s\": %.9f, \"time_s\": %.9g}\n", begun_s, first_s, time_s);
    fflush(stdout);
    end_together(store, rank, size);
}
