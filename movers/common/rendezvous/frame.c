/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rendezvous/frame.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static enum mover_meet_progress of_errno(void)
{
    return errno == EAGAIN || errno == EINTR ? MOVER_MEET_MORE : MOVER_MEET_ENDED;
}

static enum mover_meet_progress take_bytes(struct mover_meet_inbox *in, int fd, uint8_t *to,
                                           size_t missing)
{
    const ssize_t n = recv(fd, to, missing, MSG_DONTWAIT);
    if (n < 0)
        return of_errno();
    in->got += (size_t)n;
    return !n ? MOVER_MEET_ENDED : (size_t)n == missing ? MOVER_MEET_WHOLE : MOVER_MEET_MORE;
}

static enum mover_meet_progress take_header(struct mover_meet_inbox *in, int fd, size_t body_max)
{
    const enum mover_meet_progress progress =
        take_bytes(in, fd, in->bytes + in->got, MOVER_MEET_HEADER_BYTES - in->got);
    if (progress != MOVER_MEET_WHOLE)
        return progress;
    if (!mover_meet_get_header(in->bytes, &in->header) || in->header.body_bytes > body_max)
        return MOVER_MEET_MALFORMED;
    in->body = malloc(in->header.body_bytes ? in->header.body_bytes : 1);
    return in->body ? MOVER_MEET_WHOLE : MOVER_MEET_NO_MEMORY;
}

enum mover_meet_progress mover_meet_receive(struct mover_meet_inbox *in, int fd, size_t body_max)
{
    if (in->got < MOVER_MEET_HEADER_BYTES) {
        const enum mover_meet_progress progress = take_header(in, fd, body_max);
        if (progress != MOVER_MEET_WHOLE)
            return progress;
    }
    const size_t got = in->got - MOVER_MEET_HEADER_BYTES;
    if (got == in->header.body_bytes)
        return MOVER_MEET_WHOLE;
    return take_bytes(in, fd, in->body + got, in->header.body_bytes - got);
}

void mover_meet_next(struct mover_meet_inbox *in)
{
    free(in->body);
    in->body = NULL;
    in->got = 0;
}

bool mover_meet_put(struct mover_meet_outbox *out, const void *bytes, size_t len)
{
    assert(!out->body);
    if (len > sizeof(out->bytes) - out->len)
        return false;
    memcpy(out->bytes + out->len, bytes, len);
    out->len += len;
    return true;
}

void mover_meet_put_last(struct mover_meet_outbox *out, const void *bytes, size_t len)
{
    assert(!out->body);
    out->body = bytes;
    out->body_bytes = len;
}

bool mover_meet_has_more(const struct mover_meet_outbox *out)
{
    return out->sent < out->len + out->body_bytes;
}

enum mover_meet_progress mover_meet_send(struct mover_meet_outbox *out, int fd)
{
    while (mover_meet_has_more(out)) {
        const bool is_body = out->sent >= out->len;
        const uint8_t *from = is_body ? out->body + (out->sent - out->len) : out->bytes + out->sent;
        const size_t left = (is_body ? out->len + out->body_bytes : out->len) - out->sent;
        const ssize_t n = send(fd, from, left, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            return of_errno();
        out->sent += (size_t)n;
    }
    if (!out->body)
        out->len = out->sent = 0;
    return MOVER_MEET_WHOLE;
}
