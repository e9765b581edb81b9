/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/held_signals.h"
#include "device/queue/settle.h"
#include "link/attend.h"
#include "verbs/stock.h"
#include "verbs/wakeup.h"

static struct sw_verbs_channel *verbs_channel_of(struct ibv_comp_channel *channel)
{
    return (struct sw_verbs_channel *)channel;
}

SW_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->create_comp_channel(context);
    struct sw_verbs_channel *channel = sw_verbs_object_alloc(context, sizeof(*channel));
    if (!channel)
        return NULL;
    channel->ibv.context = context;
    channel->ibv.fd = sw_wakeup_open();
    if (channel->ibv.fd < 0) {
        const int error = errno;
        sw_verbs_object_free(context, channel);
        return sw_verbs_fail(-error);
    }
    sw_attend_mark(channel->ibv.fd);
    return &channel->ibv;
}

SW_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
    if (!sw_verbs_is_ours(ibv->context->device))
        return sw_stock()->destroy_comp_channel(ibv);
    struct sw_verbs_channel *channel = verbs_channel_of(ibv);
    sw_lock_acquire(&channel->lock);
    const bool busy = ibv->refcnt > 0;
    sw_lock_release(&channel->lock);
    if (busy)
        return EBUSY;
    sw_attend_unmark(ibv->fd);
    close(ibv->fd);
    sw_verbs_object_free(ibv->context, channel);
    return 0;
}

void sw_channel_attach(struct ibv_comp_channel *ibv)
{
    struct sw_verbs_channel *channel = verbs_channel_of(ibv);
    sw_lock_acquire(&channel->lock);
    ibv->refcnt++;
    sw_lock_release(&channel->lock);
}

void sw_channel_detach(struct ibv_comp_channel *ibv)
{
    struct sw_verbs_channel *channel = verbs_channel_of(ibv);
    sw_lock_acquire(&channel->lock);
    ibv->refcnt--;
    sw_lock_release(&channel->lock);
}

static void append_cq(struct sw_verbs_channel *channel, struct sw_verbs_cq *cq)
{
    cq->channel_next = NULL;
    if (channel->tail)
        channel->tail->channel_next = cq;
    else
        channel->head = cq;
    channel->tail = cq;
}

void sw_channel_notify(void *owner)
{
    struct sw_verbs_cq *cq = owner;
    struct sw_verbs_channel *channel = verbs_channel_of(cq->ibv.channel);
    sw_lock_acquire(&channel->lock);
    if (cq->channel_pending++ == 0)
        append_cq(channel, cq);
    sw_lock_release(&channel->lock);
    sw_wakeup_add(channel->ibv.fd); /* not before: it may run the program here, which pops */
}

/* Takes the oldest CQ's event; a CQ with more of them goes to the end. */
static struct sw_verbs_cq *pop_cq(struct sw_verbs_channel *channel)
{
    sw_lock_acquire(&channel->lock);
    struct sw_verbs_cq *cq = channel->head;
    if (cq) {
        channel->head = cq->channel_next;
        if (!channel->head)
            channel->tail = NULL;
        if (--cq->channel_pending > 0)
            append_cq(channel, cq);
        cq->channel_delivered++;
    }
    sw_lock_release(&channel->lock);
    return cq;
}

static bool has_event(const void *arg)
{
    const struct ibv_comp_channel *channel = arg;
    struct sw_verbs_channel *ours = verbs_channel_of((struct ibv_comp_channel *)channel);
    sw_lock_acquire(&ours->lock);
    const bool has = ours->head;
    sw_lock_release(&ours->lock);
    return has;
}

/* A signal, too: the sleep that follows has to see it. */
struct blocking_wait {
    struct ibv_comp_channel *channel;
    sigset_t before; /* the thread's mask */
};

static int ends_look(void *arg)
{
    const struct blocking_wait *wait = arg;
    return has_event(wait->channel) || sw_signals_are_held(&wait->before);
}

/* Looks for packets where the read that follows would sleep. It is the kernel that sleeps in it, as
 * only the kernel knows whether to go on after a signal. Returns -1 with errno, as such a read. */
static int look_for_packets(struct ibv_comp_channel *channel, struct sw_attend *attend)
{
    struct blocking_wait wait = {.channel = channel};
    sw_signals_hold(&wait.before);
    sw_attend_look(attend, ends_look, &wait);
    const bool has_come = has_event(channel),
               is_interrupted = !has_come && sw_signals_interrupt(&wait.before);
    sw_signals_let_go(&wait.before);
    if (!has_come)
        sw_attend_leave(attend);
    if (is_interrupted)
        errno = EINTR;
    return is_interrupted ? -1 : 0;
}

static struct sw_verbs_cq *take_event(struct ibv_comp_channel *channel)
{
    struct sw_verbs_cq *found = NULL;
    while (!found && !sw_wakeup_take(channel->fd)) /* none: a CQ was destroyed in between */
        found = pop_cq(verbs_channel_of(channel));
    return found;
}

static struct sw_verbs_cq *channel_await_event(struct ibv_comp_channel *channel)
{
    struct sw_attend attend;
    if (has_event(channel) || !sw_attend_is_possible() || fcntl(channel->fd, F_GETFL) & O_NONBLOCK)
        return take_event(channel);
    if (sw_attend_begin(&attend) && look_for_packets(channel, &attend))
        return NULL;
    struct sw_verbs_cq *found = take_event(channel);
    sw_attend_end(&attend, found);
    return found;
}

SW_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                               void **cq_context)
{
    if (!sw_verbs_is_ours(channel->context->device))
        return sw_stock()->get_cq_event(channel, cq, cq_context);
    sw_nic_finish_posts(has_event, channel);
    struct sw_verbs_cq *found = channel_await_event(channel);
    if (!found)
        return -1;
    *cq = &found->ibv;
    *cq_context = found->ibv.cq_context;
    return 0;
}

SW_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
    if (!sw_verbs_is_ours(cq->context->device)) {
        sw_stock()->ack_cq_events(cq, nevents);
        return;
    }
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += nevents;
    pthread_cond_broadcast(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

static void unlink_cq(struct sw_verbs_channel *channel, const struct sw_verbs_cq *cq)
{
    struct sw_verbs_cq *before = NULL;
    for (struct sw_verbs_cq *at = channel->head; at; before = at, at = at->channel_next) {
        if (at != cq)
            continue;
        if (before)
            before->channel_next = at->channel_next;
        else
            channel->head = at->channel_next;
        if (channel->tail == at)
            channel->tail = before;
        return;
    }
}

void sw_channel_forget(struct sw_verbs_cq *cq)
{
    struct sw_verbs_channel *channel = verbs_channel_of(cq->ibv.channel);
    sw_lock_acquire(&channel->lock);
    if (cq->channel_pending) {
        unlink_cq(channel, cq);
        sw_wakeup_retract(channel->ibv.fd, cq->channel_pending);
        cq->channel_pending = 0;
    }
    const uint32_t delivered = cq->channel_delivered;
    sw_lock_release(&channel->lock);

    pthread_mutex_lock(&cq->ibv.mutex);
    while (cq->ibv.comp_events_completed != delivered)
        pthread_cond_wait(&cq->ibv.cond, &cq->ibv.mutex);
    pthread_mutex_unlock(&cq->ibv.mutex);
}
