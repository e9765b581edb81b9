/* SPDX-License-Identifier: BSD-2-Clause */
/* What clients ask, and what they are told. */
#include <stdio.h>
#include <string.h>

#include "common/time/clock.h"
#include "snapshot/server/server.h"

enum { TURN_NS = 1000000 };

void snap_server_end_users(struct snap_server *server, const struct snap_volume *volume,
                           const struct snap_guest *but)
{
    for (uint32_t i = 0; i < MOVER_CLIENTS_MAX; i++) {
        const struct mover_clients_place *place = &server->clients.places[i];
        const struct snap_guest *guest = place->guest.client ? place->own : NULL;
        if (guest && guest != but && guest->volume == volume)
            mover_clients_end(&server->clients, guest->number);
    }
}

/* The volume that this guest writes; NULL: it is none of its. */
static struct snap_volume *written_by(const struct snap_guest *guest)
{
    struct snap_volume *volume = guest->volume;
    const bool is_its = volume && volume->client == guest->number &&
                        snap_grant_state_of(volume, guest->grant) == SNAP_GRANT_GIVEN;
    return is_its ? volume : NULL;
}

/* As many leaves as fit into a turn, one at least: the client asks for the rest. */
static void answer_check(struct snap_server *server, const struct snap_guest *guest,
                         const struct snap_wire_request *request, struct snap_wire_answer *answer)
{
    const struct snap_volume *volume = written_by(guest);
    const uint64_t begin_ns = mover_now_ns();
    answer->status = volume ? SNAP_WIRE_OK : SNAP_WIRE_DENIED;
    while (!answer->status && answer->leaves_done < request->leaves_count) {
        answer->status =
            snap_check_leaf(volume, request->leaves[answer->leaves_done], &answer->bad_block);
        if (answer->status)
            break;
        answer->leaves_done++;
        server->counts.leaves++;
        if (mover_now_ns() - begin_ns > TURN_NS)
            break;
    }
    server->counts.differences += answer->status == SNAP_WIRE_DIFFERS;
}

static void answer_flush(struct snap_server *server, const struct snap_guest *guest,
                         const struct snap_wire_request *request, struct snap_wire_answer *answer)
{
    struct snap_volume *volume = written_by(guest);
    answer->status = volume ? SNAP_WIRE_OK : SNAP_WIRE_DENIED;
    answer->ticket = request->ticket;
    if (!volume || !volume->path) {
        server->counts.flushes += volume != NULL;
        return;
    }
    const struct snap_volume_look look = snap_volume_look(volume);
    if (look.state != SNAP_VOLUME_READY) {
        answer->status = SNAP_WIRE_FAILED;
        memcpy(answer->text, volume->why, sizeof(answer->text));
    } else if (!request->ticket) {
        answer->ticket = snap_volume_flush(volume);
        answer->status = SNAP_WIRE_WORKING;
        server->counts.flushes++;
    } else if (look.flushes_done < request->ticket) {
        answer->status = SNAP_WIRE_WORKING;
    }
}

static void close_volume(struct snap_guest *guest, struct snap_wire_answer *answer)
{
    struct snap_volume *volume = written_by(guest);
    answer->status = SNAP_WIRE_OK;
    if (!volume)
        return;
    volume->client = 0;
    memset(volume->session, 0, sizeof(volume->session));
}

static void tell_volumes(const struct snap_server *server, const struct snap_guest *guest,
                         const struct snap_wire_request *request, struct snap_wire_answer *answer)
{
    answer->status = SNAP_WIRE_OK;
    for (uint32_t i = 0; i < SNAP_VOLUMES_MAX; i++) {
        const struct snap_volume *from = server->volumes[i];
        if (!from || !(snap_rules_rights(&server->rules, &guest->address, from->name)) ||
            answer->total++ < request->first || answer->count == SNAP_WIRE_LIST_MAX)
            continue;
        struct snap_wire_volume *to = &answer->volumes[answer->count++];
        memcpy(to->name, from->name, sizeof(to->name));
        memcpy(to->writer, from->writer, sizeof(to->writer));
        to->bytes = from->bytes;
        to->epoch = from->epoch;
        to->flags =
            (from->client ? SNAP_WIRE_HAS_WRITER : 0) | (from->path ? 0 : SNAP_WIRE_IS_VOLATILE);
    }
}

enum snap_wire_status snap_server_remove(struct snap_server *server, const char *name,
                                         char why[SNAP_WIRE_TEXT_BYTES])
{
    struct snap_volume *volume = snap_volumes_find(server, name);
    if (!volume)
        return SNAP_WIRE_NOT_FOUND;
    if (volume->client) {
        snprintf(why, SNAP_WIRE_TEXT_BYTES, "%s is writing to it",
                 *volume->writer ? volume->writer : "a program");
        return SNAP_WIRE_BUSY;
    }
    if (!volume->is_to_end) {
        server->counts.removed++;
        snap_volume_end(volume, true);
        snap_server_end_users(server, volume, NULL);
    }
    return SNAP_WIRE_WORKING;
}

/* It is gone once it is asked for again and not found. */
static void answer_remove(struct snap_server *server, const struct snap_guest *guest,
                          const struct snap_wire_request *request, struct snap_wire_answer *answer)
{
    const uint32_t rights = snap_rules_rights(&server->rules, &guest->address, request->name);
    const bool may_remove = server->may_remove && rights & SNAP_MAY_WRITE;
    answer->status = SNAP_WIRE_DENIED;
    server->counts.denied += !may_remove;
    if (!server->may_remove)
        snprintf(answer->text, sizeof(answer->text),
                 "the server was started without --allow-remove");
    else if (guest->volume)
        snprintf(answer->text, sizeof(answer->text), "this connection has a volume open");
    else if (may_remove)
        answer->status = snap_server_remove(server, request->name, answer->text);
}

static void carry_out(struct snap_server *server, struct snap_guest *guest,
                      const struct snap_wire_request *request, struct snap_wire_answer *answer)
{
    switch (request->type) {
    case SNAP_WIRE_OPEN:
        snap_server_open(server, guest, request, answer);
        return;
    case SNAP_WIRE_CHECK:
        answer_check(server, guest, request, answer);
        return;
    case SNAP_WIRE_FLUSH:
        answer_flush(server, guest, request, answer);
        return;
    case SNAP_WIRE_CLOSE:
        close_volume(guest, answer);
        return;
    case SNAP_WIRE_LIST:
        tell_volumes(server, guest, request, answer);
        return;
    case SNAP_WIRE_REMOVE:
        answer_remove(server, guest, request, answer);
        return;
    }
}

/* A client that breaks the protocol is told so, and ends only if it has not even a header: a
 * message of another version is answered, so that its user learns of it. */
bool snap_server_answer(void *context, uint8_t *message, uint32_t *bytes)
{
    static struct snap_wire_request request; /* the loop's: too large for its stack */
    static struct snap_wire_answer answer;
    struct snap_server *server = context;
    struct snap_guest *guest = server->clients.asking->own;
    const enum snap_wire_status wrong = snap_wire_get_request(message, *bytes, &request);
    server->counts.malformed += wrong != SNAP_WIRE_OK;
    if (wrong && !request.type)
        return false;
    memset(&answer, 0, sizeof(answer));
    answer.type = request.type;
    answer.tag = request.tag;
    answer.status = wrong;
    memcpy(answer.instance, server->instance, sizeof(answer.instance));
    snap_volumes_sweep(server);
    if (!wrong)
        carry_out(server, guest, &request, &answer);
    *bytes = (uint32_t)snap_wire_put_answer(message, &answer);
    return true;
}
