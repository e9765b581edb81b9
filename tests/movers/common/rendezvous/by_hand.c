/* SPDX-License-Identifier: BSD-2-Clause */
#include "by_hand.h"

#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/rendezvous/proof.h"
#include "common/rendezvous/socket.h"

int hand_call(const char *at)
{
    struct addrinfo *addresses;
    char error[100], byte;
    for (;;) {
        assert_int_equal(mover_meet_resolve(at, &addresses, error, sizeof(error)), 0);
        const int fd = socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool is_there = !connect(fd, addresses->ai_addr, addresses->ai_addrlen) &&
                              recv(fd, &byte, 1, MSG_PEEK) == 1;
        freeaddrinfo(addresses);
        if (is_there)
            return fd;
        close(fd);
        usleep(5000);
    }
}

void hand_read(int fd, void *to, size_t bytes)
{
    assert_int_equal(recv(fd, to, bytes, MSG_WAITALL), bytes);
}

struct message hand_make_join(int fd, uint32_t rank, uint32_t size, const char *token)
{
    struct message message;
    const struct mover_meet_join join = {
        .rank = rank, .size = size, .card_bytes = CARD_BYTES, .patience_ms = PATIENCE_MS};
    uint8_t welcome[MOVER_MEET_HEADER_BYTES + MOVER_MEET_NONCE_BYTES], sum[MOVER_MEET_SUM_BYTES];
    uint8_t *body = message.bytes + MOVER_MEET_HEADER_BYTES;
    const uint64_t card = 1000 + rank;
    const uint32_t body_bytes = MOVER_MEET_JOIN_BYTES + CARD_BYTES;
    hand_read(fd, welcome, sizeof(welcome));
    mover_meet_put_join(body, &join);
    memcpy(body + MOVER_MEET_JOIN_BYTES, &card, sizeof(card));
    mover_meet_put_header(message.bytes, MOVER_MEET_JOIN, body_bytes);
    mover_meet_sum(body, body_bytes, sum);
    mover_meet_prove(token, welcome + MOVER_MEET_HEADER_BYTES, NULL, sum, message.bytes);
    return message;
}

int hand_join(const char *at, uint32_t rank, uint32_t size)
{
    const int fd = hand_call(at);
    const struct message message = hand_make_join(fd, rank, size, NULL);
    assert_int_equal(send(fd, &message, sizeof(message), 0), sizeof(message));
    return fd;
}

void hand_await_taken(int fd)
{
    uint8_t bytes[MOVER_MEET_HEADER_BYTES];
    struct mover_meet_header header;
    hand_read(fd, bytes, sizeof(bytes));
    assert_true(mover_meet_get_header(bytes, &header));
    assert_int_equal(header.kind, MOVER_MEET_NOTE);
}

uint16_t hand_read_end(int fd, uint8_t *body, size_t body_max)
{
    uint8_t bytes[MOVER_MEET_HEADER_BYTES];
    struct mover_meet_header header;
    hand_read(fd, bytes, sizeof(bytes));
    assert_true(mover_meet_get_header(bytes, &header) && header.body_bytes <= body_max);
    hand_read(fd, body, header.body_bytes);
    return header.kind;
}
