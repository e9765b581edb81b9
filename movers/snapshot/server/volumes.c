/* SPDX-License-Identifier: BSD-2-Clause */
/* Which volumes there are, and how much room is left for more. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/minmax.h"
#include "common/serve/log.h"
#include "common/time/clock.h"
#include "snapshot/core/medium.h"
#include "snapshot/server/server.h"

/* Files of volumes are called NAME.snap; others in the folder are left alone. */
static const char suffix[] = ".snap";

/* One address of another host has at most so many eighths of the memory, and of the volumes. */
enum { OTHERS_EIGHTHS = 7, PATH_BYTES = 4096 };

/* A volume is kept so long for a writer whose connection was lost before its first superblock. */
enum { EMPTY_MS = 30000 };

/* What a client has left that it was made for. BLANK: no snapshot was ever in it. */
static enum snap_volume_content content_left_in(struct snap_volume *volume)
{
    if (!volume->is_new || volume->was_written || volume->users || volume->client ||
        volume->is_to_end || snap_volume_look(volume).state != SNAP_VOLUME_READY)
        return SNAP_VOLUME_WRITTEN;
    const enum snap_volume_content content = snap_volume_content_of(volume);
    volume->was_written = content == SNAP_VOLUME_WRITTEN;
    return content;
}

static void sweep_empty(struct snap_volume *volume)
{
    const uint64_t now_ns = mover_now_ns();
    if (content_left_in(volume) != SNAP_VOLUME_BLANK)
        volume->empty_ns = 0;
    else if (!volume->empty_ns)
        volume->empty_ns = now_ns;
    else if (now_ns - volume->empty_ns > EMPTY_MS * NS_PER_MS)
        snap_volume_end(volume, true);
}

void snap_volumes_sweep(struct snap_server *server)
{
    for (uint32_t i = 0; i < SNAP_VOLUMES_MAX; i++) {
        struct snap_volume *volume = server->volumes[i];
        if (!volume)
            continue;
        sweep_empty(volume);
        if (snap_volume_look(volume).state != SNAP_VOLUME_GONE)
            continue;
        snap_volume_free(volume);
        server->volumes[i] = NULL;
    }
}

bool snap_volumes_make_room(struct snap_server *server)
{
    bool is_any_ending = false;
    for (uint32_t i = 0; i < SNAP_VOLUMES_MAX; i++) {
        struct snap_volume *volume = server->volumes[i];
        if (!volume)
            continue;
        const enum snap_volume_content content = content_left_in(volume);
        if (content == SNAP_VOLUME_BLANK)
            snap_volume_end(volume, true);
        is_any_ending |= volume->is_to_end || content == SNAP_VOLUME_BUSY;
    }
    return is_any_ending;
}

struct snap_volume *snap_volumes_find(const struct snap_server *server, const char *name)
{
    for (uint32_t i = 0; i < SNAP_VOLUMES_MAX; i++)
        if (server->volumes[i] && !strcmp(server->volumes[i]->name, name))
            return server->volumes[i];
    return NULL;
}

/* NULL: of all. */
static uint64_t bytes_of_origin(const struct snap_server *server, const struct in6_addr *origin,
                                uint32_t *count)
{
    uint64_t bytes = 0;
    *count = 0;
    for (uint32_t i = 0; i < SNAP_VOLUMES_MAX; i++) {
        const struct snap_volume *volume = server->volumes[i];
        if (!volume || (origin && !IN6_ARE_ADDR_EQUAL(&volume->origin, origin)))
            continue;
        bytes += volume->bytes;
        ++*count;
    }
    return bytes;
}

uint64_t snap_volumes_bytes(const struct snap_server *server)
{
    uint32_t count;
    return bytes_of_origin(server, NULL, &count);
}

static bool volumes_have_room(const struct snap_server *server, const struct snap_guest *guest,
                              uint64_t bytes, char why[SNAP_WIRE_TEXT_BYTES])
{
    const uint64_t used = snap_volumes_bytes(server), all = server->memory_bytes;
    const uint64_t most = all / 8 * OTHERS_EIGHTHS;
    const uint32_t most_volumes = SNAP_VOLUMES_MAX / 8 * OTHERS_EIGHTHS;
    uint32_t own_volumes;
    const uint64_t own = bytes_of_origin(server, &guest->origin, &own_volumes);
    if (used > all || bytes > all - used)
        snprintf(why, SNAP_WIRE_TEXT_BYTES,
                 "the server has %" PRIu64 " of %" PRIu64 " bytes left, and %" PRIu64
                 " are asked for",
                 used > all ? 0 : all - used, all, bytes);
    else if (!guest->is_here && (own > most || bytes > most - own || own_volumes >= most_volumes))
        snprintf(why, SNAP_WIRE_TEXT_BYTES,
                 "another host may have %" PRIu64 " bytes in %u volumes here, and has %" PRIu64
                 " in %u",
                 most, most_volumes, own, own_volumes);
    else
        return true;
    return false;
}

static struct snap_volume **find_free_place(struct snap_server *server)
{
    for (uint32_t i = 0; i < SNAP_VOLUMES_MAX; i++)
        if (!server->volumes[i])
            return &server->volumes[i];
    return NULL;
}

struct snap_volume *snap_volumes_add(struct snap_server *server, const struct snap_guest *guest,
                                     const char *name, uint64_t bytes,
                                     char why[SNAP_WIRE_TEXT_BYTES])
{
    static char path[PATH_BYTES];
    struct snap_volume **place = find_free_place(server);
    if (!volumes_have_room(server, guest, bytes, why))
        return NULL;
    if (!place) {
        snprintf(why, SNAP_WIRE_TEXT_BYTES, "the server has %d volumes, and holds no more",
                 SNAP_VOLUMES_MAX);
        return NULL;
    }
    if (server->folder)
        snprintf(path, sizeof(path), "%s/%s%s", server->folder, name, suffix);
    *place = snap_volume_make(name, bytes, server->folder ? path : NULL, true);
    if (*place)
        (*place)->origin = guest->origin;
    else
        snprintf(why, SNAP_WIRE_TEXT_BYTES, "the server can hold no more: %s", strerror(errno));
    return *place;
}

/* ---- those of before ---- */

/* Sets the name without its suffix. */
static bool is_volume_file(const char *file, char name[SNAP_WIRE_NAME_BYTES])
{
    const size_t length = strlen(file), tail = sizeof(suffix) - 1;
    if (length <= tail || strcmp(file + length - tail, suffix) != 0 ||
        length - tail >= SNAP_WIRE_NAME_BYTES)
        return false;
    memcpy(name, file, length - tail);
    name[length - tail] = 0;
    return snap_wire_name_is_fit(name);
}

static int load_file(struct snap_server *server, const char *file, char *error, size_t error_bytes)
{
    char name[SNAP_WIRE_NAME_BYTES], path[PATH_BYTES];
    struct stat st;
    if (!is_volume_file(file, name))
        return 0;
    if (snprintf(path, sizeof(path), "%s/%s", server->folder, file) >= (int)sizeof(path) ||
        stat(path, &st))
        return 0;
    const uint64_t bytes = (uint64_t)st.st_size;
    struct snap_volume **place = find_free_place(server);
    if (!S_ISREG(st.st_mode) || !bytes || bytes % SNAP_BLOCK_BYTES) {
        mover_log(MOVER_LOG_WARNING, "%s is no volume, and is left alone", path);
        return 0;
    }
    if (!place || snap_volumes_bytes(server) + bytes > server->memory_bytes) {
        snprintf(error, error_bytes,
                 "%s and the volumes before it have more than --memory (%" PRIu64
                 " bytes), or are more than %d",
                 path, server->memory_bytes, SNAP_VOLUMES_MAX);
        return -ENOSPC;
    }
    *place = snap_volume_make(name, bytes, path, false);
    if (*place)
        return 0;
    snprintf(error, error_bytes, "%s: %s", path, strerror(errno));
    return -ENOMEM;
}

int snap_volumes_load(struct snap_server *server, char *error, size_t error_bytes)
{
    const struct dirent *entry;
    int code = 0;
    DIR *folder = opendir(server->folder);
    if (!folder) {
        code = -errno;
        snprintf(error, error_bytes, "%s: %s", server->folder, strerror(errno));
        return code;
    }
    while (!code && (entry = readdir(folder)))
        code = load_file(server, entry->d_name, error, error_bytes);
    closedir(folder);
    return code;
}
