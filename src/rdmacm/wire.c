/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/wire.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "device/nic/nic.h"
#include "link/engine.h"

#define WAITING_MAX 16384u /* letters, of one connection */

struct sw_waiting {
    struct sw_waiting *next;
    struct sw_letter letter;
};

static atomic_bool has_ended;

void sw_wire_want_step(void)
{
    if (!atomic_exchange(&has_ended, true))
        sw_engine_kick();
}

void sw_wire_end(struct sw_wire *wire)
{
    wire->is_dead = true;
    sw_wire_want_step();
}

bool sw_wire_has_ended(void)
{
    return atomic_load_explicit(&has_ended, memory_order_relaxed);
}

bool sw_wire_take_ended(void)
{
    return atomic_exchange(&has_ended, false);
}

static bool queue(struct sw_wire *wire, const struct sw_letter *letter)
{
    struct sw_waiting *entry = wire->waiting_count < WAITING_MAX ? malloc(sizeof(*entry)) : NULL;
    if (!entry)
        return false;
    if (!wire->first && wire->is_judged)
        sw_engine_watch_room(wire->fd, wire, SW_WATCH_CM, true);
    entry->next = NULL;
    entry->letter = *letter;
    *wire->last = entry;
    wire->last = &entry->next;
    wire->waiting_count++;
    return true;
}

/* 0, or the errno. */
static int transmit_as_is(struct sw_wire *wire, const struct sw_letter *letter)
{
    ssize_t done = send(wire->fd, letter, sizeof(*letter), MSG_DONTWAIT | MSG_NOSIGNAL);
    return done == (ssize_t)sizeof(*letter) ? 0 : done < 0 ? errno : EMSGSIZE;
}

/* A stranger is told what would have been a packet to him, and nothing else. 0, or the errno. */
static int transmit(struct sw_wire *wire, const struct sw_letter *letter)
{
    if (!wire->is_strange)
        return transmit_as_is(wire, letter);
    if (letter->kind != SW_LETTER_MAD && letter->kind != SW_LETTER_PACKET)
        return 0;
    struct sw_letter packet = *letter;
    packet.kind = SW_LETTER_PACKET;
    return transmit_as_is(wire, &packet);
}

int sw_wire_put(struct sw_wire *wire, const struct sw_letter *letter)
{
    int error = wire->first || !wire->is_judged ? EAGAIN : transmit(wire, letter);
    if (error == EAGAIN || error == ENOBUFS)
        return queue(wire, letter) ? 0 : -EAGAIN;
    if (error)
        sw_wire_end(wire);
    return error ? -ECONNRESET : 0;
}

void sw_wire_put_waiting(struct sw_wire *wire)
{
    while (wire->first) {
        struct sw_waiting *entry = wire->first;
        int error = transmit(wire, &entry->letter);
        if (error == EAGAIN || error == ENOBUFS)
            return;
        if (error) {
            sw_wire_end(wire);
            return;
        }
        wire->first = entry->next;
        wire->waiting_count--;
        free(entry);
        if (!wire->first) {
            wire->last = &wire->first;
            sw_engine_watch_room(wire->fd, wire, SW_WATCH_CM, false);
        }
    }
}

struct sw_letter sw_letter_write(const struct sw_cm_path *path, enum sw_letter_kind kind,
                                 const uint8_t mad[SW_MAD_BYTES])
{
    struct sw_letter letter = {
        .magic = SW_LETTER_MAGIC,
        .kind = kind,
        .slot = sw_nic.slot,
        .ifindex = path->ifindex,
        .pkey = path->pkey,
        .traffic_class = path->traffic_class,
        .hop_limit = path->hop_limit,
    };
    memcpy(letter.local_gid, path->local_gid, 16);
    memcpy(letter.remote_gid, path->remote_gid, 16);
    memcpy(letter.mad, mad, SW_MAD_BYTES);
    return letter;
}

void sw_wire_drop_waiting(struct sw_wire *wire)
{
    for (struct sw_waiting *entry = wire->first, *next; entry; entry = next) {
        next = entry->next;
        free(entry);
    }
}
