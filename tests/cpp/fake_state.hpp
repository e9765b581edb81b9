// SPDX-License-Identifier: BSD-2-Clause
// What is there, and which step fails: shared by the sources of the fake.
#ifndef TESTS_CPP_FAKE_STATE_HPP
#define TESTS_CPP_FAKE_STATE_HPP

#include <cerrno>
#include <deque>
#include <map>

#include "fake.hpp"

namespace fake
{

struct object {
    std::string verb;
    std::vector<const void *> parents;
    int children = 0;
};

struct state {
    int failing_step = 0, steps = 0;
    bool is_quiet = false;
    ibv_context *own = nullptr; // what librdmacm has open itself
    std::string failed_verb;
    std::map<const void *, object> live;
    std::vector<std::string> faults;
    std::deque<ibv_wc_status> completions;
};

extern state now;

inline bool fails(const char *verb)
{
    if (now.is_quiet || ++now.steps != now.failing_step)
        return false;
    now.failed_verb = verb;
    errno = ENOMEM;
    return true;
}

template <class T> T *born(const char *verb, T *made, std::vector<const void *> parents)
{
    for (const void *parent : parents) {
        if (parent && !now.live.count(parent))
            now.faults.push_back(std::string(verb) + " of what is gone");
        else if (parent)
            now.live[parent].children++;
    }
    now.live[made] = {verb, std::move(parents), 0};
    return made;
}

// Creates a T, or fails as that verb does.
template <class T> T *create(const char *verb, std::vector<const void *> parents)
{
    return fails(verb) ? nullptr : born(verb, new T(), std::move(parents));
}

template <class T> int destroy(const char *verb, T *dead)
{
    auto found = now.live.find(dead);

    if (found == now.live.end()) {
        now.faults.push_back(std::string(verb) + " of what is gone");
        return EINVAL;
    }
    if (found->second.children) {
        now.faults.push_back(std::string(verb) + " of what is in use");
        return EBUSY;
    }
    for (const void *parent : found->second.parents)
        if (parent)
            now.live[parent].children--;
    now.live.erase(found);
    delete dead;
    return 0;
}

inline int step(const char *verb)
{
    return fails(verb) ? ENOMEM : 0;
}

inline ibv_pd *pd_of(ibv_context *context, const char *verb, const void *extra = nullptr,
                     const void *more = nullptr)
{
    auto *made = create<ibv_pd>(verb, {context, extra, more});

    if (made)
        made->context = context;
    return made;
}

inline ibv_mr *mr_of(const char *verb, ibv_pd *pd, void *address, std::size_t length,
                     const void *extra = nullptr)
{
    auto *made = create<ibv_mr>(verb, {pd, extra});

    if (!made)
        return nullptr;
    made->context = pd->context;
    made->pd = pd;
    made->addr = address;
    made->length = length;
    made->lkey = 7;
    made->rkey = 8;
    return made;
}

// What was made of a context alone, with the context in it.
template <class T, class Attr> T *of_context(ibv_context *context, const char *verb, Attr *)
{
    T *made = create<T>(verb, {context});

    if (made)
        made->context = context;
    return made;
}

// Sets the functions of a context that inline verbs call.
void fill_context(verbs_context &made);
// Calls of librdmacm itself are no steps of the program.
void be_quiet(bool is_quiet);
// The device to which all addresses lead, which no program closes.
ibv_context *own_device();
// For objects that are not of one type: registers them, and forgets them again.
void is_born(const char *verb, const void *made, std::vector<const void *> parents);
int dies(const char *verb, const void *dead);

} // namespace fake

#endif
