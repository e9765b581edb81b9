// SPDX-License-Identifier: BSD-2-Clause
// Work requests. Each builder fills one ibv_send_wr or ibv_recv_wr, whose pieces lie beside it;
// nothing is allocated. raw() is what the verb gets.
#ifndef SIDEWIRE_VERBS_REQUEST_HPP
#define SIDEWIRE_VERBS_REQUEST_HPP

#include <array>
#include <new>
#include <tuple>

#include <arpa/inet.h>

#include <sidewire/verbs/memory.hpp>

namespace sidewire
{

namespace detail
{

inline std::array<ibv_sge, 1> pieces_of(const ibv_sge &piece) noexcept
{
    return {piece};
}
template <std::size_t N>
const std::array<ibv_sge, N> &pieces_of(const std::array<ibv_sge, N> &pieces) noexcept
{
    return pieces;
}

// Field by field: of a whole struct gcc 12 makes `rep stos`, which takes 10 ns. Fields that only
// other kinds of request read stay as they are: each store shows in the rate of short WRITEs.
inline void clear_wr(ibv_send_wr &wr, ibv_wr_opcode opcode) noexcept
{
    wr.wr_id = 0;
    wr.next = nullptr;
    wr.opcode = opcode;
    wr.send_flags = 0;
    wr.imm_data = 0;
    wr.qp_type.xrc.remote_srqn = 0;
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
        wr.wr.rdma.remote_addr = 0;
        wr.wr.rdma.rkey = 0;
        break;
    default: // atomics, and address, number and key of UD
        wr.wr.atomic.remote_addr = wr.wr.atomic.compare_add = wr.wr.atomic.swap = 0;
        wr.wr.atomic.rkey = 0;
    }
}

inline void clear_wr(ibv_recv_wr &wr) noexcept
{
    wr.wr_id = 0;
    wr.next = nullptr;
}

// What both kinds of request share. A copy has its own pieces and is linked to nothing.
template <class Wr, std::size_t N> class request_base
{
  public:
    template <class... Kind>
    explicit request_base(const std::array<ibv_sge, N> &pieces, Kind... kind) noexcept
        : pieces_(pieces)
    {
        clear_wr(wr_, kind...);
        wr_.sg_list = N ? pieces_.data() : nullptr;
        wr_.num_sge = static_cast<int>(N);
    }
    request_base(const request_base &other) noexcept : wr_(other.wr_), pieces_(other.pieces_)
    {
        wr_.sg_list = N ? pieces_.data() : nullptr;
        wr_.next = nullptr;
    }
    request_base &operator=(const request_base &other) noexcept
    {
        wr_ = other.wr_;
        pieces_ = other.pieces_;
        wr_.sg_list = N ? pieces_.data() : nullptr;
        wr_.next = nullptr;
        return *this;
    }
    ~request_base() = default;

    Wr &raw() noexcept
    {
        return wr_;
    }
    const Wr &raw() const noexcept
    {
        return wr_;
    }
    void follow_with(Wr *next) noexcept
    {
        wr_.next = next;
    }

  protected:
    Wr wr_;
    std::array<ibv_sge, N> pieces_;
};

template <class P>
inline constexpr std::size_t count_of_v =
    std::tuple_size_v<plain_t<decltype(pieces_of(std::declval<const P &>()))>>;

} // namespace detail

// N pieces of local memory.
template <std::size_t N> class request : public detail::request_base<ibv_send_wr, N>
{
  public:
    request(ibv_wr_opcode opcode, const std::array<ibv_sge, N> &pieces) noexcept
        : detail::request_base<ibv_send_wr, N>(pieces, opcode)
    {
    }

    request &id(uint64_t value) noexcept
    {
        this->wr_.wr_id = value;
        return *this;
    }
    // Completes with an entry of its own.
    request &signaled() noexcept
    {
        return flag(IBV_SEND_SIGNALED);
    }
    // The bytes are taken when it is posted; the memory need not be registered.
    request &inlined() noexcept
    {
        return flag(IBV_SEND_INLINE);
    }
    // Waits for reads and atomics posted before it.
    request &fenced() noexcept
    {
        return flag(IBV_SEND_FENCE);
    }
    // Wakes a peer that has armed its queue for solicited entries alone.
    request &solicited() noexcept
    {
        return flag(IBV_SEND_SOLICITED);
    }
    // The destination of a datagram (UD). The address handle has to live until the request is done.
    request &to(borrowed<ibv_ah> address, uint32_t qp_num, uint32_t qkey) noexcept
    {
        this->wr_.wr.ud.ah = address;
        this->wr_.wr.ud.remote_qpn = qp_num;
        this->wr_.wr.ud.remote_qkey = qkey;
        return *this;
    }
    // The shared receive queue of the peer, for XRC.
    request &to_srq(uint32_t srq_num) noexcept
    {
        this->wr_.qp_type.xrc.remote_srqn = srq_num;
        return *this;
    }

  private:
    request &flag(ibv_send_flags bit) noexcept
    {
        this->wr_.send_flags |= static_cast<unsigned int>(bit);
        return *this;
    }
};

template <std::size_t N> class receive_request : public detail::request_base<ibv_recv_wr, N>
{
  public:
    explicit receive_request(const std::array<ibv_sge, N> &pieces) noexcept
        : detail::request_base<ibv_recv_wr, N>(pieces)
    {
    }
    receive_request &id(uint64_t value) noexcept
    {
        this->wr_.wr_id = value;
        return *this;
    }
};

namespace detail
{

template <class P, class T>
request<count_of_v<P>> one_sided(ibv_wr_opcode opcode, const P &local, const remote<T> &there)
{
    request<count_of_v<P>> made(opcode, pieces_of(local));

    made.raw().wr.rdma.remote_addr = there.address();
    made.raw().wr.rdma.rkey = there.key();
    return made;
}

inline request<1> atomic(ibv_wr_opcode opcode, const ibv_sge &result, const remote<uint64_t> &there)
{
    request<1> made(opcode, pieces_of(result));

    assert(result.length == sizeof(uint64_t) && there.address() % sizeof(uint64_t) == 0);
    made.raw().wr.atomic.remote_addr = there.address();
    made.raw().wr.atomic.rkey = there.key();
    return made;
}

} // namespace detail

// Where `local` stands, it is one ibv_sge or a std::array of them: memory.local(...).
template <class P, class T>
request<detail::count_of_v<P>> write(const P &local, const remote<T> &there) noexcept
{
    static_assert(!std::is_const_v<T>, "this remote memory can be read only");
    return detail::one_sided(IBV_WR_RDMA_WRITE, local, there);
}

// `imm` is a number of this host; a completion of the peer has it.
template <class P, class T>
request<detail::count_of_v<P>> write_imm(const P &local, const remote<T> &there,
                                         uint32_t imm) noexcept
{
    static_assert(!std::is_const_v<T>, "this remote memory can be read only");
    auto made = detail::one_sided(IBV_WR_RDMA_WRITE_WITH_IMM, local, there);

    made.raw().imm_data = htonl(imm);
    return made;
}

template <class P, class T>
request<detail::count_of_v<P>> read(const P &local, const remote<T> &there) noexcept
{
    return detail::one_sided(IBV_WR_RDMA_READ, local, there);
}

// Adds to the number there; `result` gets what it was.
inline request<1> fetch_add(const ibv_sge &result, const remote<uint64_t> &there,
                            uint64_t add) noexcept
{
    request<1> made = detail::atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, result, there);

    made.raw().wr.atomic.compare_add = add;
    return made;
}

// Sets the number there to `desired` if it is `expected`; `result` gets what it was.
inline request<1> compare_swap(const ibv_sge &result, const remote<uint64_t> &there,
                               uint64_t expected, uint64_t desired) noexcept
{
    request<1> made = detail::atomic(IBV_WR_ATOMIC_CMP_AND_SWP, result, there);

    made.raw().wr.atomic.compare_add = expected;
    made.raw().wr.atomic.swap = desired;
    return made;
}

template <class P> request<detail::count_of_v<P>> send(const P &local) noexcept
{
    return {IBV_WR_SEND, detail::pieces_of(local)};
}

inline request<0> send() noexcept
{
    return {IBV_WR_SEND, {}};
}

template <class P> request<detail::count_of_v<P>> send_imm(const P &local, uint32_t imm) noexcept
{
    request<detail::count_of_v<P>> made(IBV_WR_SEND_WITH_IMM, detail::pieces_of(local));

    made.raw().imm_data = htonl(imm);
    return made;
}

inline request<0> send_imm(uint32_t imm) noexcept
{
    return send_imm(std::array<ibv_sge, 0>{}, imm);
}

// Takes the peer's key of a window or region back from us.
template <class P> request<detail::count_of_v<P>> send_inv(const P &local, uint32_t rkey) noexcept
{
    request<detail::count_of_v<P>> made(IBV_WR_SEND_WITH_INV, detail::pieces_of(local));

    made.raw().invalidate_rkey = rkey;
    return made;
}

// Makes a key of our own invalid.
inline request<0> local_inv(uint32_t rkey) noexcept
{
    request<0> made(IBV_WR_LOCAL_INV, {});

    made.raw().invalidate_rkey = rkey;
    return made;
}

// Binds a window of type 2 to a part of a region under a new key: ibv_inc_rkey(window->rkey).
inline request<0> bind(borrowed<ibv_mw> window, uint32_t rkey,
                       const ibv_mw_bind_info &range) noexcept
{
    request<0> made(IBV_WR_BIND_MW, {});

    made.raw().bind_mw.mw = window;
    made.raw().bind_mw.rkey = rkey;
    made.raw().bind_mw.bind_info = range;
    return made;
}

template <class P> receive_request<detail::count_of_v<P>> receive(const P &local) noexcept
{
    return receive_request<detail::count_of_v<P>>(detail::pieces_of(local));
}

// For messages without bytes, and for immediate data alone.
inline receive_request<0> receive() noexcept
{
    return receive_request<0>({});
}

// Links requests of the caller's memory to one list, which is posted at once. The span's memory
// must not move before it is posted.
template <class Request> auto *link(span<Request> requests) noexcept
{
    for (std::size_t i = 0; i + 1 < requests.size(); i++)
        requests[i].follow_with(&requests[i + 1].raw());
    return requests.empty() ? nullptr : &requests[0].raw();
}

// A list of up to `Capacity` requests of N pieces each, linked as they are added.
template <std::size_t Capacity, std::size_t N = 1> class request_list
{
  public:
    // Writes nothing, so that a list may be made anew for each post.
    request_list() noexcept
    {
    }
    request_list(const request_list &) = delete; // the requests point to each other
    request_list &operator=(const request_list &) = delete;

    request<N> &add(const request<N> &made) noexcept
    {
        return place([&] { return made; });
    }
    // The same without a copy: it is made where it stays.
    template <class P, class T> request<N> &write(const P &local, const remote<T> &there) noexcept
    {
        return place([&] { return sidewire::write(local, there); });
    }
    template <class P, class T>
    request<N> &write_imm(const P &local, const remote<T> &there, uint32_t imm) noexcept
    {
        return place([&] { return sidewire::write_imm(local, there, imm); });
    }
    template <class P, class T> request<N> &read(const P &local, const remote<T> &there) noexcept
    {
        return place([&] { return sidewire::read(local, there); });
    }
    template <class P> request<N> &send(const P &local) noexcept
    {
        return place([&] { return sidewire::send(local); });
    }

    void clear() noexcept
    {
        count_ = 0;
    }
    std::size_t size() const noexcept
    {
        return count_;
    }
    bool is_full() const noexcept
    {
        return count_ == Capacity;
    }
    request<N> &operator[](std::size_t index) noexcept
    {
        assert(index < count_);
        return *std::launder(reinterpret_cast<request<N> *>(storage_[index]));
    }
    // The head of the list, NULL if there is none.
    ibv_send_wr *raw() noexcept
    {
        return count_ ? &(*this)[0].raw() : nullptr;
    }

  private:
    template <class Make> request<N> &place(Make make) noexcept
    {
        // Read once: for all that the compiler knows, filling a request may change the count.
        const std::size_t at = count_;
        assert(at < Capacity);
        request<N> *made = ::new (static_cast<void *>(storage_[at])) request<N>(make());

        if (at)
            (*this)[at - 1].follow_with(&made->raw());
        count_ = at + 1;
        return *made;
    }

    static_assert(std::is_trivially_destructible_v<request<N>>);

    alignas(64) unsigned char storage_[Capacity][sizeof(request<N>)];
    std::size_t count_ = 0;
};

} // namespace sidewire

#endif
