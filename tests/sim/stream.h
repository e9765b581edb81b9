/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One direction of a simulated connection: a random program of requests, and a model of what its
 * target's memory, its receives and its completions must look like. All requests of a stream go to
 * a window of the target's memory that is its own, so that the order within the stream says it all.
 */
#ifndef SW_TESTS_SIM_STREAM_H
#define SW_TESTS_SIM_STREAM_H

#include "link/sim/host.h"

#define STREAM_SLOTS 16u
#define STREAM_LEN_MAX 16384u
#define STREAM_WINDOW 32768u
#define STREAM_GUARD 64u
#define STREAM_MESSAGES 256u

enum stream_mood {
    STREAM_TRUE,   /* all must succeed */
    STREAM_ROGUE,  /* its last request asks for what it must not have */
    STREAM_DOOMED, /* its path is cut for good */
};

struct stream_op {
    uint64_t id;
    struct sw_request request;
    uint32_t pattern;
    uint64_t original; /* expected of an atomic */
    bool shared;       /* of the counter that all streams of the target share */
    bool over;
};

struct stream_message { /* that the target must be told of */
    uint32_t len_bytes, pattern, imm;
    bool has_imm, is_write;
};

struct stream_common { /* of a target host */
    uint64_t counter;  /* address */
    uint32_t counter_key, plain_key, plain_len;
    uint64_t plain; /* address of bytes that never change */
    uint32_t secret_key;
    uint64_t secret;        /* address of bytes that nobody may touch or see */
    uint64_t added;         /* to the counter, and completed */
    uint8_t seen[8192 / 8]; /* values of the counter that were returned */
};

struct stream {
    struct sw_sim_world *world;
    struct sw_sim_qp *from, *to;
    struct stream_common *common;
    enum stream_mood mood;
    bool reliable;
    uint32_t ops_left;
    uint32_t len_max;
    uint64_t local;    /* address of STREAM_SLOTS buffers at the initiator */
    uint64_t receives; /* the same at the target */
    uint64_t window;   /* at the target, with a guard on both sides */
    uint32_t window_key;
    uint64_t next_id, done_id; /* posted; completed */
    bool fence_next, failed;
    struct stream_op ops[STREAM_SLOTS];
    uint8_t shadow[STREAM_WINDOW];
    uint8_t expected[STREAM_SLOTS][STREAM_LEN_MAX]; /* what a READ must bring */
    struct stream_message messages[STREAM_MESSAGES];
    uint32_t message_head, message_tail, receive_next;
    uint32_t delivered, lost, flushed;
    const char *fault; /* what was found wrong, or NULL */
    char detail[160];
};

/* The bytes that request or message number `pattern` carries. */
void stream_fill(uint8_t *bytes, uint32_t len_bytes, uint32_t pattern);

/* Fills the window and posts the first receives. */
void stream_begin(struct stream *stream);
/* Posts what there is room for. */
void stream_post(struct stream *stream);
/* Fills up the receives; also called from time to time, as a slow program would. */
void stream_post_receives(struct stream *stream);
/* A completion of its initiator, or of a receive of its target. */
void stream_sent(struct stream *stream, const struct sw_sim_completion *wc);
void stream_received(struct stream *stream, const struct sw_sim_completion *wc);
bool stream_is_over(const struct stream *stream);
/* Looks at what is left in memory. */
void stream_check(struct stream *stream);

#endif
