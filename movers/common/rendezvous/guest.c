/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rendezvous/guest.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/rendezvous/socket.h"

bool mover_guest_open(struct mover_guest *guest, int fd, uint64_t now_ns)
{
    uint8_t header[MOVER_MEET_HEADER_BYTES];
    const int on = 1;
    memset(guest, 0, sizeof(*guest));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    guest->fd = fd;
    guest->since_ns = now_ns;
    mover_meet_name(fd, guest->name, sizeof(guest->name));
    if (getrandom(guest->nonce, sizeof(guest->nonce), 0) != sizeof(guest->nonce))
        return false;
    /* Its nonce is the body: nothing to prove yet. */
    mover_meet_put_header(header, MOVER_MEET_WELCOME, sizeof(guest->nonce));
    return mover_meet_put(&guest->out, header, sizeof(header)) &&
           mover_meet_put(&guest->out, guest->nonce, sizeof(guest->nonce));
}

void mover_guest_close(struct mover_guest *guest)
{
    close(guest->fd);
    mover_meet_next(&guest->in);
    guest->fd = -1;
    guest->is_taken = false;
}

void mover_guest_tell(struct mover_guest *guest, const char *token, enum mover_meet_kind kind,
                      const void *body, size_t bytes)
{
    uint8_t message[MOVER_MEET_HEADER_BYTES + MOVER_MEET_REFUSAL_BYTES + MOVER_MEET_TEXT_MAX];
    uint8_t sum[MOVER_MEET_SUM_BYTES];
    mover_meet_sum(body, bytes, sum);
    mover_meet_put_header(message, kind, (uint32_t)bytes);
    mover_meet_prove(token, guest->nonce, guest->joiner, sum, message);
    memcpy(message + MOVER_MEET_HEADER_BYTES, body, bytes);
    mover_meet_put(&guest->out, message, MOVER_MEET_HEADER_BYTES + bytes);
}

void mover_guest_tell_last(struct mover_guest *guest, const char *token, enum mover_meet_kind kind,
                           const void *body, size_t bytes, const uint8_t sum[MOVER_MEET_SUM_BYTES])
{
    uint8_t header[MOVER_MEET_HEADER_BYTES];
    mover_meet_put_header(header, kind, (uint32_t)bytes);
    mover_meet_prove(token, guest->nonce, guest->joiner, sum, header);
    if (mover_meet_put(&guest->out, header, sizeof(header)))
        mover_meet_put_last(&guest->out, body, bytes);
}
