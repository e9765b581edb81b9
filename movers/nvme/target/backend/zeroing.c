/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/zeroing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/minmax.h"
#include "nvme/target/backend/guard.h"

enum { WRITTEN_BYTES = 256 << 10 }; /* what is zeroed by writing, in one part */

/* Where the file has the next byte that was written; `end`: nowhere before. */
static uint64_t next_written(const struct nvt_zeroing *zeroing, uint64_t at, uint64_t end)
{
    if (zeroing->fd < 0)
        return at;
    const off_t found = lseek(zeroing->fd, (off_t)at, SEEK_DATA);
    if (found < 0)
        return errno == ENXIO ? end : at;
    return mover_min_u64((uint64_t)found, end);
}

static bool give_pages_back(const struct nvt_zeroing *zeroing, uint64_t at, uint64_t len_bytes)
{
    if (zeroing->fd < 0)
        return !madvise(zeroing->base + at, len_bytes, MADV_DONTNEED);
    return !fallocate(zeroing->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                      (off_t)len_bytes);
}

int64_t nvt_zeroing_step(const struct nvt_zeroing *zeroing, uint64_t at, uint64_t end)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    at = next_written(zeroing, at, end);
    if (at == end)
        return (int64_t)end;
    const uint64_t part =
        mover_min_u64(end, (at / NVT_ZEROING_BYTES + 1) * (uint64_t)NVT_ZEROING_BYTES);
    const uint64_t first_page = (at + page - 1) / page * page, last_page = part / page * page;
    if (zeroing->gives_back && at == first_page && at < last_page &&
        give_pages_back(zeroing, at, last_page - at))
        return (int64_t)last_page;
    uint64_t stop = mover_min_u64(part, at + WRITTEN_BYTES);
    if (zeroing->gives_back && at < first_page) /* an edge; pages may follow */
        stop = mover_min_u64(part, first_page);
    return nvt_guard_zero(zeroing->base + at, stop - at) ? (int64_t)stop : -EFAULT;
}
