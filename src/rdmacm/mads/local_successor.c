/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/mads/local_successor.h"

#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd_pass.h"
#include "device/nic/nic.h"
#include "link/names/registry.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/local_table.h"

#define SEEK_NS (100 * SW_NS_PER_MS) /* between looks for a successor */
#define TRIED_MAX 4u

static int handed_fd = -1;                     /* what it gets; -1: nothing yet */
static struct sw_local_connection *successor;  /* NULL: none yet */
static uint64_t sought_ns;                     /* when one was looked for */
static uint64_t refused[SW_SLOT_MAX / 64 + 1]; /* processes that cannot be it */

void sw_local_successor_refused(uint32_t slot)
{
    refused[slot / 64] |= 1ull << slot % 64;
}

void sw_local_successor_allowed(uint32_t slot)
{
    refused[slot / 64] &= ~(1ull << slot % 64);
}

void sw_local_successor_offer(uint32_t slot)
{
    sw_rdmacm_assert_locked();
    char name[SW_NAME_BYTES];
    struct sw_local_connection *connection = NULL;
    sw_registry_name(slot, "cm", name);
    if (handed_fd < 0 || successor || slot == sw_nic.slot || slot > SW_SLOT_MAX ||
        refused[slot / 64] >> slot % 64 & 1 || sw_local_connect(name, &connection))
        return;
    connection->is_reserved = connection->hands_over = true;
    connection->successor_slot = slot;
    successor = connection;
}

/* Chooses the process with the next slot after `last`, and not this one; 0: none. So not all choose
 * the same. */
static uint32_t next_slot(const uint16_t *slots, uint32_t count, uint32_t last)
{
    uint32_t best = 0, best_distance = SW_SLOT_MAX + 1;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t distance = (slots[i] + SW_SLOT_MAX - last) % SW_SLOT_MAX;
        if (slots[i] != sw_nic.slot && distance && distance < best_distance) {
            best = slots[i];
            best_distance = distance;
        }
    }
    return best;
}

static void seek_successor(void)
{
    uint16_t slots[SW_SLOT_MAX];
    const uint64_t now_ns = sw_clock_ns();
    if (handed_fd < 0 || successor || now_ns - sought_ns < SEEK_NS)
        return;
    sought_ns = now_ns;
    const uint32_t count = sw_registry_announcers("cm", slots, SW_SLOT_MAX);
    uint32_t slot = sw_nic.slot;
    for (uint32_t tried = 0; tried < TRIED_MAX && !successor; tried++) {
        slot = next_slot(slots, count, slot);
        if (!slot)
            return;
        sw_local_successor_offer(slot);
    }
}

void sw_local_hand_over(int fd)
{
    sw_rdmacm_assert_locked();
    handed_fd = fd;
    seek_successor();
}

bool sw_local_successor_give(const struct sw_local_connection *connection)
{
    sw_rdmacm_assert_locked();
    const struct sw_local_message message = sw_local_message_bare(SW_LOCAL_HANDOVER);
    return !sw_fd_pass_send(connection->fd, &message, sizeof(message), &handed_fd, 1, MSG_DONTWAIT);
}

void sw_local_successor_forget(const struct sw_local_connection *connection)
{
    sw_rdmacm_assert_locked();
    if (successor != connection)
        return;
    successor = NULL;
    sought_ns = 0;
    seek_successor();
}

void sw_local_successor_fork_child(void)
{
    successor = NULL;
    handed_fd = -1;
}
