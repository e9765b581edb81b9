/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/places.h"

#include <assert.h>

#include "common/base/minmax.h"
#include "common/serve/share.h"
#include "common/time/units.h"

struct places_taken {
    uint32_t all, readers, of_origin;
    struct mover_share own; /* unproved ones of the origin */
    uint32_t unproved;      /* of all origins, and where they are */
    uint16_t unproved_at[MOVER_PLACES_UNPROVED_MAX];
};

static void count_places(const struct mover_places *places, const struct in6_addr *origin,
                         struct places_taken *taken)
{
    *taken = (struct places_taken){0};
    for (uint32_t i = 0; i < places->count; i++) {
        const struct mover_guest guest = places->at(places->context, i);
        if (!guest.client)
            continue;
        const bool is_of_origin = IN6_ARE_ADDR_EQUAL(&guest.origin, origin);
        taken->all++;
        taken->readers += guest.is_reader;
        taken->of_origin += is_of_origin;
        if (guest.is_proved)
            continue;
        assert(taken->unproved < places->unproved_max);
        taken->unproved_at[taken->unproved++] = (uint16_t)i;
        if (is_of_origin)
            mover_share_add(&taken->own, 1, guest.since_ns, guest.client);
    }
}

/* That of the origin of the unproved one of that number, counted from there on. The oldest is one
 * that may only read, if `is_reader`. */
static struct mover_share count_share(const struct mover_places *places,
                                      const struct places_taken *taken, uint32_t first,
                                      bool is_reader)
{
    const struct mover_guest one = places->at(places->context, taken->unproved_at[first]);
    struct mover_share share = {0};
    for (uint32_t i = first; i < taken->unproved; i++) {
        const struct mover_guest guest = places->at(places->context, taken->unproved_at[i]);
        if (!IN6_ARE_ADDR_EQUAL(&guest.origin, &one.origin))
            continue;
        if (guest.is_reader || !is_reader)
            mover_share_add(&share, 1, guest.since_ns, guest.client);
        else
            share.amount++;
    }
    return share;
}

/* That of the origin that has most: counted from its first one on it is whole, from others on it is
 * smaller. */
static struct mover_share find_largest(const struct mover_places *places,
                                       const struct places_taken *taken, bool is_reader)
{
    struct mover_share largest = {0};
    for (uint32_t i = 0; i < taken->unproved; i++) {
        const struct mover_share share = count_share(places, taken, i, is_reader);
        if (mover_share_goes_first(&share, &largest, 0))
            largest = share;
    }
    return largest;
}

/* For such a client. */
static uint32_t places_left(const struct mover_places *places, const struct places_taken *taken,
                            bool is_reader)
{
    const uint32_t left = places->count - taken->all;
    return is_reader ? mover_min_u32(left, places->readers_max - taken->readers) : left;
}

/* Whether one more is more than what its origin may have. */
static bool has_its_share(const struct mover_places *places, const struct places_taken *taken,
                          bool is_reader)
{
    const uint32_t most = is_reader ? places->of_one / 2 : places->of_one;
    return taken->of_origin >= most || taken->own.amount >= places->unproved_of_one ||
           mover_share_is_too_large(taken->of_origin, 1, places_left(places, taken, is_reader));
}

static bool is_unproved(const struct mover_places *places, const void *client)
{
    for (uint32_t i = 0; i < places->count; i++) {
        const struct mover_guest guest = places->at(places->context, i);
        if (guest.client == client)
            return !guest.is_proved;
    }
    return false;
}

/* What it has asked is looked at first. False: it is there still. */
static bool places_end_oldest(const struct mover_places *places, const struct mover_share *share,
                              bool is_young)
{
    if (!share->oldest)
        return false;
    places->look(places->context, share->oldest);
    if (!is_unproved(places, share->oldest))
        return true;
    if (is_young)
        return false;
    places->let_go(places->context, share->oldest);
    return true;
}

bool mover_places_make_room(const struct mover_places *places, const struct in6_addr *origin,
                            bool is_reader, uint64_t now_ns)
{
    struct places_taken taken;
    assert(places->unproved_max <= MOVER_PLACES_UNPROVED_MAX);
    for (;;) { /* each time one more has proved itself, or is gone */
        count_places(places, origin, &taken);
        const bool has_share = has_its_share(places, &taken, is_reader);
        if (!has_share && places_left(places, &taken, is_reader) &&
            taken.unproved < places->unproved_max)
            return true;
        const bool readers_only = is_reader && taken.readers >= places->readers_max;
        const struct mover_share share =
            has_share ? taken.own : find_largest(places, &taken, readers_only);
        /* A young one may go if its origin still has as many then. */
        const bool may_be_young = !taken.own.amount || share.amount > taken.own.amount + 1;
        if (!places_end_oldest(places, &share,
                               !may_be_young &&
                                   mover_share_is_young(&share, now_ns, places->young_ns)))
            return false;
    }
}

static bool is_too_slow(const struct mover_places *places, const struct mover_guest *guest,
                        uint64_t now_ns)
{
    if (!guest->is_proved)
        return now_ns >= guest->since_ns + places->prove_ns;
    return guest->answered_ns && now_ns >= guest->answered_ns + places->answer_ns;
}

uint64_t mover_places_sweep(const struct mover_places *places, uint64_t now_ns)
{
    bool is_any = false;
    for (uint32_t i = 0; i < places->count; i++) {
        const struct mover_guest guest = places->at(places->context, i);
        if (!guest.client)
            continue;
        if (is_too_slow(places, &guest, now_ns)) {
            places->let_go(places->context, guest.client);
            continue;
        }
        is_any = true;
        if (guest.is_proved && now_ns >= guest.probed_ns + places->probe_ns)
            places->probe(places->context, guest.client);
    }
    return is_any ? now_ns + places->prove_ns / 4 + NS_PER_MS : 0;
}
