/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An engine that its group closes while other threads may still hold requests of it.
 *
 * A thread enters it for each call; close() lets nobody in any more, ends what is under way, and
 * frees the engine when the last thread has left.
 */
#ifndef SW_BINDINGS_TORCH_ENGINE_HPP
#define SW_BINDINGS_TORCH_ENGINE_HPP

#include <atomic>
#include <memory>
#include <mutex>
#include <sys/types.h>

#include "torch/engine/engine.h"

namespace sidewire_torch
{

class Engine : public std::enable_shared_from_this<Engine>
{
  public:
    /* Takes the engine over. NULL: one that is closed, as its ranks have not met yet. */
    static std::shared_ptr<Engine> make(pge_engine *engine);
    ~Engine();
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    /* Never with Python's lock: what ends may want it. In a child of fork() it does nothing. */
    void close();
    const char *why_closed() const;
    /* All engines of this process: the interpreter ends. */
    static void close_all();

    /* The engine, while this lives; NULL: it was closed. */
    class Entry
    {
      public:
        explicit Entry(Engine &engine);
        ~Entry();
        Entry(const Entry &) = delete;
        Entry &operator=(const Entry &) = delete;
        pge_engine *get() const
        {
            return inside_;
        }

      private:
        Engine &engine_;
        pge_engine *inside_;
    };

  private:
    explicit Engine(pge_engine *engine);

    pge_engine *engine_;
    const pid_t owner_;
    std::atomic<uint32_t> inside_{0};
    std::atomic<bool> is_closed_;
    std::mutex closing_;
};

} // namespace sidewire_torch

#endif
