/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One NBD connection: a queue that the threads of the connection share. The thread that waits first
 * watches the queue for all. nbdkit owns the memory of a request, so data is copied once on its
 * way.
 */
#ifndef SW_MOVERS_NVME_STREAM_H
#define SW_MOVERS_NVME_STREAM_H

#include "sidewire/nvme.h"

struct nbd_stream;

enum nbd_kind { NBD_READ, NBD_WRITE, NBD_FLUSH, NBD_ZEROES, NBD_TRIM };

struct nbd_request {
    enum nbd_kind kind;
    uint64_t lba;
    uint32_t blocks, flags; /* enum sw_nvme_flags */
    void *read_into;
    const void *write_from;
    uint32_t bytes; /* of data: at most nbd_stream_bytes() */
};

enum sw_nvme_status nbd_stream_open(struct sw_nvme_controller *controller,
                                    const struct sw_nvme_namespace *ns, struct sw_nvme_error *error,
                                    struct nbd_stream **stream);
void nbd_stream_close(struct nbd_stream *stream);
/* Data of one request. */
uint32_t nbd_stream_bytes(const struct nbd_stream *stream);
/* From any thread; returns when it has ended. */
void nbd_stream_run(struct nbd_stream *stream, const struct nbd_request *request,
                    struct sw_nvme_result *result);

#endif
