/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric.h"

#include <assert.h>
#include <string.h>

#include "nvme/host/machine/answer.h"
#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/request.h"
#include "target.h"

struct fabric the_fabric;

uint64_t fabric_draw(uint64_t limit)
{
    uint64_t *seed = the_fabric.seed;
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % limit;
}

void fabric_fail(const char *why)
{
    if (!the_fabric.failure)
        the_fabric.failure = why;
}

static struct fabric_link *link_for(const struct sw_nvme_queue *queue)
{
    assert(queue->qid < FABRIC_LINKS);
    return &the_fabric.links[queue->qid];
}

static struct fabric_command *ring_add(struct fabric_ring *ring, const struct fabric_command *one)
{
    assert(ring->count < FABRIC_ENTRIES);
    ring->at[ring->count] = *one;
    return &ring->at[ring->count++];
}

void fabric_drop(struct fabric_ring *ring, uint32_t index)
{
    assert(index < ring->count);
    memmove(&ring->at[index], &ring->at[index + 1], (--ring->count - index) * sizeof(*ring->at));
}

static void add_completion(struct fabric_link *link, const struct fabric_completion *one)
{
    assert(link->completion_count < FABRIC_ENTRIES);
    link->completions[(link->completion_first + link->completion_count++) % FABRIC_ENTRIES] = *one;
}

/* ---- the port: clock and lock ---- */

static uint64_t now_ns(void)
{
    return the_fabric.now_ns;
}

static void lock_once(struct sw_nvme_controller *c)
{
    (void)c;
    if (the_fabric.is_locked)
        fabric_fail("the lock is taken twice");
    the_fabric.is_locked = true;
    the_fabric.is_tended = false; /* the other thread has done what it wanted */
}

static bool try_lock(struct sw_nvme_controller *c)
{
    if (the_fabric.is_tended)
        return false;
    lock_once(c);
    return true;
}

static void unlock_once(struct sw_nvme_controller *c)
{
    (void)c;
    if (!the_fabric.is_locked)
        fabric_fail("the lock is given back, and was not taken");
    the_fabric.is_locked = false;
}

/* ---- the port: connections ---- */

static void start_link(struct sw_nvme_queue *queue)
{
    struct fabric_link *link = link_for(queue);
    assert(link->state == FABRIC_CLOSED);
    *link = (struct fabric_link){.queue = queue, .state = FABRIC_ASKED};
    if (fabric_draw(200) == 0)
        nvh_queue_break(queue, SW_NVME_SYSTEM, "there is no room for a connection");
}

static void look_at_link(struct sw_nvme_queue *queue)
{
    struct fabric_link *link = link_for(queue);
    if (link->is_refused)
        return nvh_queue_break(queue, SW_NVME_REFUSED, "nobody listens");
    if (link->state == FABRIC_ANSWERED) {
        link->state = FABRIC_OPEN;
        nvh_sends_init(queue, the_fabric.inline_bytes);
        nvh_link_up(queue);
    }
    if (link->is_cut)
        nvh_link_ended(queue);
}

/* The device reads what it has not copied at once: when it sends it, and whenever it has to send
 * it again, until it reports that it is done. */
static void read_send(struct fabric_command *send)
{
    uint8_t capsule[FABRIC_CAPSULE_MAX];
    if (memcmp(send->sqe_at, &send->sqe, sizeof(send->sqe)) != 0)
        fabric_fail("a command was changed before the device had read it");
    if (!send->capsule_bytes)
        return;
    if (send->owner)
        the_fabric.touches(send->capsule_at);
    memcpy(capsule, send->capsule_at, send->capsule_bytes);
    if (send->is_read && memcmp(capsule, send->capsule, send->capsule_bytes) != 0)
        fabric_fail("data in a capsule was changed before the device was done with it");
    memcpy(send->capsule, capsule, send->capsule_bytes);
    send->is_read = true;
}

/* What has left this side may still arrive, and happen; what the device has not read is gone. */
static void make_stale(const struct fabric_link *link, struct fabric_ring *ring)
{
    for (uint32_t i = 0; i < ring->count; i++) {
        const struct fabric_command *one = &ring->at[i];
        const bool leaks = the_fabric.fault == END_LEAKS;
        if (!link->is_dead && one->owner && !one->is_executed && (one->is_read || leaks) &&
            the_fabric.stale.count < FABRIC_ENTRIES)
            ring_add(&the_fabric.stale, one);
    }
    ring->count = 0;
}

static void end_link(struct sw_nvme_queue *queue)
{
    struct fabric_link *link = link_for(queue);
    make_stale(link, &link->commands);
    make_stale(link, &link->sends);
    *link = (struct fabric_link){.queue = NULL};
}

static bool send_batch(struct sw_nvme_queue *queue, bool signals)
{
    struct fabric_link *link = link_for(queue);
    const struct nvh_sends *sends = &queue->sends;
    assert(link->state == FABRIC_OPEN && sends->count && sends->count <= NVH_BATCH);
    if (fabric_draw(2000) == 0)
        return false;
    for (uint32_t i = 0; i < sends->count; i++) {
        const struct nvh_slot *slot = &queue->slots[sends->batch[i]];
        const bool is_inline = NVF_SQE_BYTES + slot->capsule_bytes <= the_fabric.inline_bytes;
        struct fabric_command one = {.sqe = queue->sqes[sends->batch[i]],
                                     .sqe_at = &queue->sqes[sends->batch[i]],
                                     .capsule_bytes = slot->capsule_bytes,
                                     .capsule_at = slot->data,
                                     .owner = slot->is_call ? NULL : slot->result.arg,
                                     .send = slot->send,
                                     .signals = signals && i + 1 == sends->count};
        one.sequence = one.owner ? the_fabric.sequence_of(one.owner) : 0;
        if (one.sequence && one.sequence < link->sequence)
            fabric_fail("requests leave in another order than that of their submission");
        link->sequence = one.sequence ? one.sequence : link->sequence;
        if (is_inline)
            read_send(&one);
        one.is_inline = is_inline;
        one.is_read = is_inline;
        ring_add(&link->sends, &one);
    }
    return true;
}

static void tell_answer(const struct sw_nvme_queue *queue, uint32_t index)
{
    const struct nvh_slot *slot = &queue->slots[index];
    if (index < queue->slots_max && slot->state == NVH_SENT && slot->answered && !slot->is_call)
        the_fabric.answers(slot->result.arg);
}

static void deliver_one(struct fabric_link *link)
{
    const struct fabric_completion one = link->completions[link->completion_first];
    link->completion_first = (link->completion_first + 1) % FABRIC_ENTRIES;
    link->completion_count--;
    if (one.is_send)
        return nvh_send_done(link->queue, one.send);
    nvh_answered(link->queue, &one.cqe);
    tell_answer(link->queue, le16toh(one.cqe.cid) & ((1 << NVH_CID_INDEX_BITS) - 1));
}

static void drain_link(struct sw_nvme_queue *queue)
{
    struct fabric_link *link = link_for(queue);
    if (!link->completion_count)
        return;
    nvh_batch_begin(queue);
    for (uint64_t more = 1 + fabric_draw(NVH_BATCH);
         more && link->completion_count && !queue->is_broken; more--)
        deliver_one(link);
    nvh_batch_end(queue);
}

/* ---- the port: an exchange of four messages, of which the last one proves the target ---- */

static void tell_step(struct sw_nvme_queue *queue, uint8_t step)
{
    link_for(queue)->host_step = step;
    queue->auth.sends = step % 2 == 0;
    queue->auth.has_ended = step == 4;
}

static bool start_auth(struct sw_nvme_queue *queue)
{
    tell_step(queue, 0);
    return true;
}

static size_t send_auth(struct sw_nvme_queue *queue, uint8_t *message)
{
    const uint8_t step = link_for(queue)->host_step;
    message[0] = step;
    tell_step(queue, step + 1);
    return 16;
}

static void receive_auth(struct sw_nvme_queue *queue, const uint8_t *message, size_t len)
{
    const uint8_t step = link_for(queue)->host_step;
    assert(len >= 2);
    if (message[0] != step)
        fabric_fail("the messages of an authentication are out of order");
    tell_step(queue, step + 1);
    if (queue->auth.has_ended && the_target.wants_proof && !message[1] &&
        the_fabric.fault != PROOF_FORGOTTEN)
        queue->auth.is_proof_false = queue->auth.has_failed = true;
}

static void end_auth(struct sw_nvme_queue *queue)
{
    link_for(queue)->host_step = 0;
}

const struct nvh_port fabric_port = {
    .now_ns = now_ns,
    .lock = lock_once,
    .try_lock = try_lock,
    .unlock = unlock_once,
    .start = start_link,
    .look = look_at_link,
    .end = end_link,
    .send = send_batch,
    .drain = drain_link,
    .auth_start = start_auth,
    .auth_send = send_auth,
    .auth_receive = receive_auth,
    .auth_end = end_auth,
};

/* ---- what happens ---- */

/* The oldest SEND arrives. */
static void arrive_next(struct fabric_link *link)
{
    if (!link->sends.count || link->commands.count == FABRIC_ENTRIES)
        return;
    struct fabric_command *send = &link->sends.at[0];
    if (!send->is_inline)
        read_send(send);
    send->is_read = true;
    if (link->arrived - link->known >= link->queue->size - 1)
        fabric_fail("there are more commands than the controller's ring has room for");
    link->arrived++;
    target_take(link);
    ring_add(&link->reports, send);
    ring_add(&link->commands, send);
    fabric_drop(&link->sends, 0);
}

/* The device is done with SENDs up to the next one that it reports. */
static void report_sends(struct fabric_link *link)
{
    struct fabric_ring *reports = &link->reports;
    uint32_t count = 0;
    while (count < reports->count && !reports->at[count].signals)
        count++;
    if (count == reports->count || link->completion_count + 8 >= FABRIC_ENTRIES)
        return;
    add_completion(link,
                   &(struct fabric_completion){.is_send = true, .send = reports->at[count].send});
    const bool is_late = the_fabric.fault == SEND_READ_LATE; /* it is read with the next ones */
    reports->at[count].signals = false;
    for (uint32_t i = 0; i < count + !is_late; i++) {
        if (!reports->at[0].is_inline)
            read_send(&reports->at[0]);
        fabric_drop(reports, 0);
    }
}

static void execute_any(struct fabric_link *link)
{
    struct fabric_ring *commands = &link->commands;
    if (!commands->count)
        return;
    struct fabric_command *one = &commands->at[fabric_draw(commands->count)];
    if (!one->is_executed && target_execute(link, one))
        one->is_executed = true;
}

static void push_answer(struct fabric_link *link, struct fabric_command *one)
{
    const uint32_t behind = link->arrived - link->known;
    struct fabric_completion answer = {.is_send = false};
    answer.cqe.cid = one->sqe.cid;
    answer.cqe.status = htole16((uint16_t)(one->status << 1));
    answer.cqe.result = htole64(one->result);
    /* A sloppy target says where its head was, until all is answered. */
    if (!the_fabric.is_sloppy || !link->queue->qid)
        link->known += (uint32_t)fabric_draw(behind + 1);
    answer.cqe.sq_head = htole16((uint16_t)(link->known % link->queue->size));
    link->last = answer.cqe;
    add_completion(link, &answer);
}

static void answer_any(struct fabric_link *link)
{
    struct fabric_ring *commands = &link->commands;
    if (!commands->count || link->completion_count + 8 >= FABRIC_ENTRIES)
        return;
    const uint32_t index = (uint32_t)fabric_draw(commands->count);
    struct fabric_command *one = &commands->at[index];
    const bool is_early =
        the_fabric.fault == ANSWER_EARLY && one->owner && one->sqe.opcode == nvme_cmd_write;
    if (!one->is_executed && !is_early)
        return;
    const bool is_lost = the_fabric.is_hostile && link->queue->qid && fabric_draw(400) == 0;
    if (!is_lost)
        push_answer(link, one);
    fabric_drop(commands, index);
    if (!commands->count)
        link->known = link->arrived;
}

static void repeat_answer(struct fabric_link *link)
{
    if (the_fabric.is_hostile && link->last.cid && fabric_draw(100) == 0 &&
        link->completion_count + 8 < FABRIC_ENTRIES)
        add_completion(link, &(struct fabric_completion){.cqe = link->last});
}

static void step_link(struct fabric_link *link)
{
    if (link->state == FABRIC_ASKED) {
        if (fabric_draw(60) == 0)
            link->is_refused = true;
        else
            link->state = FABRIC_ANSWERED;
        return;
    }
    if (link->state != FABRIC_OPEN || link->is_cut || link->is_refused)
        return;
    switch (fabric_draw(8)) {
    case 0:
    case 1:
        return arrive_next(link);
    case 2:
    case 3:
        return execute_any(link);
    case 4:
    case 5:
        return answer_any(link);
    case 6:
        return report_sends(link);
    default:
        return repeat_answer(link);
    }
}

static void leak_send(struct fabric_command *send)
{
    if (the_fabric.fault == END_LEAKS)
        read_send(send);
}

/* Commands of connections that the host has ended: with what they had brought along. */
static void execute_stale(void)
{
    struct fabric_ring *stale = &the_fabric.stale;
    if (!stale->count)
        return;
    const uint32_t index = (uint32_t)fabric_draw(stale->count);
    if (!stale->at[index].is_inline)
        leak_send(&stale->at[index]);
    target_execute(NULL, &stale->at[index]);
    fabric_drop(stale, index);
}

void fabric_step(void)
{
    if (fabric_draw(60) == 0)
        return execute_stale();
    for (uint64_t more = 1 + fabric_draw(12); more && !the_fabric.is_away; more--)
        step_link(&the_fabric.links[fabric_draw(FABRIC_LINKS)]);
}

void fabric_cut(void)
{
    for (unsigned i = 0; i < FABRIC_LINKS; i++) {
        struct fabric_link *link = &the_fabric.links[i];
        for (uint64_t more = fabric_draw(4); more && link->state == FABRIC_OPEN; more--)
            execute_any(link);
        if (link->state != FABRIC_CLOSED)
            link->is_cut = true;
    }
}
