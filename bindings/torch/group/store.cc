/* SPDX-License-Identifier: BSD-2-Clause */
#include "torch/group/store.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace sidewire_torch
{

static const std::chrono::milliseconds FIRST_PAUSE(1), LONGEST_PAUSE(20);

Meeting::Meeting(const c10::intrusive_ptr<c10d::Store> &store, uint32_t rank, uint32_t size,
                 int64_t timeout_ms, Watch watch)
    : store_(store), rank_(rank), size_(size), timeout_(timeout_ms), watch_(std::move(watch))
{
    opening_ = std::to_string((store_->add("sidewire/opens", 1) - 1) / size);
}

std::string Meeting::key(const std::string &name) const
{
    return "sidewire/" + opening_ + "/" + std::to_string(exchange_) + "/" + name;
}

/* ---- an exchange ---- */

std::string Meeting::name_absent()
{
    std::string absent;
    for (uint32_t rank = 0; rank < size_; rank++) {
        if (!store_->check({key(std::to_string(rank))}))
            absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
    }
    return absent.empty() ? "" : "; these ranks have not come: " + absent;
}

/* Stores of torch 1 are of no use after a wait that has ended by its timeout, so one that watches
 * looks again and again. */
void Meeting::wait(const std::string &key)
{
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + timeout_;
    auto pause = FIRST_PAUSE;
    if (!watch_)
        return store_->wait({key}, timeout_);
    while (!store_->check({key})) {
        const std::string dead = watch_();
        if (!dead.empty() && !store_->check({key}))
            throw std::runtime_error(dead);
        if (Clock::now() >= until)
            throw std::runtime_error("timeout");
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, LONGEST_PAUSE);
    }
}

Meeting::Value Meeting::await(const std::string &key, const std::string &whose)
{
    try {
        wait(key);
        return store_->get(key);
    } catch (const std::exception &error) {
        const std::string dead = watch_ ? watch_() : std::string();
        if (!dead.empty())
            throw std::runtime_error(dead);
        throw std::runtime_error("the store has nothing of " + whose + " after " +
                                 std::to_string(timeout_.count()) + " ms" + name_absent() + " (" +
                                 std::string(error.what()).substr(0, 200) + ")");
    }
}

static std::vector<uint8_t> pack_value(uint8_t first, const void *data, size_t bytes)
{
    std::vector<uint8_t> value(1 + bytes, first);
    if (bytes)
        memcpy(&value[1], data, bytes);
    return value;
}

static std::vector<uint8_t> pack_text(const std::string &text)
{
    return pack_value(1, text.data(), text.size());
}

static std::string text_of(const std::vector<uint8_t> &value)
{
    return std::string(value.begin() + 1, value.end());
}

/* Rank 0 makes what all get. */
Meeting::Value Meeting::collect(size_t bytes)
{
    Value all(1 + bytes * size_);
    for (uint32_t rank = 0; rank < size_; rank++) {
        const std::string whose = "rank " + std::to_string(rank);
        Value one;
        try {
            one = await(key(std::to_string(rank)), whose);
        } catch (const std::exception &error) {
            return pack_text(error.what());
        }
        if (!one.empty() && one[0] == 1)
            return pack_text(whose + ": " + text_of(one));
        if (one.size() != 1 + bytes)
            return pack_text(whose + " has another version of sidewire_torch");
        memcpy(&all[1 + rank * bytes], &one[1], bytes);
    }
    return all;
}

void Meeting::run(const void *card, size_t bytes, void *cards)
{
    Value all;
    store_->set(key(std::to_string(rank_)), pack_value(0, card, bytes));
    if (rank_ == 0) {
        all = collect(bytes);
        store_->set(key("all"), all);
    } else {
        all = await(key("all"), "rank 0");
    }
    exchange_++;
    if (!all.empty() && all[0] == 1)
        throw std::runtime_error(text_of(all));
    if (all.empty() || all.size() != 1 + bytes * size_)
        throw std::runtime_error("rank 0 has another version of sidewire_torch");
    std::copy(all.begin() + 1, all.end(), static_cast<uint8_t *>(cards));
}

int Meeting::exchange(void *context, const void *card, size_t bytes, void *cards, uint64_t)
{
    Meeting *meeting = static_cast<Meeting *>(context);
    try {
        meeting->run(card, bytes, cards);
        return 0;
    } catch (const std::exception &error) {
        meeting->failure_ = error.what();
        return -ECANCELED;
    }
}

void Meeting::fail(const std::string &why)
{
    /* Rank 0 would ask for all cards. */
    try {
        store_->set(key(rank_ ? std::to_string(rank_) : "all"),
                    pack_text(rank_ ? why : "rank 0: " + why));
    } catch (const std::exception &) {
        /* The store is gone: so are the others, or they find out by themselves. */
    }
}

} // namespace sidewire_torch
