/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/config/spec.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/time/clock.h"

enum { OPTION_MAX = NVT_CONF_BYTES + 8, DELAY_MAX_S = 60 };

struct text_error {
    char *text;
    size_t bytes;
};

__attribute__((format(printf, 2, 3))) static int refuse_spec(struct text_error error,
                                                             const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (error.bytes)
        vsnprintf(error.text, error.bytes, format, args);
    va_end(args);
    return -EINVAL;
}

static const char *const kind_names[] = {
    [NVT_BACKEND_RAM] = "ram",     [NVT_BACKEND_NULL] = "null", [NVT_BACKEND_FILE] = "file",
    [NVT_BACKEND_BLOCK] = "block", [NVT_BACKEND_NVME] = "nvme", [NVT_BACKEND_NVRAM] = "nvram",
    [NVT_BACKEND_RBD] = "rbd",     [NVT_BACKEND_TIER] = "tier", [NVT_BACKEND_PATH] = "path",
};

const char *nvt_backend_kind_name(enum nvt_backend_kind kind)
{
    return kind_names[kind];
}

/* Digits only: strtoull would take signs and blanks. */
static int parse_digits(const char **text, uint64_t *value)
{
    uint64_t sum = 0;
    const char *at = *text;
    if (!isdigit((unsigned char)*at))
        return -EINVAL;
    for (; isdigit((unsigned char)*at); at++)
        if (__builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(*at - '0'), &sum))
            return -EINVAL;
    *text = at;
    *value = sum;
    return 0;
}

int nvt_size_parse(const char *text, uint64_t *size_bytes)
{
    static const char units[] = "KMGT";
    uint64_t value;
    if (parse_digits(&text, &value))
        return -EINVAL;
    if (*text) {
        const char *unit = strchr(units, toupper((unsigned char)*text));
        if (!unit || text[1])
            return -EINVAL;
        if (__builtin_mul_overflow(value, 1ULL << 10 * (unit - units + 1), &value))
            return -EINVAL;
    }
    if (value > INT64_MAX)
        return -EINVAL;
    *size_bytes = value;
    return 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int nvt_uuid_parse(const char *text, uint8_t uuid[NVT_UUID_BYTES])
{
    uint8_t bytes[NVT_UUID_BYTES];
    size_t digits = 0;
    for (; *text; text++) {
        if (*text == '-' && digits && digits % 2 == 0 && text[-1] != '-')
            continue;
        const int value = hex_value(*text);
        if (value < 0 || digits == 2 * NVT_UUID_BYTES)
            return -EINVAL;
        uint8_t *byte = &bytes[digits / 2];
        *byte = (uint8_t)(digits++ % 2 ? *byte << 4 | value : value);
    }
    if (digits != 2 * NVT_UUID_BYTES || text[-1] == '-')
        return -EINVAL;
    memcpy(uuid, bytes, sizeof(bytes));
    return 0;
}

void nvt_uuid_format(const uint8_t uuid[NVT_UUID_BYTES], char text[37])
{
    char *at = text;
    for (size_t i = 0; i < NVT_UUID_BYTES; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        at += sprintf(at, "%02x", uuid[i]);
    }
}

/* "0.25%" is 2500 of a million. */
static int parse_share(const char *text, uint32_t *ppm)
{
    uint64_t whole, part = 0;
    uint32_t scale = NVT_PPM / 100;
    if (parse_digits(&text, &whole) || whole > 100)
        return -EINVAL;
    if (*text == '.')
        for (text++; isdigit((unsigned char)*text); text++) {
            scale /= 10;
            part += (uint64_t)(*text - '0') * scale;
        }
    const uint64_t sum = whole * (NVT_PPM / 100) + part;
    if (strcmp(text, "%") != 0 || sum > NVT_PPM)
        return -EINVAL;
    *ppm = (uint32_t)sum;
    return 0;
}

static int parse_delay(const char *text, uint64_t *delay_ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", NS_PER_S}};
    uint64_t value;
    if (parse_digits(&text, &value))
        return -EINVAL;
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (strcmp(text, units[i].name) == 0) {
            if (value > DELAY_MAX_S * NS_PER_S / units[i].ns)
                return -EINVAL;
            *delay_ns = value * units[i].ns;
            return 0;
        }
    return -EINVAL;
}

static int parse_nsid(const char *text, uint32_t *nsid)
{
    uint64_t value;
    if (parse_digits(&text, &value) || *text || !value || value >= UINT32_MAX)
        return -EINVAL;
    *nsid = (uint32_t)value;
    return 0;
}

static int parse_cluster(const char *name, const char *value, struct nvt_backend_spec *out,
                         struct text_error error)
{
    const bool is_conf = name[0] == 'c';
    char *place = is_conf ? out->conf : out->id;
    const size_t bytes = is_conf ? sizeof(out->conf) : sizeof(out->id);
    if (out->kind != NVT_BACKEND_RBD)
        return refuse_spec(error, "%s= is for rbd:POOL/IMAGE alone", name);
    if (!*value || strlen(value) >= bytes)
        return refuse_spec(error, "%s= has 1 to %zu bytes", name, bytes - 1);
    if (is_conf && *value != '/')
        return refuse_spec(error, "conf=%s is no path from / on", value);
    memcpy(place, value, strlen(value) + 1);
    return 0;
}

static int parse_tier_option(const char *name, const char *value, struct nvt_backend_spec *out,
                             struct text_error error)
{
    if (out->kind != NVT_BACKEND_TIER)
        return refuse_spec(error, "%s is an option of tier:", name);
    if (strcmp(name, "new-log") == 0) {
        out->makes_log = true;
        return *value ? refuse_spec(error, "new-log has no value") : 0;
    }
    if (strcmp(name, "drop-damaged") == 0) {
        out->drops_damaged = true;
        return *value ? refuse_spec(error, "drop-damaged has no value") : 0;
    }
    if (strcmp(name, "ram") == 0) {
        if (nvt_size_parse(value, &out->ram_bytes))
            return refuse_spec(error, "ram=%s is not a size; write ram=1G", value);
        return 0;
    }
    if (!*value || strlen(value) >= NVT_SPEC_LOG_MAX)
        return refuse_spec(error, "log= needs a path, or ADDR:PORT/REGION");
    if (out->log_count == NVT_SPEC_LOGS)
        return refuse_spec(error, "a log has %d copies at most", NVT_SPEC_LOGS);
    strcpy(out->logs[out->log_count++], value);
    return 0;
}

static bool is_tier_option(const char *name)
{
    return strcmp(name, "log") == 0 || strcmp(name, "ram") == 0 || strcmp(name, "new-log") == 0 ||
           strcmp(name, "drop-damaged") == 0;
}

static int parse_valued(const char *name, const char *value, struct nvt_backend_spec *out,
                        struct text_error error)
{
    if (strcmp(name, "bs") == 0) {
        if (strcmp(value, "512") != 0 && strcmp(value, "4096") != 0)
            return refuse_spec(error, "bs=%s is not a block size; use bs=512 or bs=4096", value);
        out->block_bytes = value[0] == '5' ? 512 : 4096;
    } else if (strcmp(name, "uuid") == 0) {
        if (nvt_uuid_parse(value, out->uuid))
            return refuse_spec(error, "uuid=%s is not 32 hexadecimal digits", value);
        out->has_uuid = true;
    } else if (strcmp(name, "nguid") == 0) {
        if (nvt_uuid_parse(value, out->nguid))
            return refuse_spec(error, "nguid=%s is not 32 hexadecimal digits", value);
        out->has_nguid = true;
    } else if (strcmp(name, "nsid") == 0) {
        if (parse_nsid(value, &out->nsid))
            return refuse_spec(error, "nsid=%s is not a number of 1 to 4294967294", value);
    } else if (strcmp(name, "error") == 0 || strcmp(name, "short") == 0) {
        if (parse_share(value, name[0] == 'e' ? &out->error_ppm : &out->short_ppm))
            return refuse_spec(error, "%s=%s is not a share; write %s=1%%", name, value, name);
    } else if (strcmp(name, "delay") == 0) {
        if (parse_delay(value, &out->delay_ns))
            return refuse_spec(error, "delay=%s is not a time of up to a minute; write delay=10us",
                               value);
    } else if (strcmp(name, "conf") == 0 || strcmp(name, "id") == 0) {
        return parse_cluster(name, value, out, error);
    } else if (is_tier_option(name)) {
        return parse_tier_option(name, value, out, error);
    } else {
        return refuse_spec(
            error,
            "there is no option \"%s\"; there are bs=, ro, shared, uuid=, nguid=, "
            "nsid=, conf=, id=, fence, error=, short=, delay= and unfenced, and log=, ram=, "
            "new-log and drop-damaged of tier: (a comma in a path is \",,\")",
            name);
    }
    return 0;
}

static int spec_parse_option(const char *text, size_t len, struct nvt_backend_spec *out,
                             struct text_error error)
{
    char option[OPTION_MAX];
    if (!len || len >= sizeof(option))
        return refuse_spec(error, "an option after a comma is %s (a comma in a path is \",,\")",
                           len ? "too long" : "empty");
    memcpy(option, text, len);
    option[len] = '\0';
    if (strcmp(option, "ro") == 0) {
        out->read_only = true;
        return 0;
    }
    if (strcmp(option, "shared") == 0) {
        out->shared = true;
        return 0;
    }
    if (strcmp(option, "unfenced") == 0) {
        out->unfenced = true;
        return 0;
    }
    if (strcmp(option, "fence") == 0 && out->kind == NVT_BACKEND_RBD) {
        out->fence = true;
        return 0;
    }
    char *value = strchr(option, '=');
    if (value)
        *value++ = '\0';
    return parse_valued(option, value ? value : "", out, error);
}

/* Up to a comma that stands alone. Returns what is left, or NULL where it is too long. */
static const char *take_rest(const char *text, char *out, size_t out_bytes)
{
    size_t len = 0;
    for (; *text && (*text != ',' || text[1] == ','); text++) {
        text += *text == ',';
        if (len + 1 >= out_bytes)
            return NULL;
        out[len++] = *text;
    }
    out[len] = '\0';
    return text;
}

static const char *take_kind(const char *text, enum nvt_backend_kind *kind)
{
    for (int i = NVT_BACKEND_RAM; i < NVT_BACKEND_PATH; i++) {
        const size_t len = strlen(kind_names[i]);
        if (strncmp(text, kind_names[i], len) == 0 && text[len] == ':') {
            *kind = (enum nvt_backend_kind)i;
            return text + len + 1;
        }
    }
    *kind = NVT_BACKEND_PATH;
    return text;
}

/* POOL/[NAMESPACE/]IMAGE[@SNAP] */
static int check_image(const struct nvt_backend_spec *spec, struct text_error error)
{
    const char *name = strrchr(spec->path, '/'), *at = strchr(spec->path, '@');
    const char *first = strchr(spec->path, '/');
    const bool is_named = name && name[1] && name[1] != '@' && first != spec->path;
    const bool is_spaced =
        is_named && name > first + 1 && !memchr(first + 1, '/', name - first - 1);
    const bool is_snap = !at || (name && at > name && at[1] && !strchr(at + 1, '@'));
    if (!is_named || !is_snap || (first != name && !is_spaced))
        return refuse_spec(error,
                           "\"%.64s\" is no image; write rbd:POOL/IMAGE, rbd:POOL/IMAGE@SNAPSHOT "
                           "or rbd:POOL/NAMESPACE/IMAGE",
                           spec->path);
    return 0;
}

static int check_rest(struct nvt_backend_spec *out, struct text_error error)
{
    const char *kind = kind_names[out->kind];
    if (out->kind == NVT_BACKEND_RAM || out->kind == NVT_BACKEND_NULL) {
        if (nvt_size_parse(out->path, &out->size_bytes) || !out->size_bytes)
            return refuse_spec(error, "\"%.64s\" is not a size; write %s:1G", out->path, kind);
        out->path[0] = '\0';
        return 0;
    }
    if (!out->path[0])
        return refuse_spec(error, "the path is missing; write %s:%s",
                           out->kind == NVT_BACKEND_PATH ? "file" : kind,
                           out->kind == NVT_BACKEND_RBD ? "POOL/IMAGE" : "/PATH");
    if (out->kind == NVT_BACKEND_RBD)
        return check_image(out, error);
    if (out->kind == NVT_BACKEND_PATH && out->path[0] != '/')
        return refuse_spec(
            error,
            "\"%.64s\" is no backend: write ram:SIZE, null:SIZE, file:PATH, "
            "block:PATH, nvme:/dev/ngXnY, nvram:PATH, rbd:POOL/IMAGE, tier:PATH,log=PATH or a path "
            "from / on",
            out->path);
    return 0;
}

int nvt_backend_spec_split(const char *text, struct nvt_backend_spec *out, char *error_text,
                           size_t error_bytes)
{
    const struct text_error error = {error_text, error_bytes};
    *out = (struct nvt_backend_spec){0};
    text = take_kind(text, &out->kind);
    text = take_rest(text, out->path, sizeof(out->path));
    if (!text)
        return refuse_spec(error, "the path is longer than %d bytes", PATH_MAX - 1);
    int status = check_rest(out, error);
    while (!status && *text == ',') {
        const size_t len = strcspn(++text, ",");
        status = spec_parse_option(text, len, out, error);
        text += len;
    }
    if (!status && out->kind == NVT_BACKEND_TIER && !out->log_count)
        return refuse_spec(error, "a tier needs a log; write tier:%.64s,log=PATH", out->path);
    if (!status && out->size_bytes % (out->block_bytes ? out->block_bytes : 512))
        return refuse_spec(error, "the size is not a multiple of the block size, %u bytes",
                           out->block_bytes ? out->block_bytes : 512);
    return status;
}

int nvt_backend_spec_resolve(struct nvt_backend_spec *spec, char *error_text, size_t error_bytes)
{
    const struct text_error error = {error_text, error_bytes};
    struct stat st;
    if (spec->kind != NVT_BACKEND_PATH)
        return 0;
    if (stat(spec->path, &st))
        return refuse_spec(error, "%.256s: %s; write the path of a block device or a file",
                           spec->path, strerror(errno));
    if (S_ISBLK(st.st_mode))
        spec->kind = NVT_BACKEND_BLOCK;
    else if (S_ISREG(st.st_mode))
        spec->kind = NVT_BACKEND_FILE;
    else if (S_ISCHR(st.st_mode) && strncmp(spec->path, "/dev/ng", 7) == 0)
        spec->kind = NVT_BACKEND_NVME;
    else
        return refuse_spec(error, "%.256s is neither a block device nor a file", spec->path);
    return 0;
}

int nvt_backend_spec_parse(const char *text, struct nvt_backend_spec *out, char *error,
                           size_t error_bytes)
{
    const int status = nvt_backend_spec_split(text, out, error, error_bytes);
    return status ? status : nvt_backend_spec_resolve(out, error, error_bytes);
}
