// SPDX-License-Identifier: BSD-2-Clause
// A client and a server by librdmacm. Both sides have a connection; it has a queue pair before they
// are connected, so that memory can be registered and receives be posted first, and the private
// data can say where the memory is. docs/cpp.md has the two programs.
#ifndef SIDEWIRE_VERBS_CONNECTION_HPP
#define SIDEWIRE_VERBS_CONNECTION_HPP

#include <sidewire/verbs/cm.hpp>

namespace sidewire
{

struct connection_options {
    uint32_t send_depth = 64;
    uint32_t receive_depth = 64;
    uint32_t pieces = 1;       // of a request, at most
    uint32_t inline_bytes = 0; // at least; a device that has less refuses the queue pair
    uint8_t retries = 7;
    uint8_t rnr_retries = 7;  // 7: for ever
    ibv_pd *domain = nullptr; // NULL: one of the connection's own
    ibv_srq *shared_receives = nullptr;
};

namespace detail
{

template <class T> struct is_std_array : std::false_type {
};
template <class T, std::size_t N> struct is_std_array<std::array<T, N>> : std::true_type {
};

// What means the same to a peer: not a pointer, nor a view, whose bytes are a pointer.
template <class T, class = void> struct is_sendable : std::negation<std::is_pointer<T>> {
};
template <class T>
struct is_sendable<T, std::void_t<element_t<const T &>>>
    : std::disjunction<std::is_array<T>, is_std_array<T>> {
};
template <class T>
inline constexpr bool is_sendable_v = std::is_trivially_copyable_v<T> &&is_sendable<T>::value;

// A copy of private data, which ends with its event.
class private_copy
{
  public:
    private_copy() noexcept = default;
    explicit private_copy(span<const std::byte> data) noexcept
        : size_(std::min(data.size(), bytes_.size()))
    {
        std::copy_n(data.begin(), size_, bytes_.begin());
    }
    span<const std::byte> view() const noexcept
    {
        return {bytes_.data(), size_};
    }

  private:
    std::array<std::byte, 256> bytes_{};
    std::size_t size_ = 0;
};

} // namespace detail

// The peer has refused, and perhaps said why.
class rejected : public std::system_error
{
  public:
    rejected(const std::string &what, span<const std::byte> reason)
        : std::system_error(make_error_code(RDMA_CM_EVENT_REJECTED), what), reason_(reason)
    {
    }
    span<const std::byte> private_data() const noexcept
    {
        return reason_.view();
    }

  private:
    detail::private_copy reason_;
};

namespace detail
{

// Waits for one event; all others are errors. `verb` is what asked for it.
inline cm_event await_event(const event_channel &channel, rdma_cm_event_type wanted,
                            const char *verb, const deadline &limit)
{
    for (;;) {
        cm_event event = channel.wait(limit);

        if (!event)
            throw_errno(verb, ETIMEDOUT);
        if (event->event == wanted)
            return event;
        if (event->event == RDMA_CM_EVENT_ADDR_CHANGE ||
            event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT)
            continue;
        std::string what = verb;
        if (event->status)
            what += " (status " + std::to_string(event->status) + ")";
        if (event->event == RDMA_CM_EVENT_REJECTED)
            throw rejected(what, event.private_data());
        throw std::system_error(make_error_code(event->event), what);
    }
}

inline rdma_addrinfo tcp_hints(int flags) noexcept
{
    rdma_addrinfo hints{};

    hints.ai_flags = flags;
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_qp_type = IBV_QPT_RC;
    return hints;
}

} // namespace detail

// Private data goes as the bytes of one object, or as a span of bytes. InfiniBand has 56 bytes for
// a request, 196 for an answer, and 148 for a refusal.
class connection
{
  public:
    connection() noexcept = default;
    // The client's side. Finds the device that leads to the server; connect() comes next.
    connection(const char *node, const char *service, const deadline &limit,
               const connection_options &options = {})
        : channel_(event_channel::create()), id_(channel_)
    {
        addrinfo found(node, service, detail::tcp_hints(0));

        check("rdma_resolve_addr", rdma_resolve_addr(id_.get(), found->ai_src_addr,
                                                     found->ai_dst_addr, limit.left_ms()));
        await(RDMA_CM_EVENT_ADDR_RESOLVED, "rdma_resolve_addr", limit);
        check("rdma_resolve_route", rdma_resolve_route(id_.get(), limit.left_ms()));
        await(RDMA_CM_EVENT_ROUTE_RESOLVED, "rdma_resolve_route", limit);
        create_queues(options);
    }
    connection(connection &&) noexcept = default;
    connection &operator=(connection &&other) noexcept
    {
        // What was made last goes first.
        id_ = std::move(other.id_);
        receives_ = std::move(other.receives_);
        sends_ = std::move(other.sends_);
        domain_ = std::move(other.domain_);
        channel_ = std::move(other.channel_);
        param_ = other.param_;
        peer_data_ = other.peer_data_;
        return *this;
    }

    // The client connects, and has the server's data.
    void connect(span<const std::byte> data, const deadline &limit)
    {
        set_data(data, 56);
        check("rdma_connect", rdma_connect(id_.get(), &param_));
        peer_data_ = detail::private_copy(
            await(RDMA_CM_EVENT_ESTABLISHED, "rdma_connect", limit).private_data());
    }
    template <class T, class = std::enable_if_t<detail::is_sendable_v<T>>>
    void connect(const T &data, const deadline &limit)
    {
        connect(bytes_of(data), limit);
    }
    // The server says yes to the client that asked (listener::wait).
    void accept(span<const std::byte> data, const deadline &limit)
    {
        set_data(data, 196);
        check("rdma_accept", rdma_accept(id_.get(), &param_));
        await(RDMA_CM_EVENT_ESTABLISHED, "rdma_accept", limit);
    }
    template <class T, class = std::enable_if_t<detail::is_sendable_v<T>>>
    void accept(const T &data, const deadline &limit)
    {
        accept(bytes_of(data), limit);
    }
    void reject(span<const std::byte> reason = {})
    {
        set_data(reason, 148);
        check("rdma_reject", rdma_reject(id_.get(), param_.private_data, param_.private_data_len));
    }
    // Requests that are under way end as flushed. To destroy a connection does it as well.
    void disconnect()
    {
        check("rdma_disconnect", rdma_disconnect(id_.get()));
    }
    // Until the peer has disconnected or is gone.
    void wait_disconnected(const deadline &limit) const
    {
        await(RDMA_CM_EVENT_DISCONNECTED, "rdma_disconnect", limit);
    }

    // What the peer has sent along. InfiniBand fills it up with zeros.
    span<const std::byte> peer_data() const noexcept
    {
        return peer_data_.view();
    }
    // The same as one object. Throws EBADMSG if there are fewer bytes.
    template <class T> T peer_data() const
    {
        static_assert(detail::is_sendable_v<T>);
        T found;

        if (peer_data().size() < sizeof(T))
            throw_errno("private data of the peer", EBADMSG);
        std::memcpy(&found, peer_data().data(), sizeof(T));
        return found;
    }

    qp_ref queue_pair() const noexcept
    {
        return id_.queue_pair();
    }
    ibv_pd *domain() const noexcept
    {
        return id_->qp->pd;
    }
    ibv_context *device() const noexcept
    {
        return id_->verbs;
    }
    rdma_cm_id *id() const noexcept
    {
        return id_.get();
    }
    const waitable_cq &sends() const noexcept
    {
        return sends_;
    }
    const waitable_cq &receives() const noexcept
    {
        return receives_;
    }
    // Readable when an event of the connection manager has come, as when the peer is gone.
    int event_fd() const noexcept
    {
        return channel_->fd;
    }

    template <class Request> void post(const Request &made) const
    {
        queue_pair().post(made);
    }
    // Posts one request and waits until it is done; no other signaled request may be under way. If
    // it throws, the request may still be: destroy the connection before its memory.
    template <std::size_t N> completion run(request<N> made, const deadline &limit) const
    {
        queue_pair().post(made.signaled());
        return take_one(sends_, "ibv_post_send", limit);
    }
    // The next message, or a WRITE with immediate data.
    completion await_receive(const deadline &limit) const
    {
        return take_one(receives_, "ibv_post_recv", limit);
    }

  private:
    friend class listener;

    // The server's side: somebody has asked.
    connection(cm_id id, const detail::private_copy &data, const connection_options &options)
        : channel_(event_channel::create()), id_(std::move(id)), peer_data_(data)
    {
        check("rdma_migrate_id", rdma_migrate_id(id_.get(), channel_.get()));
        create_queues(options);
    }

    template <class T> static span<const std::byte> bytes_of(const T &data) noexcept
    {
        return {reinterpret_cast<const std::byte *>(&data), sizeof(T)};
    }

    static completion take_one(const waitable_cq &queue, const char *verb, const deadline &limit)
    {
        completion one[1];

        if (queue.wait(one, limit).empty())
            throw_errno(verb, ETIMEDOUT);
        one[0].check(verb);
        return one[0];
    }

    cm_event await(rdma_cm_event_type wanted, const char *verb, const deadline &limit) const
    {
        return detail::await_event(channel_, wanted, verb, limit);
    }

    void create_queues(const connection_options &options)
    {
        ibv_qp_init_attr attr{};

        if (!options.domain)
            domain_ = pd(id_->verbs);
        sends_ = waitable_cq(id_->verbs, static_cast<int>(options.send_depth));
        receives_ = waitable_cq(id_->verbs, static_cast<int>(options.receive_depth));
        attr.qp_type = IBV_QPT_RC;
        attr.send_cq = sends_.get();
        attr.recv_cq = receives_.get();
        attr.srq = options.shared_receives;
        attr.cap.max_send_wr = options.send_depth;
        attr.cap.max_recv_wr = options.receive_depth;
        attr.cap.max_send_sge = attr.cap.max_recv_sge = options.pieces;
        attr.cap.max_inline_data = options.inline_bytes;
        check("rdma_create_qp",
              rdma_create_qp(id_.get(), options.domain ? options.domain : domain_.get(), &attr));
        param_.responder_resources = RDMA_MAX_RESP_RES; // as many as both devices can
        param_.initiator_depth = RDMA_MAX_INIT_DEPTH;
        param_.retry_count = options.retries;
        param_.rnr_retry_count = options.rnr_retries;
    }

    void set_data(span<const std::byte> data, std::size_t limit_bytes)
    {
        if (data.size() > limit_bytes)
            throw_errno("private data", EMSGSIZE);
        param_.private_data = data.data();
        param_.private_data_len = static_cast<uint8_t>(data.size());
    }

    // Destroyed from the last to the first.
    event_channel channel_;
    pd domain_;
    waitable_cq sends_, receives_;
    cm_id id_;
    rdma_conn_param param_{};
    detail::private_copy peer_data_;
};

// Where clients connect. `node` NULL: at all addresses; `service` "0": a free port.
class listener
{
  public:
    listener() noexcept = default;
    listener(const char *node, const char *service, int backlog = 64)
        : channel_(event_channel::create()), id_(channel_)
    {
        addrinfo found(node, service, detail::tcp_hints(RAI_PASSIVE));

        check("rdma_bind_addr", rdma_bind_addr(id_.get(), found->ai_src_addr));
        check("rdma_listen", rdma_listen(id_.get(), backlog));
    }
    listener(listener &&) noexcept = default;
    listener &operator=(listener &&other) noexcept
    {
        id_ = std::move(other.id_); // before its channel
        channel_ = std::move(other.channel_);
        return *this;
    }

    uint16_t port() const noexcept
    {
        return ntohs(rdma_get_src_port(id_.get()));
    }
    rdma_cm_id *id() const noexcept
    {
        return id_.get();
    }
    // Readable when a client has come.
    int fd() const noexcept
    {
        return channel_->fd;
    }
    // The next client, which waits for accept() or reject(). One that is destroyed instead is
    // refused.
    connection wait(const deadline &limit, const connection_options &options = {}) const
    {
        cm_id id; // outlives the event: to destroy it waits until all its events are acknowledged
        cm_event event =
            detail::await_event(channel_, RDMA_CM_EVENT_CONNECT_REQUEST, "rdma_listen", limit);

        id.reset(event->id);
        detail::private_copy data(event.private_data());
        event.close();
        return connection(std::move(id), data, options);
    }

  private:
    event_channel channel_;
    cm_id id_;
};

} // namespace sidewire

#endif
