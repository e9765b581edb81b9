/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/served.h"
#include "nvme/target/backend.h"

struct nvt_claim {
    int fd;         /* has the lock */
    uint32_t users; /* backends */
    bool is_shared;
};

static struct mover_serving claim_serving(bool is_shared)
{
    return (struct mover_serving){.is_shared = is_shared, .share_option = ",shared"};
}

static bool is_of_file(const struct nvt_claim *claim, const char *path)
{
    struct stat mine, other;
    return claim && !fstat(claim->fd, &mine) && !stat(path, &other) &&
           mine.st_dev == other.st_dev && mine.st_ino == other.st_ino;
}

/* To change a lock may lose it, where another server is faster. */
static int share_claim(struct nvt_claim *claim, const char *path, bool is_shared, char *error,
                       size_t error_size)
{
    const struct mover_serving before = claim_serving(claim->is_shared),
                               how = claim_serving(is_shared);
    char ignored[8];
    int rc = 0;
    if (claim->is_shared != is_shared)
        rc = mover_served_lock(claim->fd, path, &how, error, error_size);
    if (rc) {
        (void)mover_served_lock(claim->fd, path, &before, ignored, sizeof(ignored));
        return rc;
    }
    claim->is_shared = is_shared;
    claim->users++;
    return 0;
}

int nvt_claim_take(const struct nvt_backend_setup *setup, struct nvt_claim **out, char *error,
                   size_t error_size)
{
    const bool is_shared = setup->is_shared || setup->is_read_only;
    const struct mover_serving how = claim_serving(is_shared);
    struct nvt_claim *claim = setup->replaces ? setup->replaces->claim : NULL;
    if (is_of_file(claim, setup->path)) {
        const int rc = share_claim(claim, setup->path, is_shared, error, error_size);
        *out = rc ? NULL : claim;
        return rc;
    }
    claim = malloc(sizeof(*claim));
    if (!claim)
        return -ENOMEM;
    const int fd = mover_served_open(setup->path, setup->is_read_only ? O_RDONLY : O_RDWR, &how,
                                     error, error_size);
    if (fd < 0) {
        free(claim);
        return fd;
    }
    *claim = (struct nvt_claim){.fd = fd, .users = 1, .is_shared = is_shared};
    *out = claim;
    return 0;
}

void nvt_claim_release(struct nvt_claim *claim)
{
    if (!claim || --claim->users)
        return;
    close(claim->fd);
    free(claim);
}
