/* SPDX-License-Identifier: BSD-2-Clause */
/* Where targets of a user have their control sockets. Nobody else may have made that folder: what
 * is said to a socket there may be a secret. */
#ifndef SW_MOVERS_NVME_CONTROL_FOLDER_H
#define SW_MOVERS_NVME_CONTROL_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

enum {
    NVR_PATH_MAX = 108, /* of a socket, with its NUL */
    NVR_FOLDER_MAX = 88,
};

/* $XDG_RUNTIME_DIR/sidewire-nvme; without that variable the same in /run/user/UID, where that is
 * there; else one in /tmp. False: the name is too long, as `error` says. */
bool nvr_control_folder(char folder[NVR_FOLDER_MAX], char *error, size_t error_bytes);

/* It is a folder of this user alone; else `error` says whose it is. */
bool nvr_control_folder_is_ours(const char *folder, char *error, size_t error_bytes);

/* False, with `error`: a socket cannot have such a long path. */
bool nvr_control_path_fits(const char *path, char *error, size_t error_bytes);

#endif
