/* SPDX-License-Identifier: BSD-2-Clause */
/* What a machine waits for, in words. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "collectives/core/machine.h"

enum { NAMED_MAX = 16 };

struct text_writer {
    char *text;
    size_t room, length;
};

static void write_words(struct text_writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void write_words(struct text_writer *writer, const char *format, ...)
{
    if (writer->length >= writer->room)
        return;
    va_list arguments;
    va_start(arguments, format);
    const int length =
        vsnprintf(writer->text + writer->length, writer->room - writer->length, format, arguments);
    va_end(arguments);
    writer->length += (size_t)length;
}

static const struct coll_step *awaiting_step(const struct coll_machine *machine)
{
    if (machine->status != SW_COLL_AGAIN || machine->step >= machine->table.count)
        return NULL;
    const struct coll_step *step = &machine->table.steps[machine->step];
    return step->action == COLL_AWAIT && machine->cursor ? step : NULL;
}

uint32_t coll_machine_absent(const struct coll_machine *machine, bool *is_absent)
{
    memset(is_absent, 0, machine->site.size * sizeof(*is_absent));
    if (!awaiting_step(machine))
        return 0;
    for (uint32_t i = 0; i < machine->missing_count; i++)
        is_absent[machine->missing[i]] = true;
    return machine->missing_count;
}

/* "rank 3", "ranks 2, 3 and 5", "ranks 0, 1, ..., 15 and 48 more". */
static void write_missing(struct text_writer *writer, const struct coll_machine *machine)
{
    bool is_absent[SW_COLL_RANKS_MAX];
    const uint32_t count = coll_machine_absent(machine, is_absent);
    uint32_t named = 0;
    for (uint32_t i = 0; i < machine->site.size && named < NAMED_MAX; i++) {
        if (!is_absent[i])
            continue;
        const bool is_last = named + 1 == count;
        write_words(writer, "%s%u",
                    named == 0 ? (is_last ? "rank " : "ranks ") : (is_last ? " and " : ", "), i);
        named++;
    }
    if (named < count)
        write_words(writer, " and %u more", count - named);
}

void coll_machine_waits_text(const struct coll_machine *machine, char *text, size_t room)
{
    struct text_writer writer = {text, room, 0};
    const struct coll_step *step = awaiting_step(machine);
    const char *kind = sw_coll_kind_name(machine->call.kind);
    if (machine->status != SW_COLL_AGAIN) {
        write_words(&writer, "no operation is under way");
    } else if (step) {
        const bool is_one = machine->missing_count == 1;
        write_missing(&writer, machine);
        if (step->slot == COLL_OPEN)
            write_words(&writer, " %s not begun operation %" PRIu64 " (%s)",
                        is_one ? "has" : "have", machine->number, kind);
        else
            write_words(&writer, " %s begun operation %" PRIu64 " (%s), and %s not finished",
                        is_one ? "has" : "have", machine->number, kind, is_one ? "has" : "have");
    } else {
        write_words(&writer,
                    "operation %" PRIu64 " (%s) waits for %" PRIu64 " of its reads and writes",
                    machine->number, kind, machine->posted - machine->settled);
    }
}
