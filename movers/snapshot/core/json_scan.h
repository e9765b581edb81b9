/* SPDX-License-Identifier: BSD-2-Clause */
/* Tokens of JSON, one after another, out of a text that may be anything. Nothing is allocated. */
#ifndef SW_SNAPSHOT_JSON_SCAN_H
#define SW_SNAPSHOT_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snap_json {
    const char *at, *end;
    const char *fault; /* the first one */
};

/* Sets the fault; always false. */
bool snap_json_fail(struct snap_json *json, const char *fault);
/* White space, then that character: passed over; or left where it is not there. */
bool snap_json_accept(struct snap_json *json, char character);
bool snap_json_expect(struct snap_json *json, char character);
/* White space, then nothing. */
bool snap_json_is_at_end(struct snap_json *json);
/* A string, unescaped: up to `capacity` bytes, without a zero at the end. */
bool snap_json_text(struct snap_json *json, char *text, size_t capacity, size_t *bytes);
/* A whole number that is not negative. */
bool snap_json_number(struct snap_json *json, uint64_t *number);

#endif
