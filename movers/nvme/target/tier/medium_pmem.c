/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A copy of a log in a region of a pmem server. Each write goes with its flush in one chain, and is
 * not posted again by the library: a connection that is lost ends it by -ESTALE, and the copy is
 * looked at before it is written to again, since another writer may have been there. The session is
 * alone, so nothing of earlier writers arrives in it.
 *
 * A handle is one thread's at a time: the tier's lock sees to that. The stage is registered memory.
 * All else goes through pieces of the medium's own; where none is free, moves wait.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/text/endpoint.h"
#include "common/time/clock.h"
#include "nvme/target/tier/inside.h"
#include "nvme/target/tier/medium.h"
#include "sidewire/pmem.h"

enum {
    PIECES = 12,
    PIECE_BYTES = 256 << 10,
    WRITES = 8,
    OPEN_MS = 2000,
    NOW_MS = 3000,
    CHAINS = 64,
    EAGER_MS = 20, /* the thread stays awake for an answer that takes no longer */
};

struct pmem_medium {
    struct nvt_tier_medium medium; /* must be first */
    struct sw_pmem *pmem;
    char address[128], *region;
    uint64_t session; /* that was looked at; writes of others end by -ESTALE */
    bool is_persistent;
    uint8_t *stage;
    uint64_t stage_bytes;
    struct sw_pmem_mem *stage_memory, *pieces_memory;
    uint8_t *pieces;
    uint32_t free_pieces; /* a bit for each */
    struct nvt_tier_move *waiting, **waiting_last;
    uint64_t posted_ns; /* the last one */
    bool is_yielded;    /* to another target: it is closed at the next poll */
};

static int errno_of(enum sw_pmem_status status)
{
    if (status == SW_PMEM_OK)
        return 0;
    /* Nobody knows, or nothing has happened; the connection comes back. */
    if (status == SW_PMEM_NEW_SESSION || status == SW_PMEM_MAYBE_DONE ||
        status == SW_PMEM_NOT_DONE || status == SW_PMEM_TIMEOUT || status == SW_PMEM_DISK_FAILED)
        return -ESTALE;
    return -EIO;
}

static bool is_live(const struct pmem_medium *pmem)
{
    return pmem->pmem && sw_pmem_state_of(pmem->pmem) == SW_PMEM_LIVE;
}

/* Once the first session is there. */
static bool has_memory(struct pmem_medium *pmem)
{
    struct sw_pmem_info info;
    if (pmem->pieces_memory && (pmem->stage_memory || !pmem->stage))
        return true;
    sw_pmem_info_of(pmem->pmem, &info);
    pmem->is_persistent = info.persistent;
    pmem->medium.is_volatile = !info.persistent;
    pmem->medium.size_bytes = info.bytes;
    if (!pmem->pieces_memory &&
        sw_pmem_mem_register(pmem->pmem, pmem->pieces, (size_t)PIECES * PIECE_BYTES,
                             &pmem->pieces_memory) != SW_PMEM_OK)
        return false;
    return !pmem->stage || pmem->stage_memory ||
           sw_pmem_mem_register(pmem->pmem, pmem->stage, pmem->stage_bytes, &pmem->stage_memory) ==
               SW_PMEM_OK;
}

static int medium_pmem_use(struct nvt_tier_medium *medium, void *data, uint64_t bytes)
{
    struct pmem_medium *pmem = (struct pmem_medium *)medium;
    pmem->stage = data;
    pmem->stage_bytes = bytes;
    return 0;
}

static bool is_of_stage(const struct pmem_medium *pmem, const struct nvt_tier_move *move)
{
    const uint8_t *data = move->data;
    return pmem->stage && data >= pmem->stage &&
           data + move->bytes <= pmem->stage + pmem->stage_bytes;
}

static void medium_pmem_done(void *argument, const struct sw_pmem_result *result)
{
    struct nvt_tier_move *move = argument;
    struct pmem_medium *pmem = (struct pmem_medium *)move->medium;
    const uint32_t piece = move->moved; /* and 1; 0: the stage */
    if (piece && !move->is_write && result->status == SW_PMEM_OK)
        memcpy(move->data, pmem->pieces + (size_t)(piece - 1) * PIECE_BYTES, move->bytes);
    if (piece)
        pmem->free_pieces |= 1u << (piece - 1);
    move->done(move, errno_of(result->status));
}

/* 0, -EAGAIN: it waits, or why it cannot be. */
static int pmem_post_move(struct pmem_medium *pmem, struct nvt_tier_move *move)
{
    const bool is_staged = move->is_write && is_of_stage(pmem, move);
    if (!is_live(pmem))
        return -ESTALE;
    if (move->is_write && sw_pmem_session(pmem->pmem) != pmem->session) {
        pmem->session = sw_pmem_session(pmem->pmem); /* once its slots have been looked at */
        return -ESTALE;
    }
    if (!has_memory(pmem))
        return -ENOMEM;
    if (!is_staged && !pmem->free_pieces)
        return -EAGAIN;
    const uint32_t piece = is_staged ? 0 : (uint32_t)__builtin_ctz(pmem->free_pieces) + 1;
    uint8_t *data = is_staged ? move->data : pmem->pieces + (size_t)(piece - 1) * PIECE_BYTES;
    if (!is_staged && move->is_write)
        memcpy(data, move->data, move->bytes);
    const struct sw_pmem_op ops[2] = {
        {.opcode = move->is_write ? SW_PMEM_OP_WRITE : SW_PMEM_OP_READ,
         .offset = move->at,
         .pieces = {{data, move->bytes, is_staged ? pmem->stage_memory : pmem->pieces_memory}},
         .pieces_count = 1},
        {.opcode = SW_PMEM_OP_FLUSH,
         .flush = pmem->is_persistent ? SW_PMEM_FLUSH_PERSISTENT : SW_PMEM_FLUSH_VISIBLE,
         .offset = move->at,
         .bytes = move->bytes}};
    const struct sw_pmem_chain chain = {.ops = ops,
                                        .count = move->is_write ? 2 : 1,
                                        .session = sw_pmem_session(pmem->pmem),
                                        .done = medium_pmem_done,
                                        .arg = move};
    move->moved = piece;
    const enum sw_pmem_status status = sw_pmem_post(pmem->pmem, &chain);
    if (status == SW_PMEM_AGAIN)
        return -EAGAIN;
    if (status != SW_PMEM_OK)
        return errno_of(status);
    if (piece)
        pmem->free_pieces &= ~(1u << (piece - 1));
    pmem->posted_ns = pmem->medium.tier->now_ns;
    return 0;
}

static bool medium_pmem_start(struct nvt_tier_medium *medium, struct nvt_tier_move *move)
{
    struct pmem_medium *pmem = (struct pmem_medium *)medium;
    const int rc = pmem->waiting ? -EAGAIN : pmem_post_move(pmem, move);
    if (rc == -EAGAIN) {
        move->next = NULL;
        *pmem->waiting_last = move;
        pmem->waiting_last = &move->next;
        return false;
    }
    move->result = rc;
    return rc != 0;
}

static bool let_moves_go(struct pmem_medium *pmem)
{
    bool any = false;
    while (pmem->waiting) {
        struct nvt_tier_move *move = pmem->waiting;
        const int rc = pmem_post_move(pmem, move);
        if (rc == -EAGAIN)
            break;
        pmem->waiting = move->next;
        if (!pmem->waiting)
            pmem->waiting_last = &pmem->waiting;
        any = true;
        if (rc)
            move->done(move, rc);
    }
    return any;
}

static bool medium_pmem_poll(struct nvt_tier_medium *medium)
{
    struct pmem_medium *pmem = (struct pmem_medium *)medium;
    if (pmem->is_yielded && pmem->pmem) { /* each connection of ours would end the other's */
        sw_pmem_close(pmem->pmem);
        pmem->pmem = NULL;
    }
    if (!pmem->pmem)
        return let_moves_go(pmem);
    bool any = sw_pmem_poll(pmem->pmem) > 0;
    any = let_moves_go(pmem) || any;
    return any || (sw_pmem_used(pmem->pmem) &&
                   medium->tier->now_ns - pmem->posted_ns < EAGER_MS * NS_PER_MS);
}

static int medium_pmem_now(struct nvt_tier_medium *medium, bool is_write, uint64_t at, void *data,
                           uint32_t bytes)
{
    struct pmem_medium *pmem = (struct pmem_medium *)medium;
    const uint64_t until_ns = sw_pmem_deadline_ms(NOW_MS);
    enum sw_pmem_status status;
    if (!is_live(pmem))
        return -ENOTCONN;
    if (!has_memory(pmem))
        return -ENOMEM;
    if (is_write) {
        memcpy(pmem->pieces, data, bytes);
        status = sw_pmem_write_flush(
            pmem->pmem, at, pmem->pieces, bytes, pmem->pieces_memory,
            pmem->is_persistent ? SW_PMEM_FLUSH_PERSISTENT : SW_PMEM_FLUSH_VISIBLE, until_ns);
    } else {
        status = sw_pmem_read(pmem->pmem, at, pmem->pieces, bytes, pmem->pieces_memory, until_ns);
        memcpy(data, pmem->pieces, bytes);
    }
    return status == SW_PMEM_OK ? 0 : -EIO;
}

static void medium_pmem_why(struct nvt_tier_medium *medium, char *out, size_t size)
{
    struct sw_pmem_error error;
    sw_pmem_last_error(((const struct pmem_medium *)medium)->pmem, &error);
    snprintf(out, size, "%s", *error.text ? error.text : "its server does not answer");
}

static void medium_pmem_yield(struct nvt_tier_medium *medium)
{
    ((struct pmem_medium *)medium)->is_yielded = true;
}

static void medium_pmem_close(struct nvt_tier_medium *medium)
{
    struct pmem_medium *pmem = (struct pmem_medium *)medium;
    if (pmem->pmem)
        sw_pmem_close(pmem->pmem);
    free(pmem->pieces);
    free(pmem);
}

static const struct nvt_tier_medium_ops pmem_ops = {.now = medium_pmem_now,
                                                    .use = medium_pmem_use,
                                                    .start = medium_pmem_start,
                                                    .poll = medium_pmem_poll,
                                                    .why = medium_pmem_why,
                                                    .yield = medium_pmem_yield,
                                                    .close = medium_pmem_close};

/* Also "folder/log" is a path, where such a folder is. */
bool nvt_tier_is_pmem(const char *name)
{
    const char *slash = strchr(name, '/');
    struct stat st;
    char folder[NAME_MAX + 1];
    if (!slash || *name == '/' || *name == '.')
        return false;
    if ((size_t)(slash - name) > NAME_MAX)
        return true;
    *stpncpy(folder, name, (size_t)(slash - name)) = '\0';
    return stat(folder, &st) || !S_ISDIR(st.st_mode);
}

int nvt_tier_pmem_open(const char *name, struct nvt_tier_medium **out, char *error,
                       size_t error_size)
{
    struct sw_pmem_options options;
    struct sw_pmem_error why = {0};
    struct pmem_medium *pmem = calloc(1, sizeof(*pmem));
    if (!pmem)
        return -ENOMEM;
    pmem->medium = (struct nvt_tier_medium){.ops = &pmem_ops, .name = name, .writes_max = WRITES};
    pmem->waiting_last = &pmem->waiting;
    pmem->free_pieces = (1u << PIECES) - 1;
    snprintf(pmem->address, sizeof(pmem->address), "%s", name);
    pmem->region = strchr(pmem->address, '/');
    sw_pmem_options_init(&options);
    if (pmem->region)
        *pmem->region++ = '\0';
    if (!pmem->region || !*pmem->region || strlen(name) >= sizeof(pmem->address) ||
        !mover_split_endpoint(pmem->address, &options.address, &options.port) ||
        posix_memalign((void **)&pmem->pieces, 4096, (size_t)PIECES * PIECE_BYTES)) {
        snprintf(error, error_size, "the log %s is no ADDR[:PORT]/REGION", name);
        medium_pmem_close(&pmem->medium);
        return -EINVAL;
    }
    options.region = pmem->region;
    options.label = "nvme tier";
    options.chains = CHAINS;
    options.loss_timeout_ms = UINT32_MAX;
    options.keeps_trying = true;
    options.alone = true;
    const enum sw_pmem_status status = sw_pmem_start(&options, &why, &pmem->pmem);
    if (status != SW_PMEM_OK) {
        snprintf(error, error_size, "the log %s: %s", name, why.text);
        medium_pmem_close(&pmem->medium);
        return -EIO;
    }
    if (sw_pmem_wait_live(pmem->pmem, sw_pmem_deadline_ms(OPEN_MS)) == SW_PMEM_OK)
        (void)has_memory(pmem);
    pmem->session = sw_pmem_session(pmem->pmem);
    *out = &pmem->medium;
    return 0;
}
