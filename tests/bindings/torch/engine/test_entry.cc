// SPDX-License-Identifier: BSD-2-Clause
// The part of the extension that stands between threads of a program and the engine, without torch:
// a group is closed, or all are, while other threads use it.
extern "C" {
#include "members.h"
}

#include <memory>
#include <thread>
#include <vector>

#include "torch/group/engine.hpp"

using sidewire_torch::Engine;

enum { USERS = 3 };

static std::shared_ptr<Engine> take_engine(struct member *member)
{
    std::shared_ptr<Engine> engine = Engine::make(member->engine);
    member->engine = nullptr;
    return engine;
}

// What a thread does until the engine is closed.
static void use_engine(const std::shared_ptr<Engine> &engine)
{
    for (;;) {
        Engine::Entry entry(*engine);
        if (!entry.get())
            return;
        bool is_gone[MEMBERS];
        pge_sequence(entry.get());
        pge_gone(entry.get(), is_gone);
        pge_error(entry.get(), nullptr);
    }
}

// A message that never comes: the close ends it.
static void wait_in_vain(const std::shared_ptr<Engine> &engine, uint32_t peer)
{
    uint64_t number = 0;
    struct work work;
    struct sw_coll_error error = {};
    work_recv(&work, peer, 77, &number, sizeof(number));
    Engine::Entry entry(*engine);
    if (!entry.get())
        return;
    pge_operation *operation = &work.operation;
    pge_submit(entry.get(), &operation, 1);
    const sw_coll_status status = pge_wait(entry.get(), operation, 0, &error);
    need(status == SW_COLL_REVOKED || status == SW_COLL_RANK_GONE);
    while (!__atomic_load_n(&work.released, __ATOMIC_SEQ_CST))
        nap_ms(1);
}

static void close_amid_calls(struct member *member)
{
    sum_once(member, 3);
    std::shared_ptr<Engine> engine = take_engine(member);
    std::vector<std::thread> threads;
    threads.emplace_back(wait_in_vain, engine, !member->rank);
    for (int i = 0; i < USERS; i++)
        threads.emplace_back(use_engine, engine);
    threads.emplace_back([engine] {
        nap_ms(20);
        engine->close();
    });
    nap_ms(20);
    engine->close();
    need(!Engine::Entry(*engine).get());
    for (std::thread &thread : threads)
        thread.join();
}

static void close__while_threads_are_inside(void **state)
{
    (void)state;
    members_run(2, close_amid_calls, 0);
}

// Groups are dropped by their last user, whoever that is, while the interpreter's end closes all.
static void close_all_amid_drops(struct member *member)
{
    std::vector<std::shared_ptr<Engine>> engines;
    std::vector<std::thread> threads;
    engines.push_back(take_engine(member));
    for (uint32_t group = 1; group < GROUPS; group++)
        engines.push_back(Engine::make(member_open(member, group, member->size, nullptr)));
    for (const std::shared_ptr<Engine> &engine : engines)
        threads.emplace_back(use_engine, engine);
    engines.pop_back();
    threads.emplace_back(Engine::close_all);
    Engine::close_all();
    for (std::thread &thread : threads)
        thread.join();
    for (const std::shared_ptr<Engine> &engine : engines)
        need(!Engine::Entry(*engine).get());
    Engine::close_all();
}

static void close_all__while_groups_are_dropped(void **state)
{
    (void)state;
    members_run(2, close_all_amid_drops, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(close__while_threads_are_inside),
        cmocka_unit_test(close_all__while_groups_are_dropped),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
