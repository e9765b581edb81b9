/* SPDX-License-Identifier: BSD-2-Clause */
#include "collectives/comm/page.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/comm/open.h"
#include "collectives/comm/placement.h"
#include "collectives/comm/recorder.h"
#include "collectives/comm/sweep.h"
#include "collectives/comm/transfer.h"
#include "common/serve/control_folder.h"
#include "common/time/clock.h"

enum { REFRESH_US = 20, PATH_BYTES = MOVER_CONTROL_FOLDER_MAX + 64 };

/* ---- those of this process ---- */

static pthread_mutex_t own_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sw_coll *own_first;

static void note_own(struct sw_coll *coll)
{
    pthread_mutex_lock(&own_lock);
    coll->own_next = own_first;
    own_first = coll;
    pthread_mutex_unlock(&own_lock);
}

static void forget_own(const struct sw_coll *coll)
{
    pthread_mutex_lock(&own_lock);
    for (struct sw_coll **at = &own_first; *at; at = &(*at)->own_next)
        if (*at == coll) {
            *at = coll->own_next;
            break;
        }
    pthread_mutex_unlock(&own_lock);
}

bool coll_page_is_own(uint64_t job, uint32_t rank)
{
    bool is_own = false;
    pthread_mutex_lock(&own_lock);
    for (const struct sw_coll *at = own_first; at; at = at->own_next)
        is_own = is_own || (at->page && at->page->job == job && at->site.rank == rank);
    pthread_mutex_unlock(&own_lock);
    return is_own;
}

/* ---- the file ---- */

static bool find_page_folder(char folder[MOVER_CONTROL_FOLDER_MAX])
{
    char error[300];
    if (!mover_control_folder("coll", folder, error, sizeof(error)))
        return false;
    (void)mkdir(folder, 0700);
    return mover_control_folder_is_ours(folder, error, sizeof(error));
}

/* The name of rank 0's communicator is drawn at random; a rank that is alone has none. */
static uint64_t find_job(const struct sw_coll *coll)
{
    return coll->site.size > 1 ? coll->peers[0].card.instance
                               : mover_now_ns() << 16 ^ (uint64_t)getpid();
}

/* It has its lock before it has its name: a file without a lock is that of a dead process. And it
 * has its memory: a store to a page that a full file system cannot give would end the process. */
static int make_page_file(const char *path, char *fresh, size_t room)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(fresh, room, "%s.new", path);
    unlink(fresh);
    const int fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -1;
    if (!posix_fallocate(fd, 0, sizeof(struct coll_recorder)) && !fcntl(fd, F_SETLK, &lock))
        return fd;
    unlink(fresh);
    close(fd);
    return -1;
}

static void describe_communicator(const struct sw_coll *coll, const struct sw_coll *parent,
                                  struct coll_page_about *about)
{
    struct timespec real;
    const uint64_t now_ns = mover_now_ns();
    clock_gettime(CLOCK_REALTIME, &real);
    *about = (struct coll_page_about){.host = coll_host_number(),
                                      .realtime_ns = (uint64_t)real.tv_sec * NS_PER_S +
                                                     (uint64_t)real.tv_nsec - now_ns,
                                      .scratch_bytes = coll->site.scratch_bytes,
                                      .eager_bytes = coll->site.eager_bytes,
                                      .request_bytes = coll->site.request_max,
                                      .wanted = (uint32_t)coll->site.wanted,
                                      .order = (uint32_t)coll->options.order,
                                      .parent_rank = parent ? parent->site.rank : 0,
                                      .timeout_ms = coll->options.timeout_ms};
    if (gethostname(about->host_name, sizeof(about->host_name)))
        about->host_name[0] = '\0';
    about->host_name[sizeof(about->host_name) - 1] = '\0';
}

/* Memory of this process alone where `fd` is -1. */
static bool map_recorder(struct sw_coll *coll, uint64_t job, const struct sw_coll *parent, int fd)
{
    struct coll_recorder *recorder = mmap(NULL, sizeof(*recorder), PROT_READ | PROT_WRITE,
                                          fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (recorder == MAP_FAILED)
        return false;
    recorder->page = (struct coll_page){.magic = COLL_PAGE_MAGIC,
                                        .version = COLL_PAGE_VERSION,
                                        .job = job,
                                        .parent = parent && parent->page ? parent->page->job : 0,
                                        .rank = coll->site.rank,
                                        .size = coll->site.size,
                                        .pid = (uint32_t)getpid(),
                                        .place = coll_place_of(&coll->site, coll->site.rank)};
    describe_communicator(coll, parent, &recorder->page.about);
    for (uint32_t place = 0; place < coll->site.size; place++)
        recorder->ranks[place] = (uint16_t)coll_rank_at(&coll->site, place);
    coll->recorder = recorder;
    coll->page = &recorder->page;
    return true;
}

/* False: it has no file, and may have memory. */
static bool open_page_file(struct sw_coll *coll, uint64_t job, const struct sw_coll *parent)
{
    char folder[MOVER_CONTROL_FOLDER_MAX], path[PATH_BYTES], fresh[PATH_BYTES + 8];
    if (!find_page_folder(folder))
        return false;
    coll_sweep_pages(folder);
    snprintf(path, sizeof(path), "%s/%016" PRIx64 "-%u" COLL_PAGE_SUFFIX, folder, job,
             coll->site.rank);
    coll->page_fd = make_page_file(path, fresh, sizeof(fresh));
    if (coll->page_fd < 0)
        return false;
    coll->page_path = strdup(path);
    if (coll->page_path && map_recorder(coll, job, parent, coll->page_fd) &&
        !rename(fresh, coll->page_path)) {
        note_own(coll);
        return true;
    }
    unlink(fresh);
    coll_page_close(coll, true);
    return false;
}

void coll_page_open(struct sw_coll *coll, const struct sw_coll *parent)
{
    const char *said = secure_getenv(COLL_PAGE_OFF);
    const bool is_off = said && !strcmp(said, "off");
    const uint64_t job = find_job(coll);
    if (!is_off && !open_page_file(coll, job, parent))
        (void)map_recorder(coll, job, parent, -1);
}

void coll_page_hide(struct sw_coll *coll)
{
    forget_own(coll);
    if (coll->page_path)
        unlink(coll->page_path);
    if (coll->page_fd >= 0)
        close(coll->page_fd);
    free(coll->page_path);
    coll->page_path = NULL;
    coll->page_fd = -1;
}

void coll_page_close(struct sw_coll *coll, bool is_child)
{
    if (is_child) {
        free(coll->page_path);
        coll->page_path = NULL;
    }
    coll_page_hide(coll);
    if (coll->recorder)
        munmap(coll->recorder, sizeof(*coll->recorder));
    coll->recorder = NULL;
    coll->page = NULL;
}

/* ---- what it says ---- */

static void add_awaited(struct coll_page_state *state, const bool *is_awaited, uint32_t size)
{
    for (uint32_t rank = 0; rank < size; rank++)
        if (is_awaited[rank]) {
            state->awaited[rank / 8] |= (uint8_t)(1u << rank % 8);
            state->is_waiting = true;
        }
}

/* One that the program waits for, or else the first that waits. */
static const struct coll_transfer *page_find_shown(const struct sw_coll *coll)
{
    struct list_node *at = coll->held_count[true] ? list_first(&coll->transfers) : NULL;
    for (; at; at = list_after(&coll->transfers, at)) {
        const struct sw_coll_request *request = LIST_MEMBER(at, struct sw_coll_request, node);
        if (request->is_held && !request->transfer.is_written)
            return &request->transfer;
    }
    for (at = list_first(&coll->pairs.busy); at; at = list_after(&coll->pairs.busy, at)) {
        const struct coll_pair *pair = LIST_MEMBER(at, struct coll_pair, node);
        if (coll_pair_waits(pair))
            return coll_pair_first(pair);
    }
    return NULL;
}

/* Ranks agree on who is gone, or shrink it; or it is at rest for good. */
static void say_failure(const struct sw_coll *coll, struct coll_page_state *state)
{
    bool is_awaited[SW_COLL_RANKS_MAX];
    const bool is_first = coll->agree.vote.epoch == 1;
    state->activity = COLL_HAS_FAILED;
    if (!coll->failure.is_agreeing)
        return;
    state->activity = is_first ? COLL_IN_AGREEMENT : COLL_IN_SHRINK;
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        is_awaited[rank] = coll_agree_awaits(&coll->agree, rank);
    add_awaited(state, is_awaited, coll->site.size);
}

static void add_listened(const struct sw_coll *coll, struct coll_page_state *state)
{
    bool is_awaited[SW_COLL_RANKS_MAX];
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        is_awaited[rank] = coll->peers[rank].is_awaited;
    add_awaited(state, is_awaited, coll->site.size);
}

/* A message that no receive is posted for. */
static void say_awaited(const struct sw_coll *coll, struct coll_page_state *state)
{
    uint32_t rank = 0;
    while (!coll->peers[rank].is_awaited)
        rank++;
    state->activity = COLL_IN_RECV;
    state->message = coll->pairs.pairs[rank].awaited + 1;
    state->count = coll->peers[rank].awaited.count;
    state->type = (uint8_t)coll->peers[rank].awaited.type;
}

static void say_transfer(const struct coll_transfer *transfer, struct coll_page_state *state)
{
    state->activity = transfer->is_send ? COLL_IN_SEND : COLL_IN_RECV;
    state->message = transfer->number;
    state->count = transfer->count;
    state->type = (uint8_t)transfer->type;
}

/* What the program waits for. One message is enough of those that are awaited from several ranks,
 * so none of these is in its way for sure. */
static void say_blocking(const struct sw_coll *coll, struct coll_page_state *state)
{
    if (!coll->held_count[false] && !coll->held_count[true] && !coll->awaited_count)
        return;
    bool is_blocking[SW_COLL_RANKS_MAX] = {false};
    if (coll->current && coll->held_count[false])
        coll_machine_absent(&coll->machine, is_blocking);
    struct list_node *at = coll->held_count[true] ? list_first(&coll->transfers) : NULL;
    for (; at; at = list_after(&coll->transfers, at)) {
        const struct sw_coll_request *request = LIST_MEMBER(at, struct sw_coll_request, node);
        if (request->is_held && !request->transfer.is_written)
            is_blocking[request->transfer.peer] = true;
    }
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if ((is_blocking[rank] && rank != coll->site.rank) ||
            (coll->awaited_count == 1 && coll->peers[rank].is_awaited))
            state->blocking[rank / 8] |= (uint8_t)(1u << rank % 8);
}

/* It can do nothing else meanwhile. */
static void say_opening(const struct sw_coll *coll, struct coll_page_state *state)
{
    bool is_awaited[SW_COLL_RANKS_MAX];
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        is_awaited[rank] = coll->peers[rank].is_absent;
    state->activity = COLL_IN_OPENING;
    add_awaited(state, is_awaited, coll->site.size);
    memcpy(state->blocking, state->awaited, sizeof(state->blocking));
}

/* What the program waits for goes before the rest, and an operation before messages. */
static void say_operation(const struct sw_coll *coll, struct coll_page_state *state)
{
    bool is_awaited[SW_COLL_RANKS_MAX];
    const bool is_for_message = coll->awaited_count || coll->held_count[true];
    const bool is_operation = coll->current && (!is_for_message || coll->held_count[false]);
    const struct coll_transfer *transfer =
        is_operation || coll->awaited_count ? NULL : page_find_shown(coll);
    state->activity = COLL_IN_OPERATION;
    if (coll->current) {
        state->count = coll->current->call.count;
        state->type = (uint8_t)coll->current->call.type;
        state->step = coll->machine.step;
        state->steps = coll->machine.table.count;
        if (coll_machine_absent(&coll->machine, is_awaited))
            add_awaited(state, is_awaited, coll->site.size);
    }
    if (transfer)
        say_transfer(transfer, state);
    else if (!is_operation && coll->awaited_count)
        say_awaited(coll, state);
    if (coll_transfers_absent(coll, is_awaited))
        add_awaited(state, is_awaited, coll->site.size);
    if (coll->awaited_count)
        add_listened(coll, state);
    say_blocking(coll, state);
}

void coll_page_refresh(struct sw_coll *coll, uint64_t now_ns, bool is_sure)
{
    struct coll_page *page = coll->page;
    coll->page_looked_ns = now_ns;
    if (page && coll->current)
        coll_recorder_look(coll, now_ns);
    if (!page || (!is_sure && now_ns - coll->page_ns < REFRESH_US * NS_PER_US))
        return;
    coll->page_ns = now_ns;
    struct coll_page_state state = page->state;
    memset(state.awaited, 0, sizeof(state.awaited));
    memset(state.blocking, 0, sizeof(state.blocking));
    state.is_waiting = false;
    if (coll->failure.is_set)
        say_failure(coll, &state);
    else if (coll->absent_count)
        say_opening(coll, &state);
    else
        say_operation(coll, &state);
    const size_t seen_bytes = offsetof(struct coll_page_state, blocking);
    if (!state.since_ns || memcmp(&state, &page->state, seen_bytes) != 0)
        state.since_ns = state.activity == COLL_IN_OPENING ? coll->absent_since_ns : now_ns;
    else if (!memcmp(&state, &page->state, sizeof(state)))
        return;
    coll_page_write_begin(page);
    page->state = state;
    coll_page_write_end(page);
}

void coll_page_rest(struct sw_coll *coll)
{
    struct coll_page *page = coll->page;
    if (!page || page->state.activity == COLL_IN_OPERATION)
        return;
    coll_page_write_begin(page);
    page->state.activity = COLL_IN_OPERATION;
    page->state.is_waiting = false;
    coll_page_write_end(page);
}

void coll_page_freeze(struct sw_coll *coll)
{
    struct coll_page *page = coll->page;
    const uint64_t now_ns = mover_now_ns();
    if (!page || page->failure.failed_ns)
        return;
    coll_page_refresh(coll, now_ns, true);
    coll_page_write_begin(page);
    page->failure.state = page->state;
    page->failure.failed_ns = now_ns;
    page->failure.status = SW_COLL_AGAIN;
    coll_page_write_end(page);
}

void coll_page_note_failure(struct sw_coll *coll)
{
    struct coll_page *page = coll->page;
    if (!page)
        return;
    coll_page_write_begin(page);
    page->failure.status = (uint32_t)coll->failure.error.status;
    memcpy(page->failure.text, coll->failure.error.text, sizeof(page->failure.text));
    for (uint32_t rank = 0; rank < coll->site.size; rank++)
        if (coll->peers[rank].is_gone)
            page->failure.gone[rank / 8] |= (uint8_t)(1u << rank % 8);
    coll_page_write_end(page);
}
