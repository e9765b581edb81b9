/* SPDX-License-Identifier: BSD-2-Clause */
#include "torch/group/engine.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <unistd.h>
#include <vector>

namespace sidewire_torch
{

/* Never freed: the interpreter may end after the library's own variables are gone. */
struct Engines {
    std::mutex lock;
    std::vector<std::weak_ptr<Engine>> all;
};

static Engines &all_engines()
{
    static Engines *engines = new Engines;
    return *engines;
}

std::shared_ptr<Engine> Engine::make(pge_engine *engine)
{
    std::shared_ptr<Engine> made(new Engine(engine));
    Engines &engines = all_engines();
    std::lock_guard<std::mutex> guard(engines.lock);
    auto is_gone = [](const std::weak_ptr<Engine> &one) { return one.expired(); };
    engines.all.erase(std::remove_if(engines.all.begin(), engines.all.end(), is_gone),
                      engines.all.end());
    engines.all.push_back(made);
    return made;
}

Engine::Engine(pge_engine *engine) : engine_(engine), owner_(getpid()), is_closed_(!engine)
{
}

const char *Engine::why_closed() const
{
    return engine_ ? "this process group was ended"
                   : "this process group is not open before reconfigure()";
}

Engine::~Engine()
{
    close();
}

void Engine::close()
{
    if (getpid() != owner_)
        return;
    std::lock_guard<std::mutex> guard(closing_);
    if (is_closed_.exchange(true))
        return;
    /* Those who entered may wait for other ranks; after this they return. */
    if (inside_.load())
        pge_abort(engine_, "the process group was ended");
    while (inside_.load())
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    pge_close(engine_);
}

void Engine::close_all()
{
    std::vector<std::weak_ptr<Engine>> all;
    {
        Engines &engines = all_engines();
        std::lock_guard<std::mutex> guard(engines.lock);
        all = engines.all;
    }
    for (const auto &one : all) {
        if (auto engine = one.lock())
            engine->close();
    }
}

Engine::Entry::Entry(Engine &engine) : engine_(engine), inside_(nullptr)
{
    engine_.inside_.fetch_add(1);
    if (!engine_.is_closed_.load())
        inside_ = engine_.engine_;
}

Engine::Entry::~Entry()
{
    engine_.inside_.fetch_sub(1);
}

} // namespace sidewire_torch
