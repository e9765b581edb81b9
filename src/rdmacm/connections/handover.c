/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/connections/handover.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "base/minmax.h"
#include "base/shm.h"
#include "rdmacm/connections/id.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/agent.h"
#include "wire/bytes.h"

#define ENTRIES 16384u /* further connections are not remembered */
#define ROUNDS 3u      /* of DREQs: DREPs are not waited for */
#define AGAIN_NS (250 * SW_NS_PER_MS)

struct entry {
    _Atomic uint32_t is_used;
    uint32_t local_comm_id, remote_comm_id, remote_qpn;
    uint32_t ifindex;
    uint16_t pkey;
    uint8_t traffic_class, hop_limit;
    uint8_t local_gid[16], remote_gid[16];
    uint32_t next_free; /* its place and 1 */
    uint32_t reserved;
};
static_assert(sizeof(struct entry) == 64, "read by other processes");
#define LIST_BYTES (ENTRIES * sizeof(struct entry))

static struct entry *own;
static int own_fd = -1;
static uint32_t begun, first_free; /* entries that were ever used; a list of free ones */

static struct inherited {
    struct inherited *next;
    uint32_t count, rounds;
    uint64_t due_ns;
    struct entry entries[];
} * inheritance; /* of processes that have ended */

/* ---- our list ---- */

static bool open_list(void)
{
    static bool failed;
    if (own || failed)
        return own;
    own_fd = sw_fd_own(sw_shm_create("sidewire-handover", LIST_BYTES));
    own = own_fd < 0 ? NULL : sw_shm_map(own_fd, LIST_BYTES, true);
    failed = !own;
    if (failed)
        sw_debug("connection management: connections cannot be handed over");
    return own;
}

static uint32_t handover_take_entry(void)
{
    uint32_t place = first_free;
    if (place)
        first_free = own[place - 1].next_free;
    else if (begun < ENTRIES)
        place = ++begun;
    return place;
}

static void handover_write_entry(struct sw_ucm_id *id)
{
    const struct sw_cm_id *cm = &id->cm;
    if (!open_list() || !(id->handover_place = handover_take_entry()))
        return;
    struct entry *entry = &own[id->handover_place - 1];
    entry->local_comm_id = cm->local_comm_id;
    entry->remote_comm_id = cm->remote_comm_id;
    entry->remote_qpn = cm->remote_qpn;
    entry->ifindex = cm->path.ifindex;
    entry->pkey = cm->path.pkey;
    entry->traffic_class = cm->path.traffic_class;
    entry->hop_limit = cm->path.hop_limit;
    memcpy(entry->local_gid, cm->path.local_gid, 16);
    memcpy(entry->remote_gid, cm->path.remote_gid, 16);
    atomic_store(&entry->is_used, 1);
    sw_agent_hand_over(own_fd);
}

void sw_ucm_handover_forget(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    if (!id->handover_place || !own)
        return;
    struct entry *entry = &own[id->handover_place - 1];
    atomic_store(&entry->is_used, 0);
    entry->next_free = first_free;
    first_free = id->handover_place;
    id->handover_place = 0;
}

void sw_ucm_handover_note(struct sw_ucm_id *id)
{
    sw_rdmacm_assert_locked();
    const enum sw_cm_state state = id->cm.state;
    const bool wanted =
        id->cm.path.slot == 0 &&
        (state == SW_CM_REP_SENT || state == SW_CM_ESTABLISHED || state == SW_CM_DREQ_SENT);
    if (wanted && !id->handover_place)
        handover_write_entry(id);
    else if (!wanted && id->handover_place)
        sw_ucm_handover_forget(id);
}

/* ---- the lists of processes that ended ---- */

static void send_dreqs(struct inherited *inherited, uint64_t now_ns)
{
    for (uint32_t i = 0; i < inherited->count; i++) {
        const struct entry *entry = &inherited->entries[i];
        struct sw_cm_path path = {.ifindex = entry->ifindex,
                                  .pkey = entry->pkey,
                                  .traffic_class = entry->traffic_class,
                                  .hop_limit = entry->hop_limit};
        struct sw_cm_message message = {.attribute = SW_CM_DREQ,
                                        .transaction = now_ns << 16 | (i & 0xffff),
                                        .dreq = {.local_comm_id = entry->local_comm_id,
                                                 .remote_comm_id = entry->remote_comm_id,
                                                 .remote_qpn = entry->remote_qpn & SW_QPN_MASK}};
        uint8_t mad[SW_MAD_BYTES];
        memcpy(path.local_gid, entry->local_gid, 16);
        memcpy(path.remote_gid, entry->remote_gid, 16);
        sw_cm_mad_encode(&message, mad);
        sw_agent_send(&path, mad);
    }
    inherited->due_ns = now_ns + (AGAIN_NS << inherited->rounds++);
}

void sw_ucm_handover_disconnect(uint32_t slot, int fd)
{
    sw_rdmacm_assert_locked();
    struct stat status;
    struct inherited *inherited = NULL;
    ssize_t got = 0;
    if (!fstat(fd, &status) && S_ISREG(status.st_mode))
        inherited = malloc(sizeof(*inherited) + LIST_BYTES);
    if (inherited)
        got = pread(fd, inherited->entries, LIST_BYTES, 0);
    close(fd);
    uint32_t count = 0;
    for (size_t i = 0; got > 0 && i < (size_t)got / sizeof(struct entry); i++) {
        const struct entry *entry = &inherited->entries[i];
        if (entry->is_used && sw_cm_slot_of(entry->local_comm_id) == slot)
            memmove(&inherited->entries[count++], entry, sizeof(*entry));
    }
    if (!count) {
        free(inherited);
        return;
    }
    sw_debug("connection management: the process of slot %u left %u connections", slot, count);
    struct inherited *smaller =
        realloc(inherited, sizeof(*inherited) + count * sizeof(inherited->entries[0]));
    inherited = smaller ? smaller : inherited;
    inherited->count = count;
    inherited->rounds = 0;
    inherited->next = inheritance;
    inheritance = inherited;
    send_dreqs(inherited, sw_clock_ns());
    sw_agent_plan(inherited->due_ns);
}

uint64_t sw_ucm_handover_tick(uint64_t now_ns)
{
    sw_rdmacm_assert_locked();
    uint64_t next_ns = UINT64_MAX;
    for (struct inherited **at = &inheritance; *at;) {
        struct inherited *inherited = *at;
        if (inherited->due_ns <= now_ns)
            send_dreqs(inherited, now_ns);
        if (inherited->rounds == ROUNDS) {
            *at = inherited->next;
            free(inherited);
            continue;
        }
        next_ns = sw_min_u64(inherited->due_ns, next_ns);
        at = &inherited->next;
    }
    return next_ns;
}

void sw_ucm_handover_fork_child(void)
{
    if (own)
        munmap(own, LIST_BYTES);
    if (own_fd >= 0)
        close(own_fd);
    own = NULL;
    own_fd = -1;
    begun = first_free = 0;
    while (inheritance) { /* the parent sees to them */
        struct inherited *inherited = inheritance;
        inheritance = inherited->next;
        free(inherited);
    }
}
