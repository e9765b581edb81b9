/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/core/step.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const action_names[COLL_ACTIONS] = {
    [COLL_MAIL] = "MAIL",
    [COLL_AWAIT] = "AWAIT",
    [COLL_PULL] = "PULL",
    [COLL_PUSH] = "PUSH",
    [COLL_FOLD] = "FOLD",
    [COLL_SETTLE_PULLS] = "SETTLE pulls",
    [COLL_SETTLE] = "SETTLE",
    [COLL_COPY] = "COPY",
    [COLL_FOLD_LEAVES] = "FOLD leaves",
    [COLL_FOLD_PARTIALS] = "FOLD partials",
    [COLL_FINISH] = "FINISH",
    [COLL_DELIVER] = "DELIVER",
};

static const char *const place_names[] = {
    [COLL_NOWHERE] = "",        [COLL_SEND] = "send",      [COLL_RECV] = "recv",
    [COLL_SCRATCH] = "scratch", [COLL_MAILED] = "payload",
};

static const char *const slot_names[COLL_SLOTS] = {
    [COLL_OPEN] = " OPEN", [COLL_DONE] = " DONE", [COLL_STEP] = " STEP"};

struct step_text {
    char *text;
    size_t room;
};

static void put_words(struct step_text *to, int length)
{
    const size_t more = length < 0 ? 0 : (size_t)length < to->room ? (size_t)length : to->room - 1;
    to->text += more;
    to->room -= more;
}

/* Terms that are 0 in this table are left out. */
static void put_span(struct step_text *to, const char *word, const struct coll_span *span,
                     const struct coll_step *step, bool has_chunks)
{
    if (span->place == COLL_NOWHERE)
        return;
    put_words(to, snprintf(to->text, to->room, " %s %s+%" PRIu64, word, place_names[span->place],
                           span->offset));
    if (span->peer && step->peers > 1)
        put_words(to, snprintf(to->text, to->room, "+rank*%" PRIu64, span->peer));
    if (span->leaf && step->leaves > 1)
        put_words(to, snprintf(to->text, to->room, "+leaf*%" PRIu64, span->leaf));
    if (span->chunk && has_chunks)
        put_words(to, snprintf(to->text, to->room, "+chunk%s*%" PRIu64,
                               span->place == COLL_SCRATCH ? "%2" : "", span->chunk));
}

void coll_step_text(const struct coll_table *table, uint32_t step, char *text, size_t room)
{
    const struct coll_step *at = &table->steps[step];
    const bool is_in_loop = step >= table->loop && step < table->loop_end;
    struct step_text to = {text, room};
    put_words(
        &to,
        snprintf(text, room, "%s%s%s", is_in_loop ? "  " : "", action_names[at->action],
                 at->action != COLL_MAIL && at->action != COLL_AWAIT ? "" : slot_names[at->slot]));
    if (at->action == COLL_SETTLE || at->action == COLL_SETTLE_PULLS)
        return;
    if (at->action == COLL_FOLD)
        put_words(&to, snprintf(to.text, to.room, " of all ranks"));
    else if (at->action == COLL_FINISH || at->action == COLL_DELIVER)
        put_words(&to, snprintf(to.text, to.room, "%s", ""));
    else if (at->peers > 1)
        put_words(&to, snprintf(to.text, to.room, " %u ranks from %u on", at->peers, at->peer));
    else
        put_words(&to, snprintf(to.text, to.room, " rank %u", at->peer));
    if (at->bytes)
        put_words(&to, snprintf(to.text, to.room, ", %" PRIu64 " bytes", at->bytes));
    if (at->part)
        put_words(&to, snprintf(to.text, to.room, ", of each chunk %" PRIu64 " from %" PRIu64 " on",
                                at->part, at->skip));
    if (at->leaves > 1)
        put_words(&to, snprintf(to.text, to.room, " of each of %u leaves", at->leaves));
    if (at->is_ahead)
        put_words(&to, snprintf(to.text, to.room, " of the next chunk"));
    const bool has_chunks = is_in_loop && table->chunks > 1;
    put_span(&to, "from", &at->from, at, has_chunks);
    put_span(&to, "own", &at->own, at, has_chunks);
    put_span(&to, "to", &at->to, at, has_chunks);
}
