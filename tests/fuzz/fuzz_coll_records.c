/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What other ranks mail: the first bytes are a call, the rest is laid over the records that alike
 * ranks would mail. Whatever they say, no memory outside this rank's buffers is touched, and the
 * operation ends or waits.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/core/machine.h"

enum { SIZE_MAX_RANKS = 4, EAGER = 512, BUFFER = 1 << 16, HEAD = 16 };

static uint8_t send_memory[BUFFER], recv_memory[BUFFER], *scratch, *memory;
static struct coll_shown *shown;
static size_t scratch_bytes;

struct fuzz_port {
    struct coll_machine machine;
    uint8_t mails[SIZE_MAX_RANKS][COLL_SLOTS][EAGER + sizeof(struct coll_record)];
    uint64_t posted;
};

static void demand(bool holds)
{
    if (!holds)
        abort();
}

static bool fuzz_mail(void *context, uint32_t peer, enum coll_slot slot,
                      const struct coll_record *record, const void *payload)
{
    struct fuzz_port *port = context;
    demand(peer < port->machine.site.size && peer != port->machine.site.rank);
    demand(slot < COLL_SLOTS && record->payload_bytes <= EAGER);
    demand(!payload == (record->payload_bytes <= COLL_INLINE_MAX));
    return true;
}

static bool fuzz_look(void *context, uint32_t peer, enum coll_slot slot, uint64_t number,
                      struct coll_mail *mail)
{
    struct fuzz_port *port = context;
    uint8_t *place = port->mails[peer][slot];
    mail->record = (const struct coll_record *)(place + EAGER);
    mail->payload_end = place + EAGER;
    return mail->record->mark == number;
}

static void demand_local(const void *at, size_t bytes)
{
    const uint8_t *from = at;
    demand((from >= send_memory && from + bytes <= send_memory + BUFFER) ||
           (from >= recv_memory && from + bytes <= recv_memory + BUFFER) ||
           (from >= scratch && from + bytes <= scratch + scratch_bytes));
}

static bool fuzz_pull(void *context, uint32_t peer, void *to, struct coll_memory from, size_t bytes)
{
    struct fuzz_port *port = context;
    demand_local(to, bytes);
    demand(peer != port->machine.site.rank);
    memset(to, (int)from.key, bytes);
    port->posted++;
    return true;
}

static bool fuzz_push(void *context, uint32_t peer, const void *from, struct coll_memory to,
                      size_t bytes)
{
    struct fuzz_port *port = context;
    (void)to;
    demand_local(from, bytes);
    demand(peer != port->machine.site.rank);
    return ++port->posted;
}

static uint64_t fuzz_settled(void *context)
{
    return ((struct fuzz_port *)context)->posted;
}

static struct coll_memory fuzz_shown(void *context, uint32_t peer)
{
    (void)context;
    return (struct coll_memory){peer, peer};
}

static struct sw_coll_call call_of(const uint8_t *head, uint64_t *counts)
{
    struct sw_coll_call call = {
        .kind = head[2] % SW_COLL_KINDS,
        .type = head[3] % SW_COLL_TYPES,
        .op = head[4] % SW_COLL_OPS,
        .root = head[5],
        .count = head[6],
        .leaves = head[7] % 5,
        .send = send_memory,
        .recv = recv_memory,
    };
    for (unsigned i = 0; i < SIZE_MAX_RANKS; i++)
        counts[i] = head[9 + i];
    if (head[8] & 1)
        call.counts = counts;
    if (head[8] & 1 && call.kind == SW_COLL_ALL_TO_ALL)
        call.recv_counts = counts;
    return call;
}

/* What an alike rank would mail, and the rest of the data over it. */
static void lay_records(struct fuzz_port *port, const uint8_t *data, size_t size)
{
    const struct coll_machine *machine = &port->machine;
    const bool is_eager = machine->table.plan == COLL_PLAN_EAGER;
    for (uint32_t peer = 0; peer < machine->site.size; peer++) {
        for (unsigned slot = 0; slot < COLL_SLOTS; slot++) {
            struct coll_record record = machine->records[machine->site.rank];
            if (is_eager && slot == COLL_OPEN)
                record.payload_bytes =
                    (uint32_t)coll_call_mailed(&machine->call, peer, machine->site.rank);
            if (machine->call.recv_counts)
                record.count = machine->call.recv_counts[peer], record.digest = 0;
            uint8_t *bytes = (uint8_t *)&record;
            for (size_t i = 0; i < sizeof(record) && size; i++, size--)
                bytes[i] ^= *data++;
            memcpy(port->mails[peer][slot] + EAGER, &record, sizeof(record));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_port port;
    uint64_t counts[SIZE_MAX_RANKS];
    struct sw_coll_error error = {0};
    if (size < HEAD)
        return 0;
    if (!memory) {
        scratch_bytes = coll_scratch_min(SIZE_MAX_RANKS, EAGER);
        demand(!posix_memalign((void **)&memory, 64, coll_machine_bytes(SIZE_MAX_RANKS)));
        scratch = malloc(scratch_bytes);
        shown = calloc(1, coll_shown_bytes(SIZE_MAX_RANKS));
        demand(scratch && shown);
    }
    port.posted = 0;
    const uint32_t ranks = 1 + data[0] % SIZE_MAX_RANKS;
    const struct coll_site site = {.rank = data[1] % ranks,
                                   .size = ranks,
                                   .eager_bytes = EAGER,
                                   .wanted = data[8] & 2   ? COLL_PLAN_OWNERS
                                             : data[8] & 4 ? COLL_PLAN_HALVING
                                             : data[8] & 8 ? COLL_PLAN_RING
                                                           : COLL_PLAN_ANY,
                                   .scratch_bytes = scratch_bytes,
                                   .request_max = 128};
    const struct coll_port functions = {.context = &port,
                                        .posts_max = 3,
                                        .mail = fuzz_mail,
                                        .look = fuzz_look,
                                        .pull = fuzz_pull,
                                        .push = fuzz_push,
                                        .settled = fuzz_settled,
                                        .shown = fuzz_shown};
    const struct sw_coll_call call = call_of(data, counts);
    if (coll_call_check(&call, &site, &error)) {
        demand(error.status == SW_COLL_INVALID && *error.text);
        return 0;
    }
    coll_machine_init(&port.machine, &site, &functions, memory, scratch, shown);
    coll_machine_begin(&port.machine, &call, 1, (struct coll_memory){1 << 20, 1},
                       (struct coll_memory){1 << 21, 2});
    lay_records(&port, data + HEAD, size - HEAD);
    const enum sw_coll_status status = coll_machine_go(&port.machine);
    if (status == SW_COLL_AGAIN) {
        coll_machine_waits_text(&port.machine, error.text, sizeof(error.text));
        demand(*error.text);
    } else if (status) {
        demand(status == SW_COLL_MISMATCH || status == SW_COLL_PROTOCOL);
        demand(port.machine.error.status == status && *port.machine.error.text);
    }
    return 0;
}
