// SPDX-License-Identifier: BSD-2-Clause
// Devices, and what belongs to a whole device: domains and asynchronous events.
#ifndef SIDEWIRE_VERBS_DEVICE_HPP
#define SIDEWIRE_VERBS_DEVICE_HPP

#include <cstring>

#include <fcntl.h>

#include <sidewire/verbs/handle.hpp>
#include <sidewire/verbs/span.hpp>

namespace sidewire
{

namespace detail
{

SIDEWIRE_HANDLE_TRAITS_VOID(device_list, ibv_device *, ibv_free_device_list);
SIDEWIRE_HANDLE_TRAITS(context, ibv_context, ibv_close_device);
SIDEWIRE_HANDLE_TRAITS(pd, ibv_pd, ibv_dealloc_pd);
SIDEWIRE_HANDLE_TRAITS(td, ibv_td, ibv_dealloc_td);
SIDEWIRE_HANDLE_TRAITS(xrcd, ibv_xrcd, ibv_close_xrcd);
SIDEWIRE_HANDLE_TRAITS_VOID(imported_pd, ibv_pd, ibv_unimport_pd);

} // namespace detail

// The devices of this machine. Devices that are opened stay when the list is gone.
class device_list : public handle<detail::device_list_traits>
{
  public:
    using handle::handle;
    // Not the constructor without arguments, which makes an empty handle as for all others.
    static device_list all()
    {
        return device_list(adopt, check("ibv_get_device_list", ibv_get_device_list(nullptr)));
    }

    std::size_t size() const noexcept
    {
        std::size_t count = 0;

        while (get() && get()[count])
            count++;
        return count;
    }
    ibv_device **begin() const noexcept
    {
        return get();
    }
    ibv_device **end() const noexcept
    {
        return get() + size();
    }
    ibv_device *operator[](std::size_t index) const noexcept
    {
        return get()[index];
    }
    // NULL if there is none of that name.
    ibv_device *find(const char *name) const noexcept
    {
        for (ibv_device *device : *this)
            if (!std::strcmp(ibv_get_device_name(device), name))
                return device;
        return nullptr;
    }
};

class context : public handle<detail::context_traits>
{
  public:
    using handle::handle;
    explicit context(ibv_device *device)
        : handle(adopt, check("ibv_open_device", ibv_open_device(device)))
    {
    }
    explicit context(const char *name) : handle(adopt, open_by_name(name))
    {
    }
    // The device of another process, by a descriptor that it has sent.
    static context import(int cmd_fd)
    {
        return context(adopt, check("ibv_import_device", ibv_import_device(cmd_fd)));
    }

  private:
    static ibv_context *open_by_name(const char *name)
    {
        device_list list = device_list::all();
        ibv_device *device = list.find(name);

        if (!device)
            throw std::system_error(ENODEV, std::generic_category(),
                                    std::string("ibv_open_device(") + name + ")");
        return check("ibv_open_device", ibv_open_device(device));
    }
};

inline ibv_device_attr query_device(borrowed<ibv_context> device)
{
    ibv_device_attr found{};

    check("ibv_query_device", ibv_query_device(device, &found));
    return found;
}

inline ibv_device_attr_ex query_device_ex(borrowed<ibv_context> device)
{
    ibv_device_attr_ex found{};

    check("ibv_query_device_ex", ibv_query_device_ex(device, nullptr, &found));
    return found;
}

inline ibv_port_attr query_port(borrowed<ibv_context> device, uint8_t port = 1)
{
    ibv_port_attr found{};

    check("ibv_query_port", ibv_query_port(device.get(), port, &found));
    return found;
}

class td : public handle<detail::td_traits>
{
  public:
    using handle::handle;
    explicit td(borrowed<ibv_context> device) : td(device, ibv_td_init_attr{})
    {
    }
    td(borrowed<ibv_context> device, ibv_td_init_attr attr)
        : handle(adopt, check("ibv_alloc_td", ibv_alloc_td(device, &attr)))
    {
    }
};

// A protection domain, or a parent domain, which stands for one and is destroyed before it.
class pd : public handle<detail::pd_traits>
{
  public:
    using handle::handle;
    explicit pd(borrowed<ibv_context> device)
        : handle(adopt, check("ibv_alloc_pd", ibv_alloc_pd(device)))
    {
    }
    pd(borrowed<ibv_context> device, ibv_parent_domain_init_attr attr)
        : handle(adopt, check("ibv_alloc_parent_domain", ibv_alloc_parent_domain(device, &attr)))
    {
    }
    static pd parent(borrowed<ibv_context> device, borrowed<ibv_pd> of,
                     borrowed<ibv_td> thread = nullptr)
    {
        ibv_parent_domain_init_attr attr{};

        attr.pd = of;
        attr.td = thread;
        return pd(device, attr);
    }
};

class imported_pd : public handle<detail::imported_pd_traits>
{
  public:
    using handle::handle;
    imported_pd(borrowed<ibv_context> device, uint32_t pd_handle)
        : handle(adopt, check("ibv_import_pd", ibv_import_pd(device, pd_handle)))
    {
    }
};

class xrcd : public handle<detail::xrcd_traits>
{
  public:
    using handle::handle;
    // A domain of this process alone.
    explicit xrcd(borrowed<ibv_context> device) : xrcd(device, -1, O_CREAT)
    {
    }
    // A domain that all share who open the same inode.
    xrcd(borrowed<ibv_context> device, int fd, int oflags)
        : handle(adopt, open_domain(device, fd, oflags))
    {
    }

  private:
    static ibv_xrcd *open_domain(ibv_context *device, int fd, int oflags)
    {
        ibv_xrcd_init_attr attr{};

        attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        attr.fd = fd;
        attr.oflags = oflags;
        return check("ibv_open_xrcd", ibv_open_xrcd(device, &attr));
    }
};

// An event of a device, acknowledged when it is destroyed. To wait for one blocks, unless the
// context's async_fd does not.
class async_event
{
  public:
    explicit async_event(borrowed<ibv_context> device)
    {
        check("ibv_get_async_event", ibv_get_async_event(device, &event_));
        is_there_ = true;
    }
    async_event(async_event &&other) noexcept
        : event_(other.event_), is_there_(std::exchange(other.is_there_, false))
    {
    }
    async_event &operator=(async_event &&other) noexcept
    {
        std::swap(event_, other.event_);
        std::swap(is_there_, other.is_there_);
        return *this;
    }
    ~async_event()
    {
        if (is_there_)
            ibv_ack_async_event(&event_);
    }
    const ibv_async_event *operator->() const noexcept
    {
        return &event_;
    }

  private:
    ibv_async_event event_{};
    bool is_there_ = false;
};

} // namespace sidewire

#endif
