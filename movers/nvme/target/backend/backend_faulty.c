/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults by request, for tests: around any backend, a share of the operations fails, and each
 * comes late. The draws are the same in each run.
 */
#include <errno.h>
#include <stdlib.h>

#include <nvme/types.h>

#include "common/time/clock.h"
#include "nvme/target/backend/backends.h"
#include "nvme/target/backend/uring.h"
#include "nvme/target/config/spec.h"
#include "nvme/wire/fabrics.h"

struct faulty {
    struct nvt_backend backend;
    struct nvt_backend *inner;
    uint32_t error_ppm;
    uint64_t delay_ns;
    uint64_t draw;
};

/* An operation that waits for its time. */
struct late {
    struct mover_ring_op op;
    struct faulty *faulty;
    struct nvt_io *io;
    struct __kernel_timespec delay;
};

bool nvt_fault_strikes(uint64_t *draw, uint32_t ppm)
{
    /* Threads that draw at the same time may draw the same. */
    const uint64_t drawn =
        __atomic_load_n(draw, __ATOMIC_RELAXED) * 6364136223846793005u + 1442695040888963407u;
    __atomic_store_n(draw, drawn, __ATOMIC_RELAXED); /* Knuth, MMIX */
    return (drawn >> 33) % NVT_PPM < ppm;
}

static void serve_io(struct faulty *faulty, struct nvt_io *io)
{
    if (!nvt_fault_strikes(&faulty->draw, faulty->error_ppm))
        return faulty->inner->ops->submit(faulty->inner, io);
    const bool reads = io->kind == NVT_READ || io->kind == NVT_VERIFY;
    io->done(io, reads ? NVF_MEDIA(NVME_SC_READ_ERROR) : NVF_MEDIA(NVME_SC_WRITE_FAULT));
}

static void its_time_has_come(struct mover_ring_op *op, int result)
{
    struct late *late = (struct late *)op;
    struct faulty *faulty = late->faulty;
    struct nvt_io *io = late->io;
    (void)result; /* -ETIME */
    free(late);
    serve_io(faulty, io);
}

static void backend_faulty_submit_io(struct nvt_backend *backend, struct nvt_io *io)
{
    struct faulty *faulty = (struct faulty *)backend;
    struct late *late = faulty->delay_ns ? malloc(sizeof(*late)) : NULL;
    if (!late) {
        if (faulty->delay_ns)
            return io->done(io, NVME_SC_INTERNAL);
        return serve_io(faulty, io);
    }
    *late = (struct late){.op.complete = its_time_has_come,
                          .faulty = faulty,
                          .io = io,
                          .delay = {.tv_sec = (long long)(faulty->delay_ns / NS_PER_S),
                                    .tv_nsec = (long long)(faulty->delay_ns % NS_PER_S)}};
    io->given_up = NULL; /* it is as if a slow disk had it: that does it, whoever has gone */
    io_uring_prep_timeout(nvt_uring_entry(io->uring, &late->op), &late->delay, 0, 0);
}

static void faulty_close_both(struct nvt_backend *backend)
{
    struct faulty *faulty = (struct faulty *)backend;
    faulty->inner->ops->close(faulty->inner);
    free(faulty);
}

static uint64_t size_of_inner(struct nvt_backend *backend)
{
    struct nvt_backend *inner = ((struct faulty *)backend)->inner;
    return inner->ops->size_bytes ? inner->ops->size_bytes(inner) : inner->size_bytes;
}

static void faulty_leave_inner(struct nvt_backend *backend, struct nvt_io *io)
{
    struct nvt_backend *inner = ((struct faulty *)backend)->inner;
    inner->ops->leave(inner, io);
}

static bool is_inner_ready(struct nvt_backend *backend)
{
    return nvt_backend_is_ready(((struct faulty *)backend)->inner);
}

static const struct nvt_backend_ops ops = {.kind = "faulty",
                                           .close = faulty_close_both,
                                           .submit = backend_faulty_submit_io,
                                           .size_bytes = size_of_inner};
static const struct nvt_backend_ops far_ops = {.kind = "faulty",
                                               .close = faulty_close_both,
                                               .submit = backend_faulty_submit_io,
                                               .size_bytes = size_of_inner,
                                               .is_size_far = true};
static const struct nvt_backend_ops slow_ops = {.kind = "faulty",
                                                .close = faulty_close_both,
                                                .leave = faulty_leave_inner,
                                                .is_ready = is_inner_ready,
                                                .submit = backend_faulty_submit_io,
                                                .size_bytes = size_of_inner};

int nvt_faulty_wrap(struct nvt_backend *inner, uint32_t error_ppm, uint64_t delay_ns,
                    struct nvt_backend **out)
{
    struct faulty *faulty = calloc(1, sizeof(*faulty));
    if (!faulty)
        return -ENOMEM;
    *faulty = (struct faulty){
        .backend = *inner, .inner = inner, .error_ppm = error_ppm, .delay_ns = delay_ns};
    faulty->backend.ops = inner->ops->is_size_far ? &far_ops : inner->ops->leave ? &slow_ops : &ops;
    faulty->backend.memory = NULL; /* the NIC must not pass us by */
    *out = &faulty->backend;
    return 0;
}
