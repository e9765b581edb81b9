/* SPDX-License-Identifier: BSD-2-Clause */
/* Layouts, and what each bad value gets: docs/snapshot-format.md. */
#include "snapshot/wire/message.h"

#include <string.h>

#include "common/base/bytes.h"
#include "common/base/utf8.h"

enum {
    MAGIC = 0x4e535753, /* "SWSN" */
    BLOCK_BYTES = 4096,
    HEADER_BYTES = 16,
    OPEN_BYTES = 200,
    CHECK_FIXED_BYTES = 24,
    LEAF_BYTES = 8,
    FLUSH_BYTES = 24,
    LIST_BYTES = 24,
    REMOVE_BYTES = 112,
    /* Answers: the header, the text and the instance. */
    ANSWER_FIXED_BYTES = 152,
    ANSWER_OPEN_BYTES = 200,
    ANSWER_CHECK_BYTES = 168,
    ANSWER_FLUSH_BYTES = 160,
    ANSWER_LIST_FIXED_BYTES = 160,
    VOLUME_BYTES = 176,
    WISHES = SNAP_WIRE_WRITE | SNAP_WIRE_CREATE | SNAP_WIRE_TAKE_OVER | SNAP_WIRE_RESUME,
};

_Static_assert(CHECK_FIXED_BYTES + LEAF_BYTES * SNAP_WIRE_LEAVES_MAX <= SNAP_WIRE_MESSAGE_MAX, "");
_Static_assert(ANSWER_LIST_FIXED_BYTES + VOLUME_BYTES * SNAP_WIRE_LIST_MAX <= SNAP_WIRE_MESSAGE_MAX,
               "");

bool snap_wire_name_is_fit(const char *name)
{
    const size_t bytes = strnlen(name, SNAP_WIRE_NAME_BYTES);
    return bytes && bytes < SNAP_WIRE_NAME_BYTES && name[0] != '.' && !strchr(name, '/') &&
           mover_text_is_fit(name);
}

static void message_put_text(uint8_t *at, const char *text, size_t room)
{
    memset(at, 0, room);
    memcpy(at, text, strnlen(text, room - 1));
}

/* False: it does not end, or a terminal would obey it. What follows its end is cleared. */
static bool message_get_text(const uint8_t *at, char *text, size_t room)
{
    memcpy(text, at, room);
    if (!memchr(text, 0, room) || !mover_text_is_fit(text))
        return false;
    memset(text + strlen(text), 0, room - strlen(text));
    return true;
}

static void put_message_header(uint8_t *out, enum snap_wire_type type, uint32_t status,
                               uint32_t tag, size_t bytes)
{
    memset(out, 0, bytes);
    put_le32(out, MAGIC);
    out[4] = SNAP_WIRE_VERSION;
    out[5] = (uint8_t)type;
    put_le16(out + 6, (uint16_t)status);
    put_le32(out + 8, (uint32_t)bytes);
    put_le32(out + 12, tag);
}

/* ---- requests ---- */

static size_t request_bytes(const struct snap_wire_request *request)
{
    switch (request->type) {
    case SNAP_WIRE_OPEN:
        return OPEN_BYTES;
    case SNAP_WIRE_CHECK:
        return CHECK_FIXED_BYTES + (size_t)request->leaves_count * LEAF_BYTES;
    case SNAP_WIRE_FLUSH:
        return FLUSH_BYTES;
    case SNAP_WIRE_CLOSE:
        return HEADER_BYTES;
    case SNAP_WIRE_LIST:
        return LIST_BYTES;
    case SNAP_WIRE_REMOVE:
        return REMOVE_BYTES;
    }
    return 0;
}

size_t snap_wire_put_request(uint8_t out[SNAP_WIRE_MESSAGE_MAX],
                             const struct snap_wire_request *request)
{
    const size_t bytes = request_bytes(request);
    put_message_header(out, request->type, 0, request->tag, bytes);
    switch (request->type) {
    case SNAP_WIRE_OPEN:
        put_le32(out + 16, request->wishes);
        put_le64(out + 24, request->bytes);
        memcpy(out + 32, request->session, SNAP_WIRE_ID_BYTES);
        message_put_text(out + 48, request->name, SNAP_WIRE_NAME_BYTES);
        message_put_text(out + 144, request->writer, SNAP_WIRE_WRITER_BYTES);
        break;
    case SNAP_WIRE_CHECK:
        put_le32(out + 16, request->leaves_count);
        for (uint32_t i = 0; i < request->leaves_count; i++)
            put_le64(out + CHECK_FIXED_BYTES + i * LEAF_BYTES, request->leaves[i]);
        break;
    case SNAP_WIRE_FLUSH:
        put_le64(out + 16, request->ticket);
        break;
    case SNAP_WIRE_CLOSE:
        break;
    case SNAP_WIRE_LIST:
        put_le32(out + 16, request->first);
        break;
    case SNAP_WIRE_REMOVE:
        message_put_text(out + 16, request->name, SNAP_WIRE_NAME_BYTES);
        break;
    }
    return bytes;
}

static bool get_wish(const uint8_t *in, struct snap_wire_request *request)
{
    request->wishes = get_le32(in + 16);
    request->bytes = get_le64(in + 24);
    memcpy(request->session, in + 32, SNAP_WIRE_ID_BYTES);
    return !(request->wishes & ~(uint32_t)WISHES) && !(request->bytes % BLOCK_BYTES) &&
           message_get_text(in + 48, request->name, SNAP_WIRE_NAME_BYTES) &&
           snap_wire_name_is_fit(request->name) &&
           message_get_text(in + 144, request->writer, SNAP_WIRE_WRITER_BYTES);
}

static bool get_check(const uint8_t *in, size_t bytes, struct snap_wire_request *request)
{
    const uint32_t count = get_le32(in + 16);
    if (!count || count > SNAP_WIRE_LEAVES_MAX || bytes != CHECK_FIXED_BYTES + count * LEAF_BYTES)
        return false;
    request->leaves_count = count;
    for (uint32_t i = 0; i < count; i++) {
        request->leaves[i] = get_le64(in + CHECK_FIXED_BYTES + i * LEAF_BYTES);
        if (request->leaves[i] % BLOCK_BYTES)
            return false;
    }
    return true;
}

enum snap_wire_status snap_wire_get_request(const uint8_t *in, size_t bytes,
                                            struct snap_wire_request *request)
{
    memset(request, 0, sizeof(*request));
    if (bytes < HEADER_BYTES || get_le32(in) != MAGIC)
        return SNAP_WIRE_MALFORMED;
    request->type = in[5];
    request->tag = get_le32(in + 12);
    if (in[4] != SNAP_WIRE_VERSION)
        return SNAP_WIRE_OTHER_VERSION;
    if (get_le32(in + 8) != bytes || bytes > SNAP_WIRE_MESSAGE_MAX)
        return SNAP_WIRE_MALFORMED;
    bool is_fine = false;
    switch (request->type) {
    case SNAP_WIRE_OPEN:
        is_fine = bytes == OPEN_BYTES && get_wish(in, request);
        break;
    case SNAP_WIRE_CHECK:
        is_fine = bytes >= CHECK_FIXED_BYTES && get_check(in, bytes, request);
        break;
    case SNAP_WIRE_FLUSH:
        is_fine = bytes == FLUSH_BYTES;
        request->ticket = is_fine ? get_le64(in + 16) : 0;
        break;
    case SNAP_WIRE_CLOSE:
        is_fine = bytes == HEADER_BYTES;
        break;
    case SNAP_WIRE_LIST:
        is_fine = bytes == LIST_BYTES;
        request->first = is_fine ? get_le32(in + 16) : 0;
        break;
    case SNAP_WIRE_REMOVE:
        is_fine = bytes == REMOVE_BYTES &&
                  message_get_text(in + 16, request->name, SNAP_WIRE_NAME_BYTES) &&
                  snap_wire_name_is_fit(request->name);
        break;
    }
    return is_fine ? SNAP_WIRE_OK : SNAP_WIRE_MALFORMED;
}

/* ---- answers ---- */

/* The least, of a LIST without its volumes. 0: there is no such type. */
static size_t answer_bytes(enum snap_wire_type type)
{
    switch (type) {
    case SNAP_WIRE_OPEN:
        return ANSWER_OPEN_BYTES;
    case SNAP_WIRE_CHECK:
        return ANSWER_CHECK_BYTES;
    case SNAP_WIRE_FLUSH:
        return ANSWER_FLUSH_BYTES;
    case SNAP_WIRE_LIST:
        return ANSWER_LIST_FIXED_BYTES;
    case SNAP_WIRE_CLOSE:
    case SNAP_WIRE_REMOVE:
        return ANSWER_FIXED_BYTES;
    }
    return 0;
}

static void put_volume(uint8_t *at, const struct snap_wire_volume *volume)
{
    put_le64(at, volume->bytes);
    put_le64(at + 8, volume->epoch);
    put_le32(at + 16, volume->flags);
    message_put_text(at + 24, volume->name, SNAP_WIRE_NAME_BYTES);
    message_put_text(at + 24 + SNAP_WIRE_NAME_BYTES, volume->writer, SNAP_WIRE_WRITER_BYTES);
}

static bool get_volume(const uint8_t *at, struct snap_wire_volume *volume)
{
    volume->bytes = get_le64(at);
    volume->epoch = get_le64(at + 8);
    volume->flags = get_le32(at + 16);
    return message_get_text(at + 24, volume->name, SNAP_WIRE_NAME_BYTES) &&
           snap_wire_name_is_fit(volume->name) &&
           message_get_text(at + 24 + SNAP_WIRE_NAME_BYTES, volume->writer, SNAP_WIRE_WRITER_BYTES);
}

/* A message of a type that is not known is answered as a CLOSE is: there is no more to say. */
size_t snap_wire_put_answer(uint8_t out[SNAP_WIRE_MESSAGE_MAX],
                            const struct snap_wire_answer *answer)
{
    const enum snap_wire_type type = answer_bytes(answer->type) ? answer->type : SNAP_WIRE_CLOSE;
    const uint32_t count = type == SNAP_WIRE_LIST ? answer->count : 0;
    const size_t bytes = answer_bytes(type) + (size_t)count * VOLUME_BYTES;
    put_message_header(out, type, answer->status, answer->tag, bytes);
    message_put_text(out + 16, answer->text, SNAP_WIRE_TEXT_BYTES);
    memcpy(out + 136, answer->instance, SNAP_WIRE_ID_BYTES);
    switch (type) {
    case SNAP_WIRE_OPEN:
        memcpy(out + 152, answer->identity, SNAP_WIRE_ID_BYTES);
        put_le64(out + 168, answer->epoch);
        put_le64(out + 176, answer->bytes);
        put_le64(out + 184, answer->address);
        put_le32(out + 192, answer->key);
        put_le32(out + 196, answer->flags);
        break;
    case SNAP_WIRE_CHECK:
        put_le32(out + 152, answer->leaves_done);
        put_le64(out + 160, answer->bad_block);
        break;
    case SNAP_WIRE_FLUSH:
        put_le64(out + 152, answer->ticket);
        break;
    case SNAP_WIRE_LIST:
        put_le32(out + 152, count);
        put_le32(out + 156, answer->total);
        for (uint32_t i = 0; i < count; i++)
            put_volume(out + ANSWER_LIST_FIXED_BYTES + i * VOLUME_BYTES, &answer->volumes[i]);
        break;
    case SNAP_WIRE_CLOSE:
    case SNAP_WIRE_REMOVE:
        break;
    }
    return bytes;
}

static bool get_volumes(const uint8_t *in, size_t bytes, struct snap_wire_answer *answer)
{
    answer->count = get_le32(in + 152);
    answer->total = get_le32(in + 156);
    if (answer->count > SNAP_WIRE_LIST_MAX ||
        bytes != ANSWER_LIST_FIXED_BYTES + (size_t)answer->count * VOLUME_BYTES)
        return false;
    for (uint32_t i = 0; i < answer->count; i++)
        if (!get_volume(in + ANSWER_LIST_FIXED_BYTES + i * VOLUME_BYTES, &answer->volumes[i]))
            return false;
    return true;
}

static void get_opened(const uint8_t *in, struct snap_wire_answer *answer)
{
    memcpy(answer->identity, in + 152, SNAP_WIRE_ID_BYTES);
    answer->epoch = get_le64(in + 168);
    answer->bytes = get_le64(in + 176);
    answer->address = get_le64(in + 184);
    answer->key = get_le32(in + 192);
    answer->flags = get_le32(in + 196);
}

bool snap_wire_get_answer(const uint8_t *in, size_t bytes, struct snap_wire_answer *answer)
{
    memset(answer, 0, sizeof(*answer));
    if (bytes < ANSWER_FIXED_BYTES || get_le32(in) != MAGIC || in[4] != SNAP_WIRE_VERSION ||
        get_le32(in + 8) != bytes || bytes > SNAP_WIRE_MESSAGE_MAX)
        return false;
    answer->type = in[5];
    const uint32_t status = get_le16(in + 6);
    const size_t least = answer_bytes(answer->type);
    if (!least || bytes < least || status >= SNAP_WIRE_STATUSES ||
        (answer->type != SNAP_WIRE_LIST && bytes != least))
        return false;
    answer->status = (enum snap_wire_status)status;
    answer->tag = get_le32(in + 12);
    if (!message_get_text(in + 16, answer->text, SNAP_WIRE_TEXT_BYTES))
        return false;
    memcpy(answer->instance, in + 136, SNAP_WIRE_ID_BYTES);
    if (answer->type == SNAP_WIRE_OPEN)
        get_opened(in, answer);
    if (answer->type == SNAP_WIRE_CHECK) {
        answer->leaves_done = get_le32(in + 152);
        answer->bad_block = get_le64(in + 160);
    }
    if (answer->type == SNAP_WIRE_FLUSH)
        answer->ticket = get_le64(in + 152);
    return answer->type != SNAP_WIRE_LIST || get_volumes(in, bytes, answer);
}

const char *snap_wire_status_text(enum snap_wire_status status)
{
    switch (status) {
    case SNAP_WIRE_OK:
        return "done";
    case SNAP_WIRE_WORKING:
        return "it takes a while";
    case SNAP_WIRE_MALFORMED:
        return "the message breaks the protocol";
    case SNAP_WIRE_OTHER_VERSION:
        return "the server speaks another version of the protocol";
    case SNAP_WIRE_NOT_FOUND:
        return "there is no such volume";
    case SNAP_WIRE_BUSY:
        return "another writer has the volume";
    case SNAP_WIRE_NO_ROOM:
        return "the server has not so much memory left";
    case SNAP_WIRE_DENIED:
        return "the server does not allow it";
    case SNAP_WIRE_FENCED:
        return "another writer has taken over";
    case SNAP_WIRE_DIFFERS:
        return "a block has another sum than its leaf says";
    case SNAP_WIRE_FAILED:
        return "the server failed";
    case SNAP_WIRE_STATUSES:
        break;
    }
    return "unknown";
}
