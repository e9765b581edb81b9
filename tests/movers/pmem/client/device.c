/* SPDX-License-Identifier: BSD-2-Clause */
#include "device.h"

#include <assert.h>
#include <string.h>

enum { BASE = 0x100000 }; /* where the server has the region */

struct device the_device;

static uint64_t clock_ns;

static uint64_t now_ns(void)
{
    return clock_ns;
}

void device_wait_ms(uint64_t ms)
{
    clock_ns += ms * PMC_MS;
}

static uint64_t draw(uint64_t limit)
{
    return random_below(the_device.seed, limit);
}

static struct device_entry *entry_at(unsigned index)
{
    return &the_device.queue[(the_device.first + index) % DEVICE_QUEUE];
}

/* ---- requests ---- */

/* The bytes of a WRITE in one piece. */
static uint64_t gather(const struct device_entry *entry, uint8_t data[DEVICE_WRITE_MAX])
{
    const struct sw_pmem_op *op = &entry->op;
    uint64_t bytes = 0;
    assert(entry->request.bytes <= DEVICE_WRITE_MAX);
    if (entry->request.local == PMC_VALUE) {
        memcpy(data, &op->value, sizeof(op->value));
        return sizeof(op->value);
    }
    for (uint32_t i = 0; i < op->pieces_count; i++) {
        memcpy(data + bytes, op->pieces[i].data, op->pieces[i].bytes);
        bytes += op->pieces[i].bytes;
    }
    return bytes;
}

static void scatter(const struct device_entry *entry, const uint8_t *from)
{
    const struct sw_pmem_op *op = &entry->op;
    for (uint32_t i = 0; i < op->pieces_count; i++) {
        memcpy(op->pieces[i].data, from, op->pieces[i].bytes);
        from += op->pieces[i].bytes;
    }
}

static void store(struct device_entry *entry, bool is_torn)
{
    struct device *d = &the_device;
    const uint64_t offset = entry->request.remote - BASE;
    if (!d->is_stale)
        gather(entry, entry->data);
    d->stores(d->arg, offset);
    if (is_torn)
        medium_store_torn(&d->medium, offset, entry->data, entry->request.bytes);
    else
        medium_store(&d->medium, offset, entry->data, entry->request.bytes);
}

static void execute(struct device_entry *entry)
{
    struct device *d = &the_device;
    const uint64_t offset = entry->request.remote - BASE;
    entry->is_done = true;
    switch (entry->request.verb) {
    case PMC_WRITE:
    case PMC_ATOMIC_WRITE:
        store(entry, false);
        return;
    case PMC_FLUSH:
        medium_flush(&d->medium, offset, entry->request.bytes);
        return;
    case PMC_READ:
        /* It pushes before it what was stored: to memory, where the platform keeps its caches. */
        if (!d->kind.has_flush)
            medium_flush(&d->medium, 0, d->medium.bytes);
        if (entry->request.local == PMC_PIECES && !d->is_stale)
            scatter(entry, d->medium.now + offset);
        return;
    }
}

/* A WRITE may pass FLUSHes and READs, unless it is fenced (IBTA Vol 1 A19; 10.8.3.3). */
static bool may_pass(const struct device_entry *entry, const struct device_entry *before)
{
    const struct device_kind *kind = &the_device.kind;
    if (before->is_done)
        return true;
    if (before->request.verb != PMC_FLUSH && before->request.verb != PMC_READ)
        return false;
    return (entry->request.verb == PMC_WRITE &&
            (!entry->request.is_fenced || kind->ignores_fences)) ||
           (entry->request.verb == PMC_ATOMIC_WRITE && kind->publishes_at_once);
}

static struct device_entry *pick_next(void)
{
    const struct device *d = &the_device;
    const unsigned wanted = draw(3) || !d->count ? 0 : (unsigned)draw(d->count);
    for (unsigned i = 0; i < wanted; i++)
        if (!may_pass(entry_at(wanted), entry_at(i)))
            return d->count ? entry_at(0) : NULL;
    return d->count ? entry_at(wanted) : NULL;
}

/* Completions come in the order of requests. */
static void retire_done(void)
{
    struct device *d = &the_device;
    for (; d->count && entry_at(0)->is_done; d->count--, d->first = (d->first + 1) % DEVICE_QUEUE)
        if (entry_at(0)->request.signals && !d->is_stale)
            d->completions[(d->completion_first + d->completion_count++) % DEVICE_QUEUE] =
                entry_at(0)->request.id;
}

static void execute_next(void)
{
    struct device_entry *entry = pick_next();
    if (entry && !entry->is_done)
        execute(entry);
    retire_done();
}

/* ---- the port ---- */

static void start_connection(struct sw_pmem *p)
{
    the_device.is_asked = true;
    the_device.pmem = p;
}

/* Requests that have left this side may arrive later, until the server ends that connection. */
static void end_connection(struct sw_pmem *p)
{
    struct device *d = &the_device;
    (void)p;
    d->is_asked = false;
    d->completion_count = 0;
    if (d->is_stale)
        return;
    for (unsigned i = 0; i < d->count; i++)
        if (entry_at(i)->request.verb == PMC_WRITE || entry_at(i)->request.verb == PMC_ATOMIC_WRITE)
            gather(entry_at(i), entry_at(i)->data);
    d->is_stale = true;
}

static bool post_requests(struct sw_pmem *p, const struct pmc_request *requests, uint32_t count)
{
    struct device *d = &the_device;
    assert(p == d->pmem && !d->is_stale && count);
    if (d->count + count > DEVICE_QUEUE || draw(300) == 0)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct device_entry *entry = entry_at(d->count++);
        entry->request = requests[i];
        entry->op = *requests[i].op;
        entry->is_done = false;
        assert(entry->request.remote >= BASE &&
               entry->request.remote - BASE + entry->request.bytes <= d->medium.bytes);
    }
    return true;
}

const struct pmc_port device_port = {
    .now_ns = now_ns, .start = start_connection, .end = end_connection, .post = post_requests};

/* ---- what happens ---- */

static void drop_stale(void)
{
    the_device.count = 0;
    the_device.is_stale = false;
}

/* The client asks to be alone: what is left of earlier connections ends before the answer. */
static void connect_client(void)
{
    struct device *d = &the_device;
    struct sw_pmem *p = d->pmem;
    drop_stale();
    d->is_asked = false;
    memset(&p->answer, 0, sizeof(p->answer));
    struct pmf_region *region = &p->answer.regions[0];
    strcpy(region->name, "simulated");
    region->bytes = d->medium.bytes;
    region->kind = SW_PMEM_DAX_FILE;
    region->flags = PMF_VISIBLE | PMF_PERSISTENT;
    p->answer.count = 1;
    p->answer.ranges[0] = (struct pmf_range){
        .bytes = region->bytes, .address = BASE, .rights = SW_PMEM_READ | SW_PMEM_WRITE};
    memcpy(p->next_instance, &d->instance, sizeof(d->instance));
    p->has_flush = d->kind.has_flush;
    p->has_atomic = d->kind.has_atomic;
    p->stage = PMC_OPENING;
    pmc_live(p);
}

static void deliver_completion(void)
{
    struct device *d = &the_device;
    if (!d->completion_count)
        return;
    const uint64_t id = d->completions[d->completion_first];
    d->completion_first = (d->completion_first + 1) % DEVICE_QUEUE;
    d->completion_count--;
    pmc_completed(d->pmem, id, SW_PMEM_OK, "");
}

void device_step(void)
{
    struct device *d = &the_device;
    switch (draw(5)) {
    case 0:
        if (d->is_asked && !d->is_away)
            connect_client();
        else if (d->is_asked && draw(4) == 0)
            pmc_lost(d->pmem, SW_PMEM_UNREACHABLE, "nobody is there");
        return;
    case 1:
        if (!d->is_away)
            deliver_completion();
        return;
    default:
        if (!d->is_away || d->is_stale)
            execute_next();
    }
}

static bool is_connected(void)
{
    return the_device.pmem && the_device.pmem->stage == PMC_UP;
}

void device_disconnect(const char *why)
{
    struct device *d = &the_device;
    for (uint64_t more = draw(d->count + 1); more; more--)
        execute_next();
    if (d->count && (entry_at(0)->request.verb == PMC_WRITE) && draw(2))
        store(entry_at(0), true);
    if (!is_connected())
        return;
    /* A request says it, or an event. */
    for (unsigned i = 0; i < d->count && draw(2); i++)
        if (entry_at(i)->request.signals)
            return pmc_completed(d->pmem, entry_at(i)->request.id, SW_PMEM_UNREACHABLE, why);
    pmc_lost(d->pmem, SW_PMEM_UNREACHABLE, "%s", why);
}

void device_restart(void)
{
    device_disconnect("the server is gone");
    drop_stale();
    the_device.instance++;
}

void device_cut_power(void)
{
    device_disconnect("the power is cut");
    drop_stale();
    the_device.instance++;
    medium_cut(&the_device.medium);
}
