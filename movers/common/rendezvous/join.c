/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rank that joins. Until rank 0 has said that it took it, a connection that ends is tried anew:
 * rank 0 may not be there yet, or was full of strangers. After that its end is the end of rank 0.
 */
#include "common/rendezvous/join.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/minmax.h"
#include "common/rendezvous/frame.h"
#include "common/rendezvous/note.h"
#include "common/rendezvous/proof.h"
#include "common/time/clock.h"
#include "common/time/deadline.h"

#define GRACE_NS NS_PER_S /* behind the deadline, to be told who is absent */
#define TRY_NS (5 * NS_PER_S)

enum { FIRST_PAUSE_MS = 5, LAST_PAUSE_MS = 500, AGAIN = 1 };

struct joiner {
    const struct mover_rendezvous *how;
    const void *card;
    void *cards;
    size_t bytes;
    uint64_t deadline_ns, note_ns, try_until_ns;
    char *error;
    size_t error_bytes;
    int fd, why; /* an errno: of the last try */
    bool is_taken;
    uint8_t host_nonce[MOVER_MEET_NONCE_BYTES], nonce[MOVER_MEET_NONCE_BYTES];
    struct mover_meet_inbox in;
    struct mover_meet_outbox out;
    uint8_t body[MOVER_MEET_JOIN_BYTES + MOVER_RENDEZVOUS_CARD_MAX]; /* of the join */
};

static void tell_log(const struct joiner *joiner, const char *line)
{
    if (joiner->how->log)
        joiner->how->log(joiner->how->log_context, line);
}

static int fail_join(const struct joiner *joiner, int code, const char *what, const char *why)
{
    snprintf(joiner->error, joiner->error_bytes, "%s at %s%s", what, joiner->how->at, why);
    return code;
}

/* How long it waits for what comes next. A try has to come to something soon, until the join is
 * sent: rank 0 may read that much later, and would take another one for a second process. A rank
 * that was taken waits for the others. */
static uint64_t end_of_wait(const struct joiner *joiner)
{
    const bool has_joined = joiner->out.body;
    if (joiner->is_taken)
        return joiner->deadline_ns + GRACE_NS;
    return has_joined ? joiner->deadline_ns
                      : mover_min_u64(joiner->try_until_ns, joiner->deadline_ns);
}

/* Sleeps until the socket has something, or takes something. False: it is too late. */
static bool wait_for_socket(const struct joiner *joiner)
{
    const uint64_t until_ns = end_of_wait(joiner);
    const short events = mover_meet_has_more(&joiner->out) ? POLLIN | POLLOUT : POLLIN;
    struct pollfd watch = {.fd = joiner->fd, .events = events};
    int ready;
    do {
        const int ms = mover_ms_until(until_ns, mover_now_ns(), INT32_MAX);
        ready = poll(&watch, 1, ms);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

static void queue_join(struct joiner *joiner)
{
    const uint64_t now_ns = mover_now_ns();
    const uint64_t left_ms =
        now_ns < joiner->deadline_ns ? (joiner->deadline_ns - now_ns) / NS_PER_MS : 0;
    struct mover_meet_join join = {.rank = joiner->how->rank,
                                   .size = joiner->how->size,
                                   .card_bytes = (uint32_t)joiner->bytes,
                                   .patience_ms = (uint32_t)mover_min_u64(left_ms, UINT32_MAX)};
    uint8_t header[MOVER_MEET_HEADER_BYTES], sum[MOVER_MEET_SUM_BYTES];
    const size_t body_bytes = MOVER_MEET_JOIN_BYTES + joiner->bytes;
    memcpy(join.nonce, joiner->nonce, sizeof(join.nonce));
    mover_meet_put_join(joiner->body, &join);
    memcpy(joiner->body + MOVER_MEET_JOIN_BYTES, joiner->card, joiner->bytes);
    mover_meet_sum(joiner->body, body_bytes, sum);
    mover_meet_put_header(header, MOVER_MEET_JOIN, (uint32_t)body_bytes);
    mover_meet_prove(joiner->how->token, joiner->host_nonce, NULL, sum, header);
    mover_meet_put(&joiner->out, header, sizeof(header));
    mover_meet_put_last(&joiner->out, joiner->body, body_bytes);
}

static int take_welcome(struct joiner *joiner)
{
    if (joiner->in.header.body_bytes != sizeof(joiner->host_nonce))
        return fail_join(joiner, -EPROTO, "the welcome of rank 0", " makes no sense");
    memcpy(joiner->host_nonce, joiner->in.body, sizeof(joiner->host_nonce));
    queue_join(joiner);
    return AGAIN;
}

static int take_refusal(const struct joiner *joiner, bool is_proven)
{
    enum mover_meet_reason reason;
    char text[MOVER_MEET_TEXT_MAX + 1];
    if (!mover_meet_get_refusal(joiner->in.body, joiner->in.header.body_bytes, &reason, text))
        return fail_join(joiner, -EPROTO, "the refusal of rank 0", " makes no sense");
    if (!is_proven || reason == MOVER_MEET_UNPROVEN)
        return fail_join(joiner, -EACCES, "rank 0",
                         " has another token: of this job, or of another one");
    snprintf(joiner->error, joiner->error_bytes, "%s", text);
    return mover_meet_errno(reason);
}

static int take_cards(const struct joiner *joiner)
{
    const size_t bytes = joiner->how->size * joiner->bytes;
    if (joiner->in.header.body_bytes != bytes)
        return fail_join(joiner, -EPROTO, "rank 0", " sent too few cards, or too many");
    memcpy(joiner->cards, joiner->in.body, bytes);
    return 0;
}

static int take_note(struct joiner *joiner)
{
    char text[MOVER_MEET_TEXT_MAX + 1];
    if (!mover_meet_get_text(joiner->in.body, joiner->in.header.body_bytes, text))
        return fail_join(joiner, -EPROTO, "a note of rank 0", " makes no sense");
    joiner->is_taken = true;
    if (*text)
        tell_log(joiner, text);
    return AGAIN;
}

/* AGAIN: that was not the end of it. */
static int join_take_message(struct joiner *joiner)
{
    const struct mover_meet_header *header = &joiner->in.header;
    uint8_t sum[MOVER_MEET_SUM_BYTES];
    if (header->version != MOVER_MEET_VERSION) {
        snprintf(joiner->error, joiner->error_bytes,
                 "rank 0 at %s speaks version %u of the rendezvous, and rank %u version %u",
                 joiner->how->at, header->version, joiner->how->rank, MOVER_MEET_VERSION);
        return -EPROTONOSUPPORT;
    }
    if (header->kind == MOVER_MEET_WELCOME && !joiner->out.body)
        return take_welcome(joiner);
    mover_meet_sum(joiner->in.body, header->body_bytes, sum);
    const bool is_proven = mover_meet_is_proven(joiner->how->token, joiner->host_nonce,
                                                joiner->nonce, sum, joiner->in.bytes);
    if (header->kind == MOVER_MEET_REFUSAL)
        return take_refusal(joiner, is_proven);
    if (!is_proven)
        return fail_join(joiner, -EACCES, "rank 0", " does not know the token of this job");
    if (header->kind == MOVER_MEET_NOTE)
        return take_note(joiner);
    if (header->kind == MOVER_MEET_CARDS && joiner->is_taken)
        return take_cards(joiner);
    return fail_join(joiner, -EPROTO, "rank 0", " sends what is no part of a rendezvous");
}

/* The connection has ended, or was none. AGAIN: one may try anew. */
static int take_end(struct joiner *joiner)
{
    if (joiner->is_taken)
        return fail_join(joiner, -ECONNRESET, "rank 0", " has ended before all were there");
    joiner->why = errno ? errno : ECONNRESET;
    return AGAIN;
}

/* One connection, from its beginning to its end. AGAIN: it came to nothing. */
static int talk_once(struct joiner *joiner)
{
    const size_t body_max = joiner->how->size * joiner->bytes + MOVER_MEET_TEXT_MAX +
                            MOVER_MEET_REFUSAL_BYTES + MOVER_MEET_NONCE_BYTES;
    while (wait_for_socket(joiner)) {
        errno = 0;
        enum mover_meet_progress progress = mover_meet_receive(&joiner->in, joiner->fd, body_max);
        if (progress == MOVER_MEET_WHOLE) {
            const int code = join_take_message(joiner);
            mover_meet_next(&joiner->in);
            if (code != AGAIN)
                return code;
        } else if (progress == MOVER_MEET_MALFORMED) {
            return fail_join(joiner, -EPROTO, "what answers", " is no rank 0 of a job");
        } else if (progress == MOVER_MEET_NO_MEMORY) {
            return fail_join(joiner, -ENOMEM, "no memory for what rank 0", " sends");
        } else if (progress == MOVER_MEET_ENDED) {
            return take_end(joiner);
        }
        if (mover_meet_has_more(&joiner->out) &&
            mover_meet_send(&joiner->out, joiner->fd) == MOVER_MEET_ENDED)
            return take_end(joiner);
    }
    joiner->why = ETIMEDOUT;
    return joiner->is_taken
               ? fail_join(joiner, -ETIMEDOUT, "rank 0", " has not said in time who is absent")
               : AGAIN;
}

static int try_once(struct joiner *joiner, const struct addrinfo *address)
{
    joiner->try_until_ns = mover_now_ns() + TRY_NS;
    joiner->fd = mover_meet_connect(address);
    if (joiner->fd < 0) {
        joiner->why = -joiner->fd;
        return AGAIN;
    }
    memset(&joiner->out, 0, sizeof(joiner->out));
    int code = -EIO;
    if (getrandom(joiner->nonce, sizeof(joiner->nonce), 0) == sizeof(joiner->nonce))
        code = talk_once(joiner);
    mover_meet_next(&joiner->in);
    close(joiner->fd);
    return code;
}

/* Says after a while why nothing comes of it. */
static void note_try(struct joiner *joiner, uint64_t now_ns)
{
    char line[400];
    if (now_ns < joiner->note_ns)
        return;
    joiner->note_ns = now_ns + 3 * mover_meet_note_ns(joiner->how);
    snprintf(line, sizeof(line), "rank %u waits for rank 0 at %.200s: %s", joiner->how->rank,
             joiner->how->at, strerror(joiner->why));
    tell_log(joiner, line);
}

static int try_all(struct joiner *joiner, const struct addrinfo *addresses)
{
    int pause_ms = FIRST_PAUSE_MS;
    for (const struct addrinfo *address = addresses;;) {
        const int code = try_once(joiner, address);
        const uint64_t now_ns = mover_now_ns();
        if (code != AGAIN)
            return code;
        if (now_ns >= joiner->deadline_ns)
            break;
        note_try(joiner, now_ns);
        if (!address->ai_next) { /* all were tried */
            poll(NULL, 0, mover_ms_until(joiner->deadline_ns, now_ns, pause_ms));
            pause_ms = pause_ms * 2 < LAST_PAUSE_MS ? pause_ms * 2 : LAST_PAUSE_MS;
        }
        address = address->ai_next ? address->ai_next : addresses;
    }
    snprintf(joiner->error, joiner->error_bytes, "rank 0 did not come to %s: %s", joiner->how->at,
             strerror(joiner->why));
    return -ETIMEDOUT;
}

int mover_meet_join(const struct mover_rendezvous *how, const struct addrinfo *addresses,
                    const void *card, size_t bytes, void *cards, uint64_t deadline_ns, char *error,
                    size_t error_bytes)
{
    struct joiner *joiner = calloc(1, sizeof(*joiner));
    if (!joiner) {
        snprintf(error, error_bytes, "no memory to meet the other ranks");
        return -ENOMEM;
    }
    *joiner = (struct joiner){.how = how,
                              .card = card,
                              .cards = cards,
                              .bytes = bytes,
                              .deadline_ns = deadline_ns,
                              .note_ns = mover_now_ns() + mover_meet_note_ns(how),
                              .error = error,
                              .error_bytes = error_bytes};
    const int code = try_all(joiner, addresses);
    free(joiner);
    return code;
}
