/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * usage: storm CAPTURES [pages] [plant=gate|look|alone|early|first]
 *
 * A storm of writers against captures. In turn, writers keep the rule: they rest from begin to the
 * end of the gate, and the capture has to be CLEAN and show what they left; or they break it: then
 * it is TORN, or shows an instant of what they wrote. Where a fault is planted, it has to be found.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "collector.h"
#include "peer.h"
#include "snapshot/capture/plant.h"
#include "writers.h"

enum { REGION_UNITS = WRITER_REGION / COLLECTOR_UNIT };

enum snap_plant snap_planted;

struct storm {
    struct writers *writers;
    struct peer *peer;
    pthread_t threads[WRITERS_MAX];
    struct writer_thread args[WRITERS_MAX];
    struct collector collector;
    uint64_t seed;
    uint32_t clean, torn, partial, kept;
};

static uint64_t draw_of(struct storm *storm, uint64_t limit)
{
    storm->seed = storm->seed * 6364136223846793005ull + 1442695040888963407ull;
    return (storm->seed >> 33) % limit;
}

/* Regions, and the peer, which is forked before there are threads. */
static void make_writers(struct storm *storm)
{
    static const enum writer_kind kinds[] = {WRITER_PEER, WRITER_STORES, WRITER_STORES, WRITER_READ,
                                             WRITER_URING};
    storm->writers = writers_make();
    for (int i = 0; i < WRITERS_MAX; i++) {
        uint8_t *region =
            mmap(NULL, WRITER_REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert(region != MAP_FAILED);
        writers_add(storm->writers, kinds[i], region);
    }
    storm->peer = peer_start(storm->writers, &storm->writers->writers[0]);
}

/* Called when the state is described: the memory that the peer writes to is registered behind that,
 * and may be mapped anew. */
static void start_writers(struct storm *storm)
{
    const char *why = peer_let_in(storm->peer);
    if (why) {
        printf("SKIP: the peer cannot write: %s\n", why);
        exit(77);
    }
    for (uint32_t i = 1; i < WRITERS_MAX; i++) {
        storm->args[i] = (struct writer_thread){storm->writers, &storm->writers->writers[i]};
        const int code = pthread_create(&storm->threads[i], NULL, writer_thread, &storm->args[i]);
        assert(code == 0);
    }
    for (uint32_t i = 0; i < WRITERS_MAX; i++)
        while (!storm->writers->writers[i].has_started)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void end_writers(struct storm *storm)
{
    storm->writers->should_end = true;
    for (uint32_t i = 1; i < WRITERS_MAX; i++)
        pthread_join(storm->threads[i], NULL);
    peer_end(storm->peer);
}

/* NULL, or what is wrong with an image that was said to be clean. */
static const char *judge_image(struct storm *storm, const uint64_t *numbers)
{
    uint64_t first = 0, last = UINT64_MAX;
    if (storm->collector.other_sums)
        return "a unit has other sums than it was said to have";
    for (uint32_t i = 0; i < WRITERS_MAX; i++) {
        const struct image_span span = writer_span(
            &storm->writers->writers[i], storm->collector.image + (size_t)i * WRITER_REGION);
        if (!span.is_instant)
            return "a region shows no instant";
        if (numbers && (span.number != numbers[i] || span.is_partial))
            return "a region is not as its writer had left it";
        storm->partial += span.is_partial;
        first = span.first > first ? span.first : first;
        last = span.last < last ? span.last : last;
    }
    return first > last ? "regions show different instants" : NULL;
}

/* From a storm in which nothing stands still to one of a write now and then. */
static void set_pauses(struct storm *storm, uint32_t number)
{
    static const uint32_t pauses_us[] = {3000, 15000, 50000};
    for (uint32_t i = 0; i < WRITERS_MAX; i++)
        storm->writers->writers[i].pause_us = pauses_us[number / 8 % 3];
}

static const char *take_capture(struct storm *storm, bool keep_rule)
{
    uint64_t numbers[WRITERS_MAX];
    uint32_t bad;
    if (keep_rule)
        writers_pause(storm->writers);
    for (int i = 0; i < WRITERS_MAX; i++)
        numbers[i] = storm->writers->writers[i].count;
    const int code = snap_capture_begin(storm->collector.capture, &bad);
    assert(code == 0);
    if (draw_of(storm, 2))
        nanosleep(&(struct timespec){.tv_nsec = (long)draw_of(storm, 3000000)}, NULL);
    const enum snap_capture_outcome said = snap_capture_gate(
        storm->collector.capture, draw_of(storm, 2) ? SW_SNAP_HELP : SW_SNAP_WAIT, 0);
    if (keep_rule)
        writers_resume(storm->writers);
    if (said == SNAP_CAPTURE_TORN && !keep_rule) {
        storm->torn++;
        return NULL;
    }
    if (said != SNAP_CAPTURE_CLEAN)
        return "writers kept the rule, and it is torn";
    if (snap_planted == SNAP_PLANT_GATE) /* it may wait for its gate for ever */
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    else if (collector_wait(&storm->collector) != SNAP_CAPTURE_CLEAN)
        return "the gate has said another outcome";
    const char *wrong = judge_image(storm, keep_rule ? numbers : NULL);
    storm->clean++;
    storm->kept += keep_rule;
    if (snap_planted == SNAP_PLANT_GATE)
        snap_capture_abort(storm->collector.capture);
    return wrong;
}

/* Each kind has to come; how many of each do depends on how fast the machine is. */
static bool has_enough(const struct storm *storm, uint32_t done, uint32_t captures)
{
    const bool has_all = storm->torn && storm->clean > storm->kept;
    return done >= captures && (has_all || snap_planted || done >= captures * 20);
}

static const char *run_storm(struct storm *storm, uint32_t captures, enum sw_snap_look look)
{
    const char *wrong = NULL;
    for (uint32_t done = 0, round = 0; !has_enough(storm, done, captures) && !wrong; round++) {
        struct snap_capture_options options = collector_options(round % 2 ? 3 : 16);
        struct snap_capture_range ranges[WRITERS_MAX];
        uint32_t bad;
        options.helpers = 1 + round % 3 / 2;
        options.look = look;
        collector_open(&storm->collector, &options, WRITERS_MAX * REGION_UNITS);
        for (uint32_t i = 0; i < WRITERS_MAX; i++)
            ranges[i] = (struct snap_capture_range){.data = storm->writers->writers[i].region,
                                                    .bytes = WRITER_REGION,
                                                    .unit = i * REGION_UNITS};
        const int code = snap_capture_describe(storm->collector.capture, ranges, WRITERS_MAX, &bad);
        assert(code == 0);
        if (round == 0)
            start_writers(storm);
        for (uint32_t i = 0; i < 50 && !has_enough(storm, done, captures) && !wrong; i++, done++) {
            set_pauses(storm, done);
            wrong = take_capture(storm, done % 4 == 3);
        }
        collector_close(&storm->collector);
    }
    return wrong;
}

static enum snap_plant read_plant(const char *name)
{
    static const char *const names[] = {"", "gate", "look", "alone", "early", "first"};
    for (int i = 1; i < 6; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum snap_plant)i;
    return SNAP_PLANT_NONE;
}

int main(int argc, char **argv)
{
    struct storm storm = {.seed = (uint64_t)time(NULL)};
    enum sw_snap_look look = SW_SNAP_LOOK_SUMS;
    const uint32_t captures = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 300;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "pages") == 0)
            look = SW_SNAP_LOOK_PAGES;
        else if (strncmp(argv[i], "plant=", 6) == 0)
            snap_planted = read_plant(argv[i] + 6);
    }
    make_writers(&storm);
    const char *wrong = run_storm(&storm, captures, look);
    end_writers(&storm);
    printf("%u clean, %u of them while writers kept the rule, %u amid a write; %u torn\n",
           storm.clean, storm.kept, storm.partial, storm.torn);
    if (wrong)
        printf("%s\n", wrong);
    if (snap_planted) {
        printf("%s\n", wrong ? "so the fault was found" : "the fault was not found");
        return wrong ? 0 : 1;
    }
    if (!wrong && (storm.clean == storm.kept || storm.torn == 0))
        printf("%s\n", wrong = "nothing was tried: writers were too slow, or too fast");
    return wrong ? 1 : 0;
}
