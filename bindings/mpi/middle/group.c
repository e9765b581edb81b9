/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How ranks agree. While they open, each of them takes part in rounds: in each all give each other
 * a card by MPI. A rank that still opens shows a card of the library; one that has ended shows how.
 * Rounds end with the first in which all have. So a rank whose device fails before it has shown its
 * card holds up nobody.
 */
#include "group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "later.h"
#include "settings.h"
#include "where.h"

enum round_state { ROUND_OPENS = 1, ROUND_DONE, ROUND_FAILED };

struct round_card {
    uint32_t state; /* enum round_state */
    uint8_t card[SW_COLL_CARD_MAX];
};

struct opening {
    struct mpm_group *group;
    struct round_card *cards; /* of all ranks */
    bool is_lost;             /* MPI itself has failed */
};

/* How many of the ranks still open; those that have failed are added to `failed`. */
static uint32_t go_round(struct opening *opening, const struct round_card *own, uint32_t *failed)
{
    struct mpm_group *group = opening->group;
    if (opening->is_lost ||
        !group->binding->exchange(group->communicator, own, sizeof(*own), opening->cards)) {
        opening->is_lost = true;
        *failed = group->size;
        return 0;
    }
    uint32_t opens = 0;
    *failed = 0;
    for (uint32_t i = 0; i < group->size; i++) {
        opens += opening->cards[i].state == ROUND_OPENS;
        *failed += opening->cards[i].state == ROUND_FAILED;
    }
    return opens;
}

static int exchange_cards(void *context, const void *card, size_t bytes, void *cards,
                          uint64_t deadline_ns)
{
    (void)deadline_ns; /* MPI has none */
    struct opening *opening = context;
    struct round_card own = {.state = ROUND_OPENS};
    if (bytes > sizeof(own.card))
        return -EMSGSIZE;
    memcpy(own.card, card, bytes);
    uint32_t failed;
    if (go_round(opening, &own, &failed) != opening->group->size)
        return -ECANCELED;
    for (uint32_t i = 0; i < opening->group->size; i++)
        memcpy((uint8_t *)cards + i * bytes, opening->cards[i].card, bytes);
    return 0;
}

/* Tells others how it went here, until all have said so. Whether all are open. */
static bool agree_opened(struct opening *opening, bool is_open)
{
    const struct round_card own = {.state = is_open ? ROUND_DONE : ROUND_FAILED};
    uint32_t failed;
    while (go_round(opening, &own, &failed))
        ;
    return !failed;
}

static void say_failed(const struct mpm_group *group, const char *why)
{
    static bool is_said;
    if (!is_said)
        mpm_say("rank %u of %u: collectives are left to MPI: %s", group->rank, group->size, why);
    is_said = true;
}

static bool open_coll(struct opening *opening, const char *address)
{
    struct mpm_group *group = opening->group;
    struct sw_coll_options options;
    sw_coll_options_init(&options);
    options.rank = group->rank;
    options.size = group->size;
    options.exchange = exchange_cards;
    options.exchange_context = opening;
    options.address = address;
    options.log = mpm_log;
    struct sw_coll_error error = {0};
    if (sw_coll_open(&options, &error, &group->coll)) {
        group->coll = NULL;
        /* Others have failed before, and say why. */
        bool is_mine = true;
        for (uint32_t i = 0; i < group->size; i++)
            is_mine = is_mine && opening->cards[i].state != ROUND_FAILED;
        if (is_mine)
            say_failed(group, error.text);
        return false;
    }
    return true;
}

static bool open_for_all(struct mpm_group *group)
{
    struct opening opening = {.group = group};
    opening.cards = calloc(group->size, sizeof(*opening.cards));
    struct mpm_place own, *places = calloc(group->size, sizeof(*places));
    mpm_place_find(&own);
    /* Without memory here the others wait: MPI has none either then. */
    bool is_open = false;
    if (opening.cards && places &&
        group->binding->exchange(group->communicator, &own, sizeof(own), places)) {
        char address[INET_ADDRSTRLEN];
        group->must_yield = mpm_places_are_short(places, group->size, group->rank);
        if (!mpm_place_address(places, group->size, group->rank, address))
            say_failed(group, "not all ranks have an address with a device");
        else
            is_open = open_coll(&opening, address);
        if (!agree_opened(&opening, is_open) && is_open) {
            sw_coll_close(group->coll);
            group->coll = NULL;
            is_open = false;
        }
    }
    free(places);
    free(opening.cards);
    return is_open;
}

bool mpm_group_is_ours(struct mpm_group *group)
{
    if (group->state == MPM_NEW)
        group->state = group->size <= SW_COLL_RANKS_MAX && open_for_all(group) ? MPM_OPEN : MPM_MPI;
    return group->state == MPM_OPEN;
}

void mpm_group_close(struct mpm_group *group)
{
    if (group->coll) {
        mpm_later_forget(group);
        sw_coll_close(group->coll);
    }
    group->coll = NULL;
    if (group->state != MPM_UNFIT)
        group->state = MPM_MPI;
}
