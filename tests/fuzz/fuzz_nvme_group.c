/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a member of a group reads: records, messages, and messages to a member that leads, from
 * strangers and from others that have joined. The first byte says which. What was taken is the same
 * when it is put and taken again, and a member that leads goes on.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/target/group/machine.h"

enum { STEP_BYTES_MAX = 255 };

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

static void lead_group(uint64_t now_ns)
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
                              .timeout_ns = (uint64_t)1000 * NVG_MS};
    strcpy(setup.self.who.member, "a");
    setup.self.who.incarnation = 1;
    if (!leader)
        leader = malloc(sizeof(*leader));
    demand(leader);
    memset(leader, 0, sizeof(*leader));
    nvg_machine_start(leader, &setup, &port, now_ns);
    nvg_machine_journal(leader, &(struct nvg_journal_event){.kind = NVG_JOURNAL_READ});
    nvg_machine_tick(leader, now_ns + NVG_MS);
    nvg_machine_journal(leader, &(struct nvg_journal_event){.kind = NVG_JOURNAL_OPENED});
    demand(leader->role == NVG_LEADER);
}

/* Steps of a byte that says what, one that says how long, and so many bytes. */
static void talk_to_leader(const uint8_t *data, size_t size)
{
    uint64_t now_ns = NVG_MS;
    lead_group(now_ns);
    for (size_t at = 0; at + 2 <= size && leader->role == NVG_LEADER;) {
        const uint32_t link = NVG_LINKS_IN + (data[at] >> 4);
        const size_t left = size - at - 2, bytes = data[at + 1] < left ? data[at + 1] : left;
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] % 3 == 0)
        check_record(data + 1, size - 1);
    else if (data[0] % 3 == 1)
        check_message(data + 1, size - 1);
    else
        talk_to_leader(data + 1, size - 1);
    return 0;
}
