// SPDX-License-Identifier: BSD-2-Clause
// Completion queues and their channels, completions, and shared receive queues.
#ifndef SIDEWIRE_VERBS_QUEUE_HPP
#define SIDEWIRE_VERBS_QUEUE_HPP

#include <sidewire/verbs/deadline.hpp>
#include <sidewire/verbs/request.hpp>

namespace sidewire
{

namespace detail
{

SIDEWIRE_HANDLE_TRAITS(comp_channel, ibv_comp_channel, ibv_destroy_comp_channel);
SIDEWIRE_HANDLE_TRAITS(cq, ibv_cq, ibv_destroy_cq);
SIDEWIRE_HANDLE_TRAITS(srq, ibv_srq, ibv_destroy_srq);
SIDEWIRE_HANDLE_TRAITS(wq, ibv_wq, ibv_destroy_wq);
SIDEWIRE_HANDLE_TRAITS(rwq_ind_table, ibv_rwq_ind_table, ibv_destroy_rwq_ind_table);

struct cq_ex_traits {
    using raw = ibv_cq_ex;
    static constexpr const char *verb = "ibv_destroy_cq";
    static int destroy(raw *queue) noexcept
    {
        return errno_of(ibv_destroy_cq(ibv_cq_ex_to_cq(queue)));
    }
};

} // namespace detail

// An ibv_wc that can be asked. All of its fields are there as well.
struct completion : ibv_wc {
    bool ok() const noexcept
    {
        return status == IBV_WC_SUCCESS;
    }
    // A code of wc_category(); none if the request was executed.
    std::error_code error() const noexcept
    {
        return make_error_code(status);
    }
    void check(const char *what = "completion") const
    {
        if (!ok())
            throw std::system_error(error(), what);
    }
    bool has_imm() const noexcept
    {
        return wc_flags & IBV_WC_WITH_IMM;
    }
    // As a number of this host.
    uint32_t imm() const noexcept
    {
        return ntohl(imm_data);
    }
};

static_assert(sizeof(completion) == sizeof(ibv_wc)); // an array of one is an array of the other

// Takes up to `into.size()` completions, and gives those that it took.
inline span<completion> poll(borrowed<ibv_cq> queue, span<completion> into)
{
    int got = ibv_poll_cq(queue, static_cast<int>(into.size()), into.data());

    if (got < 0)
        throw_errno("ibv_poll_cq", detail::errno_of(got));
    return {into.data(), static_cast<std::size_t>(got)};
}

class comp_channel : public handle<detail::comp_channel_traits>
{
  public:
    using handle::handle;
    explicit comp_channel(borrowed<ibv_context> device)
        : handle(adopt, check("ibv_create_comp_channel", ibv_create_comp_channel(device)))
    {
    }

    // The queue whose event came, which is acknowledged; NULL when the deadline has passed.
    ibv_cq *wait(const deadline &limit) const
    {
        ibv_cq *queue = nullptr;
        void *context = nullptr;

        if (!detail::wait_readable(get()->fd, limit))
            return nullptr;
        check("ibv_get_cq_event", ibv_get_cq_event(get(), &queue, &context));
        ibv_ack_cq_events(queue, 1);
        return queue;
    }
};

class cq : public handle<detail::cq_traits>
{
  public:
    using handle::handle;
    cq(borrowed<ibv_context> device, int depth, borrowed<ibv_comp_channel> channel = nullptr,
       void *context = nullptr, int vector = 0)
        : handle(adopt,
                 check("ibv_create_cq", ibv_create_cq(device, depth, context, channel, vector)))
    {
    }

    span<completion> poll(span<completion> into) const
    {
        return sidewire::poll(get(), into);
    }
    // The channel gets an event for the next completion.
    void arm(bool solicited_only = false) const
    {
        check("ibv_req_notify_cq", ibv_req_notify_cq(get(), solicited_only));
    }
    void resize(int depth)
    {
        check("ibv_resize_cq", ibv_resize_cq(get(), depth));
    }
};

class cq_ex : public handle<detail::cq_ex_traits>
{
  public:
    using handle::handle;
    cq_ex(borrowed<ibv_context> device, ibv_cq_init_attr_ex attr)
        : handle(adopt, check("ibv_create_cq_ex", ibv_create_cq_ex(device, &attr)))
    {
    }
    // For verbs that take a plain queue.
    ibv_cq *plain() const noexcept
    {
        return ibv_cq_ex_to_cq(get());
    }
};

// One look into a cq_ex: while (look.next()) ... ibv_wc_read_*(queue.get()).
class cq_look
{
  public:
    explicit cq_look(const cq_ex &queue) noexcept : queue_(queue.get())
    {
    }
    cq_look(const cq_look &) = delete;
    cq_look &operator=(const cq_look &) = delete;
    ~cq_look()
    {
        if (is_open_)
            ibv_end_poll(queue_);
    }
    // Goes to the next completion; false if there is none.
    bool next()
    {
        ibv_poll_cq_attr attr{};
        int code = is_open_ ? ibv_next_poll(queue_) : ibv_start_poll(queue_, &attr);

        if (code && code != ENOENT)
            throw_errno(is_open_ ? "ibv_next_poll" : "ibv_start_poll", detail::errno_of(code));
        is_open_ = is_open_ || !code;
        return !code;
    }

  private:
    ibv_cq_ex *queue_;
    bool is_open_ = false;
};

// A completion queue with a channel of its own, so that one thread can wait for it.
class waitable_cq
{
  public:
    waitable_cq() noexcept = default;
    waitable_cq(borrowed<ibv_context> device, int depth)
        : channel_(device), queue_(device, depth, channel_)
    {
    }
    waitable_cq(waitable_cq &&) noexcept = default;
    waitable_cq &operator=(waitable_cq &&other) noexcept
    {
        queue_ = std::move(other.queue_); // before its channel
        channel_ = std::move(other.channel_);
        return *this;
    }

    ibv_cq *get() const noexcept
    {
        return queue_.get();
    }
    int fd() const noexcept
    {
        return channel_->fd;
    }
    span<completion> poll(span<completion> into) const
    {
        return queue_.poll(into);
    }
    // Polls, and after `spins` looks sleeps. Empty when the deadline has passed.
    span<completion> wait(span<completion> into, const deadline &limit, int spins = 2000) const
    {
        for (;;) {
            for (int i = 0; i < spins; i++) {
                span<completion> got = poll(into);

                if (!got.empty())
                    return got;
            }
            queue_.arm();
            span<completion> got = poll(into); // what came before it was armed
            if (!got.empty() || !channel_.wait(limit))
                return got;
        }
    }

  private:
    comp_channel channel_;
    cq queue_;
};

class srq : public handle<detail::srq_traits>
{
  public:
    using handle::handle;
    srq(borrowed<ibv_pd> domain, uint32_t depth, uint32_t pieces = 1)
        : handle(adopt, create_plain(domain, depth, pieces))
    {
    }
    // Also of XRC and with tags.
    srq(borrowed<ibv_context> device, ibv_srq_init_attr_ex attr)
        : handle(adopt, check("ibv_create_srq_ex", ibv_create_srq_ex(device, &attr)))
    {
    }

    uint32_t number() const
    {
        uint32_t found = 0;

        check("ibv_get_srq_num", ibv_get_srq_num(get(), &found));
        return found;
    }
    void modify(ibv_srq_attr attr, int mask) const
    {
        check("ibv_modify_srq", ibv_modify_srq(get(), &attr, mask));
    }
    ibv_srq_attr query() const
    {
        ibv_srq_attr found{};

        check("ibv_query_srq", ibv_query_srq(get(), &found));
        return found;
    }
    void post(const ibv_recv_wr *list) const
    {
        ibv_recv_wr *bad = nullptr;

        // The verb only reads them.
        check("ibv_post_srq_recv", ibv_post_srq_recv(get(), const_cast<ibv_recv_wr *>(list), &bad));
    }
    template <std::size_t N> void post(const receive_request<N> &made) const
    {
        post(&made.raw());
    }

  private:
    static ibv_srq *create_plain(ibv_pd *domain, uint32_t depth, uint32_t pieces)
    {
        ibv_srq_init_attr attr{};

        attr.attr.max_wr = depth;
        attr.attr.max_sge = pieces;
        return check("ibv_create_srq", ibv_create_srq(domain, &attr));
    }
};

class wq : public handle<detail::wq_traits>
{
  public:
    using handle::handle;
    wq(borrowed<ibv_context> device, ibv_wq_init_attr attr)
        : handle(adopt, check("ibv_create_wq", ibv_create_wq(device, &attr)))
    {
    }
};

class rwq_ind_table : public handle<detail::rwq_ind_table_traits>
{
  public:
    using handle::handle;
    rwq_ind_table(borrowed<ibv_context> device, ibv_rwq_ind_table_init_attr attr)
        : handle(adopt, check("ibv_create_rwq_ind_table", ibv_create_rwq_ind_table(device, &attr)))
    {
    }
};

} // namespace sidewire

#endif
