/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What another rank writes for messages from rank to rank: the first bytes are what this rank
 * posts, the rest is laid over the notes, rooms and words of an alike rank. Whatever they say, no
 * memory outside the buffers is touched, and each message ends or waits.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/pairs.h"

enum { OWN, OTHER, RANKS, POSTS = 6, HEAD = 2 * POSTS, SHORT = 64, PIECE = 100, BUFFER = 4096 };

static uint8_t buffers[POSTS][BUFFER];

struct place {
    uint8_t payload[SHORT];
    struct coll_note note;
};

static struct fuzz_pair {
    struct coll_pairs machine;
    struct coll_pair pairs[RANKS];
    struct coll_transfer posts[POSTS];
    struct place places[2][COLL_RING];
    uint64_t words[COLL_WORDS];
} fuzz;

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static enum coll_posting fuzz_note(void *context, uint32_t peer, const struct coll_note *note,
                                   const void *payload)
{
    (void)context;
    demand(peer == OTHER && note->form < COLL_FORMS && note->mark);
    demand(!payload == (note->payload_bytes <= COLL_INLINE_MAX));
    demand(note->payload_bytes <= SHORT);
    return COLL_POSTED;
}

static enum coll_posting fuzz_word(void *context, uint32_t peer, enum coll_word word,
                                   uint64_t value)
{
    (void)context;
    demand(peer == OTHER && word < COLL_WORDS && value && value <= POSTS);
    return COLL_POSTED;
}

static enum coll_posting fuzz_push(void *context, const struct coll_transfer *transfer,
                                   struct coll_memory to, uint64_t bytes, uint64_t *ticket)
{
    (void)context;
    (void)to;
    demand(transfer->is_send && bytes && bytes <= PIECE);
    demand(transfer->pushed + bytes <= transfer->bytes);
    *ticket = 1;
    return COLL_POSTED;
}

static bool fuzz_has_settled(void *context, uint32_t peer, uint64_t ticket)
{
    (void)context;
    return peer == OTHER && ticket == 1;
}

static const struct coll_note *fuzz_look(void *context, uint32_t peer, bool is_room,
                                         uint64_t number)
{
    (void)context;
    const struct coll_note *note = &fuzz.places[is_room][number % COLL_RING].note;
    demand(peer == OTHER);
    return note->mark == number ? note : NULL;
}

static uint64_t fuzz_look_word(void *context, uint32_t peer, enum coll_word word)
{
    (void)context;
    demand(peer == OTHER);
    return fuzz.words[word];
}

/* What an alike rank would have written for it. */
static void lay_alike(const struct coll_transfer *post)
{
    struct coll_note *note = &fuzz.places[post->is_send][post->number % COLL_RING].note;
    const bool is_long = coll_transfer_is_long(&fuzz.machine, post);
    if (post->is_send && !is_long)
        return;
    *note = (struct coll_note){.count = post->count,
                               .type = (uint8_t)post->type,
                               .form = post->is_send ? COLL_ROOM
                                       : is_long     ? COLL_OFFER
                                                     : COLL_SHORT,
                               .payload_bytes = is_long ? 0 : (uint32_t)post->bytes,
                               .mark = post->number};
    if (!post->is_send && is_long)
        fuzz.words[COLL_WRITTEN] = post->number;
}

static void post_all(const uint8_t *head)
{
    for (unsigned i = 0; i < POSTS; i++) {
        struct coll_transfer *post = &fuzz.posts[i];
        *post = (struct coll_transfer){.is_send = head[2 * i] & 1,
                                       .peer = OTHER,
                                       .type = head[2 * i] / 2 % SW_COLL_TYPES,
                                       .data = buffers[i],
                                       .count = head[2 * i + 1]};
        demand(!coll_pairs_check(&fuzz.machine, post, NULL) && post->bytes <= BUFFER / 2);
        memset(buffers[i], (int)i, BUFFER);
        coll_pairs_post(&fuzz.machine, post);
        lay_alike(post);
    }
}

static void lay_data(void *over, size_t bytes, const uint8_t **data, size_t *size)
{
    uint8_t *at = over;
    for (; bytes && *size; bytes--, --*size)
        *at++ ^= *(*data)++;
}

/* A sender's buffer is as it was, and so is what lies behind a receiver's. */
static void check_buffers(void)
{
    for (unsigned i = 0; i < POSTS; i++)
        for (size_t at = fuzz.posts[i].is_send ? 0 : fuzz.posts[i].bytes; at < BUFFER; at++)
            demand(buffers[i][at] == i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct coll_pairs_port port = {.note = fuzz_note,
                                                .word = fuzz_word,
                                                .push = fuzz_push,
                                                .has_settled = fuzz_has_settled,
                                                .look = fuzz_look,
                                                .look_word = fuzz_look_word};
    char text[160];
    if (size < HEAD)
        return 0;
    memset(&fuzz, 0, sizeof(fuzz));
    coll_pairs_init(&fuzz.machine, OWN, RANKS, SHORT, PIECE, &port, fuzz.pairs);
    post_all(data);
    data += HEAD;
    size -= HEAD;
    lay_data(fuzz.words, sizeof(fuzz.words), &data, &size);
    for (unsigned i = 0; i < 2 * COLL_RING; i++)
        lay_data(&fuzz.places[i % 2][(i / 2 + 1) % COLL_RING].note, sizeof(struct coll_note), &data,
                 &size);
    const enum sw_coll_status status = coll_pairs_go(&fuzz.machine);
    if (status) {
        demand(status == SW_COLL_MISMATCH || status == SW_COLL_PROTOCOL);
        demand(fuzz.machine.error.status == status && *fuzz.machine.error.text);
    }
    const struct coll_transfer *waits = coll_pair_first(&fuzz.pairs[OTHER]);
    if (waits) {
        coll_transfer_waits_text(&fuzz.machine, waits, text, sizeof(text));
        demand(*text);
    }
    check_buffers();
    while (coll_pairs_drop(&fuzz.machine))
        continue;
    return 0;
}
