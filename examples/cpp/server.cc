// SPDX-License-Identifier: BSD-2-Clause
// usage: server ADDRESS PORT
// Each side has three words: its own, one that the peer writes, and one that it reads of the peer.
#include <iostream>
#include <sidewire/verbs.hpp>
using namespace std::chrono_literals;

int main(int, char **argv)
try {
    std::string words = "serving. -------- --------";
    sidewire::listener door(argv[1], argv[2]);
    sidewire::connection client = door.wait(30s); // it has asked, and waits for accept()
    sidewire::memory memory(client.domain(), words, sidewire::access::all);
    client.post(sidewire::receive()); // before it can send
    client.accept(memory.for_peer(), 10s);
    auto theirs = client.peer_data<sidewire::remote<char>>();
    client.run(sidewire::read(memory.local(18, 8), theirs.subspan(0, 8)), 10s);
    client.run(sidewire::write_imm(memory.local(0, 8), theirs.subspan(9, 8), 0), 10s);
    client.await_receive(10s); // it has written, too, and is done
    std::cout << words << std::endl;
} catch (const std::exception &error) {
    std::cerr << error.what() << std::endl;
    return 1;
}
