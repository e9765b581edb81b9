/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the disk of a file has failed a write since it was opened here. The kernel tells each
 * open file of that once: this one is nobody else's, so that it is told what the flush of a client
 * was told, or a write in the background.
 */
#ifndef SW_MOVERS_DISK_H
#define SW_MOVERS_DISK_H

#include <stdbool.h>

/* All zeroes: of nothing that can be looked at. */
struct mover_disk {
    bool is_watched;
    int fd;    /* of the file, for this alone */
    int error; /* the first one, an errno; 0: none */
};

/*
 * Takes a file or a block device. What has failed before is forgotten. `serves_cache`: pages of the
 * system's cache are served, so the disk gets them first, and those that it did not take go. Pages
 * that another process has mapped stay: they are written once more. Returns 0 or a negative errno.
 */
int mover_disk_open(int file_fd, bool serves_cache, struct mover_disk *disk);
/* The folder of a file: its name outlives a power cut as its bytes do. 0, also where its file
 * system has nothing to sync, or a negative errno. */
int mover_disk_sync_folder(const char *path);
/* What that errno means. */
const char *mover_disk_why(int rc);
void mover_disk_close(struct mover_disk *disk);
/* True: it has failed since the last look, and `error` is set. Waits for nothing. */
bool mover_disk_look(struct mover_disk *disk);
/* The system call itself was refused; that says nothing of the disk. */
bool mover_disk_is_refusal(int error);
/* There is no disk: the file lies in memory (tmpfs, ramfs, huge pages), and goes with the power. */
bool mover_disk_is_memory(int file_fd);

#endif
