/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rank 0 of a rendezvous. Strangers may connect, too: as long as one has not joined it has a place
 * beside those of the ranks, for STRANGER_NS, and the oldest of them goes first. Once the job has
 * failed, rank 0 stays for LINGER_NS at most, to tell it to those that come late.
 */
#include "common/rendezvous/host.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/minmax.h"
#include "common/rendezvous/guest.h"
#include "common/rendezvous/note.h"
#include "common/time/clock.h"
#include "common/time/deadline.h"

#define STRANGER_NS (5 * NS_PER_S)
#define LINGER_NS (3 * NS_PER_S)
#define GRACE_NS NS_PER_S          /* behind the deadline */
#define PAUSE_NS (100 * NS_PER_MS) /* of accepting, where there are no descriptors */

enum {
    SLICE_MS = 500,
    STRANGERS_MAX = 64,
    BODY_MAX = MOVER_MEET_JOIN_BYTES + MOVER_RENDEZVOUS_CARD_MAX
};

struct host {
    const struct mover_rendezvous *how;
    int listener; /* -1: no more */
    uint64_t deadline_ns, note_ns, accept_ns, refused;
    struct mover_roll roll;
    /* How it failed, and what all are told. */
    bool has_failed;
    enum mover_meet_reason reason;
    char text[MOVER_MEET_TEXT_MAX + 1];
    uint8_t refusal[MOVER_MEET_REFUSAL_BYTES + MOVER_MEET_TEXT_MAX];
    size_t refusal_bytes;
    uint32_t told; /* ranks that know */
    uint32_t places;
    struct mover_guest *guests;
    struct pollfd *watches; /* the listener, then one for each guest: poll() takes no more of them
                             * than this process may have descriptors */
};

static void log_line(const struct host *host, const char *line)
{
    if (host->how->log)
        host->how->log(host->how->log_context, line);
}

static void tell_failure(struct host *host, struct mover_guest *guest)
{
    mover_guest_tell(guest, host->how->token, MOVER_MEET_REFUSAL, host->refusal,
                     host->refusal_bytes);
    guest->is_told = true;
    host->told++;
}

/* The job cannot be what it was meant to be: all ranks are told the same. */
static void fail_all(struct host *host, enum mover_meet_reason reason)
{
    host->has_failed = true;
    host->reason = reason;
    host->refusal_bytes = mover_meet_put_refusal(host->refusal, reason, host->text);
    host->deadline_ns = reason == MOVER_MEET_ABSENT
                            ? mover_now_ns() + GRACE_NS
                            : mover_min_u64(host->deadline_ns, mover_now_ns() + LINGER_NS);
    for (uint32_t i = 0; i < host->places; i++)
        if (host->guests[i].fd >= 0 && host->guests[i].is_taken)
            tell_failure(host, &host->guests[i]);
}

static void refuse_stranger(struct host *host, struct mover_guest *guest, const char *why)
{
    char line[200];
    host->refused++;
    snprintf(line, sizeof(line), "refused %s: %s", guest->name, why);
    if (host->refused <= STRANGERS_MAX) /* a flood is not told line by line */
        log_line(host, line);
    mover_guest_close(guest);
}

static void refuse_unproven(struct host *host, struct mover_guest *guest)
{
    static const char why[] = "rank 0 has another token";
    uint8_t body[MOVER_MEET_REFUSAL_BYTES + MOVER_MEET_TEXT_MAX];
    const size_t bytes = mover_meet_put_refusal(body, MOVER_MEET_UNPROVEN, why);
    mover_guest_tell(guest, NULL, MOVER_MEET_REFUSAL, body, bytes);
    mover_meet_send(&guest->out, guest->fd);
    refuse_stranger(host, guest, "it does not know the token of this job");
}

/* A rank that proved itself, by this version. */
static void take_rank(struct host *host, struct mover_guest *guest,
                      const struct mover_meet_join *join)
{
    const uint64_t patience_ns = mover_now_ns() + join->patience_ms * NS_PER_MS;
    const uint8_t *card = guest->in.body + MOVER_MEET_JOIN_BYTES;
    if (host->has_failed) {
        tell_failure(host, guest);
        return;
    }
    if (!mover_roll_take(&host->roll, join, card, guest->name, host->text, sizeof(host->text))) {
        fail_all(host, MOVER_MEET_UNLIKE);
        tell_failure(host, guest);
        return;
    }
    guest->is_taken = true;
    guest->rank = join->rank;
    if (patience_ns < host->deadline_ns)
        host->deadline_ns = patience_ns;
    mover_guest_tell(guest, host->how->token, MOVER_MEET_NOTE, "", 0);
}

static void refuse_version(struct host *host, struct mover_guest *guest)
{
    if (!host->has_failed) {
        snprintf(host->text, sizeof(host->text),
                 "a rank at %s speaks version %u of the rendezvous, and rank 0 version %u",
                 guest->name, guest->in.header.version, MOVER_MEET_VERSION);
        fail_all(host, MOVER_MEET_OTHER_VERSION);
    }
    tell_failure(host, guest);
}

static void take_join(struct host *host, struct mover_guest *guest)
{
    const struct mover_meet_header *header = &guest->in.header;
    struct mover_meet_join join;
    uint8_t sum[MOVER_MEET_SUM_BYTES];
    mover_meet_sum(guest->in.body, header->body_bytes, sum);
    if (!mover_meet_is_proven(host->how->token, guest->nonce, NULL, sum, guest->in.bytes)) {
        refuse_unproven(host, guest);
        return;
    }
    if (header->version != MOVER_MEET_VERSION) {
        refuse_version(host, guest);
        return;
    }
    if (header->kind != MOVER_MEET_JOIN ||
        !mover_meet_get_join(guest->in.body, header->body_bytes, &join)) {
        refuse_stranger(host, guest, "it says what is no part of a rendezvous");
        return;
    }
    memcpy(guest->joiner, join.nonce, sizeof(guest->joiner));
    take_rank(host, guest, &join);
    mover_meet_next(&guest->in);
}

static void lose_rank(struct host *host, struct mover_guest *guest)
{
    const bool is_handing_out = guest->out.body;
    mover_guest_close(guest);
    if (is_handing_out) /* the others get their cards, as rank 0 does, and find it out */
        return;
    snprintf(host->text, sizeof(host->text), "rank %u at %s has ended before all were there",
             guest->rank, guest->name);
    fail_all(host, MOVER_MEET_GONE);
    host->told++; /* nobody is left there */
}

static void read_guest(struct host *host, struct mover_guest *guest)
{
    const enum mover_meet_progress progress = mover_meet_receive(&guest->in, guest->fd, BODY_MAX);
    if (progress == MOVER_MEET_MORE)
        return;
    if (guest->is_told)
        mover_guest_close(guest);
    else if (guest->is_taken) /* one that has joined has nothing more to say */
        lose_rank(host, guest);
    else if (progress == MOVER_MEET_WHOLE)
        take_join(host, guest);
    else if (progress == MOVER_MEET_MALFORMED)
        refuse_stranger(host, guest, "it does not speak the protocol of a rendezvous");
    else
        mover_guest_close(guest);
}

static void write_guest(struct host *host, struct mover_guest *guest)
{
    const enum mover_meet_progress progress = mover_meet_send(&guest->out, guest->fd);
    if (progress == MOVER_MEET_WHOLE && (guest->is_told || guest->out.body))
        mover_guest_close(guest);
    else if (progress == MOVER_MEET_ENDED && guest->is_taken && !guest->is_told)
        lose_rank(host, guest);
    else if (progress == MOVER_MEET_ENDED)
        mover_guest_close(guest);
}

/* A free place; where there is none, that of the stranger who has come first. NULL: all have
 * joined. */
static struct mover_guest *find_place(struct host *host)
{
    struct mover_guest *oldest = NULL;
    for (uint32_t i = 0; i < host->places; i++) {
        struct mover_guest *guest = &host->guests[i];
        if (guest->fd < 0)
            return guest;
        if (!guest->is_taken && (!oldest || guest->since_ns < oldest->since_ns))
            oldest = guest;
    }
    if (oldest)
        mover_guest_close(oldest);
    return oldest;
}

static void accept_guests(struct host *host, uint64_t now_ns)
{
    for (int i = 0; i < STRANGERS_MAX; i++) {
        const int fd = accept4(host->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
                host->accept_ns = now_ns + PAUSE_NS;
            return;
        }
        struct mover_guest *guest = find_place(host);
        if (!guest)
            close(fd);
        else if (!mover_guest_open(guest, fd, now_ns))
            mover_guest_close(guest);
    }
}

/* Strangers who have had their time leave. */
static void drop_strangers(struct host *host, uint64_t now_ns)
{
    for (uint32_t i = 0; i < host->places; i++) {
        struct mover_guest *guest = &host->guests[i];
        if (guest->fd >= 0 && !guest->is_taken && !guest->is_told &&
            now_ns - guest->since_ns >= STRANGER_NS)
            refuse_stranger(host, guest, "it has not joined in time");
    }
}

/* How many are watched. */
static uint32_t watch_guests(struct host *host)
{
    uint32_t count = 1;
    for (uint32_t i = 0; i < host->places; i++) {
        struct mover_guest *guest = &host->guests[i];
        const short events = mover_meet_has_more(&guest->out) ? POLLIN | POLLOUT : POLLIN;
        if (guest->fd < 0)
            continue;
        guest->watch = count++;
        host->watches[guest->watch] = (struct pollfd){.fd = guest->fd, .events = events};
    }
    return count;
}

/* Sleeps until something comes, for `longest_ms` at most, and serves all. */
static void serve_guests(struct host *host, int longest_ms)
{
    uint64_t now_ns = mover_now_ns();
    const bool is_accepting = host->listener >= 0 && now_ns >= host->accept_ns;
    host->watches[0] = (struct pollfd){.fd = is_accepting ? host->listener : -1, .events = POLLIN};
    const uint32_t count = watch_guests(host);
    poll(host->watches, count, mover_ms_until(host->deadline_ns, now_ns, longest_ms));
    now_ns = mover_now_ns();
    for (uint32_t i = 0; i < host->places; i++) {
        struct mover_guest *guest = &host->guests[i];
        if (guest->fd >= 0 && (host->watches[guest->watch].revents & ~POLLOUT))
            read_guest(host, guest);
        if (guest->fd >= 0 && mover_meet_has_more(&guest->out))
            write_guest(host, guest);
    }
    drop_strangers(host, now_ns);
    if (host->watches[0].revents)
        accept_guests(host, now_ns);
}

static void describe_absent(const struct host *host, char *text, size_t bytes)
{
    char ranks[200];
    mover_roll_absent(&host->roll, ranks, sizeof(ranks));
    if (host->refused)
        snprintf(text, bytes, "%s did not come to %s; %" PRIu64 " connections were refused", ranks,
                 host->how->at, host->refused);
    else
        snprintf(text, bytes, "%s did not come to %s", ranks, host->how->at);
}

/* Names the absent in the logs of all that are there. */
static void note_absent(struct host *host, uint64_t now_ns)
{
    char ranks[200], line[300];
    mover_roll_absent(&host->roll, ranks, sizeof(ranks));
    snprintf(line, sizeof(line), "waiting for %s at %s", ranks, host->how->at);
    log_line(host, line);
    for (uint32_t i = 0; i < host->places; i++)
        if (host->guests[i].fd >= 0 && host->guests[i].is_taken)
            mover_guest_tell(&host->guests[i], host->how->token, MOVER_MEET_NOTE, line,
                             strlen(line));
    host->note_ns = now_ns + 3 * mover_meet_note_ns(host->how);
}

static bool has_words_left(const struct host *host)
{
    for (uint32_t i = 0; i < host->places; i++)
        if (host->guests[i].fd >= 0 && mover_meet_has_more(&host->guests[i].out) &&
            (host->guests[i].is_taken || host->guests[i].is_told))
            return true;
    return false;
}

/* Until all are there, or it has failed and all know. */
static void gather_ranks(struct host *host)
{
    while (!mover_roll_is_full(&host->roll) && !host->has_failed) {
        const uint64_t now_ns = mover_now_ns();
        if (now_ns >= host->deadline_ns) {
            describe_absent(host, host->text, sizeof(host->text));
            fail_all(host, MOVER_MEET_ABSENT);
            break;
        }
        if (now_ns >= host->note_ns)
            note_absent(host, now_ns);
        serve_guests(host, SLICE_MS);
    }
    while (host->has_failed && mover_now_ns() < host->deadline_ns &&
           (has_words_left(host) ||
            (host->reason != MOVER_MEET_ABSENT && host->told + 1 < host->roll.size)))
        serve_guests(host, SLICE_MS);
}

/* All are there: each gets the cards of all. */
static void host_hand_out(struct host *host)
{
    const size_t bytes = (size_t)host->roll.size * host->roll.card_bytes;
    uint8_t sum[MOVER_MEET_SUM_BYTES];
    mover_meet_sum(host->roll.cards, bytes, sum);
    for (uint32_t i = 0; i < host->places; i++) {
        struct mover_guest *guest = &host->guests[i];
        if (guest->fd >= 0 && guest->is_taken)
            mover_guest_tell_last(guest, host->how->token, MOVER_MEET_CARDS, host->roll.cards,
                                  bytes, sum);
        else if (guest->fd >= 0)
            mover_guest_close(guest);
    }
    while (has_words_left(host) && mover_now_ns() < host->deadline_ns + GRACE_NS)
        serve_guests(host, SLICE_MS);
    for (uint32_t i = 0; i < host->places && !host->has_failed; i++)
        if (host->guests[i].fd >= 0) {
            host->has_failed = true;
            host->reason = MOVER_MEET_ABSENT;
            snprintf(host->text, sizeof(host->text), "rank %u at %s did not take the cards in time",
                     host->guests[i].rank, host->guests[i].name);
        }
}

/* A listener that is open keeps others waiting who come for the next job. */
static void end_listening(struct host *host)
{
    if (host->listener >= 0)
        close(host->listener);
    host->listener = -1;
}

static int run_host(struct host *host, char *error, size_t error_bytes)
{
    gather_ranks(host);
    end_listening(host);
    if (!host->has_failed)
        host_hand_out(host);
    for (uint32_t i = 0; i < host->places; i++)
        if (host->guests[i].fd >= 0)
            mover_guest_close(&host->guests[i]);
    if (!host->has_failed)
        return 0;
    snprintf(error, error_bytes, "%s", host->text);
    return mover_meet_errno(host->reason);
}

/* Each rank has a connection: as many descriptors as this process may have at all. Returns how many
 * it had before. */
static struct rlimit host_allow_descriptors(void)
{
    struct rlimit before = {0}, most;
    if (!getrlimit(RLIMIT_NOFILE, &before)) {
        most = (struct rlimit){.rlim_cur = before.rlim_max, .rlim_max = before.rlim_max};
        setrlimit(RLIMIT_NOFILE, &most);
    }
    return before;
}

static bool open_places(struct host *host)
{
    host->places = host->how->size - 1 + STRANGERS_MAX;
    host->guests = calloc(host->places, sizeof(*host->guests));
    host->watches = calloc(host->places + 1, sizeof(*host->watches));
    for (uint32_t i = 0; host->guests && i < host->places; i++)
        host->guests[i].fd = -1;
    return host->guests && host->watches;
}

int mover_meet_host(const struct mover_rendezvous *how, const struct addrinfo *addresses,
                    const void *card, size_t bytes, void *cards, uint64_t deadline_ns, char *error,
                    size_t error_bytes)
{
    struct host *host = calloc(1, sizeof(*host));
    int code = -ENOMEM;
    if (host) {
        *host = (struct host){.how = how, .listener = -1, .deadline_ns = deadline_ns};
        host->note_ns = mover_now_ns() + mover_meet_note_ns(how);
        mover_roll_open(&host->roll, how->size, card, (uint32_t)bytes, cards);
    }
    if (!host || !open_places(host))
        snprintf(error, error_bytes, "no memory for %u ranks", how->size);
    else if ((code = host->listener = mover_meet_listen(addresses)) < 0)
        snprintf(error, error_bytes, "rank 0 cannot listen at %s: %s", how->at, strerror(-code));
    else {
        const struct rlimit before = host_allow_descriptors();
        code = run_host(host, error, error_bytes);
        if (before.rlim_cur)
            setrlimit(RLIMIT_NOFILE, &before);
    }
    free(host ? host->guests : NULL);
    free(host ? host->watches : NULL);
    free(host);
    return code;
}
