// SPDX-License-Identifier: BSD-2-Clause
// A view of memory that lies in one piece, for C++17. It is made from whatever has data() and
// size(): arrays, std::vector, std::array, std::string, std::span. From C++20 on std::span is made
// from it, too.
#ifndef SIDEWIRE_VERBS_SPAN_HPP
#define SIDEWIRE_VERBS_SPAN_HPP

#include <cassert>
#include <cstddef>
#include <iterator>
#include <type_traits>
#if __cplusplus >= 202002L
#include <span>
#endif

namespace sidewire
{

template <class T> class span;

namespace detail
{

template <class C> using plain_t = std::remove_cv_t<std::remove_reference_t<C>>;

template <class C> struct is_span : std::false_type {
};
template <class T> struct is_span<span<T>> : std::true_type {
};

// What std::data() gives, without a pointer to a derived class becoming one to its base.
template <class C> using element_t = std::remove_pointer_t<decltype(std::data(std::declval<C>()))>;
template <class From, class To>
inline constexpr bool is_same_layout_v = std::is_convertible_v<From (*)[], To (*)[]>;

template <class C, class T, class = void> struct is_contiguous : std::false_type {
};
template <class C, class T>
struct is_contiguous<C, T, std::void_t<element_t<C>, decltype(std::size(std::declval<C>()))>>
    : std::bool_constant<is_same_layout_v<element_t<C>, T>> {
};

} // namespace detail

template <class T> class span
{
  public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;
    using size_type = std::size_t;
    using pointer = T *;
    using reference = T &;
    using iterator = T *;

    constexpr span() noexcept = default;
    constexpr span(T *first, std::size_t count) noexcept : data_(first), size_(count)
    {
    }
    // A temporary is taken only by a view that cannot write: that is how arguments are passed.
    template <class C, class = std::enable_if_t<!detail::is_span<detail::plain_t<C>>::value &&
                                                detail::is_contiguous<C &, T>::value>>
    constexpr span(C &container) noexcept : data_(std::data(container)), size_(std::size(container))
    {
    }
    template <class C, class = std::enable_if_t<!detail::is_span<C>::value &&
                                                detail::is_contiguous<const C &, T>::value>>
    constexpr span(const C &container) noexcept
        : data_(std::data(container)), size_(std::size(container))
    {
    }
    template <class U, class = std::enable_if_t<detail::is_same_layout_v<U, T>>>
    constexpr span(const span<U> &other) noexcept : data_(other.data()), size_(other.size())
    {
    }

    constexpr T *data() const noexcept
    {
        return data_;
    }
    constexpr std::size_t size() const noexcept
    {
        return size_;
    }
    constexpr std::size_t size_bytes() const noexcept
    {
        return size_ * sizeof(T);
    }
    constexpr bool empty() const noexcept
    {
        return size_ == 0;
    }
    constexpr T *begin() const noexcept
    {
        return data_;
    }
    constexpr T *end() const noexcept
    {
        return data_ + size_;
    }
    constexpr T &operator[](std::size_t index) const noexcept
    {
        assert(index < size_);
        return data_[index];
    }
    constexpr T &front() const noexcept
    {
        return (*this)[0];
    }
    constexpr T &back() const noexcept
    {
        return (*this)[size_ - 1];
    }
    constexpr span first(std::size_t count) const noexcept
    {
        return subspan(0, count);
    }
    constexpr span last(std::size_t count) const noexcept
    {
        assert(count <= size_);
        return subspan(size_ - count, count);
    }
    constexpr span subspan(std::size_t offset, std::size_t count) const noexcept
    {
        assert(offset <= size_ && count <= size_ - offset);
        return span(data_ + offset, count);
    }
    constexpr span subspan(std::size_t offset) const noexcept
    {
        assert(offset <= size_);
        return span(data_ + offset, size_ - offset);
    }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

template <class C> span(C &) -> span<detail::element_t<C &>>;
template <class C> span(const C &) -> span<detail::element_t<const C &>>;

template <class T> span<const std::byte> as_bytes(span<T> items) noexcept
{
    return {reinterpret_cast<const std::byte *>(items.data()), items.size_bytes()};
}

template <class T, class = std::enable_if_t<!std::is_const_v<T>>>
span<std::byte> as_writable_bytes(span<T> items) noexcept
{
    return {reinterpret_cast<std::byte *>(items.data()), items.size_bytes()};
}

} // namespace sidewire

#if __cplusplus >= 202002L
template <class T>
inline constexpr bool std::ranges::enable_borrowed_range<sidewire::span<T>> = true;
template <class T> inline constexpr bool std::ranges::enable_view<sidewire::span<T>> = true;
#endif

#endif
