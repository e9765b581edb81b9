// SPDX-License-Identifier: BSD-2-Clause
// The header on a device: two queue pairs of one process, and connections between threads.
#include <sidewire/verbs.hpp>

#include <string>
#include <thread>
#include <vector>

#include "check.hpp"

namespace
{

using namespace std::chrono_literals;
namespace sw = sidewire;

// Two queue pairs that are connected, with 16 numbers of each side.
struct sides {
    sw::context device{"sw_lo"};
    sw::pd domain{device};
    sw::waitable_cq queue{device, 64};
    std::vector<uint64_t> near = std::vector<uint64_t>(16, 1), far = std::vector<uint64_t>(16, 2);
    sw::memory<uint64_t> here{domain, near, sw::access::all};
    sw::memory<uint64_t> there{domain, far, sw::access::all | sw::access::bind};
    sw::qp one, other;

    explicit sides(ibv_qp_type type = IBV_QPT_RC)
        : one(domain, queue, queue, 16, type), other(domain, queue, queue, 16, type)
    {
        sw::endpoint first = one.local_endpoint(), second = other.local_endpoint();

        if (type == IBV_QPT_UD) {
            one.activate(first);
            other.activate(second);
        } else {
            one.connect(first, second);
            other.connect(second, first);
        }
    }
    sw::completion wait_one() const
    {
        sw::completion done[1];

        assert_int_equal(queue.wait(done, 10s).size(), 1);
        return done[0];
    }
    template <class Request> void run(Request made) const
    {
        one.post(made.signaled());
        wait_one().check();
    }
};

void context__names_what_is_not_there(void **)
{
    std::string text;
    sw::device_list all = sw::device_list::all();

    assert_true(code_of([] { sw::context("no such"); }, &text) == std::errc::no_such_device);
    assert_string_equal(text.c_str(), "ibv_open_device(no such): No such device");
    assert_true(all.size() >= 1);
    assert_non_null(all.find("sw_lo"));
    assert_null(all.find("no such"));
}

void qp__write_and_read(void **)
{
    sides both;

    both.near[3] = 33;
    both.run(sw::write(both.here.local(3, 1), both.there.for_peer()[5]));
    assert_int_equal(both.far[5], 33);
    both.far[6] = 66;
    both.run(sw::read(both.here.local(7, 1), both.there.for_peer()[6]));
    assert_int_equal(both.near[7], 66);
    both.run(sw::write(std::array<ibv_sge, 1>{both.here.local(7, 1)}, both.there.for_peer()[0]));
    assert_int_equal(both.far[0], 66);
}

void qp__atomics(void **)
{
    sides both;

    both.run(sw::fetch_add(both.here.local(0, 1), both.there.for_peer()[1], 40));
    assert_int_equal(both.near[0], 2);
    assert_int_equal(both.far[1], 42);
    both.run(sw::compare_swap(both.here.local(0, 1), both.there.for_peer()[1], 42, 7));
    assert_int_equal(both.near[0], 42);
    assert_int_equal(both.far[1], 7);
}

void qp__messages(void **)
{
    sides both;

    both.other.post(sw::receive(both.there.local(0, 2)).id(5));
    both.one.post(sw::send_imm(both.here.local(0, 1), 77).solicited());
    sw::completion got = both.wait_one();
    got.check();
    assert_int_equal(got.wr_id, 5);
    assert_int_equal(got.byte_len, 8);
    assert_true(got.has_imm());
    assert_int_equal(got.imm(), 77);
    assert_int_equal(both.far[0], 1);
    both.other.post(sw::receive().id(6));
    both.one.post(sw::write_imm(both.here.local(1, 1), both.there.for_peer()[9], 78));
    got = both.wait_one();
    assert_int_equal(got.wr_id, 6);
    assert_int_equal(got.imm(), 78);
    assert_int_equal(both.far[9], 1);
}

void qp__lists(void **)
{
    sides both;
    sw::request_list<8> list;
    sw::completion done[8];

    for (std::size_t i = 0; i < 8; i++) {
        both.near[i] = 100 + i;
        list.add(sw::write(both.here.local(i, 1), both.there.for_peer()[i])).id(i);
    }
    list[7].signaled();
    both.one.post(list);
    sw::span<sw::completion> got = both.queue.wait(done, 10s);
    assert_int_equal(got.size(), 1);
    assert_int_equal(got[0].wr_id, 7);
    for (std::size_t i = 0; i < 8; i++)
        assert_int_equal(both.far[i], 100 + i);
    assert_true(both.queue.poll(done).empty());
}

void qp__full_queue_is_told(void **)
{
    sides both;
    std::error_code code;
    ibv_send_wr *bad = nullptr;
    sw::request<0> nothing = sw::send();

    both.other.move_to(IBV_QPS_ERR); // so that nothing is executed
    for (int i = 0; i < 100000 && !code; i++)
        code = both.one.try_post(&nothing.raw(), &bad);
    assert_true(code == std::errc::not_enough_memory);
    assert_ptr_equal(bad, &nothing.raw());
    std::string text;
    assert_true(code_of([&] { both.one.post(nothing); }, &text) == std::errc::not_enough_memory);
    assert_string_equal(text.c_str(), "ibv_post_send: Cannot allocate memory");
}

void qp__errors_have_the_text_of_verbs(void **)
{
    sides both;
    std::string text;
    sw::remote<uint64_t> wrong(both.there.for_peer().address(), 0xdead, 1);

    assert_true(code_of([&] { both.run(sw::write(both.here.local(0, 1), wrong)); }, &text) ==
                std::errc::permission_denied);
    assert_string_equal(text.c_str(), "completion: remote access error");
    assert_int_equal(both.one.state(), IBV_QPS_ERR);
    both.one.post(sw::send().signaled());
    assert_true(both.wait_one().error() == std::errc::operation_canceled);
}

void qp__unreliable(void **)
{
    sides both(IBV_QPT_UC);

    both.run(sw::write(both.here.local(0, 1), both.there.for_peer()[2]));
    for (int i = 0; i < 1000 && *static_cast<volatile uint64_t *>(&both.far[2]) != 1; i++)
        std::this_thread::sleep_for(1ms);
    assert_int_equal(both.far[2], 1);
}

void qp__datagrams(void **)
{
    sides both(IBV_QPT_UD);
    sw::path_options options;
    sw::ah way(both.domain, both.other.local_endpoint());

    both.other.post(sw::receive(both.there.local(0, 6)).id(1)); // 40 bytes of GRH, and a number
    both.near[0] = 4711;
    both.one.post(sw::send(both.here.local(0, 1)).to(way, both.other.number(), options.qkey));
    sw::completion got = both.wait_one();
    got.check();
    assert_int_equal(got.wr_id, 1);
    assert_int_equal(got.byte_len, 48);
    assert_int_equal(got.src_qp, both.one.number());
    assert_int_equal(both.far[5], 4711);
}

void qp__windows(void **)
{
    sides both;
    sw::mw window(both.domain, IBV_MW_TYPE_2);
    uint32_t key = ibv_inc_rkey(window->rkey);
    ibv_mw_bind_info range{both.there.get(), both.there.for_peer().address(), 64,
                           sw::access::remote_write};

    both.other.post(sw::bind(window, key, range).signaled());
    both.wait_one().check();
    sw::remote<uint64_t> through(both.there.for_peer().address(), key, 8);
    both.run(sw::write(both.here.local(0, 1), through[3]));
    assert_int_equal(both.far[3], 1);
    both.other.post(sw::receive());
    both.one.post(sw::send_inv(both.here.local(0, 0), key));
    assert_true(both.wait_one().wc_flags & IBV_WC_WITH_INV);
    assert_true(code_of([&] { both.run(sw::write(both.here.local(0, 1), through[3])); }) ==
                std::errc::permission_denied);
}

void wr_batch__completes_or_never_was(void **)
{
    sides both;
    ibv_qp_init_attr_ex attr{};

    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = attr.recv_cq = both.queue.get();
    attr.cap.max_send_wr = attr.cap.max_send_sge = attr.cap.max_recv_wr = 4;
    attr.pd = both.domain.get();
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
    sw::qp extended(both.device, attr), peer(both.device, attr);
    sw::endpoint mine = extended.local_endpoint(), theirs = peer.local_endpoint();
    extended.connect(mine, theirs);
    peer.connect(theirs, mine);
    {
        sw::wr_batch dropped(extended);
        dropped.next(1, IBV_SEND_SIGNALED).write(both.here.local(0, 1), both.there.for_peer()[0]);
    }
    both.near[1] = 8;
    sw::wr_batch batch(extended);
    batch.next(2).write(both.here.local(1, 1), both.there.for_peer()[1]);
    batch.next(3, IBV_SEND_SIGNALED).read(both.here.local(2, 1), both.there.for_peer()[1]);
    batch.complete();
    sw::completion done = both.wait_one();
    done.check();
    assert_int_equal(done.wr_id, 3);
    assert_int_equal(both.near[2], 8);
    assert_int_equal(both.far[0], 2); // what was dropped
}

void cq_look__sees_each_once(void **)
{
    sides both;
    ibv_cq_init_attr_ex attr{};

    attr.cqe = 8;
    attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
    sw::cq_ex queue(both.device, attr);
    sw::qp pair(both.domain, queue.plain(), queue.plain(), 4),
        peer(both.domain, queue.plain(), queue.plain(), 4);
    sw::endpoint mine = pair.local_endpoint(), theirs = peer.local_endpoint();
    pair.connect(mine, theirs);
    peer.connect(theirs, mine);
    {
        sw::cq_look nothing(queue);
        assert_false(nothing.next());
    }
    pair.post(sw::write(both.here.local(0, 1), both.there.for_peer()[0]).id(1).signaled());
    pair.post(sw::write(both.here.local(0, 1), both.there.for_peer()[1]).id(2).signaled());
    uint64_t seen = 0;
    for (sw::deadline limit(10s); seen < 2 && !limit.has_passed();) {
        sw::cq_look look(queue);
        while (look.next())
            assert_int_equal(queue->wr_id, ++seen);
    }
    assert_int_equal(seen, 2);
}

void waitable_cq__deadline(void **)
{
    sides both;
    sw::completion done[1];

    assert_true(both.queue.wait(done, 20ms, 1).empty());
    both.run(sw::write(both.here.local(0, 1), both.there.for_peer()[0])); // it works afterwards
    std::thread late([&] {
        std::this_thread::sleep_for(30ms);
        both.one.post(sw::send_imm(1));
    });
    both.other.post(sw::receive());
    assert_int_equal(both.queue.wait(done, 10s, 1).size(), 1); // asleep until it comes
    late.join();
}

struct greeting {
    int number;
};

void connection__both_ways(void **)
{
    sw::listener door("127.0.0.1", "0");
    std::string port = std::to_string(door.port()), far = "far words";
    std::string problem;

    std::thread server([&] {
        try {
            sw::connection client = door.wait(10s);
            sw::memory memory(client.domain(), far, sw::access::all);

            client.post(sw::receive());
            client.accept(memory.for_peer(), 10s);
            if (client.peer_data<greeting>().number != 5)
                problem = "the private data is not the client's";
            client.await_receive(10s);
            client.wait_disconnected(10s);
        } catch (const std::exception &error) {
            problem = error.what();
        }
    });
    {
        std::string near = "near";
        sw::connection peer("127.0.0.1", port.c_str(), 10s), moved;
        sw::memory memory(peer.domain(), near, sw::access::local_write);

        peer.connect(greeting{5}, 10s);
        moved = std::move(peer);
        auto theirs = moved.peer_data<sw::remote<char>>();
        assert_int_equal(theirs.size(), 9);
        moved.run(sw::write(memory.local(0, 4), theirs.first(4)), 10s);
        moved.run(sw::send(), 10s);
        moved.disconnect();
        server.join();
    }
    assert_string_equal(problem.c_str(), "");
    assert_string_equal(far.c_str(), "nearwords");
}

void connection__refusals(void **)
{
    sw::listener door("127.0.0.1", "0");
    std::string port = std::to_string(door.port()), text;
    int reason = 0;

    std::thread server([&] { door.wait(10s).reject(); });
    sw::connection client("127.0.0.1", port.c_str(), 10s);
    assert_true(code_of([&] { client.connect(0, 10s); }, &text) == std::errc::connection_refused);
    assert_true(text.rfind("rdma_connect (status ", 0) == 0);
    server.join();
    std::thread talker([&] {
        sw::connection asked = door.wait(10s);
        const int why = 42;
        asked.reject(as_bytes(sw::span<const int>(&why, 1)));
    });
    client = sw::connection("127.0.0.1", port.c_str(), 10s);
    try {
        client.connect(0, 10s);
    } catch (const sw::rejected &error) {
        std::memcpy(&reason, error.private_data().data(), sizeof(reason));
    }
    talker.join();
    assert_int_equal(reason, 42);
    // Nobody answers: the deadline ends the attempt.
    client = sw::connection("127.0.0.1", port.c_str(), 10s);
    assert_true(code_of([&] { client.connect(0, 50ms); }, &text) == std::errc::timed_out);
}

// Several clients write to one region: the server gives its connections one domain.
void connection__shared_domain(void **)
{
    sw::listener door("127.0.0.1", "0");
    std::string port = std::to_string(door.port());
    std::vector<int> numbers(3);
    std::vector<std::thread> clients;
    std::vector<sw::connection> peers;
    sw::pd domain;
    sw::memory<int> memory;

    for (int i = 0; i < 3; i++)
        clients.emplace_back([&, i] {
            sw::connection peer("127.0.0.1", port.c_str(), 10s);
            std::vector<int> mine(1, i + 1);
            sw::memory own(peer.domain(), mine);

            if (code_of([&] { peer.connect(i, 10s); }))
                return; // the one that is refused
            auto theirs = peer.peer_data<sw::remote<int>>();
            peer.run(sw::write_imm(own.local(), theirs[static_cast<uint64_t>(i)], 0), 10s);
        });
    // The domain is of the device that the clients' address leads to.
    sw::connection first = door.wait(10s);
    domain = sw::pd(first.device());
    memory = sw::memory<int>(domain, numbers, sw::access::all);
    first.reject(); // its domain is its own
    sw::connection_options options;
    options.domain = domain.get();
    for (int i = 0; i < 2; i++) {
        peers.push_back(door.wait(10s, options));
        peers.back().post(sw::receive());
        peers.back().accept(memory.for_peer(), 10s);
    }
    for (sw::connection &peer : peers)
        peer.await_receive(10s);
    for (std::thread &client : clients)
        client.join();
    assert_int_equal((numbers[0] != 0) + (numbers[1] != 0) + (numbers[2] != 0), 2);
    peers.clear();
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(context__names_what_is_not_there),
        cmocka_unit_test(qp__write_and_read),
        cmocka_unit_test(qp__atomics),
        cmocka_unit_test(qp__messages),
        cmocka_unit_test(qp__lists),
        cmocka_unit_test(qp__full_queue_is_told),
        cmocka_unit_test(qp__errors_have_the_text_of_verbs),
        cmocka_unit_test(qp__unreliable),
        cmocka_unit_test(qp__datagrams),
        cmocka_unit_test(qp__windows),
        cmocka_unit_test(wr_batch__completes_or_never_was),
        cmocka_unit_test(cq_look__sees_each_once),
        cmocka_unit_test(waitable_cq__deadline),
        cmocka_unit_test(connection__both_ways),
        cmocka_unit_test(connection__refusals),
        cmocka_unit_test(connection__shared_domain),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
