// SPDX-License-Identifier: BSD-2-Clause
// usage: client ADDRESS PORT, those of the server
#include <iostream>
#include <sidewire/verbs.hpp>
using namespace std::chrono_literals;

int main(int, char **argv)
try {
    std::string words = "asking.. -------- --------";
    sidewire::connection server(argv[1], argv[2], 10s);
    sidewire::memory memory(server.domain(), words, sidewire::access::all);
    server.post(sidewire::receive());       // before it can send
    server.connect(memory.for_peer(), 10s); // tells where our memory is, and hears of theirs
    auto theirs = server.peer_data<sidewire::remote<char>>();
    server.run(sidewire::read(memory.local(18, 8), theirs.subspan(0, 8)), 10s);
    server.run(sidewire::write_imm(memory.local(0, 8), theirs.subspan(9, 8), 0), 10s);
    server.await_receive(10s);
    std::cout << words << std::endl;
} catch (const std::exception &error) {
    std::cerr << error.what() << std::endl;
    return 1;
}
