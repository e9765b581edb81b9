// SPDX-License-Identifier: BSD-2-Clause
// What needs no device: spans, requests, addresses, deadlines, and the texts of errors.
#include <sidewire/verbs.hpp>

#include <string>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "check.hpp"

namespace
{

using namespace std::chrono_literals;
namespace sw = sidewire;

template <class T>
constexpr bool is_owner_v =
    std::is_nothrow_move_constructible_v<T> &&std::is_nothrow_move_assignable_v<T>
        &&std::is_nothrow_destructible_v<T> && !std::is_copy_constructible_v<T> &&
    !std::is_copy_assignable_v<T>;

template <class... T> constexpr bool are_owners_v = (is_owner_v<T> && ...);

static_assert(are_owners_v<sw::device_list, sw::context, sw::pd, sw::td, sw::xrcd, sw::mr, sw::mw,
                           sw::dm, sw::memory<int>, sw::comp_channel, sw::cq, sw::cq_ex, sw::srq,
                           sw::wq, sw::rwq_ind_table, sw::qp, sw::ah, sw::flow, sw::flow_action,
                           sw::counters, sw::imported_pd, sw::imported_mr, sw::imported_dm>);
static_assert(
    are_owners_v<sw::addrinfo, sw::event_channel, sw::cm_id, sw::cm_ep, sw::cm_event,
                 sw::cm_devices, sw::async_event, sw::waitable_cq, sw::connection, sw::listener>);
static_assert(sizeof(sw::qp) == sizeof(void *) && sizeof(sw::mr) == sizeof(void *));

// A temporary cannot be borrowed, nor be registered, nor be viewed to write to.
static_assert(std::is_constructible_v<sw::pd, sw::context &>);
static_assert(!std::is_constructible_v<sw::pd, sw::context &&>);
static_assert(!std::is_constructible_v<sw::memory<int>, sw::pd &, std::vector<int> &&>);
static_assert(!std::is_constructible_v<sw::mr, sw::pd &, std::vector<int> &&>);
static_assert(!std::is_constructible_v<sw::mr, sw::pd &, const std::vector<int> &>);
static_assert(!std::is_constructible_v<sw::span<int>, std::vector<int> &&>);
static_assert(std::is_constructible_v<sw::span<const int>, std::vector<int> &&>);
static_assert(!std::is_constructible_v<sw::span<int>, const std::vector<int> &>);
static_assert(!std::is_constructible_v<sw::span<long>, std::vector<int> &>);

// Private data is an object or bytes, never a pointer.
template <class T>
constexpr bool is_private_data_v =
    std::is_invocable_v<void (*)(sw::span<const std::byte>), T> || sw::detail::is_sendable_v<T>;
static_assert(sw::detail::is_sendable_v<sw::remote<int>> && sw::detail::is_sendable_v<int[4]>);
static_assert(sw::detail::is_sendable_v<sw::endpoint> &&
              sw::detail::is_sendable_v<std::array<int, 2>>);
static_assert(is_private_data_v<sw::span<std::byte>> && is_private_data_v<std::vector<std::byte>>);
static_assert(!is_private_data_v<const char *> && !is_private_data_v<sw::span<int>>);
static_assert(!is_private_data_v<std::vector<int>> && !is_private_data_v<std::string>);

struct base {
    int number;
};
struct derived : base {
    int other;
};
static_assert(!std::is_constructible_v<sw::span<base>, std::vector<derived> &>);

void span__from_containers(void **)
{
    int plain[3] = {1, 2, 3};
    std::array<int, 2> fixed = {4, 5};
    std::vector<int> numbers = {6, 7, 8, 9};
    std::string text = "text";
    sw::span of_plain(plain);
    sw::span of_fixed(fixed);
    sw::span of_numbers(numbers);
    sw::span of_text(text);
    sw::span<const int> fixed_view = of_numbers;
    int sum = 0;

    assert_int_equal(of_plain.size(), 3);
    assert_int_equal(of_fixed.back(), 5);
    assert_ptr_equal(of_numbers.data(), numbers.data());
    assert_int_equal(of_text.size_bytes(), 4);
    assert_int_equal(fixed_view.subspan(1, 2).front(), 7);
    assert_int_equal(fixed_view.last(1)[0], 9);
    assert_int_equal(fixed_view.subspan(3).size(), 1);
    assert_true(fixed_view.first(0).empty());
    for (int number : of_plain)
        sum += number;
    assert_int_equal(sum, 6);
    assert_int_equal(as_bytes(of_numbers).size(), 4 * sizeof(int));
    as_writable_bytes(of_plain)[0] = std::byte{9};
    assert_int_equal(plain[0], 9);
}

void span__of_the_standard(void **)
{
#if __cplusplus >= 202002L
    std::vector<int> numbers = {1, 2, 3};
    std::span<int> theirs(numbers);
    sw::span<int> ours(theirs);
    std::span<int> back(ours);
    sw::span<const int> fixed(std::span<const int>{numbers});

    assert_ptr_equal(back.data(), numbers.data());
    assert_int_equal(back.size(), 3);
    assert_int_equal(fixed.size(), 3);
    static_assert(std::ranges::contiguous_range<sw::span<int>>);
    static_assert(std::ranges::borrowed_range<sw::span<int>>);
#else
    skip();
#endif
}

void remote__has_fixed_bytes(void **)
{
    const sw::remote<uint64_t> there(0x0102030405060708, 0x0a0b0c0d, 4);
    const unsigned char expected[20] = {1, 2, 3, 4, 5, 6,  7,  8,  0,  0,
                                        0, 0, 0, 0, 0, 32, 10, 11, 12, 13};

    assert_memory_equal(&there, expected, sizeof(expected));
    assert_int_equal(there.size(), 4);
    assert_int_equal(there[2].address(), 0x0102030405060718);
    assert_int_equal(there[2].size(), 1);
    assert_int_equal(there.subspan(1, 2).size_bytes(), 16);
    assert_int_equal(there.as<char>().size(), 32);
    assert_int_equal(there.as<char>().key(), 0x0a0b0c0d);
}

void endpoint__has_fixed_bytes(void **)
{
    sw::endpoint mine;

    mine.qp_num = 0x010203;
    mine.psn = 0x040506;
    mine.lid = 0x0708;
    mine.mtu = IBV_MTU_1024;
    mine.rd_atomic = 9;
    mine.gid[15] = 10;
    const unsigned char expected[28] = {0, 1, 2, 3, 0, 4, 5, 6, 7, 8, 3, 9, 0, 0,
                                        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10};
    assert_memory_equal(&mine, expected, sizeof(expected));
}

// What verbs reads of a request, as a C program would have written it. Not its bytes: what no verb
// reads of the unions may be anything.
void expect_same(const ibv_send_wr &made, const ibv_send_wr &expected)
{
    assert_int_equal(made.wr_id, expected.wr_id);
    assert_int_equal(made.num_sge, expected.num_sge);
    assert_int_equal(made.opcode, expected.opcode);
    assert_int_equal(made.send_flags, expected.send_flags);
    assert_int_equal(made.imm_data, expected.imm_data); // or the key that is made invalid
    assert_int_equal(made.qp_type.xrc.remote_srqn, expected.qp_type.xrc.remote_srqn);
    switch (made.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
        assert_int_equal(made.wr.rdma.remote_addr, expected.wr.rdma.remote_addr);
        assert_int_equal(made.wr.rdma.rkey, expected.wr.rdma.rkey);
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        assert_int_equal(made.wr.atomic.swap, expected.wr.atomic.swap);
        [[fallthrough]];
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        assert_int_equal(made.wr.atomic.remote_addr, expected.wr.atomic.remote_addr);
        assert_int_equal(made.wr.atomic.rkey, expected.wr.atomic.rkey);
        assert_int_equal(made.wr.atomic.compare_add, expected.wr.atomic.compare_add);
        break;
    default:
        break;
    }
}

void expect_same_datagram(const ibv_send_wr &made, const ibv_send_wr &expected)
{
    expect_same(made, expected);
    assert_ptr_equal(made.wr.ud.ah, expected.wr.ud.ah);
    assert_int_equal(made.wr.ud.remote_qpn, expected.wr.ud.remote_qpn);
    assert_int_equal(made.wr.ud.remote_qkey, expected.wr.ud.remote_qkey);
}

const ibv_sge piece = {0x1000, 8, 7};
const sw::remote<char> there(0x2000, 5, 64);
const sw::remote<uint64_t> number(0x3000, 6, 1);

void request__is_the_raw_struct(void **)
{
    ibv_send_wr expected{};

    expected.num_sge = 1;
    expected.opcode = IBV_WR_RDMA_WRITE;
    expected.wr.rdma.remote_addr = 0x2000;
    expected.wr.rdma.rkey = 5;
    expect_same(sw::write(piece, there).raw(), expected);
    expected.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE | IBV_SEND_FENCE | IBV_SEND_SOLICITED;
    expected.wr_id = 3;
    expect_same(sw::write(piece, there).signaled().inlined().fenced().solicited().id(3).raw(),
                expected);
    expected.send_flags = 0;
    expected.wr_id = 0;
    expected.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    expected.imm_data = htonl(9);
    expect_same(sw::write_imm(piece, there, 9).raw(), expected);
    expected.imm_data = 0;
    expected.opcode = IBV_WR_RDMA_READ;
    expect_same(sw::read(piece, there).raw(), expected);
}

void request__atomics(void **)
{
    ibv_send_wr expected{};

    expected.num_sge = 1;
    expected.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    expected.wr.atomic.remote_addr = 0x3000;
    expected.wr.atomic.rkey = 6;
    expected.wr.atomic.compare_add = 2;
    expect_same(sw::fetch_add(piece, number, 2).raw(), expected);
    expected.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    expected.wr.atomic.swap = 4;
    expect_same(sw::compare_swap(piece, number, 2, 4).raw(), expected);
}

void request__messages(void **)
{
    ibv_send_wr expected{};
    ibv_ah handle{};

    expected.num_sge = 1;
    expected.opcode = IBV_WR_SEND;
    expect_same(sw::send(piece).raw(), expected);
    expected.wr.ud.ah = &handle;
    expected.wr.ud.remote_qpn = 11;
    expected.wr.ud.remote_qkey = 12;
    expect_same_datagram(sw::send(piece).to(&handle, 11, 12).raw(), expected);
    expected = {};
    expected.num_sge = 1;
    expected.qp_type.xrc.remote_srqn = 13;
    expected.opcode = IBV_WR_SEND;
    expect_same(sw::send(piece).to_srq(13).raw(), expected);
    expected = {};
    expected.num_sge = 1;
    expected.opcode = IBV_WR_SEND_WITH_INV;
    expected.invalidate_rkey = 5;
    expect_same(sw::send_inv(piece, 5).raw(), expected);
    expected = {};
    expected.opcode = IBV_WR_SEND_WITH_IMM;
    expected.imm_data = htonl(6);
    expect_same(sw::send_imm(6).raw(), expected);
    expected = {};
    expected.opcode = IBV_WR_LOCAL_INV;
    expected.invalidate_rkey = 7;
    expect_same(sw::local_inv(7).raw(), expected);
}

void request__copies_have_pieces_of_their_own(void **)
{
    auto one = sw::write(std::array<ibv_sge, 2>{piece, piece}, there);
    auto other = sw::send(std::array<ibv_sge, 2>{piece, piece});
    auto copy = one;

    assert_int_equal(copy.raw().num_sge, 2);
    assert_ptr_not_equal(copy.raw().sg_list, one.raw().sg_list);
    assert_int_equal(copy.raw().sg_list[1].lkey, 7);
    one.follow_with(&other.raw());
    copy = one;
    assert_null(copy.raw().next); // a list is not copied with its head
    assert_ptr_not_equal(copy.raw().sg_list, one.raw().sg_list);
    assert_null(sw::send().raw().sg_list);
    assert_null(sw::receive().raw().sg_list);
    assert_int_equal(sw::receive(piece).id(4).raw().wr_id, 4);
    assert_int_equal(sw::receive(piece).raw().sg_list->addr, 0x1000);
}

void request__lists(void **)
{
    std::vector<sw::request<1>> several(3, sw::write(piece, there));
    sw::request_list<4> list;

    ibv_send_wr *head = sw::link(sw::span(several));
    assert_ptr_equal(head, &several[0].raw());
    assert_ptr_equal(head->next, &several[1].raw());
    assert_ptr_equal(head->next->next, &several[2].raw());
    assert_null(head->next->next->next);
    assert_null(sw::link(sw::span<sw::request<1>>()));

    assert_null(list.raw());
    for (uint64_t i = 0; !list.is_full(); i++)
        list.add(sw::read(piece, there)).id(i);
    assert_int_equal(list.size(), 4);
    uint64_t seen = 0;
    for (ibv_send_wr *one = list.raw(); one; one = one->next)
        assert_int_equal(one->wr_id, seen++);
    assert_int_equal(seen, 4);
    list.clear();
    expect_same(list.write(piece, there).inlined().raw(), sw::write(piece, there).inlined().raw());
    expect_same(list.write_imm(piece, there, 1).raw(), sw::write_imm(piece, there, 1).raw());
    expect_same(list.read(piece, there).raw(), sw::read(piece, there).raw());
    expect_same(list.send(piece).raw(), sw::send(piece).raw());
    assert_int_equal(list.size(), 4);
    assert_ptr_equal(list[2].raw().next, &list[3].raw());
    assert_ptr_equal(list[3].raw().sg_list->addr, 0x1000);
    list.clear();
    list.add(sw::read(piece, there));
    assert_null(list.raw()->next); // none of before
    assert_ptr_equal(list.raw()->sg_list->addr, 0x1000);
}

void error__of_completions(void **)
{
    sw::completion done{};
    std::string text;

    assert_true(done.ok());
    assert_true(done.error() == std::error_code(0, sw::wc_category()));
    done.status = IBV_WC_RETRY_EXC_ERR;
    assert_true(done.error() == std::errc::timed_out);
    std::error_code code = code_of([&] { done.check("WRITE"); }, &text);
    assert_true(code == sw::make_error_code(IBV_WC_RETRY_EXC_ERR));
    assert_string_equal(code.category().name(), "ibv_wc_status");
    assert_string_equal(text.c_str(), "WRITE: transport retry counter exceeded");
    done.status = IBV_WC_WR_FLUSH_ERR;
    assert_true(done.error() == std::errc::operation_canceled);
    done.status = IBV_WC_REM_ACCESS_ERR;
    assert_true(done.error() == std::errc::permission_denied);
    done.status = IBV_WC_REM_OP_ERR;
    assert_true(done.error() == sw::make_error_code(IBV_WC_REM_OP_ERR));
    assert_true(done.error() != std::errc::invalid_argument);
    for (int status = IBV_WC_SUCCESS + 1; status <= IBV_WC_TM_RNDV_INCOMPLETE; status++) {
        std::error_code one = sw::make_error_code(static_cast<ibv_wc_status>(status));
        assert_true(static_cast<bool>(one.default_error_condition()));
        assert_string_equal(one.message().c_str(),
                            ibv_wc_status_str(static_cast<ibv_wc_status>(status)));
    }
}

void error__of_verbs(void **)
{
    std::string text;

    assert_true(code_of([] { sw::check("ibv_x", 0); }) == std::error_code());
    assert_true(code_of([] { sw::check("ibv_x", EBUSY); }, &text) ==
                std::errc::device_or_resource_busy);
    assert_string_equal(text.c_str(), "ibv_x: Device or resource busy");
    assert_true(code_of([] { sw::check("ibv_x", -ENOMEM); }) == std::errc::not_enough_memory);
    assert_true(code_of([] {
                    errno = EACCES;
                    sw::check("ibv_x", -1);
                }) == std::errc::permission_denied);
    assert_true(code_of([] {
                    errno = ENOSYS;
                    sw::check("ibv_x", static_cast<ibv_pd *>(nullptr));
                }) == std::errc::function_not_supported);
}

void error__of_the_connection_manager(void **)
{
    std::error_code code = sw::make_error_code(RDMA_CM_EVENT_REJECTED);

    assert_true(code == std::errc::connection_refused);
    assert_string_equal(code.message().c_str(), "RDMA_CM_EVENT_REJECTED");
    assert_true(sw::make_error_code(RDMA_CM_EVENT_DISCONNECTED) == std::errc::connection_reset);
    assert_true(sw::make_error_code(RDMA_CM_EVENT_UNREACHABLE) == std::errc::host_unreachable);
}

void deadline__left(void **)
{
    sw::deadline soon(2ms), past(-1s), never = sw::deadline::never();

    assert_in_range(sw::deadline(10s).left_ms(), 1, 10000);
    assert_true(soon.left_ms() <= 2);
    assert_true(past.has_passed());
    assert_int_equal(past.left_ms(), 0);
    assert_false(never.has_passed());
    assert_int_equal(never.left_ms(), INT_MAX);
    assert_int_equal(sw::deadline(std::chrono::hours::max()).left_ms(), INT_MAX);
    assert_int_equal(sw::deadline(std::chrono::hours(24 * 365)).left_ms(), INT_MAX - 1);
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(span__from_containers),
        cmocka_unit_test(span__of_the_standard),
        cmocka_unit_test(remote__has_fixed_bytes),
        cmocka_unit_test(endpoint__has_fixed_bytes),
        cmocka_unit_test(request__is_the_raw_struct),
        cmocka_unit_test(request__atomics),
        cmocka_unit_test(request__messages),
        cmocka_unit_test(request__copies_have_pieces_of_their_own),
        cmocka_unit_test(request__lists),
        cmocka_unit_test(error__of_completions),
        cmocka_unit_test(error__of_verbs),
        cmocka_unit_test(error__of_the_connection_manager),
        cmocka_unit_test(deadline__left),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
