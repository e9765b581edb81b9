/* SPDX-License-Identifier: BSD-2-Clause */
/* The two ways to write rules: a list of settings, and a script with a rule to a line. */
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/faults/faults.h"

static const char *const kind_names[SW_FAULT_KINDS] = {"drop",    "duplicate", "corrupt", "delay",
                                                       "reorder", "rnr",       "cut"};

static const struct {
    const char *name;
    uint32_t bit;
} packet_names[] = {
    {"send", SW_FAULT_SEND},         {"write", SW_FAULT_WRITE},   {"read", SW_FAULT_READ},
    {"response", SW_FAULT_RESPONSE}, {"atomic", SW_FAULT_ATOMIC}, {"ack", SW_FAULT_ACK},
    {"datagram", SW_FAULT_DATAGRAM}, {"mad", SW_FAULT_MAD},       {"dreq", SW_FAULT_DREQ},
};

/* Where the words of one rule are read from, and where to complain. */
struct parser {
    struct sw_faults *faults;
    char *error;
    size_t room;
    uint32_t line; /* 0: not a script */
    char *rest;    /* of the line, for strtok_r */
};

__attribute__((format(printf, 2, 3))) static int refuse_fault(const struct parser *parser,
                                                              const char *format, ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    if (parser->line)
        snprintf(parser->error, parser->room, "line %u: %s", parser->line, what);
    else
        snprintf(parser->error, parser->room, "%s", what);
    return -EINVAL;
}

/* Numbers have a point, wherever the program thinks it is. */
static double read_real(const char *word, char **end)
{
    locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!plain) {
        *end = (char *)word;
        return 0;
    }
    double value = strtod_l(word, end, plain);
    freelocale(plain);
    return value;
}

/* "20us", "1.5ms", "2s", "100ns". */
static bool read_time(const char *word, uint64_t *out_ns)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}};
    char *end;
    if (!word)
        return false;
    double value = read_real(word, &end);
    if (end == word || !isfinite(value) || value < 0 || value > 1e9)
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        if (!strcmp(end, units[i].unit)) {
            *out_ns = (uint64_t)(value * units[i].ns);
            return true;
        }
    }
    return false;
}

/* "1%", "0.01", "1e-4": as part of 2^64 - 1. */
static bool read_chance(const char *word, uint64_t *out)
{
    char *end;
    if (!word)
        return false;
    double value = read_real(word, &end);
    if (end == word)
        return false;
    if (!strcmp(end, "%"))
        value /= 100;
    else if (*end)
        return false;
    if (!(value >= 0 && value <= 1))
        return false;
    *out = value >= 1 ? UINT64_MAX : (uint64_t)(value * 0x1p64);
    return true;
}

static bool parse_read_number(const char *word, uint64_t limit, uint64_t *out)
{
    char *end;
    if (!word || !isdigit((unsigned char)*word))
        return false;
    errno = 0;
    *out = strtoull(word, &end, 0);
    return !*end && !errno && *out <= limit;
}

static struct sw_fault_rule *new_rule(const struct parser *parser, enum sw_fault_kind kind)
{
    struct sw_faults *faults = parser->faults;
    if (faults->count == SW_FAULT_RULES)
        return NULL;
    struct sw_fault_rule *rule = &faults->rules[faults->count++];
    *rule = (struct sw_fault_rule){.kind = kind,
                                   .psn = -1,
                                   .chance = UINT64_MAX,
                                   .until_ns = UINT64_MAX,
                                   .received = kind == SW_FAULT_RNR,
                                   .number = parser->line ? parser->line : faults->count};
    return rule;
}

static int too_many(const struct parser *parser)
{
    return refuse_fault(parser, "more than %d rules", SW_FAULT_RULES);
}

static int parse_no_memory(const struct parser *parser)
{
    snprintf(parser->error, parser->room, "no memory");
    return -ENOMEM;
}

/* ---- "loss=1%,dup=0.1%,reorder=2%:50us,corrupt=1e-4,delay=20us,seed=7" ---- */

static const struct setting {
    const char *name;
    enum sw_fault_kind kind;
    bool has_chance, has_time;
} settings[] = {
    {"loss", SW_FAULT_DROP, true, false},      {"dup", SW_FAULT_DUPLICATE, true, false},
    {"reorder", SW_FAULT_REORDER, true, true}, {"corrupt", SW_FAULT_CORRUPT, true, false},
    {"delay", SW_FAULT_DELAY, false, true},    {"rnr", SW_FAULT_RNR, true, false},
};

static int read_setting(const struct parser *parser, const struct setting *setting, char *value)
{
    struct sw_fault_rule *rule = new_rule(parser, setting->kind);
    if (!rule)
        return too_many(parser);
    char *time = value;
    if (setting->has_chance) {
        time = strchr(value, ':');
        if (time)
            *time++ = '\0';
        if (!read_chance(value, &rule->chance))
            return refuse_fault(parser, "%s=%s: wants a probability such as 1%% or 0.01",
                                setting->name, value);
    }
    if (!setting->has_time && time)
        return refuse_fault(parser, "%s=%s takes no time", setting->name, value);
    if (setting->has_time && !read_time(time, &rule->amount_ns))
        return refuse_fault(parser, "%s wants %s, such as %s", setting->name,
                            setting->has_chance ? "a probability and a time" : "a time",
                            setting->has_chance ? "2%:50us" : "20us");
    return 0;
}

static int read_pair(const struct parser *parser, char *name)
{
    char *value = strchr(name, '=');
    if (!value)
        return refuse_fault(parser, "'%s' is not NAME=VALUE", name);
    *value++ = '\0';
    if (!strcmp(name, "seed")) {
        if (!parse_read_number(value, UINT64_MAX, &parser->faults->seed))
            return refuse_fault(parser, "seed=%s is not a number", value);
        return 0;
    }
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++)
        if (!strcmp(name, settings[i].name))
            return read_setting(parser, &settings[i], value);
    return refuse_fault(parser, "'%s' is none of loss, dup, reorder, corrupt, delay, rnr, seed",
                        name);
}

static int faults_parse_list(const char *text, const struct parser *parser)
{
    char *copy = strdup(text), *rest = NULL;
    int rc = copy ? 0 : parse_no_memory(parser);
    for (char *pair = copy ? strtok_r(copy, ",", &rest) : NULL; pair && !rc;
         pair = strtok_r(NULL, ",", &rest))
        rc = read_pair(parser, pair);
    free(copy);
    return rc;
}

/* ---- scripts ---- */

static char *parse_next_word(struct parser *parser)
{
    return strtok_r(NULL, " \t\r", &parser->rest);
}

static int read_packets(struct parser *parser, struct sw_fault_rule *rule)
{
    const char *word = parse_next_word(parser);
    for (size_t i = 0; word && i < sizeof(packet_names) / sizeof(*packet_names); i++) {
        if (!strcmp(word, packet_names[i].name)) {
            rule->packets |= packet_names[i].bit;
            return 0;
        }
    }
    return refuse_fault(
        parser, "opcode wants send, write, read, response, atomic, ack, datagram, mad or dreq");
}

/* `for T` counts from `at T`, in whichever order they stand. */
static int read_window(struct parser *parser, struct sw_fault_rule *rule, const char *word,
                       uint64_t *length_ns)
{
    uint64_t *out = !strcmp(word, "at") ? &rule->from_ns : length_ns;
    if (!read_time(parse_next_word(parser), out))
        return refuse_fault(parser, "%s wants a time such as 200ms", word);
    return 0;
}

static int read_count(struct parser *parser, struct sw_fault_rule *rule, const char *word)
{
    uint64_t value = 0;
    bool is_psn = !strcmp(word, "psn"), is_qp = !strcmp(word, "qp");
    uint64_t limit = is_psn || is_qp ? 0xffffff : UINT32_MAX;
    if (!parse_read_number(parse_next_word(parser), limit, &value) || (!is_psn && !value))
        return refuse_fault(parser, "%s wants a number", word);
    if (is_psn)
        rule->psn = (int64_t)value;
    else if (is_qp)
        rule->qp = (uint32_t)value;
    else if (!strcmp(word, "packet"))
        rule->nth = value;
    else
        rule->times = value;
    return 0;
}

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(word, *words))
            return true;
    return false;
}

static int read_selector(struct parser *parser, struct sw_fault_rule *rule, const char *word,
                         uint64_t *length_ns)
{
    static const char *const counts[] = {"packet", "psn", "qp", "times", NULL};
    static const char *const windows[] = {"at", "for", NULL};
    if (is_one_of(word, counts))
        return read_count(parser, rule, word);
    if (is_one_of(word, windows))
        return read_window(parser, rule, word, length_ns);
    if (!strcmp(word, "opcode"))
        return read_packets(parser, rule);
    if (!strcmp(word, "once")) {
        rule->times = 1;
        return 0;
    }
    if (!strcmp(word, "received") || !strcmp(word, "sent")) {
        if (rule->kind == SW_FAULT_RNR || rule->kind == SW_FAULT_CUT)
            return refuse_fault(parser, "'%s' has no meaning with %s", word,
                                kind_names[rule->kind]);
        rule->received = *word == 'r';
        return 0;
    }
    if (strchr("0123456789.", *word)) {
        if (!read_chance(word, &rule->chance))
            return refuse_fault(parser, "'%s' is not a probability", word);
        return 0;
    }
    if (!strcmp(word, "of"))
        return 0;
    return refuse_fault(parser, "'%s' is not understood (see docs/faults.md)", word);
}

static int read_rule(struct parser *parser, const char *word)
{
    int kind = 0;
    while (kind < SW_FAULT_KINDS && strcmp(word, kind_names[kind]))
        kind++;
    if (kind == SW_FAULT_KINDS)
        return refuse_fault(
            parser, "'%s' is none of drop, duplicate, corrupt, delay, reorder, rnr, cut, seed",
            word);
    struct sw_fault_rule *rule = new_rule(parser, (enum sw_fault_kind)kind);
    if (!rule)
        return too_many(parser);
    if (kind == SW_FAULT_DELAY || kind == SW_FAULT_REORDER) {
        if (!read_time(parse_next_word(parser), &rule->amount_ns))
            return refuse_fault(parser, "%s wants a time first, such as 50us", word);
    }
    uint64_t length_ns = UINT64_MAX;
    int rc = 0;
    for (char *next = parse_next_word(parser); next && !rc; next = parse_next_word(parser))
        rc = read_selector(parser, rule, next, &length_ns);
    rule->until_ns =
        length_ns > UINT64_MAX - rule->from_ns ? UINT64_MAX : rule->from_ns + length_ns;
    return rc;
}

static int parse_read_line(struct parser *parser, char *line)
{
    line[strcspn(line, "#")] = '\0';
    char *word = strtok_r(line, " \t\r", &parser->rest);
    if (!word)
        return 0;
    if (strcmp(word, "seed"))
        return read_rule(parser, word);
    const char *value = parse_next_word(parser);
    if (!parse_read_number(value, UINT64_MAX, &parser->faults->seed) || parse_next_word(parser))
        return refuse_fault(parser, "seed wants one number");
    return 0;
}

int sw_faults_parse_script(const char *script, struct sw_faults *out, char *error, size_t room)
{
    memset(out, 0, sizeof(*out));
    struct parser parser = {.faults = out, .error = error, .room = room};
    char *copy = strdup(script);
    int rc = copy ? 0 : parse_no_memory(&parser);
    for (char *line = copy, *next; line && !rc; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        parser.line++;
        rc = parse_read_line(&parser, line);
    }
    free(copy);
    return rc;
}

#define SCRIPT_BYTES 65536

static int parse_file(const char *path, struct sw_faults *out, char *error, size_t room)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        int err = errno;
        snprintf(error, room, "cannot read %s: %s", path, strerror(err));
        return -err;
    }
    char *script = malloc(SCRIPT_BYTES + 1);
    size_t len = script ? fread(script, 1, SCRIPT_BYTES + 1, file) : 0;
    bool failed = ferror(file);
    fclose(file);
    int rc = -EINVAL;
    if (!script) {
        rc = -ENOMEM;
        snprintf(error, room, "no memory");
    } else if (failed || len > SCRIPT_BYTES || memchr(script, '\0', len)) {
        snprintf(error, room, "%s is not a script of at most %d bytes of text", path, SCRIPT_BYTES);
    } else {
        script[len] = '\0';
        rc = sw_faults_parse_script(script, out, error, room);
    }
    free(script);
    return rc;
}

int sw_faults_parse(const char *text, struct sw_faults *out, char *error, size_t room)
{
    if (*text == '@')
        return parse_file(text + 1, out, error, room);
    memset(out, 0, sizeof(*out));
    struct parser parser = {.faults = out, .error = error, .room = room};
    return faults_parse_list(text, &parser);
}
