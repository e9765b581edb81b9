// SPDX-License-Identifier: BSD-2-Clause
// What the C++ header costs: 8 B WRITEs in lists, each request made anew, once with the structs of
// verbs filled by hand and once by the header. All else is one program. The target sleeps.
// usage: header_rate -w raw|header [-d DEVICE] [-l LIST] [-n OPS] [-c INITIATOR,TARGET]
// Prints one JSON object.
#include <sidewire/verbs.hpp>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

namespace sw = sidewire;

constexpr std::size_t list_max = 32, depth = 512, numbers = 1024;
constexpr std::size_t stride = 8; // numbers from one request to the next: a cache line

struct options {
    std::string way = "header", device = "sw_lo";
    std::size_t list = list_max;
    unsigned long ops = 5000000;
    int cpus[2] = {-1, -1};
};

// Whole pages, which Sidewire lets a peer map.
struct alignas(4096) page {
    uint64_t words[numbers];
};

// What the two processes tell each other.
struct side {
    sw::endpoint at;
    sw::remote<uint64_t> memory;
};

struct lane {
    sw::context device;
    sw::pd domain;
    sw::cq queue;
    std::unique_ptr<page> bytes;
    sw::memory<uint64_t> memory;
    sw::qp pair;
    side peer;

    lane(const options &chosen, int socket)
        : device(chosen.device.c_str()), domain(device), queue(device, depth), bytes(new page()),
          memory(domain, bytes->words, sw::access::all), pair(domain, attr_of(queue))
    {
        side mine{pair.local_endpoint(), memory.for_peer()};

        exchange(socket, &mine, &peer);
        pair.connect(mine.at, peer.at);
        exchange(socket, &mine, &peer); // both are connected
    }

    static ibv_qp_init_attr attr_of(const sw::cq &queue)
    {
        ibv_qp_init_attr attr = sw::qp::plain_attr(queue.get(), queue.get(), depth, IBV_QPT_RC);

        attr.cap.max_inline_data = sizeof(uint64_t);
        return attr;
    }

    static void exchange(int socket, const side *mine, side *theirs)
    {
        sw::check("send", send(socket, mine, sizeof(*mine), 0) != sizeof(*mine));
        sw::check("recv", recv(socket, theirs, sizeof(*theirs), MSG_WAITALL) != sizeof(*theirs));
    }
};

// Each list goes to other places than the one before.
std::size_t place_of(std::size_t first, std::size_t i)
{
    return (first + i) * stride % numbers;
}

void post_raw(const lane &to, std::size_t list, std::size_t first)
{
    ibv_send_wr wrs[list_max], *bad = nullptr;
    ibv_sge pieces[list_max];
    const ibv_mr *region = to.memory.get();
    uint64_t address = to.peer.memory.address();
    uint32_t key = to.peer.memory.key();

    for (std::size_t i = 0; i < list; i++) {
        uint64_t offset = place_of(first, i) * sizeof(uint64_t);

        pieces[i] = {reinterpret_cast<uintptr_t>(region->addr) + offset, sizeof(uint64_t),
                     region->lkey};
        // Nothing is cleared that this opcode does not read: as fast as it can be by hand.
        wrs[i].wr_id = 0;
        wrs[i].next = i + 1 < list ? &wrs[i + 1] : nullptr;
        wrs[i].sg_list = &pieces[i];
        wrs[i].num_sge = 1;
        wrs[i].opcode = IBV_WR_RDMA_WRITE;
        wrs[i].send_flags = IBV_SEND_INLINE;
        wrs[i].wr.rdma.remote_addr = address + offset;
        wrs[i].wr.rdma.rkey = key;
    }
    wrs[list - 1].send_flags |= IBV_SEND_SIGNALED;
    if (int failed = ibv_post_send(to.pair.get(), wrs, &bad))
        sw::throw_errno("ibv_post_send", failed);
}

void post_by_header(const lane &to, std::size_t list, std::size_t first)
{
    sw::request_list<list_max> requests;

    for (std::size_t i = 0; i < list; i++) {
        std::size_t place = place_of(first, i);

        requests.write(to.memory.local(place, 1), to.peer.memory[place]).inlined();
    }
    requests[list - 1].signaled();
    to.pair.post(requests);
}

std::size_t poll_raw(const lane &from)
{
    ibv_wc done[16];
    int got = ibv_poll_cq(from.queue.get(), 16, done);

    for (int i = 0; i < got; i++)
        if (done[i].status != IBV_WC_SUCCESS)
            sw::throw_errno(ibv_wc_status_str(done[i].status), EIO);
    return got < 0 ? 0 : static_cast<std::size_t>(got);
}

std::size_t poll_by_header(const lane &from)
{
    sw::completion room[16];
    sw::span<sw::completion> got = from.queue.poll(room);

    for (const sw::completion &done : got)
        done.check("ibv_post_send");
    return got.size();
}

// Both ways are compiled into a loop of their own.
template <class Post, class Poll>
void run(const lane &on, std::size_t list, unsigned long lists, Post post, Poll poll)
{
    unsigned long posted = 0, done = 0, window = depth / list;

    while (done < lists) {
        if (posted < lists && posted - done < window) {
            post(on, list, posted * list);
            posted++;
        } else {
            done += poll(on);
        }
    }
}

void run_lists(const lane &on, const options &chosen, unsigned long ops)
{
    unsigned long lists = (ops + chosen.list - 1) / chosen.list;

    if (chosen.way == "raw")
        run(on, chosen.list, lists, post_raw, poll_raw);
    else
        run(on, chosen.list, lists, post_by_header, poll_by_header);
}

void pin_to(int cpu)
{
    cpu_set_t set;

    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(cpu), &set);
    sw::check("sched_setaffinity", sched_setaffinity(0, sizeof(set), &set));
}

options parse(int argc, char **argv)
{
    options chosen;

    for (int letter; (letter = getopt(argc, argv, "w:d:l:n:c:")) != -1;) {
        switch (letter) {
        case 'w':
            chosen.way = optarg;
            break;
        case 'd':
            chosen.device = optarg;
            break;
        case 'l':
            chosen.list = std::strtoul(optarg, nullptr, 10);
            break;
        case 'n':
            chosen.ops = std::strtoul(optarg, nullptr, 10);
            break;
        case 'c':
            std::sscanf(optarg, "%d,%d", &chosen.cpus[0], &chosen.cpus[1]);
            break;
        default:
            std::exit(2);
        }
    }
    if ((chosen.way != "raw" && chosen.way != "header") || !chosen.list || chosen.list > list_max) {
        std::fprintf(stderr, "a way: raw or header; a list of 1 to %zu\n", list_max);
        std::exit(2);
    }
    return chosen;
}

// CPU time of this thread, which others of the machine do not disturb as much.
double cpu_seconds()
{
    timespec now{};

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void initiate(const lane &on, const options &chosen)
{
    using clock = std::chrono::steady_clock;

    run_lists(on, chosen, 100000); // warm
    double cpu_started = cpu_seconds();
    clock::time_point started = clock::now();
    run_lists(on, chosen, chosen.ops);
    double seconds = std::chrono::duration<double>(clock::now() - started).count();
    double cpu = cpu_seconds() - cpu_started, ops = static_cast<double>(chosen.ops);
    std::printf(
        "{\"way\": \"%s\", \"list\": %zu, \"ops\": %lu, \"op_s\": %.4g, \"op_cpu_s\": %.4g}\n",
        chosen.way.c_str(), chosen.list, chosen.ops, seconds / ops, cpu / ops);
}

} // namespace

int main(int argc, char **argv)
try {
    options chosen = parse(argc, argv);
    int sockets[2];
    char word;

    sw::check("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    pid_t target = fork(); // before the device is opened
    if (target < 0)
        sw::throw_errno("fork", errno);
    close(sockets[target ? 1 : 0]);
    pin_to(chosen.cpus[target ? 0 : 1]);
    {
        lane mine(chosen, sockets[target ? 0 : 1]);

        if (target)
            initiate(mine, chosen);
        else
            return read(sockets[1], &word, 1) ? 1 : 0; // until the initiator closes
        close(sockets[0]);
        waitpid(target, nullptr, 0);
    }
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "header_rate: %s\n", error.what());
    return 1;
}
