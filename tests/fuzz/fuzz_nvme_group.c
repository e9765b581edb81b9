/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a member of a group reads: records, messages, and messages to a member that leads, from
 * strangers and from others that have joined, where one member has a namespace and where all are
 * active; and a member that starts, with what it finds in the log and hears of a leader. The first
 * byte says which. What was taken is the same when it is put and taken again, and a member that
 * leads goes on.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/group/machine.h"

enum { STEP_BYTES_MAX = 256, PAUSE_MS = 60 };

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static void check_record(const uint8_t *data, size_t size)
{
    static struct nvg_record one, two;
    uint8_t bytes[NVG_RECORD_MAX];
    if (!nvg_record_get(data, size, &one))
        return;
    const size_t count = nvg_record_put(&one, bytes);
    demand(count == size && nvg_record_get(bytes, count, &two) && !memcmp(&one, &two, sizeof(one)));
}

static void check_message(const uint8_t *data, size_t size)
{
    static struct nvg_message one, two;
    uint8_t bytes[NVG_MESSAGE_MAX];
    if (!nvg_message_get(data, size, &one))
        return;
    const size_t count = nvg_message_put(&one, bytes);
    demand(count == size && nvg_message_get(bytes, count, &two) &&
           !memcmp(&one, &two, sizeof(one)));
}

/* ---- a member that leads ---- */

static struct nvg_machine *leader;

static void no_dial(void *context, uint32_t link, const char *address)
{
    (void)context;
    (void)link;
    (void)address;
}

static void no_send(void *context, uint32_t link, const uint8_t *message, size_t bytes)
{
    static struct nvg_message sent;
    (void)context;
    demand(leader->links[link].is_up && nvg_message_get(message, bytes, &sent));
}

static void no_hang_up(void *context, uint32_t link)
{
    (void)context;
    (void)link;
}

static void no_order(void *context)
{
    (void)context;
}

static void no_append(void *context, const uint8_t *record, size_t bytes)
{
    static struct nvg_record appended;
    (void)context;
    demand(nvg_record_get(record, bytes, &appended));
}

static void no_tell(void *context, const struct nvg_event *event)
{
    (void)context;
    (void)event;
}

static uint64_t no_draw(void *context)
{
    (void)context;
    return 0; /* the group's identity, which strangers here know */
}

static void start_member(bool is_all_active, uint64_t now_ns)
{
    static const struct nvg_namespace ns = {
        .nsid = 1, .block_bytes = 512, .size_bytes = 1 << 20, .medium = "disk"};
    const struct nvg_port port = {.dial = no_dial,
                                  .send = no_send,
                                  .hang_up = no_hang_up,
                                  .journal_read = no_order,
                                  .journal_open = no_order,
                                  .journal_append = no_append,
                                  .journal_trim = no_order,
                                  .journal_close = no_order,
                                  .tell = no_tell,
                                  .draw = no_draw};
    struct nvg_setup setup = {.nqn = "nqn.a",
                              .namespace_count = 1,
                              .namespaces = &ns,
                              .is_all_active = is_all_active,
                              .timeout_ns = (uint64_t)1000 * NVG_MS};
    strcpy(setup.self.who.member, "a");
    setup.self.who.incarnation = 1;
    if (!leader)
        leader = malloc(sizeof(*leader));
    demand(leader);
    memset(leader, 0, sizeof(*leader));
    nvg_machine_start(leader, &setup, &port, now_ns);
}

static void lead_group(bool is_all_active, uint64_t now_ns)
{
    start_member(is_all_active, now_ns);
    nvg_machine_journal(leader, &(struct nvg_journal_event){.kind = NVG_JOURNAL_READ});
    nvg_machine_tick(leader, now_ns + NVG_MS);
    nvg_machine_journal(leader, &(struct nvg_journal_event){.kind = NVG_JOURNAL_OPENED});
    demand(leader->role == NVG_LEADER);
}

/* The longest message with a host's name has a byte more than 255. */
static size_t step_bytes(uint8_t said, size_t left)
{
    const size_t bytes = said == UINT8_MAX ? STEP_BYTES_MAX : said;
    return bytes < left ? bytes : left;
}

/* Steps of a byte that says what, one that says how long, and so many bytes. */
static void talk_to_leader(const uint8_t *data, size_t size, bool is_all_active)
{
    uint64_t now_ns = NVG_MS;
    lead_group(is_all_active, now_ns);
    for (size_t at = 0; at + 2 <= size && leader->role == NVG_LEADER;) {
        const uint32_t link = NVG_LINKS_IN + (data[at] >> 4);
        const size_t bytes = step_bytes(data[at + 1], size - at - 2);
        switch (data[at] & 3) {
        case 0:
            if (!leader->links[link].is_open)
                nvg_machine_link_in(leader, link);
            nvg_machine_message(leader, link, data + at + 2, bytes);
            break;
        case 1:
            nvg_machine_link_lost(leader, link);
            break;
        case 2:
            now_ns += (uint64_t)data[at + 1] * NVG_MS;
            nvg_machine_tick(leader, now_ns);
            break;
        case 3:
            nvg_machine_journal(leader, &(struct nvg_journal_event){.kind = NVG_JOURNAL_DONE});
            break;
        }
        at += 2 + ((data[at] & 3) ? 0 : bytes);
    }
}

/* ---- one that starts ---- */

/* Its target has done what it was told of that place. */
static void answer_order(uint32_t place, bool is_good)
{
    const struct nvg_mine *mine = &leader->mine[place];
    if (mine->told == NVG_TOLD_TAKE && is_good)
        nvg_machine_taken(leader, place, mine->epoch, 1 << 20);
    else
        nvg_machine_released(leader, place, mine->epoch);
}

static void step_start(uint8_t what, uint32_t link, const uint8_t *data, size_t bytes)
{
    const uint32_t caller = NVG_LINKS_IN + link;
    switch (what) {
    case 0:
        nvg_machine_record(leader, data, bytes);
        return;
    case 1:
        nvg_machine_journal(leader, &(struct nvg_journal_event){.kind = NVG_JOURNAL_READ});
        return;
    case 2:
        if (leader->role == NVG_CANDIDATE)
            nvg_machine_journal(leader, &(struct nvg_journal_event){.kind = NVG_JOURNAL_OPENED});
        return;
    case 3:
        if (leader->links[link].is_open && !leader->links[link].is_up)
            nvg_machine_link_up(leader, link);
        if (leader->links[link].is_up)
            nvg_machine_message(leader, link, data, bytes);
        return;
    case 4:
        if (!leader->links[caller].is_open)
            nvg_machine_link_in(leader, caller);
        nvg_machine_message(leader, caller, data, bytes);
        return;
    case 5:
        nvg_machine_link_lost(leader, bytes ? link : caller);
        return;
    case 6:
        answer_order(link & 1 ? 1 : NVG_NSID_MAX + 1, link & 2);
        return;
    case 7:
        if (leader->is_appending)
            nvg_machine_journal(leader, &(struct nvg_journal_event){.kind = NVG_JOURNAL_DONE});
        return;
    }
}

/* Steps of a byte that says what, one that says how long, and so many bytes. */
static void start_and_hear(const uint8_t *data, size_t size, bool is_all_active)
{
    uint64_t now_ns = NVG_MS;
    start_member(is_all_active, now_ns);
    for (size_t at = 0; at + 2 <= size && leader->role != NVG_STOPPED;) {
        const size_t bytes = step_bytes(data[at + 1], size - at - 2);
        if (data[at] & 8)
            now_ns += (uint64_t)PAUSE_MS * NVG_MS;
        step_start(data[at] & 7, data[at] >> 4, data + at + 2, bytes);
        nvg_machine_tick(leader, now_ns);
        at += 2 + bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] % 3 == 0)
        check_record(data + 1, size - 1);
    else if (data[0] % 3 == 1)
        check_message(data + 1, size - 1);
    else if (data[0] / 6 % 2 == 0)
        talk_to_leader(data + 1, size - 1, data[0] / 3 % 2);
    else
        start_and_hear(data + 1, size - 1, data[0] / 3 % 2);
    return 0;
}
