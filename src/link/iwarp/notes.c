/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/iwarp/notes.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "link/engine.h"
#include "link/iwarp/buffers.h"
#include "link/iwarp/connection.h"

static _Atomic(struct sw_iwarp_note *) latest;

void sw_iwarp_note(struct sw_iwarp_note *note)
{
    sw_lock_assert_held(&note->owner->qp->lock);
    note->next = atomic_load(&latest);
    while (!atomic_compare_exchange_weak(&latest, &note->next, note))
        ;
    if (!sw_engine_is_self())
        sw_engine_kick();
}

bool sw_iwarp_has_notes(void)
{
    return atomic_load_explicit(&latest, memory_order_relaxed) != NULL;
}

static struct sw_iwarp_note *oldest_first(struct sw_iwarp_note *list)
{
    struct sw_iwarp_note *turned = NULL;
    while (list) {
        struct sw_iwarp_note *next = list->next;
        list->next = turned;
        turned = list;
        list = next;
    }
    return turned;
}

static void free_connection(struct sw_iwarp_connection *c)
{
    sw_iwarp_give_back_out(c);
    sw_iwarp_buffer_return(SW_IWARP_BUFFER_FPDU, c->stream.buffer);
    free(c->ring);
    free(c);
}

void sw_iwarp_tell_notes(void (*tell)(uint64_t cookie, enum sw_iwarp_news news, int status))
{
    struct sw_iwarp_note *note = oldest_first(atomic_exchange(&latest, NULL)), *next;
    for (; note; note = next) {
        next = note->next;
        if (tell && !note->owner->is_paired)
            tell(note->cookie, note->news, note->status);
        if (note->news == SW_IWARP_ENDED)
            free_connection(note->owner);
    }
}

void sw_iwarp_notes_fork_child(void)
{
    atomic_store(&latest, NULL);
}
