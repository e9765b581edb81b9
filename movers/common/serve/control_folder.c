/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/control_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define REMEDY "; set XDG_RUNTIME_DIR to a folder of your own, or say --control PATH"

bool mover_control_folder(const char *mover, char folder[MOVER_CONTROL_FOLDER_MAX], char *error,
                          size_t error_bytes)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    const unsigned uid = (unsigned)geteuid();
    char found[sizeof("/run/user/4294967295")];
    struct stat stat;
    snprintf(found, sizeof(found), "/run/user/%u", uid);
    if ((!runtime || *runtime != '/') && !lstat(found, &stat) && stat.st_uid == uid)
        runtime = found;
    const int len =
        runtime && *runtime == '/'
            ? snprintf(folder, MOVER_CONTROL_FOLDER_MAX, "%s/sidewire-%s", runtime, mover)
            : snprintf(folder, MOVER_CONTROL_FOLDER_MAX, "/tmp/sidewire-%s-%u", mover, uid);
    if (len < MOVER_CONTROL_FOLDER_MAX)
        return true;
    snprintf(error, error_bytes,
             "XDG_RUNTIME_DIR is too long for the path of a socket (%s): set it to a shorter one, "
             "or say --control PATH",
             runtime);
    return false;
}

const char *mover_control_system_path(const char *mover, char path[MOVER_CONTROL_PATH_MAX])
{
    snprintf(path, MOVER_CONTROL_PATH_MAX, "/run/sidewire-%s/control.sock", mover);
    return path;
}

bool mover_control_folder_is_ours(const char *folder, char *error, size_t error_bytes)
{
    struct stat stat;
    if (lstat(folder, &stat)) {
        snprintf(error, error_bytes, "%s: %s" REMEDY, folder, strerror(errno));
        return false;
    }
    if (stat.st_uid != geteuid())
        snprintf(error, error_bytes, "%s belongs to user %u" REMEDY, folder, (unsigned)stat.st_uid);
    else if (!S_ISDIR(stat.st_mode))
        snprintf(error, error_bytes, "%s is no folder: remove it", folder);
    else if (stat.st_mode & 077)
        snprintf(error, error_bytes, "%s is open to other users: 'chmod 700 %s' closes it", folder,
                 folder);
    else
        return true;
    return false;
}

bool mover_control_path_fits(const char *path, char *error, size_t error_bytes)
{
    if (strlen(path) < MOVER_CONTROL_PATH_MAX)
        return true;
    snprintf(error, error_bytes, "%s: a socket's path has at most %d characters", path,
             MOVER_CONTROL_PATH_MAX - 1);
    return false;
}

bool mover_control_remove(const char *path)
{
    struct stat file;
    if (!stat(path, &file) && !S_ISSOCK(file.st_mode))
        return false;
    unlink(path);
    return true;
}

bool mover_control_is_trusted(int fd, bool by_root)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) &&
           (peer.uid == geteuid() || peer.uid == 0 || (by_root && geteuid() == 0));
}
