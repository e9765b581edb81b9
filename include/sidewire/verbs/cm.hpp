// SPDX-License-Identifier: BSD-2-Clause
// The objects of librdmacm: addresses, event channels, identifiers, events.
#ifndef SIDEWIRE_VERBS_CM_HPP
#define SIDEWIRE_VERBS_CM_HPP

#include <string>

#include <sidewire/verbs/qp.hpp>

namespace sidewire
{

namespace detail
{

SIDEWIRE_HANDLE_TRAITS_VOID(addrinfo, rdma_addrinfo, rdma_freeaddrinfo);
SIDEWIRE_HANDLE_TRAITS_VOID(event_channel, rdma_event_channel, rdma_destroy_event_channel);
SIDEWIRE_HANDLE_TRAITS_VOID(cm_ep, rdma_cm_id, rdma_destroy_ep);
SIDEWIRE_HANDLE_TRAITS_VOID(cm_devices, ibv_context *, rdma_free_devices);
SIDEWIRE_HANDLE_TRAITS(cm_event, rdma_cm_event, rdma_ack_cm_event);

struct cm_id_traits {
    using raw = rdma_cm_id;
    static constexpr const char *verb = "rdma_destroy_id";
    static int destroy(raw *id) noexcept
    {
        if (id->qp)
            rdma_destroy_qp(id);
        return errno_of(rdma_destroy_id(id));
    }
};

} // namespace detail

class addrinfo : public handle<detail::addrinfo_traits>
{
  public:
    using handle::handle;
    // Names are looked up by the resolver of libc, which has time limits of its own.
    addrinfo(const char *node, const char *service, const rdma_addrinfo &hints)
        : handle(adopt, look_up(node, service, hints))
    {
    }

  private:
    static rdma_addrinfo *look_up(const char *node, const char *service, const rdma_addrinfo &hints)
    {
        rdma_addrinfo *found = nullptr;
        int failed = rdma_getaddrinfo(node, service, &hints, &found);

        // librdmacm hands on what getaddrinfo() says, which is negative, or sets errno.
        if (failed || !found)
            throw_errno("rdma_getaddrinfo", failed == -1 && errno ? errno : EADDRNOTAVAIL);
        return found;
    }
};

// The contexts that librdmacm has open. They are its own: the array alone is destroyed.
class cm_devices : public handle<detail::cm_devices_traits>
{
  public:
    using handle::handle;
    static cm_devices all()
    {
        return cm_devices(adopt, check("rdma_get_devices", rdma_get_devices(nullptr)));
    }
};

// An event, acknowledged when it is destroyed.
class cm_event : public handle<detail::cm_event_traits>
{
  public:
    using handle::handle;
    span<const std::byte> private_data() const noexcept
    {
        const rdma_conn_param &param = get()->param.conn;

        return {static_cast<const std::byte *>(param.private_data),
                param.private_data ? param.private_data_len : std::size_t{0}};
    }
};

class event_channel : public handle<detail::event_channel_traits>
{
  public:
    using handle::handle;
    // Does not block: to wait, give a deadline, or watch the descriptor.
    static event_channel create()
    {
        event_channel made(adopt, check("rdma_create_event_channel", rdma_create_event_channel()));

        detail::make_nonblocking(made->fd);
        return made;
    }

    // The next event; empty when the deadline has passed.
    cm_event wait(const deadline &limit) const
    {
        for (;;) {
            rdma_cm_event *event = nullptr;

            if (!detail::wait_readable(get()->fd, limit))
                return {};
            if (!rdma_get_cm_event(get(), &event))
                return cm_event(adopt, event);
            if (errno != EAGAIN && errno != EINTR)
                throw_errno("rdma_get_cm_event", errno);
        }
    }
};

// An identifier. The queue pair that rdma_create_qp() has made of it is destroyed with it.
class cm_id : public handle<detail::cm_id_traits>
{
  public:
    using handle::handle;
    explicit cm_id(borrowed<rdma_event_channel> channel, rdma_port_space space = RDMA_PS_TCP,
                   void *context = nullptr)
        : handle(adopt, create_id(channel, space, context))
    {
    }
    qp_ref queue_pair() const noexcept
    {
        return get()->qp;
    }

  private:
    static rdma_cm_id *create_id(rdma_event_channel *channel, rdma_port_space space, void *context)
    {
        rdma_cm_id *made = nullptr;

        check("rdma_create_id", rdma_create_id(channel, &made, context, space));
        return made;
    }
};

// What rdma_create_ep() makes: an identifier that blocks, with all that belongs to it.
class cm_ep : public handle<detail::cm_ep_traits>
{
  public:
    using handle::handle;
    cm_ep(borrowed<rdma_addrinfo> address, borrowed<ibv_pd> domain, ibv_qp_init_attr *attr)
        : handle(adopt, create_ep(address, domain, attr))
    {
    }
    qp_ref queue_pair() const noexcept
    {
        return get()->qp;
    }

  private:
    static rdma_cm_id *create_ep(rdma_addrinfo *address, ibv_pd *domain, ibv_qp_init_attr *attr)
    {
        rdma_cm_id *made = nullptr;

        check("rdma_create_ep", rdma_create_ep(&made, address, domain, attr));
        return made;
    }
};

} // namespace sidewire

#endif
