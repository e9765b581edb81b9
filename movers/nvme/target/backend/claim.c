/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/serve/served.h"
#include "nvme/target/backend/backend.h"

struct claimed_file {
    struct claimed_file *next;
    int fd;          /* has the lock, and the claim if it was not shared when it was opened */
    bool is_claimed; /* by that one */
    int claim_fd;    /* has the claim, if it came later; -1 */
    uint32_t users, staying; /* claims; those of them that are not leaving */
    bool is_unlocked;        /* another server was faster */
    struct mover_serving how;
};

struct nvt_claim {
    struct claimed_file *file;
    bool is_leaving;
};

/* The process has one list, as its locks are its own. One thread at a time opens and closes
 * backends (gate.h). */
static struct claimed_file *files;

static struct mover_serving claim_serving(const struct nvt_backend_setup *setup)
{
    return (struct mover_serving){.is_shared = setup->is_shared || setup->is_read_only,
                                  .is_unwritten = setup->is_read_only && !setup->is_shared,
                                  .share_option = ",shared"};
}

static bool is_same_share(const struct mover_serving *a, const struct mover_serving *b)
{
    return a->is_shared == b->is_shared && a->is_unwritten == b->is_unwritten;
}

/* A block device may have several nodes. */
static bool is_same_file(const struct stat *a, const struct stat *b)
{
    if (S_ISBLK(a->st_mode) && S_ISBLK(b->st_mode))
        return a->st_rdev == b->st_rdev;
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* NULL: nobody has it here, or not only those who are leaving. */
static struct claimed_file *find_left(const char *path)
{
    struct stat mine, wanted;
    if (stat(path, &wanted))
        return NULL;
    struct claimed_file *file = files;
    while (file && (file->staying || fstat(file->fd, &mine) != 0 || !is_same_file(&mine, &wanted)))
        file = file->next;
    return file;
}

static void drop_claim(struct claimed_file *file)
{
    if (file->claim_fd >= 0)
        close(file->claim_fd);
    file->claim_fd = -1;
}

/* A device that was shared until now is not claimed: a system might mount it. */
static int claim_alone(struct claimed_file *file, const char *path, const struct mover_serving *how,
                       char *error, size_t error_size)
{
    if (how->is_shared || file->is_claimed || file->claim_fd >= 0)
        return 0;
    return mover_served_claim(path, O_RDWR, how, &file->claim_fd, error, error_size);
}

/* To change a lock may lose it, where another server is faster. */
static int share_lock(struct claimed_file *file, const char *path, const struct mover_serving *how,
                      char *error, size_t error_size)
{
    char ignored[8];
    if (is_same_share(&file->how, how) && !file->is_unlocked)
        return 0;
    int rc = claim_alone(file, path, how, error, error_size);
    if (rc)
        return rc;
    rc = mover_served_lock(file->fd, path, how, error, error_size);
    file->is_unlocked =
        rc && mover_served_lock(file->fd, path, &file->how, ignored, sizeof(ignored));
    if (!rc)
        file->how = *how;
    if (file->how.is_shared)
        drop_claim(file);
    return rc;
}

static int lock_anew(const struct nvt_backend_setup *setup, const struct mover_serving *how,
                     struct claimed_file **out, char *error, size_t error_size)
{
    struct claimed_file *file = malloc(sizeof(*file));
    if (!file)
        return -ENOMEM;
    const int fd = mover_served_open(setup->path, setup->is_read_only ? O_RDONLY : O_RDWR, how,
                                     error, error_size);
    if (fd < 0) {
        free(file);
        return fd;
    }
    *file = (struct claimed_file){
        .next = files, .fd = fd, .is_claimed = !how->is_shared, .claim_fd = -1, .how = *how};
    *out = files = file;
    return 0;
}

int nvt_claim_take(const struct nvt_backend_setup *setup, struct nvt_claim **out, char *error,
                   size_t error_size)
{
    const struct mover_serving how = claim_serving(setup);
    struct nvt_claim *claim = malloc(sizeof(*claim));
    if (!claim)
        return -ENOMEM;
    struct claimed_file *file = find_left(setup->path);
    const int rc = file ? share_lock(file, setup->path, &how, error, error_size)
                        : lock_anew(setup, &how, &file, error, error_size);
    if (rc) {
        free(claim);
        return rc;
    }
    file->users++;
    file->staying++;
    *claim = (struct nvt_claim){.file = file};
    *out = claim;
    return 0;
}

static void close_claimed(struct claimed_file *file)
{
    struct claimed_file **at = &files;
    while (*at != file)
        at = &(*at)->next;
    *at = file->next;
    drop_claim(file);
    close(file->fd);
    free(file);
}

void nvt_claim_release(struct nvt_claim *claim)
{
    if (!claim)
        return;
    claim->file->staying -= !claim->is_leaving;
    if (!--claim->file->users)
        close_claimed(claim->file);
    free(claim);
}

void nvt_claim_leave(struct nvt_claim *claim)
{
    if (!claim || claim->is_leaving)
        return;
    claim->is_leaving = true;
    claim->file->staying--;
}

bool nvt_claim_stay(struct nvt_claim *claim)
{
    if (!claim || !claim->is_leaving)
        return true;
    if (claim->file->staying || claim->file->is_unlocked)
        return false;
    claim->is_leaving = false;
    claim->file->staying++;
    return true;
}
