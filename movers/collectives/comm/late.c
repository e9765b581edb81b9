/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/late.h"

#include <stdio.h>
#include <string.h>

#include "collectives/comm/failure.h"
#include "collectives/comm/request.h"
#include "collectives/comm/send.h"
#include "collectives/comm/transfer.h"
#include "collectives/comm/wait.h"
#include "collectives/core/ranks.h"
#include "common/time/clock.h"

enum {
    LOOK_MS = 2000, /* a rank that runs, or whose memory is reached without it, answers by then */
};

struct search {
    struct sw_coll *coll;
    uint64_t until_ns;
    bool is_seen[SW_COLL_RANKS_MAX];
    bool is_late[SW_COLL_RANKS_MAX];
};

/* ---- what others show ---- */

static bool is_read(const struct coll_peer *peer, uint64_t ticket)
{
    return peer->state == COLL_PEER_UP && peer->done >= ticket;
}

static const void *late_look(struct search *search, uint32_t rank, uint64_t offset, uint32_t bytes)
{
    struct sw_coll *coll = search->coll;
    struct coll_peer *peer = &coll->peers[rank];
    uint64_t ticket;
    if (!coll_send_look(peer, peer->card.mailbox + offset, bytes, &ticket))
        return NULL;
    while (!is_read(peer, ticket)) {
        if (peer->state != COLL_PEER_UP || mover_now_ns() >= search->until_ns ||
            coll_failure_is_told(coll))
            return NULL;
        if (!coll_send_poll(coll) && mover_queue_arm(&coll->queue))
            coll_take_events(coll, 1);
    }
    return coll->outbox + (size_t)coll->site.rank * coll->layout.slice_bytes;
}

/* That rank has sent the STEP of that number to the other one. */
static bool has_sent_step(struct search *search, uint32_t from, uint32_t to, uint64_t number)
{
    const struct sw_coll *coll = search->coll;
    const uint64_t offset = COLL_AT_TOLD + 8 * COLL_STEP;
    const void *told =
        from == coll->site.rank
            ? coll->peers[to].inbox + offset
            : late_look(search, from, (uint64_t)to * coll->layout.slice_bytes + offset, 8);
    return told && coll_word_read(told) >= number;
}

static void follow_rank(struct search *search, uint32_t rank)
{
    struct sw_coll *coll = search->coll;
    const uint64_t at = coll_shown_at(&coll->layout, coll->site.size);
    while (rank != coll->site.rank && !search->is_seen[rank]) {
        bool is_step;
        search->is_seen[rank] = true;
        const void *read = late_look(search, rank, at, sizeof(struct coll_shown));
        struct coll_shown shown;
        if (coll->failure.is_set) /* another rank has found one */
            return;
        if (read)
            memcpy(&shown, read, sizeof(shown));
        const uint32_t next =
            read ? coll_machine_follow(&coll->machine, rank, &shown, &is_step) : rank;
        if (next == rank || (is_step && has_sent_step(search, next, rank, shown.step))) {
            search->is_late[rank] = true;
            return;
        }
        rank = next;
    }
}

/* `is_late` has those that this rank waits for. They stay where nobody else is found. */
static void find_behind(struct sw_coll *coll, bool *is_late)
{
    struct search search = {.coll = coll, .until_ns = mover_now_ns() + LOOK_MS * NS_PER_MS};
    bool is_found = false;
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (is_late[rank])
            follow_rank(&search, rank);
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        is_found |= search.is_late[rank];
    if (is_found)
        memcpy(is_late, search.is_late, coll->site.size * sizeof(*is_late));
}

/* ---- this rank's requests ---- */

static bool is_in_machine(const struct sw_coll *coll)
{
    return coll->current && !coll->current->is_over;
}

/* Ranks that do not confirm what was sent, or do not take it. */
static uint32_t find_silent(const struct sw_coll *coll, bool *is_silent)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        is_silent[rank] = coll_is_other(coll, rank) && coll_send_is_awaited(&coll->peers[rank]);
        count += is_silent[rank];
    }
    return count;
}

/* A rank that confirms something meanwhile is not late: there is much to move, or little time. */
__attribute__((noinline)) static void drop_those_that_go_on(struct sw_coll *coll, bool *is_late)
{
    const uint64_t until_ns = mover_now_ns() + LOOK_MS * NS_PER_MS;
    uint32_t done[SW_COLL_RANKS_MAX];
    uint32_t left = 0;
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        done[rank] = (uint32_t)coll->peers[rank].signals_done;
        left += is_late[rank];
    }
    while (left && mover_now_ns() < until_ns && !coll_failure_is_told(coll)) {
        if (!coll_send_poll(coll) && mover_queue_arm(&coll->queue))
            coll_take_events(coll, 1);
        for (uint32_t rank = 0; rank < coll->site.size; rank++)
            if (is_late[rank] && (uint32_t)coll->peers[rank].signals_done != done[rank]) {
                is_late[rank] = false;
                left--;
            }
    }
}

static void find_of_operation(struct sw_coll *coll, struct coll_late *late)
{
    char silent[100];
    if (is_in_machine(coll))
        coll_machine_waits_text(&coll->machine, late->text, sizeof(late->text));
    else
        snprintf(late->text, sizeof(late->text), "it waits for its last messages");
    if (is_in_machine(coll) && coll_machine_absent(&coll->machine, late->is_late)) {
        if (!coll_machine_is_amid_rounds(&coll->machine))
            return;
        bool is_awaited[SW_COLL_RANKS_MAX];
        memcpy(is_awaited, late->is_late, sizeof(is_awaited));
        find_behind(coll, late->is_late);
        if (memcmp(is_awaited, late->is_late, coll->site.size * sizeof(*is_awaited)))
            coll_machine_late_text(&coll->machine, late->is_late, late->text, sizeof(late->text));
        return;
    }
    if (!find_silent(coll, late->is_late))
        return;
    const size_t used = strlen(late->text);
    coll_ranks_text(late->is_late, coll->site.size, UINT32_MAX, silent, sizeof(silent));
    snprintf(late->text + used, sizeof(late->text) - used, ", which %s did not confirm", silent);
    drop_those_that_go_on(coll, late->is_late);
}

void coll_late_find(struct sw_coll *coll, const struct sw_coll_request *request,
                    struct coll_late *late)
{
    *late = (struct coll_late){.text = ""};
    if (!request->is_transfer) {
        find_of_operation(coll, late);
        return;
    }
    late->is_late[request->transfer.peer] = true;
    coll_transfer_waits_text(&coll->pairs, &request->transfer, late->text, sizeof(late->text));
}

void coll_late_show(struct sw_coll *coll)
{
    const struct coll_machine *machine = &coll->machine;
    bool is_silent[SW_COLL_RANKS_MAX];
    uint32_t rank = 0;
    if (!is_in_machine(coll) || !coll_plan_has_rounds(machine->table.plan))
        return;
    if (coll_machine_absent(machine, is_silent) || !find_silent(coll, is_silent)) {
        coll_show_word(&machine->shown->unconfirmed, 0);
        return;
    }
    while (!is_silent[rank])
        rank++;
    coll_show_word(&machine->shown->unconfirmed, rank + 1);
}
