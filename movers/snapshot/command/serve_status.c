/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/command/serve_status.h"

#include "common/serve/json_text.h"
#include "common/time/clock.h"

static json_t *volume_status(struct snap_volume *volume)
{
    const bool has_failed = snap_volume_look(volume).state == SNAP_VOLUME_FAILED;
    return json_pack("{so sI sI so sb si sb ss?}", "name", mover_json_text(volume->name), "bytes",
                     (json_int_t)volume->bytes, "epoch", (json_int_t)volume->epoch, "writer",
                     mover_json_text(volume->writer), "has_writer", volume->client != 0, "clients",
                     (int)volume->users, "is_volatile", !volume->path, "error",
                     has_failed ? volume->why : NULL);
}

json_t *snap_serve_status(struct snap_server *server)
{
    snap_volumes_sweep(server);
    const struct snap_server_counts *counts = &server->counts;
    json_t *all = mover_clients_status(&server->clients), *volumes = json_array();
    for (uint32_t i = 0; i < SNAP_VOLUMES_MAX; i++)
        if (server->volumes[i])
            json_array_append_new(volumes, volume_status(server->volumes[i]));
    json_t *own = json_pack(
        "{sI sI sI sI sI sI sI sI sI sI sI sb so}", "uptime_ms",
        (json_int_t)((mover_now_ns() - server->started_ns) / NS_PER_MS), "memory_bytes",
        (json_int_t)server->memory_bytes, "used_bytes", (json_int_t)snap_volumes_bytes(server),
        "opens", (json_int_t)counts->opens, "take_overs", (json_int_t)counts->take_overs, "leaves",
        (json_int_t)counts->leaves, "differences", (json_int_t)counts->differences, "flushes",
        (json_int_t)counts->flushes, "removed", (json_int_t)counts->removed, "denied",
        (json_int_t)counts->denied, "malformed", (json_int_t)counts->malformed, "is_listening",
        server->clients.acceptor.listener.id != NULL, "volumes", volumes);
    json_object_update(all, own);
    json_decref(own);
    return all;
}

const struct mover_metric snap_serve_metrics[] = {
    {"clients", "clients", "Clients that are connected", MOVER_GAUGE},
    {"clients_max", "clients_max", "Clients at most", MOVER_GAUGE},
    {"connected_total", "connected", "Connections that were asked for", MOVER_COUNTER},
    {"refused_total", "refused", "Connections that were refused", MOVER_COUNTER},
    {"ended_total", "ended", "Connections that were ended for others, or for their silence",
     MOVER_COUNTER},
    {"malformed_total", "malformed", "Malformed messages", MOVER_COUNTER},
    {"denied_total", "denied", "Requests that the rules forbid", MOVER_COUNTER},
    {"is_listening", "is_listening", "0: its address is away", MOVER_GAUGE},
    {"memory_bytes", "memory_bytes", "Bytes for volumes", MOVER_GAUGE},
    {"used_bytes", "used_bytes", "Bytes of them that volumes have", MOVER_GAUGE},
    {"opens_total", "opens", "Times that a writer began", MOVER_COUNTER},
    {"take_overs_total", "take_overs", "Of these, from one that was connected", MOVER_COUNTER},
    {"leaves_total", "leaves", "Leaves whose fresh blocks were checked", MOVER_COUNTER},
    {"differences_total", "differences", "Of these, with a block that differed", MOVER_COUNTER},
    {"flushes_total", "flushes", "Flushes", MOVER_COUNTER},
    {"removed_total", "removed", "Volumes that were removed", MOVER_COUNTER},
    {"volume_bytes", "volumes[name].bytes", "Bytes of a volume", MOVER_GAUGE},
    {"volume_epoch", "volumes[name].epoch", "Writers of it so far", MOVER_GAUGE},
    {"volume_has_writer", "volumes[name].has_writer", "1: one is connected", MOVER_GAUGE},
    {"volume_clients", "volumes[name].clients", "Clients that have it open", MOVER_GAUGE},
    {0},
};
