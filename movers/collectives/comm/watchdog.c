/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/watchdog.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comm/failure.h"
#include "collectives/comm/late.h"
#include "collectives/comm/page.h"
#include "collectives/dump/cycle.h"
#include "collectives/dump/page_file.h"
#include "common/base/minmax.h"
#include "common/time/clock.h"

enum { PAGE_PATH = 256, HINT_TEXT = 200, CHAIN_MAX = 16, LINE_TEXT = 512 };

/* A wait of so long is told, or of three quarters of the time that there is; then one of twice as
 * long each. One that may take less than a second ends with its error soon enough. */
static const uint64_t TELL_NS = 10 * NS_PER_S;
static const uint64_t TELL_LEAST_NS = NS_PER_S;

/* ---- what a late rank of this host does ---- */

/* Its page lies beside this rank's. */
static bool see_page_of(const struct sw_coll *coll, uint32_t rank, struct coll_seen *seen)
{
    char path[PAGE_PATH];
    const char *tail = coll->page_path ? strrchr(coll->page_path, '-') : NULL;
    if (!tail || coll_page_is_own(coll->page->job, rank) ||
        (size_t)(tail - coll->page_path) + 32 > sizeof(path))
        return false;
    snprintf(path, sizeof(path), "%.*s-%u" COLL_PAGE_SUFFIX, (int)(tail - coll->page_path),
             coll->page_path, rank);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool is_seen = fd >= 0 && coll_page_file_read(fd, seen);
    if (fd >= 0)
        close(fd);
    return is_seen;
}

static void say_what_it_does(const struct coll_seen *seen, char *text, size_t room)
{
    const struct coll_page *page = &seen->page;
    const uint64_t number = page->state.number;
    if (seen->process != COLL_PROCESS_ALIVE)
        snprintf(text, room, "; its process %u is %s", page->pid,
                 seen->process == COLL_PROCESS_DEAD ? "dead" : "stopped");
    else if (page->state.is_waiting)
        snprintf(text, room, "; its process %u waits itself", page->pid);
    else if (!number)
        snprintf(text, room, "; its process %u computes, and has begun none yet", page->pid);
    else if (page->ended >= number)
        snprintf(text, room, "; its process %u computes since operation %" PRIu64, page->pid,
                 number);
    else
        snprintf(text, room, "; its process %u is in operation %" PRIu64, page->pid, number);
}

static uint32_t find_blocking(const struct coll_page *page)
{
    uint32_t rank = 0;
    while (rank < page->size && !coll_page_blocks(page, rank))
        rank++;
    return rank;
}

/* From this rank on, each waits for the next one. True: the last one waits for this one. */
static bool hint_at_cycle(struct sw_coll *coll, char *text, size_t room)
{
    struct coll_cycle cycle = {.count = 0};
    struct coll_seen *chain = coll->page ? calloc(CHAIN_MAX, sizeof(*chain)) : NULL;
    if (!chain)
        return false;
    coll_page_refresh(coll, mover_now_ns(), true);
    chain[0] = (struct coll_seen){.page = *coll->page, .process = COLL_PROCESS_ALIVE};
    size_t count = 1;
    uint32_t next = find_blocking(coll->page);
    while (count < CHAIN_MAX && coll_is_other(coll, next) &&
           see_page_of(coll, next, &chain[count])) {
        struct coll_page *page = &chain[count++].page;
        if (page->failure.failed_ns) /* its deadline came first: what it waited for before */
            page->state = page->failure.state;
        next = find_blocking(page);
    }
    if (next == coll->site.rank)
        coll_cycle_find(chain, count, &cycle);
    if (cycle.count) {
        const int used = snprintf(text, room, "; ");
        coll_cycle_text(chain, count, &cycle, text + used, room - (size_t)used);
    }
    while (count > 1)
        coll_page_file_forget(&chain[--count]);
    free(chain);
    return cycle.count;
}

/* "": nothing is known. Only the first of several is told. */
static void hint_at_late(struct sw_coll *coll, const bool *is_late, char *text, size_t room)
{
    struct coll_seen seen;
    text[0] = '\0';
    if (hint_at_cycle(coll, text, room))
        return;
    for (uint32_t rank = 0; rank < coll->site.size; rank++) {
        if (!is_late[rank] || !coll_is_other(coll, rank))
            continue;
        if (see_page_of(coll, rank, &seen)) {
            say_what_it_does(&seen, text, room);
            coll_page_file_forget(&seen);
        }
        return;
    }
}

/* ---- one request ---- */

static uint64_t time_to_tell(uint64_t all_ns)
{
    return mover_min_u64(TELL_NS, all_ns / 4 * 3);
}

/* The first look at the clock since its post. */
static void start_clock(struct sw_coll_request *request, uint64_t now_ns)
{
    if (request->started_ns)
        return;
    request->started_ns = now_ns;
    if (!request->deadline_ns)
        request->deadline_ns = now_ns + request->coll->options.timeout_ms * NS_PER_MS;
    const uint64_t all_ns = request->deadline_ns > now_ns ? request->deadline_ns - now_ns : 0;
    request->tell_ns = all_ns < TELL_LEAST_NS ? UINT64_MAX : now_ns + time_to_tell(all_ns);
}

static void tell_late(struct sw_coll *coll, struct sw_coll_request *request, uint64_t now_ns)
{
    struct coll_late late;
    char hint[HINT_TEXT], line[LINE_TEXT];
    const uint64_t waits_ns = now_ns - request->started_ns;
    coll_late_find(coll, request, &late);
    hint_at_late(coll, late.is_late, hint, sizeof(hint));
    snprintf(line, sizeof(line), "rank %u: %s, for %.1f s, and has %.1f s more%s", coll->site.rank,
             late.text, (double)waits_ns / 1e9, (double)(request->deadline_ns - now_ns) / 1e9,
             hint);
    coll_log(&coll->options, line);
    request->tell_ns = now_ns + waits_ns < request->deadline_ns ? now_ns + waits_ns : UINT64_MAX;
}

static void end_late(struct sw_coll *coll, const struct sw_coll_request *request)
{
    struct coll_late late;
    struct sw_coll_error why;
    char hint[HINT_TEXT];
    coll_late_find(coll, request, &late);
    hint_at_late(coll, late.is_late, hint, sizeof(hint));
    coll_say(&why, SW_COLL_TIMEOUT, "%s, and the deadline has passed%s", late.text, hint);
    coll_conclude(coll, COLL_JUDGE_RANK + coll->site.rank, why.status, late.is_late, why.text);
}

/* ---- a message that no receive is posted for ---- */

static void tell_awaited_message(struct sw_coll *coll, uint32_t rank, uint64_t now_ns)
{
    bool is_late[SW_COLL_RANKS_MAX] = {false};
    char hint[HINT_TEXT] = "", line[LINE_TEXT], who[32] = "no rank has";
    struct coll_peer *peer = &coll->peers[rank];
    const uint64_t waits_ns = now_ns - peer->awaited_ns;
    if (coll->awaited_count == 1) {
        is_late[rank] = true;
        snprintf(who, sizeof(who), "rank %u has not", rank);
        hint_at_late(coll, is_late, hint, sizeof(hint));
    }
    snprintf(line, sizeof(line), "rank %u: %s sent the message that it waits for, for %.1f s%s",
             coll->site.rank, who, (double)waits_ns / 1e9, hint);
    coll_log(&coll->options, line);
    peer->tell_ns = now_ns + waits_ns;
}

/* Only the first of several is told. */
static void look_at_awaited(struct sw_coll *coll, uint64_t now_ns)
{
    uint32_t rank = 0;
    if (!coll->awaited_count || coll->failure.is_set)
        return;
    while (!coll->peers[rank].is_awaited)
        rank++;
    struct coll_peer *peer = &coll->peers[rank];
    if (!peer->awaited_ns) {
        peer->awaited_ns = now_ns;
        peer->tell_ns = now_ns + time_to_tell(coll->options.timeout_ms * NS_PER_MS);
    } else if (now_ns >= peer->tell_ns) {
        tell_awaited_message(coll, rank, now_ns);
    }
}

/* ---- all of them ---- */

static struct sw_coll_request *watched_request(struct list_node *node)
{
    return node ? LIST_MEMBER(node, struct sw_coll_request, node) : NULL;
}

static void look_at_list(struct sw_coll *coll, const struct list *list, uint64_t now_ns)
{
    struct sw_coll_request *request = watched_request(list_first(list));
    if (!request || coll->failure.is_set)
        return;
    start_clock(request, now_ns);
    if (now_ns >= request->tell_ns && now_ns < request->deadline_ns)
        tell_late(coll, request, now_ns);
    for (; request; request = watched_request(list_after(list, &request->node))) {
        start_clock(request, now_ns);
        if (now_ns < request->deadline_ns)
            continue;
        end_late(coll, request);
        return;
    }
}

void coll_watchdog_look(struct sw_coll *coll, uint64_t now_ns)
{
    look_at_list(coll, &coll->posted, now_ns);
    look_at_list(coll, &coll->transfers, now_ns);
    look_at_awaited(coll, now_ns);
}

static uint64_t wake_for_list(const struct list *list)
{
    const struct sw_coll_request *request = watched_request(list_first(list));
    uint64_t wake_ns = request ? request->tell_ns : UINT64_MAX;
    for (; request; request = watched_request(list_after(list, &request->node)))
        wake_ns = mover_min_u64(wake_ns, request->deadline_ns);
    return wake_ns;
}

uint64_t coll_watchdog_wake_ns(const struct sw_coll *coll)
{
    return mover_min_u64(wake_for_list(&coll->posted), wake_for_list(&coll->transfers));
}
