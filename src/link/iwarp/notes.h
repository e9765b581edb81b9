/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What connection management is told of connections: by the engine, without locks of the device, in
 * the order in which it happened.
 */
#ifndef SW_LINK_IWARP_NOTES_H
#define SW_LINK_IWARP_NOTES_H

#include <stdbool.h>
#include <stdint.h>

enum sw_iwarp_news {
    SW_IWARP_FIRST_CAME, /* responder: the initiator has said that it is ready */
    SW_IWARP_ENDED,      /* `status`: 0, or a negative errno */
};

struct sw_iwarp_connection;

struct sw_iwarp_note {
    struct sw_iwarp_note *next;
    struct sw_iwarp_connection *owner; /* freed with the note of its end */
    enum sw_iwarp_news news;
    uint64_t cookie; /* as given to sw_iwarp_begin() */
    int status;
};

/* With the QP locked. */
void sw_iwarp_note(struct sw_iwarp_note *note);
bool sw_iwarp_has_notes(void);
/* Calls `tell` (may be NULL) for each, and frees connections that have ended. */
void sw_iwarp_tell_notes(void (*tell)(uint64_t cookie, enum sw_iwarp_news news, int status));
/* In a forked child: they are its parent's. */
void sw_iwarp_notes_fork_child(void);

#endif
