/* SPDX-License-Identifier: BSD-2-Clause */
#include "torch/group/store.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <pybind11/pybind11.h>
#include <thread>

#include "torch/group/work.hpp"

namespace sidewire_torch
{

static const std::chrono::milliseconds FIRST_PAUSE(1), LONGEST_PAUSE(20);
static const std::chrono::milliseconds FIRST_LINE(10000), LONGEST_STAY(500), FIRST_SHOW(1000);

Meeting::Meeting(const c10::intrusive_ptr<c10d::Store> &store, uint32_t rank, uint32_t size,
                 int64_t timeout_ms, Watch watch, Show show)
    : store_(store), rank_(rank), size_(size), timeout_(timeout_ms), watch_(std::move(watch)),
      show_(std::move(show))
{
    opening_ = std::to_string((store_->add("sidewire/opens", 1) - 1) / size);
}

std::string Meeting::key(const std::string &name) const
{
    return "sidewire/" + opening_ + "/" + std::to_string(exchange_) + "/" + name;
}

/* ---- an exchange ---- */

Meeting::Ranks Meeting::find_absent()
{
    Ranks absent;
    for (uint32_t rank = 0; rank < size_; rank++) {
        if (!store_->check({key(std::to_string(rank))}))
            absent.push_back(rank);
    }
    return absent;
}

std::string Meeting::name_absent()
{
    std::string absent;
    for (uint32_t rank : find_absent())
        absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
    return absent.empty() ? "" : "; these ranks have not come: " + absent;
}

bool Meeting::is_there()
{
    try {
        store_->add(key("heard"), 0);
        return true;
    } catch (const std::exception &) {
        return false;
    }
}

/* Stores of torch 1 are of no use after a wait that has ended by its timeout, and Ctrl-C does not
 * end a wait in a store. So this one looks again and again. */
void Meeting::wait_for(const std::string &key, bool &is_shown)
{
    using std::chrono::milliseconds;
    const auto begun = std::chrono::steady_clock::now();
    milliseconds pause = FIRST_PAUSE, next_line = FIRST_LINE, next_show = FIRST_SHOW, waited(0);
    while (!store_->check({key})) {
        const std::string dead = watch_ ? watch_() : std::string();
        if (!dead.empty() && !store_->check({key}))
            throw std::runtime_error(dead);
        waited = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun);
        if (waited >= timeout_)
            throw std::runtime_error("timeout");
        if (waited >= next_line) {
            next_line *= 2;
            tell_wait(waited);
        }
        /* The store is asked for each rank, so this is less and less often. */
        if (show_ && waited >= next_show) {
            next_show = waited * 5 / 4;
            show_(find_absent(), waited);
            is_shown = true;
        }
        run_python_handlers();
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, LONGEST_PAUSE);
    }
}

void Meeting::wait(const std::string &key)
{
    bool is_shown = false;
    try {
        wait_for(key, is_shown);
    } catch (...) {
        if (is_shown)
            show_({}, std::chrono::milliseconds(0));
        throw;
    }
    if (is_shown)
        show_({}, std::chrono::milliseconds(0));
}

void Meeting::tell_wait(std::chrono::milliseconds waited)
{
    fprintf(stderr, "sidewire-coll: rank %u: it opens a process group, and waits for %.1f s%s\n",
            rank_, static_cast<double>(waited.count()) / 1000, name_absent().c_str());
}

Meeting::Value Meeting::await(const std::string &key, const std::string &whose)
{
    try {
        wait(key);
        return store_->get(key);
    } catch (const pybind11::error_already_set &) {
        throw;
    } catch (const std::exception &error) {
        const std::string dead = watch_ ? watch_() : std::string();
        if (!dead.empty())
            throw std::runtime_error(dead);
        if (!is_there())
            throw std::runtime_error("torch's store, which mostly is in rank 0, is gone (" +
                                     std::string(error.what()).substr(0, 200) + ")");
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
        } catch (const pybind11::error_already_set &) {
            throw;
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

/* The store ends with rank 0, mostly. So that stays until the others have read why nothing comes of
 * this, or have failed themselves. */
void Meeting::stay_a_moment()
{
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + LONGEST_STAY;
    while (store_->add(key("heard"), 0) + 1 < size_ && Clock::now() < until)
        std::this_thread::sleep_for(FIRST_PAUSE);
}

void Meeting::run(const void *card, size_t bytes, void *cards)
{
    Value all;
    store_->set(key(std::to_string(rank_)), pack_value(0, card, bytes));
    if (rank_ == 0) {
        all = collect(bytes);
        store_->set(key("all"), all);
        if (all[0] == 1)
            stay_a_moment();
    } else {
        all = await(key("all"), "rank 0");
        if (!all.empty() && all[0] == 1)
            store_->add(key("heard"), 1);
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
    } catch (const pybind11::error_already_set &) {
        meeting->fail("it was interrupted");
        meeting->failure_ = "it was interrupted";
        meeting->interruption_ = std::current_exception();
        return -ECANCELED;
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
        if (rank_)
            store_->add(key("heard"), 1);
        else
            stay_a_moment();
    } catch (const std::exception &) {
        /* The store is gone: so are the others, or they find out by themselves. */
    }
}

} // namespace sidewire_torch
