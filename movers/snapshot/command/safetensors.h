/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files of safetensors, by their public specification: 8 bytes with the length of the header, the
 * header, which is a JSON object with a member for each tensor, and the data without holes.
 */
#ifndef SW_SNAPSHOT_SAFETENSORS_H
#define SW_SNAPSHOT_SAFETENSORS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "sidewire/snapshot.h"

/* What other readers take, too: a longer header is refused. */
enum { SNAP_HEADER_BYTES_MAX = 100000000 };

struct snap_tensor {
    char name[SW_SNAP_NAME_MAX + 1], type[16];
    uint32_t dims;
    uint64_t shape[SW_SNAP_DIMS_MAX];
    uint64_t offset, bytes; /* in the data */
    uint32_t from;          /* the caller's: where it comes from */
};

struct snap_tensors {
    struct snap_tensor *list;
    uint32_t count;
    uint64_t data_at, data_bytes; /* where the data begins in the file, and how long it is */
};

/* Reads the header of a mapped file. False, and why: what is wrong, and of which tensor. */
bool snap_tensors_read(struct snap_tensors *tensors, const uint8_t *file, uint64_t bytes,
                       char *error, size_t error_bytes);
/* Sorts them so that each lies at a multiple of its element, and says where. */
void snap_tensors_lay(struct snap_tensors *tensors);
/* The 8 bytes, the header and spaces up to a multiple of 8, to be freed. `metadata`, an object of
 * texts, may be NULL. NULL: no memory, or too long. Sets data_at. */
uint8_t *snap_tensors_header(struct snap_tensors *tensors, json_t *metadata);
void snap_tensors_free(struct snap_tensors *tensors);

#endif
