/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/engine_pause.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/minmax.h"

#define PAUSE_NS (100 * SW_NS_PER_MS)
#define BRIEF_NS (5 * SW_NS_PER_MS)

struct pause {
    struct pause *next;
    int fd;
    void *what;
    enum sw_watch_kind kind;
    uint64_t until_ns;
};

static struct {
    struct sw_lock lock;
    struct pause *list;
    atomic_bool any; /* to be looked at without the lock */
} pauses;

bool sw_accept_is_short(int rc)
{
    return rc == -EMFILE || rc == -ENFILE || rc == -ENOBUFS || rc == -ENOMEM;
}

static void note_any(void)
{
    atomic_store_explicit(&pauses.any, pauses.list != NULL, memory_order_release);
}

/* Without memory for a note of it the socket stays silent: the engine must not spin. */
static void pause_for(int fd, void *what, enum sw_watch_kind kind, uint64_t for_ns)
{
    struct pause *pause = malloc(sizeof(*pause));
    sw_engine_watch_nothing(fd, kind);
    if (!pause) {
        sw_error("no memory: descriptor %d is not listened at any more", fd);
        return;
    }
    *pause =
        (struct pause){.fd = fd, .what = what, .kind = kind, .until_ns = sw_clock_ns() + for_ns};
    sw_lock_acquire(&pauses.lock);
    pause->next = pauses.list;
    pauses.list = pause;
    note_any();
    sw_lock_release(&pauses.lock);
}

void sw_engine_pause(int fd, void *what, enum sw_watch_kind kind)
{
    sw_debug("no descriptor for another caller: descriptor %d pauses", fd);
    pause_for(fd, what, kind, PAUSE_NS);
}

void sw_engine_pause_briefly(int fd, void *what, enum sw_watch_kind kind)
{
    pause_for(fd, what, kind, BRIEF_NS);
}

uint64_t sw_engine_pause_step(uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    if (!atomic_load_explicit(&pauses.any, memory_order_acquire))
        return next_ns;
    sw_lock_acquire(&pauses.lock);
    for (struct pause **at = &pauses.list; *at;) {
        struct pause *pause = *at;
        if (now_ns < pause->until_ns) {
            next_ns = sw_min_u64(next_ns, pause->until_ns);
            at = &pause->next;
            continue;
        }
        *at = pause->next;
        sw_engine_rewatch(pause->fd, pause->what, pause->kind);
        free(pause);
    }
    note_any();
    sw_lock_release(&pauses.lock);
    return next_ns;
}

void sw_engine_pause_forget(int fd)
{
    if (!atomic_load_explicit(&pauses.any, memory_order_acquire))
        return;
    sw_lock_acquire(&pauses.lock);
    for (struct pause **at = &pauses.list; *at;) {
        struct pause *pause = *at;
        if (pause->fd != fd) {
            at = &pause->next;
            continue;
        }
        *at = pause->next;
        free(pause);
    }
    note_any();
    sw_lock_release(&pauses.lock);
}

void sw_engine_pause_clear(void)
{
    pauses.lock = (struct sw_lock){0};
    while (pauses.list) {
        struct pause *pause = pauses.list;
        pauses.list = pause->next;
        free(pause);
    }
    note_any();
}
