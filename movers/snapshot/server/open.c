/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening a volume. A client asks again while it takes long, so each step may come several times.
 * A writer draws the number of its session: by that a connection that was lost goes on, and a new
 * writer is told from it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/time/clock.h"
#include "snapshot/server/server.h"

enum { DOUBT_MS = 500 };

static enum snap_wire_status open_say(struct snap_wire_answer *answer, enum snap_wire_status status,
                                      const char *text)
{
    snprintf(answer->text, sizeof(answer->text), "%s", text);
    return status;
}

/* The volume, if it is there and may be used. */
static enum snap_wire_status find_volume(struct snap_server *server, struct snap_guest *guest,
                                         const struct snap_wire_request *request,
                                         struct snap_wire_answer *answer,
                                         struct snap_volume **volume)
{
    const bool is_writer = request->wishes & SNAP_WIRE_WRITE;
    const uint32_t rights = snap_rules_rights(&server->rules, &guest->address, request->name);
    const bool may_make = is_writer && request->wishes & SNAP_WIRE_CREATE && request->bytes &&
                          !(request->wishes & SNAP_WIRE_RESUME);
    if (!(rights & (is_writer ? SNAP_MAY_WRITE : SNAP_MAY_READ))) {
        server->counts.denied++;
        return SNAP_WIRE_DENIED;
    }
    *volume = snap_volumes_find(server, request->name);
    if (guest->volume && (guest->volume != *volume || guest->grant->may_write != is_writer))
        return open_say(answer, SNAP_WIRE_MALFORMED, "a connection opens one volume, once");
    if (!*volume && !may_make)
        return SNAP_WIRE_NOT_FOUND;
    if (!*volume)
        *volume = snap_volumes_add(server, guest, request->name, request->bytes, answer->text);
    if (!*volume && request->bytes <= server->memory_bytes && snap_volumes_make_room(server))
        return SNAP_WIRE_WORKING;
    return *volume ? SNAP_WIRE_OK : SNAP_WIRE_NO_ROOM;
}

/* Nothing is left of it that anybody could lose: whoever wants it next makes it anew. */
static bool is_lost_by_all(const struct snap_volume *volume)
{
    return volume->error == -ENOENT && volume->base && !volume->users;
}

/* One that has failed without having been anything yet makes room once that is told. */
static enum snap_wire_status open_state(struct snap_volume *volume, struct snap_wire_answer *answer)
{
    if (volume->is_to_end) /* until it is gone; then it is not found, or made anew */
        return SNAP_WIRE_WORKING;
    switch (snap_volume_look(volume).state) {
    case SNAP_VOLUME_MAKING:
    case SNAP_VOLUME_ENDING:
    case SNAP_VOLUME_GONE:
        return SNAP_WIRE_WORKING;
    case SNAP_VOLUME_READY:
        return SNAP_WIRE_OK;
    case SNAP_VOLUME_FAILED:
        break;
    }
    if (is_lost_by_all(volume)) {
        snap_volume_end(volume, false);
        return SNAP_WIRE_WORKING;
    }
    const bool has_no_room = volume->error == -ENOSPC || volume->error == -ENOMEM;
    open_say(answer, SNAP_WIRE_FAILED, volume->why);
    if (volume->is_new && !volume->base && !volume->is_to_end)
        snap_volume_end(volume, false);
    return has_no_room ? SNAP_WIRE_NO_ROOM : SNAP_WIRE_FAILED;
}

/* A device that waits long for the end of a queue pair is likely to have waited for a peer that is
 * stopped amid a store. */
static void end_writer(struct snap_server *server, struct snap_volume *volume)
{
    const uint64_t begin_ns = mover_now_ns();
    mover_clients_end(&server->clients, volume->client);
    if (volume->fd >= 0 && mover_now_ns() - begin_ns > DOUBT_MS * NS_PER_MS)
        snap_volume_doubt(volume);
}

/* The writer before is ended first. */
static enum snap_wire_status open_session(struct snap_server *server, struct snap_guest *guest,
                                          struct snap_volume *volume,
                                          const struct snap_wire_request *request,
                                          struct snap_wire_answer *answer)
{
    const bool is_same = !memcmp(volume->session, request->session, SNAP_WIRE_ID_BYTES);
    const bool has_other = volume->client && volume->client != guest->number;
    if (!is_same && request->wishes & SNAP_WIRE_RESUME)
        return SNAP_WIRE_FENCED;
    if (!is_same && has_other && !(request->wishes & SNAP_WIRE_TAKE_OVER)) {
        snprintf(answer->text, sizeof(answer->text), "%s has the volume",
                 *volume->writer ? volume->writer : "another writer");
        return SNAP_WIRE_BUSY;
    }
    if (has_other) {
        server->counts.take_overs += !is_same;
        end_writer(server, volume);
    }
    volume->client = guest->number;
    if (is_same)
        return SNAP_WIRE_OK;
    memcpy(volume->session, request->session, SNAP_WIRE_ID_BYTES);
    snprintf(volume->writer, sizeof(volume->writer), "%s", request->writer);
    volume->epoch++;
    server->counts.opens++;
    return SNAP_WIRE_OK;
}

/* A store that may still come keeps a volume from being given until its memory is replaced. Readers
 * are ended for that, and come back. */
static enum snap_wire_status open_clear_doubt(struct snap_server *server, struct snap_guest *guest,
                                              struct snap_volume *volume,
                                              struct snap_wire_answer *answer)
{
    if (!snap_volume_look(volume).is_doubtful)
        return SNAP_WIRE_OK;
    snap_server_end_users(server, volume, guest);
    return volume->fd < 0
               ? SNAP_WIRE_WORKING
               : open_say(answer, SNAP_WIRE_BUSY,
                          "the writer before was stopped amid a store to the file, and may "
                          "still finish it: end it, then this server");
}

static enum snap_wire_status open_grant(struct snap_guest *guest, struct snap_volume *volume,
                                        bool is_writer)
{
    if (!guest->grant) {
        guest->grant = snap_volume_ask(volume, guest->pd, is_writer);
        if (!guest->grant)
            return SNAP_WIRE_NO_ROOM;
        guest->volume = volume;
        volume->users++;
    }
    switch (snap_grant_state_of(volume, guest->grant)) {
    case SNAP_GRANT_ASKED:
        return SNAP_WIRE_WORKING;
    case SNAP_GRANT_GIVEN:
        return SNAP_WIRE_OK;
    case SNAP_GRANT_REFUSED:
        break;
    }
    return SNAP_WIRE_FAILED;
}

static void tell_volume(const struct snap_guest *guest, const struct snap_volume *volume,
                        struct snap_wire_answer *answer)
{
    memcpy(answer->identity, volume->identity, SNAP_WIRE_ID_BYTES);
    answer->epoch = volume->epoch;
    answer->bytes = volume->bytes;
    answer->address = (uintptr_t)volume->base;
    answer->key = guest->grant->mr->rkey;
    answer->flags = (snap_volume_is_blank(volume) ? SNAP_WIRE_IS_BLANK : 0) |
                    (volume->is_volatile ? SNAP_WIRE_IS_VOLATILE : 0);
}

void snap_server_open(struct snap_server *server, struct snap_guest *guest,
                      const struct snap_wire_request *request, struct snap_wire_answer *answer)
{
    const bool is_writer = request->wishes & SNAP_WIRE_WRITE;
    struct snap_volume *volume = NULL;
    answer->status = find_volume(server, guest, request, answer, &volume);
    if (!answer->status)
        answer->status = open_state(volume, answer);
    if (!answer->status && is_writer)
        answer->status = open_session(server, guest, volume, request, answer);
    if (!answer->status)
        answer->status = open_clear_doubt(server, guest, volume, answer);
    if (!answer->status)
        answer->status = open_grant(guest, volume, is_writer);
    if (answer->status == SNAP_WIRE_FAILED && !*answer->text)
        open_say(answer, SNAP_WIRE_FAILED, "the server's RDMA device has no room for the volume");
    if (!answer->status)
        tell_volume(guest, volume, answer);
}
