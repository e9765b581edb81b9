// SPDX-License-Identifier: BSD-2-Clause
// Queue pairs: posting, states, and what hangs on them (address handles, flows, counters).
#ifndef SIDEWIRE_VERBS_QP_HPP
#define SIDEWIRE_VERBS_QP_HPP

#include <sidewire/verbs/endpoint.hpp>
#include <sidewire/verbs/queue.hpp>

namespace sidewire
{

namespace detail
{

SIDEWIRE_HANDLE_TRAITS(qp, ibv_qp, ibv_destroy_qp);
SIDEWIRE_HANDLE_TRAITS(ah, ibv_ah, ibv_destroy_ah);
SIDEWIRE_HANDLE_TRAITS(flow, ibv_flow, ibv_destroy_flow);
SIDEWIRE_HANDLE_TRAITS(flow_action, ibv_flow_action, ibv_destroy_flow_action);
SIDEWIRE_HANDLE_TRAITS(counters, ibv_counters, ibv_destroy_counters);

// What can be done with a queue pair of any owner.
template <class Self> class qp_calls
{
  public:
    // The whole list, or an errno: then *bad is the first that was not taken. ENOMEM: it is full.
    std::error_code try_post(const ibv_send_wr *list, ibv_send_wr **bad = nullptr) const noexcept
    {
        ibv_send_wr *stuck = nullptr;
        int code = post_list(list, bad ? bad : &stuck);

        return {errno_of(code), std::generic_category()};
    }
    std::error_code try_post(const ibv_recv_wr *list, ibv_recv_wr **bad = nullptr) const noexcept
    {
        ibv_recv_wr *stuck = nullptr;
        int code = post_list(list, bad ? bad : &stuck);

        return {errno_of(code), std::generic_category()};
    }
    template <std::size_t N> std::error_code try_post(const request<N> &made) const noexcept
    {
        return try_post(&made.raw());
    }
    template <std::size_t N> std::error_code try_post(const receive_request<N> &made) const noexcept
    {
        return try_post(&made.raw());
    }
    template <std::size_t C, std::size_t N>
    std::error_code try_post(request_list<C, N> &list) const noexcept
    {
        return try_post(list.raw());
    }

    void post(const ibv_send_wr *list) const
    {
        ibv_send_wr *stuck = nullptr;

        check("ibv_post_send", post_list(list, &stuck));
    }
    void post(const ibv_recv_wr *list) const
    {
        ibv_recv_wr *stuck = nullptr;

        check("ibv_post_recv", post_list(list, &stuck));
    }
    template <std::size_t N> void post(const request<N> &made) const
    {
        post(&made.raw());
    }
    template <std::size_t N> void post(const receive_request<N> &made) const
    {
        post(&made.raw());
    }
    template <std::size_t C, std::size_t N> void post(request_list<C, N> &list) const
    {
        post(list.raw());
    }

    uint32_t number() const noexcept
    {
        return raw_qp()->qp_num;
    }
    void modify(ibv_qp_attr attr, int mask) const
    {
        check("ibv_modify_qp", ibv_modify_qp(raw_qp(), &attr, mask));
    }
    ibv_qp_attr query(int mask, ibv_qp_init_attr *init = nullptr) const
    {
        ibv_qp_attr found{};
        ibv_qp_init_attr unused{};

        check("ibv_query_qp", ibv_query_qp(raw_qp(), &found, mask, init ? init : &unused));
        return found;
    }
    ibv_qp_state state() const
    {
        return query(IBV_QP_STATE).qp_state;
    }
    void move_to(ibv_qp_state state) const
    {
        ibv_qp_attr attr{};

        attr.qp_state = state;
        modify(attr, IBV_QP_STATE);
    }
    // What the peer must know to connect to this queue pair (RC, UC), or to send to it (UD).
    endpoint local_endpoint(const path_options &options = {}) const
    {
        return detail::describe_qp(raw_qp(), options);
    }
    // From RESET to RTS, towards the peer's queue pair (RC, UC). `mine` is what the peer got.
    void connect(const endpoint &mine, const endpoint &theirs,
                 const path_options &options = {}) const
    {
        detail::connect_qp(raw_qp(), mine, theirs, options);
    }
    // From RESET to RTS, for datagrams (UD).
    void activate(const endpoint &mine, const path_options &options = {}) const
    {
        detail::activate_qp(raw_qp(), mine, options);
    }

  private:
    // The verbs only read the requests.
    int post_list(const ibv_send_wr *list, ibv_send_wr **bad) const noexcept
    {
        return ibv_post_send(raw_qp(), const_cast<ibv_send_wr *>(list), bad);
    }
    int post_list(const ibv_recv_wr *list, ibv_recv_wr **bad) const noexcept
    {
        return ibv_post_recv(raw_qp(), const_cast<ibv_recv_wr *>(list), bad);
    }
    ibv_qp *raw_qp() const noexcept
    {
        return static_cast<const Self *>(this)->get();
    }
};

} // namespace detail

// A queue pair of somebody else.
class qp_ref : public borrowed<ibv_qp>, public detail::qp_calls<qp_ref>
{
  public:
    using borrowed::borrowed;
};

class qp : public handle<detail::qp_traits>, public detail::qp_calls<qp>
{
  public:
    using handle::handle;
    qp(borrowed<ibv_pd> domain, ibv_qp_init_attr attr)
        : handle(adopt, check("ibv_create_qp", ibv_create_qp(domain, &attr)))
    {
    }
    qp(borrowed<ibv_context> device, ibv_qp_init_attr_ex attr)
        : handle(adopt, check("ibv_create_qp_ex", ibv_create_qp_ex(device, &attr)))
    {
    }
    // An XRC queue pair, shared by processes.
    qp(borrowed<ibv_context> device, ibv_qp_open_attr attr)
        : handle(adopt, check("ibv_open_qp", ibv_open_qp(device, &attr)))
    {
    }
    // As many requests each way, of one piece.
    qp(borrowed<ibv_pd> domain, borrowed<ibv_cq> send_queue, borrowed<ibv_cq> receive_queue,
       uint32_t depth, ibv_qp_type type = IBV_QPT_RC)
        : qp(domain, plain_attr(send_queue, receive_queue, depth, type))
    {
    }

    static ibv_qp_init_attr plain_attr(ibv_cq *send_queue, ibv_cq *receive_queue, uint32_t depth,
                                       ibv_qp_type type)
    {
        ibv_qp_init_attr attr{};

        attr.send_cq = send_queue;
        attr.recv_cq = receive_queue;
        attr.cap.max_send_wr = attr.cap.max_recv_wr = depth;
        attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
        attr.qp_type = type;
        return attr;
    }
};

// Requests by the ibv_wr_* functions, on a queue pair that was created with send_ops_flags. They
// take effect at complete(); without it, they are as if they had never been.
class wr_batch
{
  public:
    explicit wr_batch(borrowed<ibv_qp> queue_pair) : queue_pair_(ibv_qp_to_qp_ex(queue_pair))
    {
        check("ibv_qp_to_qp_ex", queue_pair_);
        ibv_wr_start(queue_pair_);
    }
    wr_batch(const wr_batch &) = delete;
    wr_batch &operator=(const wr_batch &) = delete;
    ~wr_batch()
    {
        if (queue_pair_)
            ibv_wr_abort(queue_pair_);
    }

    ibv_qp_ex *get() const noexcept
    {
        return queue_pair_;
    }
    ibv_qp_ex *operator->() const noexcept
    {
        return queue_pair_;
    }
    // Sets the id and the flags of the requests that follow.
    wr_batch &next(uint64_t id, unsigned int flags = 0) noexcept
    {
        queue_pair_->wr_id = id;
        queue_pair_->wr_flags = flags;
        return *this;
    }
    void piece(const ibv_sge &local) noexcept
    {
        ibv_wr_set_sge(queue_pair_, local.lkey, local.addr, local.length);
    }
    template <class T> void write(const ibv_sge &local, const remote<T> &there) noexcept
    {
        static_assert(!std::is_const_v<T>, "this remote memory can be read only");
        ibv_wr_rdma_write(queue_pair_, there.key(), there.address());
        piece(local);
    }
    template <class T> void read(const ibv_sge &local, const remote<T> &there) noexcept
    {
        ibv_wr_rdma_read(queue_pair_, there.key(), there.address());
        piece(local);
    }
    void send(const ibv_sge &local) noexcept
    {
        ibv_wr_send(queue_pair_);
        piece(local);
    }
    void complete()
    {
        check("ibv_wr_complete", ibv_wr_complete(std::exchange(queue_pair_, nullptr)));
    }

  private:
    ibv_qp_ex *queue_pair_;
};

class ah : public handle<detail::ah_traits>
{
  public:
    using handle::handle;
    ah(borrowed<ibv_pd> domain, ibv_ah_attr attr)
        : handle(adopt, check("ibv_create_ah", ibv_create_ah(domain, &attr)))
    {
    }
    // The way to the queue pair of a peer.
    ah(borrowed<ibv_pd> domain, const endpoint &theirs, const path_options &options = {})
        : ah(domain, detail::way_to(domain->context, theirs, options))
    {
    }
};

class flow : public handle<detail::flow_traits>
{
  public:
    using handle::handle;
    // `attr` stands before its specifications, in one piece of memory.
    flow(borrowed<ibv_qp> queue_pair, ibv_flow_attr &attr)
        : handle(adopt, check("ibv_create_flow", ibv_create_flow(queue_pair, &attr)))
    {
    }
};

class flow_action : public handle<detail::flow_action_traits>
{
  public:
    using handle::handle;
    flow_action(borrowed<ibv_context> device, ibv_flow_action_esp_attr attr)
        : handle(adopt,
                 check("ibv_create_flow_action_esp", ibv_create_flow_action_esp(device, &attr)))
    {
    }
};

class counters : public handle<detail::counters_traits>
{
  public:
    using handle::handle;
    explicit counters(borrowed<ibv_context> device, ibv_counters_init_attr attr = {})
        : handle(adopt, check("ibv_create_counters", ibv_create_counters(device, &attr)))
    {
    }
    void attach(borrowed<ibv_flow> to, ibv_counter_attach_attr attr) const
    {
        check("ibv_attach_counters_point_flow", ibv_attach_counters_point_flow(get(), &attr, to));
    }
    void read(span<uint64_t> into, uint32_t flags = 0) const
    {
        check("ibv_read_counters",
              ibv_read_counters(get(), into.data(), static_cast<uint32_t>(into.size()), flags));
    }
};

} // namespace sidewire

#endif
