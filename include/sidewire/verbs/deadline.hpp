// SPDX-License-Identifier: BSD-2-Clause
// Until when somebody waits. Made from a time from now on (5s) or from an instant.
#ifndef SIDEWIRE_VERBS_DEADLINE_HPP
#define SIDEWIRE_VERBS_DEADLINE_HPP

#include <algorithm>
#include <chrono>
#include <climits>

#include <fcntl.h>
#include <poll.h>

#include <sidewire/verbs/error.hpp>

namespace sidewire
{

class deadline
{
  public:
    using clock = std::chrono::steady_clock;

    deadline(clock::time_point at) noexcept : at_(at)
    {
    }
    template <class Rep, class Period>
    deadline(std::chrono::duration<Rep, Period> from_now)
        : at_(from_now < room()
                  ? clock::now() + std::chrono::duration_cast<clock::duration>(from_now)
                  : clock::time_point::max())
    {
    }
    static deadline never() noexcept
    {
        return clock::time_point::max();
    }

    clock::time_point at() const noexcept
    {
        return at_;
    }
    bool has_passed() const noexcept
    {
        return at_ != clock::time_point::max() && clock::now() >= at_;
    }
    // Milliseconds that are left, rounded up; INT_MAX for ever.
    int left_ms() const noexcept
    {
        clock::time_point now = clock::now();

        if (at_ == clock::time_point::max())
            return INT_MAX;
        if (at_ <= now)
            return 0;
        auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - now).count();
        return static_cast<int>(std::min<decltype(left)>(left, INT_MAX - 1));
    }

  private:
    // Longer times are for ever: their sum with an instant would not fit.
    static constexpr std::chrono::hours room() noexcept
    {
        return std::chrono::hours(24 * 365 * 100);
    }

    clock::time_point at_;
};

namespace detail
{

// Whether the descriptor became readable in time.
inline bool wait_readable(int fd, const deadline &limit)
{
    for (;;) {
        int left_ms = limit.left_ms();
        pollfd one{fd, POLLIN, 0};
        int ready = ::poll(&one, 1, left_ms == INT_MAX ? -1 : left_ms);

        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            throw_errno("poll", errno);
        if (limit.has_passed())
            return false;
    }
}

inline void make_nonblocking(int fd)
{
    int flags = ::fcntl(fd, F_GETFL);

    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        throw_errno("fcntl", errno);
}

} // namespace detail

} // namespace sidewire

#endif
