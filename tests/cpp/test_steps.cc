// SPDX-License-Identifier: BSD-2-Clause
// Every step of a program fails once: nothing is left, nothing is destroyed twice or too early, and
// the text names the verb. On the fakes of this folder.
#include "fake.hpp"

#include <sidewire/verbs.hpp>

#include <functional>

#include "check.hpp"

namespace
{

using namespace std::chrono_literals;

std::vector<std::string> complaints;

void note_failure(const char *verb, int code) noexcept
{
    complaints.push_back(std::string(verb) + " " + std::to_string(code));
}

void expect_clean()
{
    for (const std::string &verb : fake::live())
        print_error("left: what %s made\n", verb.c_str());
    for (const std::string &fault : fake::faults())
        print_error("%s\n", fault.c_str());
    assert_true(fake::live().empty());
    assert_true(fake::faults().empty());
    assert_true(complaints.empty());
}

// Runs it with each of its steps failing in turn, and at last with none.
int fail_each(const std::function<void()> &scenario)
{
    sidewire::on_destroy_failed(note_failure);
    for (int failing = 1;; failing++) {
        bool thrown = false;

        fake::begin(failing);
        try {
            scenario();
        } catch (const std::system_error &error) {
            thrown = true;
            if (std::string(error.what()).rfind(fake::failed_verb(), 0) != 0)
                fail_msg("%s failed, and the text is: %s", fake::failed_verb().c_str(),
                         error.what());
            assert_true(error.code() == std::errc::not_enough_memory);
        }
        expect_clean();
        if (!thrown) {
            assert_int_equal(fake::steps(), failing - 1);
            return failing - 1;
        }
    }
}

sidewire::cq_ex extended_queue(const sidewire::context &device)
{
    ibv_cq_init_attr_ex attr{};

    attr.cqe = 8;
    return {device, attr};
}

void make_each_object()
{
    sidewire::context device("fake");
    sidewire::device_list list = sidewire::device_list::all();
    sidewire::pd domain(device);
    sidewire::td thread(device);
    sidewire::pd parent = sidewire::pd::parent(device, domain, thread);
    sidewire::xrcd shared(device);
    std::vector<int> numbers(16);
    const int constants[4] = {1, 2, 3, 4};
    sidewire::mr region(domain, numbers);
    sidewire::mr at(domain, as_writable_bytes(sidewire::span<int>(numbers)), 0, 0);
    sidewire::memory typed(domain, numbers, sidewire::access::all);
    sidewire::memory fixed(domain, constants, sidewire::access::remote_read);
    sidewire::mr zeros = sidewire::mr::null(domain);
    sidewire::mr card = sidewire::mr::of_dmabuf(domain, 0, 0, 4096, 0, 0);
    sidewire::dm inside(device, 4096);
    sidewire::mr of_inside = sidewire::mr::of_device_memory(domain, inside, 0, 4096, 0);
    sidewire::mw window(domain, IBV_MW_TYPE_2);
    sidewire::comp_channel channel(device);
    sidewire::cq queue(device, 8, channel);
    sidewire::cq_ex extended = extended_queue(device);
    sidewire::srq receives(domain, 8);
    ibv_srq_init_attr_ex srq_attr{};
    srq_attr.pd = domain.get();
    srq_attr.xrcd = shared.get();
    srq_attr.cq = queue.get();
    srq_attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD;
    srq_attr.srq_type = IBV_SRQT_XRC;
    sidewire::srq of_xrc(device, srq_attr);
    sidewire::qp pair(domain, queue, extended.plain(), 8);
    ibv_qp_init_attr_ex qp_attr{};
    qp_attr.pd = domain.get();
    qp_attr.send_cq = qp_attr.recv_cq = queue.get();
    qp_attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    sidewire::qp extended_pair(device, qp_attr);
    ibv_qp_open_attr open_attr{};
    open_attr.xrcd = shared.get();
    sidewire::qp opened(device, open_attr);
    sidewire::ah way(domain, sidewire::endpoint{});
    ibv_flow_attr flow_attr{};
    sidewire::flow stream(pair, flow_attr);
    sidewire::flow_action action(device, ibv_flow_action_esp_attr{});
    sidewire::counters counted(device);
    ibv_wq_init_attr wq_attr{};
    wq_attr.pd = domain.get();
    wq_attr.cq = queue.get();
    sidewire::wq work(device, wq_attr);
    ibv_rwq_ind_table_init_attr table_attr{};
    ibv_wq *works[] = {work.get()};
    table_attr.ind_tbl = works;
    sidewire::rwq_ind_table table(device, table_attr);
    sidewire::context imported = sidewire::context::import(0);
    sidewire::imported_pd other_domain(imported, 1);
    sidewire::imported_mr other_region(other_domain.get(), 1);
    sidewire::imported_dm other_memory(imported, 1);
    sidewire::async_event event(device);
}

void steps__each_object(void **)
{
    assert_true(fail_each(make_each_object) > 30);
}

void use_a_pair()
{
    sidewire::context device("fake");
    sidewire::pd domain(device);
    std::vector<int> numbers(16);
    sidewire::memory memory(domain, numbers, sidewire::access::all);
    sidewire::cq queue(device, 8);
    sidewire::qp pair(domain, queue, queue, 8);
    sidewire::endpoint mine = pair.local_endpoint();
    sidewire::completion room[4];
    sidewire::srq receives(domain, 8);

    pair.connect(mine, mine);
    pair.post(sidewire::receive(memory.local()));
    receives.post(sidewire::receive(memory.local(0, 4)));
    pair.post(sidewire::write(memory.local(), memory.for_peer()).signaled());
    assert_int_equal(queue.poll(room).size(), 1);
    room[0].check();
    queue.arm();
    queue.resize(16);
    receives.modify({}, 0);
    assert_int_equal(receives.query().max_wr, 0);
    assert_int_equal(pair.state(), IBV_QPS_RESET);
}

void steps__a_pair(void **)
{
    assert_true(fail_each(use_a_pair) > 15);
}

void be_client()
{
    sidewire::connection server("fake", "1", 5s);
    std::string words = "words";
    sidewire::memory memory(server.domain(), words, sidewire::access::all);

    server.post(sidewire::receive());
    server.connect(memory.for_peer(), 5s);
    assert_int_equal(server.peer_data().size(), 64);
    server.run(sidewire::write(memory.local(), memory.for_peer()), 5s);
    fake::complete(IBV_WC_SUCCESS);
    server.await_receive(5s);
    server.disconnect();
    server.wait_disconnected(5s);
}

void steps__client(void **)
{
    assert_true(fail_each(be_client) > 20);
}

void be_server()
{
    sidewire::listener door("fake", "1");
    sidewire::connection client = door.wait(5s), later;

    assert_int_equal(client.peer_data<unsigned char>(), 0xab);
    client.accept(1, 5s);
    later = std::move(client);
    later.run(sidewire::send(), 5s);
    later.disconnect();
}

void steps__server(void **)
{
    assert_true(fail_each(be_server) > 15);
}

// A connection that is assigned to is closed in the right order first.
void steps__assigned_connection(void **)
{
    assert_true(fail_each([] {
                    sidewire::connection one("fake", "1", 5s);
                    sidewire::waitable_cq queue(one.device(), 4);
                    one = sidewire::connection("fake", "1", 5s);
                    queue = sidewire::waitable_cq(one.device(), 4);
                    sidewire::listener door("fake", "1");
                    door = sidewire::listener("fake", "2");
                }) > 30);
}

// How a connection attempt ends that the fake ends so.
std::error_code connect_with(rdma_cm_event_type wanted, rdma_cm_event_type event, std::string *what)
{
    std::error_code code;

    fake::begin(0);
    fake::instead_of(wanted, event, 8);
    try {
        sidewire::connection server("fake", "1", 50ms);
        server.connect(0, 50ms);
        server.run(sidewire::send(), 50ms);
    } catch (const sidewire::rejected &error) {
        assert_int_equal(error.private_data().size(), 64);
        assert_int_equal(error.private_data()[0], 0xab);
        code = error.code();
        *what = error.what();
    } catch (const std::system_error &error) {
        code = error.code();
        *what = error.what();
    }
    fake::instead_of(RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
    expect_clean();
    return code;
}

void connection__events_are_errors(void **)
{
    std::string what;
    std::error_code code = connect_with(RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED, &what);

    assert_true(code == std::errc::connection_refused);
    assert_true(&code.category() == &sidewire::cm_category());
    assert_string_equal(what.c_str(), "rdma_connect (status 8): an event");
    code = connect_with(RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR, &what);
    assert_true(code == std::errc::address_not_available);
    assert_string_equal(what.c_str(), "rdma_resolve_addr (status 8): an event");
    code = connect_with(RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR, &what);
    assert_true(code == std::errc::network_unreachable);
    code = connect_with(RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_UNREACHABLE, &what);
    assert_true(code == std::errc::host_unreachable);
    code = connect_with(RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DEVICE_REMOVAL, &what);
    assert_true(code == std::errc::no_such_device);
}

// No event comes at all.
void connection__deadline(void **)
{
    std::string what;

    fake::begin(0);
    try {
        sidewire::listener door("fake", "1");
        sidewire::connection client = door.wait(50ms);
        door.wait(20ms);
    } catch (const std::system_error &error) {
        assert_true(error.code() == std::errc::timed_out);
        what = error.what();
    }
    assert_true(what.rfind("rdma_listen: ", 0) == 0);
    expect_clean();
}

void connection__private_data_has_limits(void **)
{
    struct {
        char bytes[57];
    } large{};
    bool too_long = false, too_short = false;

    fake::begin(0);
    {
        sidewire::connection server("fake", "1", 5s);
        try {
            server.connect(large, 5s);
        } catch (const std::system_error &error) {
            too_long = error.code() == std::errc::message_size;
        }
        try {
            server.peer_data<int>();
        } catch (const std::system_error &error) {
            too_short = error.code() == std::errc::bad_message;
        }
    }
    expect_clean();
    assert_true(too_long && too_short);
}

void run__failed_completion(void **)
{
    bool thrown = false;

    fake::begin(0);
    fake::complete(IBV_WC_REM_ACCESS_ERR);
    try {
        sidewire::connection server("fake", "1", 5s);
        server.run(sidewire::send(), 5s);
    } catch (const std::system_error &error) {
        thrown = true;
        assert_int_equal(error.code().value(), IBV_WC_REM_ACCESS_ERR);
        assert_true(&error.code().category() == &sidewire::wc_category());
        assert_string_equal(error.what(), "ibv_post_send: a status");
    }
    assert_true(thrown);
    expect_clean();
}

// An object that is destroyed before what was made of it stays, and somebody hears of it.
void handle__wrong_order_is_told(void **)
{
    fake::begin(0);
    complaints.clear();
    sidewire::context device("fake");
    {
        std::vector<int> numbers(4);
        sidewire::pd domain(device);
        sidewire::mr region(domain, numbers);
        ibv_pd *raw = domain.get();

        bool thrown = false;
        try {
            domain.close();
        } catch (const std::system_error &error) {
            thrown = true;
            assert_true(error.code() == std::errc::device_or_resource_busy);
            assert_true(std::string(error.what()).rfind("ibv_dealloc_pd: ", 0) == 0);
        }
        assert_true(thrown && domain.get() == raw); // it is there still
        domain.reset();
        assert_int_equal(complaints.size(), 1);
        assert_string_equal(complaints[0].c_str(), "ibv_dealloc_pd 16");
        region.close();
        domain = sidewire::pd(sidewire::adopt, raw);
    }
    complaints.clear();
    device.close();
    assert_true(fake::live().empty());
}

void handle__moves_own_once(void **)
{
    fake::begin(0);
    sidewire::context device("fake");
    sidewire::pd one(device), two(device);
    ibv_pd *first = one.get(), *second = two.get();

    sidewire::pd moved(std::move(one));
    assert_ptr_equal(moved.get(), first);
    assert_null(one.get()); // NOLINT: what moved-from objects promise
    one = std::move(two);
    assert_ptr_equal(one.get(), second);
    one.swap(moved);
    assert_ptr_equal(one.get(), first);
    sidewire::pd &same = one;
    one = std::move(same);
    assert_ptr_equal(one.get(), first);
    moved = std::move(one); // what it had is destroyed
    assert_int_equal(fake::live().size(), 2);
    ibv_pd *released = moved.release();
    assert_ptr_equal(released, first);
    moved.reset();
    moved.close(); // of nothing
    assert_int_equal(fake::live().size(), 2);
    sidewire::pd adopted(sidewire::adopt, released);
    adopted.close();
    assert_null(adopted.get());
    device.reset();
    expect_clean();
}

void handle__moved_memory_is_empty(void **)
{
    std::vector<int> numbers(4);

    fake::begin(0);
    sidewire::context device("fake");
    sidewire::pd domain(device);
    sidewire::memory memory(domain, numbers);
    sidewire::memory<int> moved(std::move(memory));

    assert_int_equal(moved.items().size(), 4);
    assert_true(memory.items().empty()); // NOLINT: what moved-from objects promise
    assert_null(memory.get());
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(steps__each_object),
        cmocka_unit_test(steps__a_pair),
        cmocka_unit_test(steps__client),
        cmocka_unit_test(steps__server),
        cmocka_unit_test(steps__assigned_connection),
        cmocka_unit_test(connection__events_are_errors),
        cmocka_unit_test(connection__deadline),
        cmocka_unit_test(connection__private_data_has_limits),
        cmocka_unit_test(run__failed_completion),
        cmocka_unit_test(handle__wrong_order_is_told),
        cmocka_unit_test(handle__moves_own_once),
        cmocka_unit_test(handle__moved_memory_is_empty),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
