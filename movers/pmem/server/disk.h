/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether the disk of a file has failed a write since it was opened here. The kernel tells each
 * open file of that once: this one is nobody else's, so that it is told what the flush of a client
 * was told, or a write in the background.
 */
#ifndef SW_MOVERS_PMEM_DISK_H
#define SW_MOVERS_PMEM_DISK_H

#include <stdbool.h>

struct pms_disk {
    bool is_watched;
    int fd;    /* of the file, for this alone */
    int error; /* the first one, an errno; 0: none */
};

/* Writes what still waits for the disk, and forgets what is only in memory: what a disk has not
 * taken is not served as if it had. 0, or a negative errno: the disk fails now. */
int pms_disk_open(int file_fd, struct pms_disk *disk);
void pms_disk_close(struct pms_disk *disk);
/* True: it has failed since the last look. Waits for nothing. */
bool pms_disk_look(struct pms_disk *disk);

#endif
