// SPDX-License-Identifier: BSD-2-Clause
// Registered memory: local pieces for requests, and typed addresses of memory that a peer has.
#ifndef SIDEWIRE_VERBS_MEMORY_HPP
#define SIDEWIRE_VERBS_MEMORY_HPP

#include <cstdint>
#include <limits>

#include <sidewire/verbs/device.hpp>

namespace sidewire
{

namespace detail
{

SIDEWIRE_HANDLE_TRAITS(mr, ibv_mr, ibv_dereg_mr);
SIDEWIRE_HANDLE_TRAITS(mw, ibv_mw, ibv_dealloc_mw);
SIDEWIRE_HANDLE_TRAITS(dm, ibv_dm, ibv_free_dm);
SIDEWIRE_HANDLE_TRAITS_VOID(imported_mr, ibv_mr, ibv_unimport_mr);
SIDEWIRE_HANDLE_TRAITS_VOID(imported_dm, ibv_dm, ibv_unimport_dm);

} // namespace detail

// What local requests and peers may do with a region. Flags are joined by |.
namespace access
{
inline constexpr unsigned int local_read = 0;
inline constexpr unsigned int local_write = IBV_ACCESS_LOCAL_WRITE;
inline constexpr unsigned int remote_read = IBV_ACCESS_REMOTE_READ;
inline constexpr unsigned int remote_write = IBV_ACCESS_REMOTE_WRITE;
inline constexpr unsigned int remote_atomic = IBV_ACCESS_REMOTE_ATOMIC;
inline constexpr unsigned int bind = IBV_ACCESS_MW_BIND;
inline constexpr unsigned int all = local_write | remote_read | remote_write | remote_atomic;
} // namespace access

namespace detail
{

// To the order of the network, and back.
template <class U> U swapped(U value) noexcept
{
    static_assert(sizeof(U) == 2 || sizeof(U) == 4 || sizeof(U) == 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if constexpr (sizeof(U) == 8)
        return __builtin_bswap64(value);
    else if constexpr (sizeof(U) == 4)
        return __builtin_bswap32(value);
    else
        return __builtin_bswap16(value);
#else
    return value;
#endif
}

} // namespace detail

// A number that has the same bytes on every machine, at any address.
template <class U> class big_endian
{
  public:
    big_endian() noexcept = default;
    big_endian(U value) noexcept
    {
        U swapped = detail::swapped(value);

        std::memcpy(bytes_, &swapped, sizeof(U));
    }
    operator U() const noexcept
    {
        U swapped;

        std::memcpy(&swapped, bytes_, sizeof(U));
        return detail::swapped(swapped);
    }

  private:
    unsigned char bytes_[sizeof(U)] = {};
};

// Where a peer has `size()` objects, and the key to them. 20 bytes without padding and with a fixed
// order: it goes to the peer as it is. remote<const T> can be read only.
template <class T> class remote
{
  public:
    remote() noexcept = default;
    remote(uint64_t address, uint32_t key, uint64_t count) noexcept
        : address_(address), length_bytes_(count * sizeof(T)), key_(key)
    {
    }

    uint64_t address() const noexcept
    {
        return address_;
    }
    uint32_t key() const noexcept
    {
        return key_;
    }
    uint64_t size() const noexcept
    {
        return length_bytes_ / sizeof(T);
    }
    uint64_t size_bytes() const noexcept
    {
        return length_bytes_;
    }
    remote subspan(uint64_t offset, uint64_t count) const noexcept
    {
        assert(offset <= size() && count <= size() - offset);
        return remote(address_ + offset * sizeof(T), key_, count);
    }
    remote first(uint64_t count) const noexcept
    {
        return subspan(0, count);
    }
    remote operator[](uint64_t index) const noexcept
    {
        return subspan(index, 1);
    }
    // The same bytes as objects of another type.
    template <class U> remote<U> as() const noexcept
    {
        return remote<U>(address_, key_, length_bytes_ / sizeof(U));
    }

  private:
    big_endian<uint64_t> address_, length_bytes_;
    big_endian<uint32_t> key_;
};

static_assert(sizeof(remote<int>) == 20 && alignof(remote<int>) == 1);
static_assert(std::is_trivially_copyable_v<remote<int>>);

// A region. It does not own the memory, which has to live longer than the region.
class mr : public handle<detail::mr_traits>
{
  public:
    using handle::handle;
    mr(borrowed<ibv_pd> domain, span<std::byte> bytes, unsigned int rights = access::local_write)
        : handle(adopt,
                 check("ibv_reg_mr", ibv_reg_mr(domain.get(), bytes.data(), bytes.size(), rights)))
    {
    }
    // From any container of objects that are not const.
    template <class C, class S = decltype(span(std::declval<C &>())),
              class = std::enable_if_t<!std::is_const_v<typename S::element_type>>>
    mr(borrowed<ibv_pd> domain, C &container, unsigned int rights = access::local_write)
        : mr(domain, as_writable_bytes(span(container)), rights)
    {
    }
    mr(borrowed<ibv_pd> domain, span<std::byte> bytes, uint64_t iova, unsigned int rights)
        : handle(adopt, check("ibv_reg_mr_iova", ibv_reg_mr_iova(domain.get(), bytes.data(),
                                                                 bytes.size(), iova, rights)))
    {
    }
    static mr of_dmabuf(borrowed<ibv_pd> domain, int fd, uint64_t offset, std::size_t length_bytes,
                        uint64_t iova, unsigned int rights)
    {
        return mr(adopt,
                  check("ibv_reg_dmabuf_mr", ibv_reg_dmabuf_mr(domain, offset, length_bytes, iova,
                                                               fd, static_cast<int>(rights))));
    }
    static mr of_device_memory(borrowed<ibv_pd> domain, borrowed<ibv_dm> memory, uint64_t offset,
                               std::size_t length_bytes, unsigned int rights)
    {
        return mr(adopt, check("ibv_reg_dm_mr", ibv_reg_dm_mr(domain, memory, offset, length_bytes,
                                                              rights | IBV_ACCESS_ZERO_BASED)));
    }
    // Reads of it give zeros, what is written to it is gone.
    static mr null(borrowed<ibv_pd> domain)
    {
        return mr(adopt, check("ibv_alloc_null_mr", ibv_alloc_null_mr(domain)));
    }

    ibv_sge local(std::size_t offset, std::size_t length_bytes) const noexcept
    {
        assert(offset <= get()->length && length_bytes <= get()->length - offset);
        assert(length_bytes <= std::numeric_limits<uint32_t>::max());
        return {reinterpret_cast<uintptr_t>(get()->addr) + offset,
                static_cast<uint32_t>(length_bytes), get()->lkey};
    }
    ibv_sge local() const noexcept
    {
        return local(0, get()->length);
    }
    remote<std::byte> for_peer() const noexcept
    {
        return {reinterpret_cast<uintptr_t>(get()->addr), get()->rkey, get()->length};
    }
};

// A region that knows the type of what is in it. Offsets and counts are those of objects.
template <class T> class memory : public mr
{
  public:
    memory() noexcept = default;
    memory(borrowed<ibv_pd> domain, span<T> items, unsigned int rights = access::local_write)
        : mr(domain, bytes_of(items), rights), items_(items)
    {
        assert(!std::is_const_v<T> || !(rights & ~access::remote_read));
    }
    template <class C, class = std::enable_if_t<detail::is_contiguous<C &, T>::value>>
    memory(borrowed<ibv_pd> domain, C &container, unsigned int rights = access::local_write)
        : memory(domain, span<T>(container), rights)
    {
    }

    // The elements that are registered; none of a region that was moved away.
    span<T> items() const noexcept
    {
        return get() ? items_ : span<T>();
    }
    ibv_sge local() const noexcept
    {
        return local(0, items_.size());
    }
    ibv_sge local(std::size_t offset, std::size_t count) const noexcept
    {
        return mr::local(offset * sizeof(T), count * sizeof(T));
    }
    remote<T> for_peer() const noexcept
    {
        return {reinterpret_cast<uintptr_t>(items_.data()), get()->rkey, items_.size()};
    }

  private:
    static span<std::byte> bytes_of(span<T> items) noexcept
    {
        // The region of const objects is one that nothing may write to.
        return {reinterpret_cast<std::byte *>(const_cast<std::remove_const_t<T> *>(items.data())),
                items.size_bytes()};
    }

    span<T> items_;
};

template <class C> memory(borrowed<ibv_pd>, C &) -> memory<detail::element_t<C &>>;
template <class P, class C> memory(const P &, C &) -> memory<detail::element_t<C &>>;
template <class P, class C> memory(const P &, C &, unsigned int) -> memory<detail::element_t<C &>>;

class imported_mr : public handle<detail::imported_mr_traits>
{
  public:
    using handle::handle;
    imported_mr(borrowed<ibv_pd> domain, uint32_t mr_handle)
        : handle(adopt, check("ibv_import_mr", ibv_import_mr(domain, mr_handle)))
    {
    }
};

class mw : public handle<detail::mw_traits>
{
  public:
    using handle::handle;
    mw(borrowed<ibv_pd> domain, ibv_mw_type type)
        : handle(adopt, check("ibv_alloc_mw", ibv_alloc_mw(domain, type)))
    {
    }
};

// Memory of the device itself.
class dm : public handle<detail::dm_traits>
{
  public:
    using handle::handle;
    dm(borrowed<ibv_context> device, ibv_alloc_dm_attr attr)
        : handle(adopt, check("ibv_alloc_dm", ibv_alloc_dm(device, &attr)))
    {
    }
    dm(borrowed<ibv_context> device, std::size_t length_bytes)
        : dm(device, ibv_alloc_dm_attr{length_bytes, 0, 0})
    {
    }

    void copy_in(uint64_t offset, span<const std::byte> from) const
    {
        check("ibv_memcpy_to_dm", ibv_memcpy_to_dm(get(), offset, from.data(), from.size()));
    }
    void copy_out(span<std::byte> to, uint64_t offset) const
    {
        check("ibv_memcpy_from_dm", ibv_memcpy_from_dm(to.data(), get(), offset, to.size()));
    }
};

class imported_dm : public handle<detail::imported_dm_traits>
{
  public:
    using handle::handle;
    imported_dm(borrowed<ibv_context> device, uint32_t dm_handle)
        : handle(adopt, check("ibv_import_dm", ibv_import_dm(device, dm_handle)))
    {
    }
};

} // namespace sidewire

#endif
