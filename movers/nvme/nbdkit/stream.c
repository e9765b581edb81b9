/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/nbdkit/stream.h"

#include <endian.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"

enum { SLOTS = 16, SLOT_BYTES = 256 * 1024, NAP_MS = 100 };

struct slot {
    struct nbd_stream *stream;
    uint8_t *data;
    struct sw_nvme_result result;
    bool is_busy, is_done;
};

struct nbd_stream {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a slot is done or free, or nobody watches any more */
    struct sw_nvme_queue *queue;
    struct sw_nvme_mem *mem;
    struct sw_nvme_namespace ns;
    uint32_t slot_bytes;
    bool is_watched;
    struct slot slots[SLOTS];
};

enum sw_nvme_status nbd_stream_open(struct sw_nvme_controller *controller,
                                    const struct sw_nvme_namespace *ns, struct sw_nvme_error *error,
                                    struct nbd_stream **out)
{
    struct sw_nvme_info info;
    struct nbd_stream *stream = calloc(1, sizeof(*stream));
    *error = (struct sw_nvme_error){.status = SW_NVME_NO_MEMORY, .text = "no memory"};
    if (!stream)
        return SW_NVME_NO_MEMORY;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    sw_nvme_info_of(controller, &info);
    stream->ns = *ns;
    stream->slot_bytes = mover_min_u32(info.transfer_max_bytes, SLOT_BYTES);
    enum sw_nvme_status status =
        sw_nvme_mem_alloc(controller, (size_t)stream->slot_bytes * SLOTS, &stream->mem);
    if (!status)
        status = sw_nvme_queue_open(controller, 0, error, &stream->queue);
    if (status) {
        nbd_stream_close(stream);
        return status;
    }
    for (unsigned i = 0; i < SLOTS; i++)
        stream->slots[i] = (struct slot){.stream = stream,
                                         .data = (uint8_t *)sw_nvme_mem_data(stream->mem) +
                                                 (size_t)i * stream->slot_bytes};
    *out = stream;
    return SW_NVME_OK;
}

void nbd_stream_close(struct nbd_stream *stream)
{
    sw_nvme_queue_close(stream->queue);
    sw_nvme_mem_release(stream->mem);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

uint32_t nbd_stream_bytes(const struct nbd_stream *stream)
{
    return stream->slot_bytes;
}

static void finish_slot(void *arg, const struct sw_nvme_result *result)
{
    struct slot *slot = arg;
    slot->result = *result;
    slot->is_done = true;
    pthread_cond_broadcast(&slot->stream->changed);
}

static enum sw_nvme_status stream_submit_slot(struct slot *slot, const struct nbd_request *request)
{
    struct nbd_stream *stream = slot->stream;
    struct sw_nvme_io io = {
        .nsid = stream->ns.nsid,
        .lba = request->lba,
        .blocks = request->blocks,
        .data = slot->data,
        .bytes = request->bytes,
        .flags = request->flags,
        .mem = stream->mem,
        .done = finish_slot,
        .arg = slot,
    };
    switch (request->kind) {
    case NBD_READ:
        return sw_nvme_read(stream->queue, &io);
    case NBD_WRITE:
        memcpy(slot->data, request->write_from, request->bytes);
        return sw_nvme_write(stream->queue, &io);
    case NBD_FLUSH:
        return sw_nvme_flush(stream->queue, &io);
    case NBD_ZEROES:
        return sw_nvme_write_zeroes(stream->queue, &io);
    case NBD_TRIM: {
        const struct sw_nvme_range range = {.blocks = htole32(request->blocks),
                                            .lba = htole64(request->lba)};
        memcpy(slot->data, &range, sizeof(range));
        io.bytes = sizeof(range);
        io.flags = 0;
        return sw_nvme_dsm(stream->queue, &io);
    }
    }
    return SW_NVME_INVALID;
}

static struct slot *stream_take_slot(struct nbd_stream *stream)
{
    for (;;) {
        for (unsigned i = 0; i < SLOTS; i++) {
            if (!stream->slots[i].is_busy) {
                stream->slots[i].is_busy = true;
                stream->slots[i].is_done = false;
                return &stream->slots[i];
            }
        }
        pthread_cond_wait(&stream->changed, &stream->lock);
    }
}

/* One thread sleeps on the queue, without the lock, so that others may submit meanwhile. */
static void wait_slot(struct nbd_stream *stream, struct slot *slot)
{
    while (!slot->is_done) {
        if (stream->is_watched) {
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        stream->is_watched = true;
        while (!slot->is_done) {
            if (sw_nvme_queue_poll(stream->queue) || !sw_nvme_queue_arm(stream->queue))
                continue;
            struct pollfd fd = {.fd = sw_nvme_queue_fd(stream->queue), .events = POLLIN};
            pthread_mutex_unlock(&stream->lock);
            poll(&fd, 1, NAP_MS);
            pthread_mutex_lock(&stream->lock);
        }
        stream->is_watched = false;
        pthread_cond_broadcast(&stream->changed);
    }
}

void nbd_stream_run(struct nbd_stream *stream, const struct nbd_request *request,
                    struct sw_nvme_result *result)
{
    pthread_mutex_lock(&stream->lock);
    struct slot *slot = stream_take_slot(stream);
    const enum sw_nvme_status status = stream_submit_slot(slot, request);
    if (status)
        slot->result = (struct sw_nvme_result){.status = status};
    else
        wait_slot(stream, slot);
    *result = slot->result;
    /* The slot is this thread's: the copy needs no lock. */
    pthread_mutex_unlock(&stream->lock);
    if (!result->status && request->kind == NBD_READ)
        memcpy(request->read_into, slot->data, request->bytes);
    pthread_mutex_lock(&stream->lock);
    slot->is_busy = false;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}
