/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranks find each other by torch's store: each sets its card, rank 0 gets all of them and sets what
 * everybody gets. A rank that fails before sets why, so that the others need not wait for it.
 *
 * Keys: "opens", which counts ranks, so that a group that is opened again by the same store has
 * keys of its own; and for each exchange "OPENING/EXCHANGE/RANK" and "OPENING/EXCHANGE/all". The
 * first byte of a value is 0, before a card or all of them, or 1, before a text. "heard" there
 * counts ranks that know of a failure.
 */
#ifndef SW_BINDINGS_TORCH_STORE_HPP
#define SW_BINDINGS_TORCH_STORE_HPP

#include <exception>
#include <functional>

#include "torch/group/torch.hpp"

namespace sidewire_torch
{

class Meeting
{
  public:
    /* Says which rank of this group has died; empty: none is known to. */
    using Watch = std::function<std::string()>;
    using Ranks = std::vector<uint32_t>;
    /* Tells others which ranks are absent after a while, again and again. Empty: none is awaited
     * any more. */
    using Show = std::function<void(const Ranks &absent, std::chrono::milliseconds waited)>;

    Meeting(const c10::intrusive_ptr<c10d::Store> &store, uint32_t rank, uint32_t size,
            int64_t timeout_ms, Watch watch, Show show);
    /* A sw_coll_exchange; its context is a meeting. */
    static int exchange(void *context, const void *card, size_t bytes, void *cards,
                        uint64_t deadline_ns);
    /* The opening has failed here; the others, which may wait for a card, are told why. */
    void fail(const std::string &why);
    /* Why an exchange has failed; empty: none has. */
    const std::string &failure() const
    {
        return failure_;
    }
    /* What a handler of Python has raised, Ctrl-C for one; null: nothing. */
    const std::exception_ptr &interruption() const
    {
        return interruption_;
    }

  private:
    using Value = std::vector<uint8_t>;

    std::string key(const std::string &name) const;
    void run(const void *card, size_t bytes, void *cards);
    Value collect(size_t bytes);
    Value await(const std::string &key, const std::string &whose);
    void wait(const std::string &key);
    void wait_for(const std::string &key, bool &is_shown);
    void tell_wait(std::chrono::milliseconds waited);
    Ranks find_absent();
    std::string name_absent();
    bool is_there();
    void stay_a_moment();

    const c10::intrusive_ptr<c10d::Store> store_;
    const uint32_t rank_, size_;
    const std::chrono::milliseconds timeout_;
    const Watch watch_;
    const Show show_;
    std::string opening_;
    uint32_t exchange_ = 0;
    std::string failure_;
    std::exception_ptr interruption_;
};

} // namespace sidewire_torch

#endif
