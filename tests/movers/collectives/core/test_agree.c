/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Agreement on who is gone, in a simulated world: votes are late, each by another time; ranks die
 * in the midst of telling the others, stop for long, are left out since they are late, and leave
 * when they are done. With an argument: so many times the seeds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/core/agree.h"

enum { SIZE_MAX_HERE = 16, EPOCHS = 3, FLIGHT = 16, STEPS = 100000, DEATHS = SIZE_MAX_HERE };

enum agree_fault {
    AGREE_NO_FAULT,
    AGREE_LOSES_FIRST,  /* a rank is lost before its last words are heard */
    AGREE_LEAVES_EARLY, /* a rank leaves while its decision is on its way */
    AGREE_JOINS_LATE,   /* a set is changed after it was said, and is not said anew */
    AGREE_DEAF,         /* decisions of others are not heard */
    AGREE_FAULTS,
};

struct agree_link { /* votes that are on their way */
    struct coll_vote flight[FLIGHT];
    uint32_t first, count;
};

struct agree_rank {
    struct coll_agree agree;
    struct coll_heard heard[SIZE_MAX_HERE];
    struct coll_vote box[SIZE_MAX_HERE]; /* the newest of each rank; epoch 0: none */
    uint64_t said[SIZE_MAX_HERE];        /* the version that each rank was told */
    bool notices[SIZE_MAX_HERE];         /* that the connection has ended */
    bool is_dead, has_left, wants;       /* `wants`: it takes part in this epoch */
    uint64_t stopped_until, ends_at;     /* `ends_at`: it is left out; 0: it is not */
    struct coll_set decided[EPOCHS + 1];
};

struct agree_world {
    uint64_t random, steps;
    uint32_t size, deaths;
    enum agree_fault fault;
    uint64_t die_at[DEATHS], late_at;
    struct agree_rank ranks[SIZE_MAX_HERE];
    struct agree_link links[SIZE_MAX_HERE][SIZE_MAX_HERE];
    bool gone_at_all[SIZE_MAX_HERE];
    char failure[200];
};

struct agree_sum {
    uint64_t decisions, gone, taken_over, votes, late;
};

static struct agree_world world;
static struct agree_sum sum;
static unsigned long times = 1;

static uint64_t draw(uint64_t below)
{
    world.random = world.random * 6364136223846793005u + 1442695040888963407u;
    return (world.random >> 33) % below;
}

__attribute__((format(printf, 1, 2))) static void fail_here(const char *format, ...)
{
    va_list args;
    if (*world.failure)
        return;
    va_start(args, format);
    vsnprintf(world.failure, sizeof(world.failure), format, args);
    va_end(args);
}

static bool is_over(const struct agree_rank *rank)
{
    return rank->is_dead || rank->has_left;
}

// ---- what is on its way ----

static void send_vote(uint32_t from, uint32_t to)
{
    struct agree_link *link = &world.links[from][to];
    struct agree_rank *rank = &world.ranks[from];
    if (link->count == FLIGHT || rank->said[to] == rank->agree.version)
        return;
    link->flight[(link->first + link->count++) % FLIGHT] = rank->agree.vote;
    rank->said[to] = rank->agree.version;
    sum.votes++;
}

static void send_votes(uint32_t from)
{
    const struct coll_set *gone = &world.ranks[from].agree.vote.set;
    for (uint32_t to = 0; to < world.size; to++)
        if (to != from && !coll_set_has(gone, to))
            send_vote(from, to);
}

static bool has_told_all(uint32_t from)
{
    const struct agree_rank *rank = &world.ranks[from];
    for (uint32_t to = 0; to < world.size; to++)
        if (to != from && !is_over(&world.ranks[to]) &&
            (world.links[from][to].count || rank->said[to] != rank->agree.version))
            return false;
    return true;
}

static void deliver_one(uint32_t from, uint32_t to)
{
    struct agree_link *link = &world.links[from][to];
    if (!link->count)
        return;
    if (!is_over(&world.ranks[to]))
        world.ranks[to].box[from] = link->flight[link->first];
    link->first = (link->first + 1) % FLIGHT;
    link->count--;
}

// ---- ranks ----

/* What it was about to say comes to some, and not to others. */
static void cut_links(uint32_t number)
{
    for (uint32_t to = 0; to < world.size; to++) {
        struct agree_link *link = &world.links[number][to];
        link->count = (uint32_t)draw(link->count + 1);
    }
}

static void kill_rank(uint32_t number)
{
    struct agree_rank *rank = &world.ranks[number];
    if (is_over(rank))
        return;
    rank->is_dead = world.gone_at_all[number] = true;
    cut_links(number);
}

/* A rank finds another one late, tells it so, and goes on without it. The other one goes on for a
 * while, until it hears of that. */
static void find_late(uint32_t number, uint32_t late)
{
    struct agree_rank *rank = &world.ranks[number], *other = &world.ranks[late];
    char text[32];
    if (number == late || is_over(rank) || is_over(other) || rank->agree.vote.epoch > 1 ||
        rank->ends_at || coll_set_has(&rank->agree.vote.set, late))
        return;
    snprintf(text, sizeof(text), "%u", COLL_JUDGE_RANK + number);
    coll_agree_judge(&rank->agree, COLL_JUDGE_RANK + number, SW_COLL_TIMEOUT, text);
    coll_agree_lose(&rank->agree, late);
    world.gone_at_all[late] = true;
    other->ends_at = world.steps + 1 + draw(200);
    other->stopped_until = 0;
    sum.late++;
}

/* It has done all that it was to do, and closes. */
static void leave_if_told(uint32_t number)
{
    struct agree_rank *rank = &world.ranks[number];
    const bool is_early = world.fault == AGREE_LEAVES_EARLY;
    send_votes(number);
    if (!has_told_all(number) && !is_early)
        return;
    rank->has_left = world.gone_at_all[number] = true;
    if (is_early)
        cut_links(number);
}

static void note_decision(uint32_t number)
{
    struct agree_rank *rank = &world.ranks[number];
    const uint64_t epoch = rank->agree.vote.epoch - 1;
    const struct coll_set *decided = &rank->agree.vote.decided;
    for (uint32_t i = 0; i < world.size; i++)
        if (coll_set_has(decided, i) && !world.gone_at_all[i])
            fail_here("rank %u: rank %u is named, and is there", number, i);
    for (uint32_t i = 0; epoch > 1 && i < world.size; i++)
        if (coll_set_has(&rank->decided[epoch - 1], i) && !coll_set_has(decided, i))
            fail_here("rank %u: rank %u has come back", number, i);
    if (!decided->marks && !decided->judge && !coll_set_count(decided))
        fail_here("rank %u decides nothing", number);
    rank->decided[epoch] = *decided;
    rank->wants = false;
    sum.decisions++;
    sum.gone += coll_set_count(decided);
}

/* True: the epoch has ended by it. */
static bool hear_rank(uint32_t number, uint32_t from)
{
    struct agree_rank *rank = &world.ranks[number];
    const struct coll_vote *vote = &rank->box[from];
    if (rank->notices[from] && world.fault == AGREE_LOSES_FIRST)
        coll_agree_lose(&rank->agree, from);
    if (world.fault == AGREE_DEAF && vote->epoch == rank->agree.vote.epoch + 1)
        return false;
    switch (vote->epoch ? coll_agree_hear(&rank->agree, from, vote) : COLL_AGREE_WAITS) {
    case COLL_AGREE_WAITS:
        break;
    case COLL_AGREE_DECIDED:
        sum.taken_over++;
        note_decision(number);
        return true;
    case COLL_AGREE_OUTCAST:
        if (rank->ends_at) {
            kill_rank(number);
            return true;
        }
        __attribute__((fallthrough));
    case COLL_AGREE_ABSURD:
        fail_here("rank %u is at odds with rank %u", number, from);
        break;
    }
    if (rank->notices[from])
        coll_agree_lose(&rank->agree, from);
    return false;
}

/* In the first epoch all that hear of it take part; later their programs say when. */
static void join_if_due(uint32_t number)
{
    struct agree_rank *rank = &world.ranks[number];
    const uint64_t epoch = rank->agree.vote.epoch;
    const struct coll_set *set = &rank->agree.vote.set;
    bool hears = coll_set_count(set) || set->marks || set->judge;
    for (uint32_t i = 0; i < world.size; i++)
        hears = hears || rank->box[i].epoch;
    rank->wants = rank->wants || (epoch == 1 ? hears : !draw(4));
    if (!rank->wants || rank->agree.vote.has_said || draw(3)) /* its requests are under way */
        return;
    if (epoch > 1)
        coll_agree_mark(&rank->agree, draw(2) ? COLL_MARK_AGAIN : COLL_MARK_UNABLE);
    coll_agree_join(&rank->agree);
}

static void look_around(uint32_t number)
{
    struct agree_rank *rank = &world.ranks[number];
    if (rank->ends_at && world.steps >= rank->ends_at)
        kill_rank(number);
    if (is_over(rank) || world.steps < rank->stopped_until)
        return;
    if (rank->agree.vote.epoch > EPOCHS) {
        leave_if_told(number);
        return;
    }
    for (uint32_t from = 0; from < world.size; from++)
        if (from != number && hear_rank(number, from))
            return;
    const uint64_t version = rank->agree.version;
    join_if_due(number);
    if (world.fault == AGREE_JOINS_LATE && rank->said[!number] && version == rank->said[!number])
        coll_agree_mark(&rank->agree, COLL_MARK_REVOKED), rank->agree.version = version;
    if (coll_agree_go(&rank->agree) == COLL_AGREE_DECIDED)
        note_decision(number);
    send_votes(number);
}

/* The end of a connection comes behind all that was sent by it. */
static void notice_end(uint32_t number, uint32_t of)
{
    if (number != of && is_over(&world.ranks[of]) && !world.links[of][number].count)
        world.ranks[number].notices[of] = true;
}

// ---- the world ----

static void open_world(uint64_t seed, enum agree_fault fault)
{
    memset(&world, 0, sizeof(world));
    world.random = seed * 2862933555777941757u + 3037000493u;
    world.fault = fault;
    draw(2);
    world.size = 2 + (uint32_t)draw(seed % 16 ? 6 : SIZE_MAX_HERE - 1);
    world.deaths = (uint32_t)draw(world.size);
    for (uint32_t i = 0; i < world.deaths; i++)
        world.die_at[i] =
            i && draw(2) ? world.die_at[i - 1] + draw(3) : draw(world.size * world.size * 40);
    for (uint32_t i = 0; i < world.size; i++) {
        struct agree_rank *rank = &world.ranks[i];
        coll_agree_init(&rank->agree, i, world.size, rank->heard);
        if (!draw(4))
            rank->stopped_until = draw(world.size * world.size * 100);
    }
    world.late_at = draw(2) ? STEPS : draw(world.size * world.size * 40);
    if (!draw(4)) /* all find that calls differ, one after the other */
        for (uint32_t i = 0; i < world.size; i++)
            coll_agree_judge(&world.ranks[i].agree, COLL_JUDGE_ALL, SW_COLL_MISMATCH, "1");
    if (!world.deaths || !draw(3))
        coll_agree_mark(&world.ranks[draw(world.size)].agree, COLL_MARK_REVOKED);
    if (world.deaths) /* or the one that was to revoke it may die first, and nothing happens */
        world.ranks[world.size - 1].stopped_until = 0;
}

static bool is_world_over(void)
{
    for (uint32_t i = 0; i < world.size; i++)
        if (!is_over(&world.ranks[i]))
            return false;
    return true;
}

static bool are_alike(const struct coll_set *one, const struct coll_set *other)
{
    return one->marks == other->marks && one->judge == other->judge &&
           coll_sets_name_the_same(one, other);
}

/* All that were not killed. */
static void compare_decisions(void)
{
    const struct agree_rank *first = NULL;
    for (uint32_t i = 0; i < world.size; i++) {
        const struct agree_rank *rank = &world.ranks[i];
        if (rank->is_dead)
            continue;
        first = first ? first : rank;
        if (rank->decided[1].judge &&
            strtoul(rank->agree.vote.cause.text, NULL, 10) != rank->decided[1].judge)
            fail_here("rank %u has the words of another one", i);
        for (int epoch = 1; epoch <= EPOCHS; epoch++)
            if (!are_alike(&rank->decided[epoch], &first->decided[epoch]))
                fail_here("rank %u decides another set than rank %u in epoch %d", i,
                          first->agree.rank, epoch);
    }
}

static void run_world(uint64_t seed, enum agree_fault fault)
{
    open_world(seed, fault);
    for (; !is_world_over() && !*world.failure; world.steps++) {
        const uint32_t one = (uint32_t)draw(world.size), other = (uint32_t)draw(world.size);
        for (uint32_t i = 0; i < world.deaths; i++)
            if (world.die_at[i] == world.steps)
                kill_rank((uint32_t)draw(world.size));
        if (world.late_at == world.steps)
            find_late(one, other);
        switch (draw(4)) {
        case 0:
            look_around(one);
            break;
        case 1:
            notice_end(one, other);
            break;
        default:
            deliver_one(one, other);
            break;
        }
        if (world.steps >= STEPS)
            fail_here("it has no end");
    }
    compare_decisions();
}

// ---- tests ----

static void agree__survivors_decide_the_same(void **state)
{
    (void)state;
    memset(&sum, 0, sizeof(sum));
    for (uint64_t seed = 1; seed <= 1500 * times; seed++) {
        run_world(seed, AGREE_NO_FAULT);
        if (*world.failure)
            fail_msg("seed %lu, %u ranks, %u deaths: %s", (unsigned long)seed, world.size,
                     world.deaths, world.failure);
    }
    printf("%lu decisions, %lu of them taken over, %lu votes, %lu ranks named\n",
           (unsigned long)sum.decisions, (unsigned long)sum.taken_over, (unsigned long)sum.votes,
           (unsigned long)sum.gone);
    assert_true(sum.late > 100 * times);
    assert_true(sum.decisions > 10000 && sum.taken_over > 1000 && sum.gone > 10000);
}

static void agree__faults_are_found(void **state)
{
    (void)state;
    for (int fault = AGREE_NO_FAULT + 1; fault < AGREE_FAULTS; fault++) {
        uint64_t seed = 1;
        for (*world.failure = '\0'; !*world.failure && seed <= 2000; seed++)
            run_world(seed, (enum agree_fault)fault);
        if (!*world.failure)
            fail_msg("fault %d is not found", fault);
    }
}

enum { ALONE = 3 };

static void start_alone(struct coll_agree *agree)
{
    static struct coll_heard heard[ALONE];
    coll_agree_init(agree, 0, ALONE, heard);
}

static void hear__what_makes_no_sense(void **state)
{
    (void)state;
    struct coll_agree agree;
    struct coll_vote vote = {.epoch = 3};
    start_alone(&agree);
    assert_int_equal(coll_agree_hear(&agree, 1, &vote), COLL_AGREE_ABSURD);
    vote = (struct coll_vote){.epoch = 0};
    assert_int_equal(coll_agree_hear(&agree, 1, &vote), COLL_AGREE_ABSURD);
    vote = (struct coll_vote){.epoch = 1, .has_said = true, .set.marks = COLL_MARKS};
    assert_int_equal(coll_agree_hear(&agree, 1, &vote), COLL_AGREE_ABSURD);
    vote = (struct coll_vote){.epoch = 1, .has_said = true};
    coll_set_add(&vote.set, ALONE);
    assert_int_equal(coll_agree_hear(&agree, 1, &vote), COLL_AGREE_ABSURD);
    vote = (struct coll_vote){.epoch = 1, .has_said = true};
    coll_set_add(&vote.set, 1); /* itself */
    assert_int_equal(coll_agree_hear(&agree, 1, &vote), COLL_AGREE_ABSURD);
}

static void hear__outcasts_are_told(void **state)
{
    (void)state;
    struct coll_agree agree;
    struct coll_vote vote = {.epoch = 1, .has_said = true};
    coll_set_add(&vote.set, 0);
    start_alone(&agree);
    assert_int_equal(coll_agree_hear(&agree, 1, &vote), COLL_AGREE_OUTCAST);
    vote = (struct coll_vote){.epoch = 2};
    coll_set_add(&vote.decided, 0);
    assert_int_equal(coll_agree_hear(&agree, 1, &vote), COLL_AGREE_OUTCAST);
    vote.epoch = 3; /* they have gone on without it */
    assert_int_equal(coll_agree_hear(&agree, 1, &vote), COLL_AGREE_OUTCAST);
    coll_agree_lose(&agree, 1); /* then it is none of this rank's business */
    assert_int_equal(coll_agree_hear(&agree, 1, &vote), COLL_AGREE_WAITS);
    assert_int_equal(agree.vote.epoch, 1);
}

static void go__waits_for_all_that_are_there(void **state)
{
    (void)state;
    struct coll_agree agree;
    struct coll_vote vote = {.epoch = 1, .has_said = true};
    start_alone(&agree);
    coll_agree_lose(&agree, 2);
    assert_int_equal(coll_agree_hear(&agree, 1, &vote), COLL_AGREE_WAITS);
    assert_int_equal(coll_agree_go(&agree), COLL_AGREE_WAITS); /* it has not joined */
    coll_agree_join(&agree);
    assert_int_equal(coll_agree_go(&agree), COLL_AGREE_WAITS); /* rank 1 does not know of rank 2 */
    assert_true(coll_agree_awaits(&agree, 1) && !coll_agree_awaits(&agree, 2));
    coll_set_add(&vote.set, 2);
    assert_int_equal(coll_agree_hear(&agree, 1, &vote), COLL_AGREE_WAITS);
    assert_int_equal(coll_agree_go(&agree), COLL_AGREE_DECIDED);
    assert_int_equal(coll_set_count(&agree.vote.decided), 1);
    assert_true(coll_set_has(&agree.vote.decided, 2) && agree.vote.epoch == 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agree__survivors_decide_the_same),
        cmocka_unit_test(agree__faults_are_found),
        cmocka_unit_test(hear__what_makes_no_sense),
        cmocka_unit_test(hear__outcasts_are_told),
        cmocka_unit_test(go__waits_for_all_that_are_there),
    };
    if (argc > 1)
        times = strtoul(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
