// SPDX-License-Identifier: BSD-2-Clause
// Ownership. A handle owns one object of verbs: it can be moved and not copied, and destroys the
// object once. To share one, write std::shared_ptr<pd> and the like. Nothing here keeps a parent
// alive, so a pd is declared before what is made of it, and C++ destroys it after.
#ifndef SIDEWIRE_VERBS_HANDLE_HPP
#define SIDEWIRE_VERBS_HANDLE_HPP

#include <type_traits>
#include <utility>

#include <sidewire/verbs/error.hpp>

namespace sidewire
{

// Marks a constructor that takes over what others have made: pd mine(adopt, raw).
struct adopt_t {
    explicit adopt_t() = default;
};
inline constexpr adopt_t adopt{};

// Traits: the type `raw`, the name `verb`, and destroy(raw *), which gives 0 or an errno.
template <class Traits> class handle
{
  public:
    using raw_type = typename Traits::raw;

    handle() noexcept = default;
    handle(adopt_t, raw_type *raw) noexcept : raw_(raw)
    {
    }
    handle(handle &&other) noexcept : raw_(other.release())
    {
    }
    handle &operator=(handle &&other) noexcept
    {
        if (this != &other)
            reset(other.release());
        return *this;
    }
    handle(const handle &) = delete;
    handle &operator=(const handle &) = delete;
    ~handle()
    {
        reset();
    }

    raw_type *get() const noexcept
    {
        return raw_;
    }
    raw_type *operator->() const noexcept
    {
        return raw_;
    }
    explicit operator bool() const noexcept
    {
        return raw_ != nullptr;
    }
    // The caller owns it from now on.
    [[nodiscard]] raw_type *release() noexcept
    {
        return std::exchange(raw_, nullptr);
    }
    // Destroys what it has, and takes over `raw`.
    void reset(raw_type *raw = nullptr) noexcept
    {
        raw_type *old = std::exchange(raw_, raw);
        int code = old ? Traits::destroy(old) : 0;

        if (code)
            detail::destroy_failed_slot()(Traits::verb, code);
    }
    // Destroys what it has, or throws and keeps it.
    void close()
    {
        check(Traits::verb, raw_ ? Traits::destroy(raw_) : 0);
        raw_ = nullptr;
    }
    void swap(handle &other) noexcept
    {
        std::swap(raw_, other.raw_);
    }

  private:
    raw_type *raw_ = nullptr;
};

// An object of somebody else, as an argument: made from a raw pointer or from a handle, but not
// from a handle that is about to die.
template <class Raw> class borrowed
{
  public:
    borrowed(std::nullptr_t) noexcept
    {
    }
    borrowed(Raw *raw) noexcept : raw_(raw)
    {
    }
    template <class H, class = std::enable_if_t<
                           std::is_convertible_v<decltype(std::declval<const H &>().get()), Raw *>>>
    borrowed(const H &owner) noexcept : raw_(owner.get())
    {
    }
    template <class H,
              class = std::enable_if_t<
                  std::is_convertible_v<decltype(std::declval<const H &>().get()), Raw *>>,
              class = std::enable_if_t<!std::is_same_v<H, borrowed>>>
    borrowed(const H &&) = delete;

    Raw *get() const noexcept
    {
        return raw_;
    }
    Raw *operator->() const noexcept
    {
        return raw_;
    }
    operator Raw *() const noexcept
    {
        return raw_;
    }

  protected:
    Raw *raw_ = nullptr;
};

namespace detail
{

// Traits of an object whose verb returns 0, an errno, or -1 and errno.
#define SIDEWIRE_HANDLE_TRAITS(name, raw_struct, verb_called) \
    struct name##_traits {                                    \
        using raw = raw_struct;                               \
        static constexpr const char *verb = #verb_called;     \
        static int destroy(raw *object) noexcept              \
        {                                                     \
            return errno_of(verb_called(object));             \
        }                                                     \
    }
// The same of a verb that returns nothing.
#define SIDEWIRE_HANDLE_TRAITS_VOID(name, raw_struct, verb_called) \
    struct name##_traits {                                         \
        using raw = raw_struct;                                    \
        static constexpr const char *verb = #verb_called;          \
        static int destroy(raw *object) noexcept                   \
        {                                                          \
            verb_called(object);                                   \
            return 0;                                              \
        }                                                          \
    }

} // namespace detail

} // namespace sidewire

#endif
