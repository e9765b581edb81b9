/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the servers of a user have their control sockets. Nobody else may have made that folder:
 * what is said to a socket there may be a secret. */
#ifndef SW_MOVERS_CONTROL_FOLDER_H
#define SW_MOVERS_CONTROL_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

enum {
    MOVER_CONTROL_PATH_MAX = 108, /* of a socket, with its NUL */
    MOVER_CONTROL_FOLDER_MAX = 88,
};

/* $XDG_RUNTIME_DIR/sidewire-MOVER; without that variable the same in /run/user/UID, where that is
 * there; else one in /tmp. False: the name is too long, as `error` says. */
bool mover_control_folder(const char *mover, char folder[MOVER_CONTROL_FOLDER_MAX], char *error,
                          size_t error_bytes);

/* Where the units of systemd put the socket of their server (packaging/systemd). Returns `path`. */
const char *mover_control_system_path(const char *mover, char path[MOVER_CONTROL_PATH_MAX]);

/* It is a folder of this user alone; else `error` says whose it is. */
bool mover_control_folder_is_ours(const char *folder, char *error, size_t error_bytes);

/* False, with `error`: a socket cannot have such a long path. */
bool mover_control_path_fits(const char *path, char *error, size_t error_bytes);

/* Removes the socket of a server that was killed, to which a connection was refused. So is one to a
 * file that is no socket: false, and that stays. */
bool mover_control_remove(const char *path);

/* Whether the process at the other end of a connected socket is this user's or root's: the file's
 * mode says so, too, but not where a file system keeps no modes. `by_root`: root trusts any. */
bool mover_control_is_trusted(int fd, bool by_root);

#endif
