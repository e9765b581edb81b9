/* SPDX-License-Identifier: BSD-2-Clause */
/* RFC 8259. */
#include "snapshot/core/json_scan.h"

#include <string.h>

#include "common/base/utf8.h"
#include "snapshot/core/index_builder.h"

bool snap_json_fail(struct snap_json *json, const char *fault)
{
    json->fault = fault;
    return false;
}

static void skip_space(struct snap_json *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        json->at++;
}

bool snap_json_accept(struct snap_json *json, char character)
{
    skip_space(json);
    if (json->at == json->end || *json->at != character)
        return false;
    json->at++;
    return true;
}

bool snap_json_expect(struct snap_json *json, char character)
{
    if (snap_json_accept(json, character))
        return true;
    switch (character) {
    case '{':
        return snap_json_fail(json, "a { is missing");
    case ':':
        return snap_json_fail(json, "a : is missing");
    case '[':
        return snap_json_fail(json, "a [ is missing");
    case '"':
        return snap_json_fail(json, "a string is missing");
    default:
        return snap_json_fail(json, "a , or an end is missing");
    }
}

bool snap_json_is_at_end(struct snap_json *json)
{
    skip_space(json);
    return json->at == json->end;
}

bool snap_utf8(const char *text, size_t bytes)
{
    for (size_t at = 0, one; at < bytes; at += one) {
        one = mover_utf8_bytes((const uint8_t *)text + at, bytes - at);
        if (one == 0)
            return false;
    }
    return true;
}

static bool scan_hex(struct snap_json *json, uint32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, json->at++) {
        if (json->at == json->end)
            return snap_json_fail(json, "a string does not end");
        char c = *json->at;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return snap_json_fail(json, "\\u has four digits");
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

/* What comes after \u, and a second \u for what is above U+FFFF. */
static bool scan_code(struct snap_json *json, char bytes[4], size_t *count)
{
    uint32_t code, low;
    if (!scan_hex(json, &code))
        return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (json->end - json->at < 2 || json->at[0] != '\\' || json->at[1] != 'u')
            return snap_json_fail(json, "half of a surrogate pair");
        json->at += 2;
        if (!scan_hex(json, &low))
            return false;
        if (low < 0xdc00 || low >= 0xe000)
            return snap_json_fail(json, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
        return snap_json_fail(json, "half of a surrogate pair");
    }
    static const uint32_t LIMITS[] = {0x80, 0x800, 0x10000};
    static const uint8_t HEADS[] = {0, 0xc0, 0xe0, 0xf0};
    *count = 1;
    while (*count < 4 && code >= LIMITS[*count - 1])
        (*count)++;
    for (size_t i = *count; i-- > 1; code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3f));
    bytes[0] = (char)(HEADS[*count - 1] | code);
    return true;
}

static bool scan_escape(struct snap_json *json, char bytes[4], size_t *count)
{
    static const char NAMES[] = "\"\\/bfnrt", VALUES[] = "\"\\/\b\f\n\r\t";
    if (json->at == json->end)
        return snap_json_fail(json, "a string does not end");
    char name = *json->at++;
    if (name == 'u')
        return scan_code(json, bytes, count);
    const char *found = name == 0 ? NULL : strchr(NAMES, name);
    if (found == NULL)
        return snap_json_fail(json, "an escape is not known");
    bytes[0] = VALUES[found - NAMES];
    *count = 1;
    return true;
}

bool snap_json_text(struct snap_json *json, char *text, size_t capacity, size_t *bytes)
{
    *bytes = 0;
    if (!snap_json_expect(json, '"'))
        return false;
    for (;;) {
        char one[4];
        size_t count = 1;
        if (json->at == json->end)
            return snap_json_fail(json, "a string does not end");
        one[0] = *json->at++;
        if (one[0] == '"')
            break;
        if ((unsigned char)one[0] < 0x20)
            return snap_json_fail(json, "a control character in a string");
        if (one[0] == '\\' && !scan_escape(json, one, &count))
            return false;
        if (count > capacity - *bytes)
            return snap_json_fail(json, "a string is too long");
        memcpy(text + *bytes, one, count);
        *bytes += count;
    }
    return snap_utf8(text, *bytes) || snap_json_fail(json, "a string is not UTF-8");
}

bool snap_json_number(struct snap_json *json, uint64_t *number)
{
    skip_space(json);
    const char *begin = json->at;
    *number = 0;
    for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; json->at++)
        if (__builtin_mul_overflow(*number, UINT64_C(10), number) ||
            __builtin_add_overflow(*number, (uint64_t)(*json->at - '0'), number))
            return snap_json_fail(json, "a number is too large");
    if (json->at == begin)
        return snap_json_fail(json, "a number is missing");
    if (*begin == '0' && json->at - begin > 1)
        return snap_json_fail(json, "a number begins with 0");
    return true;
}
