/* SPDX-License-Identifier: BSD-2-Clause */
/* Takes values out of JSON and says where it was when it did not like one. */
#ifndef SW_MOVERS_NVME_CONFIG_JSON_H
#define SW_MOVERS_NVME_CONFIG_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "nvme/target/config/config.h"

struct nvt_json {
    const struct nvt_config_source *source;
    char *error;
    size_t error_bytes;
    char path[256]; /* "subsystems[0].namespaces[2]" */
};

enum nvt_presence { NVT_OPTIONAL, NVT_REQUIRED };

/* Appends to `path`; returns its length before, for nvt_json_leave(). Key NULL: an element, by its
 * index. */
size_t nvt_json_enter(struct nvt_json *json, const char *key, size_t index);
void nvt_json_leave(struct nvt_json *json, size_t at);

/* Returns -EINVAL. */
int nvt_json_fail(struct nvt_json *json, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void nvt_json_warn(struct nvt_json *json, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* `known` ends with NULL. */
void nvt_json_warn_unknown(struct nvt_json *json, json_t *object, const char *const known[]);

/* All leave `out` as it is where an optional key is absent. A number may be written as a string, as
 * the kernel's attributes are, and the other way round. */
int nvt_json_object(struct nvt_json *json, json_t *object, const char *key,
                    enum nvt_presence presence, json_t **out);
int nvt_json_text(struct nvt_json *json, json_t *object, const char *key,
                  enum nvt_presence presence, char *out, size_t out_bytes);
int nvt_json_number(struct nvt_json *json, json_t *object, const char *key,
                    enum nvt_presence presence, uint64_t max, uint64_t *out);
int nvt_json_flag(struct nvt_json *json, json_t *object, const char *key, bool *out);

/* Allocates `*out` for the elements of a list, which may be absent, and has each of them taken. */
int nvt_json_list(struct nvt_json *json, json_t *object, const char *key, size_t max,
                  size_t element_bytes, void *out, size_t *count,
                  int (*take)(struct nvt_json *json, json_t *element, void *into));

#endif
