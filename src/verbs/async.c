/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/async.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "verbs/stock.h"
#include "verbs/wakeup.h"

struct sw_async_node {
    struct sw_async_node *next;
    enum ibv_event_type type;
    void *element;
};

enum element_kind { ELEMENT_PORT, ELEMENT_CQ, ELEMENT_QP, ELEMENT_SRQ, ELEMENT_WQ };

/* Types of newer kernels have no element that needs an acknowledgement. */
static enum element_kind async_kind_of(enum ibv_event_type type)
{
    switch (type) {
    case IBV_EVENT_CQ_ERR:
        return ELEMENT_CQ;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return ELEMENT_QP;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return ELEMENT_SRQ;
    case IBV_EVENT_WQ_FATAL:
        return ELEMENT_WQ;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
        return ELEMENT_PORT;
    }
    return ELEMENT_PORT;
}

int sw_async_init(struct sw_verbs_context *ctx)
{
    ctx->async_head = NULL;
    ctx->async_tail = &ctx->async_head;
    ctx->verbs.context.async_fd = sw_wakeup_open();
    return ctx->verbs.context.async_fd < 0 ? -errno : 0;
}

void sw_async_fini(struct sw_verbs_context *ctx)
{
    while (ctx->async_head) {
        struct sw_async_node *node = ctx->async_head;
        ctx->async_head = node->next;
        free(node);
    }
    close(ctx->verbs.context.async_fd);
}

void sw_async_push(void *owner, enum ibv_event_type type, void *element)
{
    struct sw_verbs_context *ctx = owner;
    struct sw_async_node *node = malloc(sizeof(*node));
    if (!node) {
        sw_error("no memory for asynchronous event %d: lost", (int)type);
        return;
    }
    node->next = NULL;
    node->type = type;
    node->element = element;
    sw_lock_acquire(&ctx->async_lock);
    *ctx->async_tail = node;
    ctx->async_tail = &node->next;
    sw_wakeup_add(ctx->verbs.context.async_fd);
    sw_lock_release(&ctx->async_lock);
}

static void count_delivered(struct sw_async_node *node)
{
    switch (async_kind_of(node->type)) {
    case ELEMENT_CQ:
        ((struct sw_verbs_cq *)node->element)->async_delivered++;
        break;
    case ELEMENT_QP:
        ((struct sw_verbs_qp *)node->element)->async_delivered++;
        break;
    case ELEMENT_SRQ:
        ((struct sw_verbs_srq *)node->element)->async_delivered++;
        break;
    case ELEMENT_PORT:
    case ELEMENT_WQ:
        break;
    }
}

static struct sw_async_node *pop_event(struct sw_verbs_context *ctx)
{
    sw_lock_acquire(&ctx->async_lock);
    struct sw_async_node *node = ctx->async_head;
    if (node) {
        ctx->async_head = node->next;
        if (!ctx->async_head)
            ctx->async_tail = &ctx->async_head;
        count_delivered(node);
    }
    sw_lock_release(&ctx->async_lock);
    return node;
}

SW_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->get_async_event(context, event);

    struct sw_async_node *node;
    do {
        if (sw_wakeup_take(context->async_fd))
            return -1;
        node = pop_event(sw_verbs_context_of(context));
    } while (!node); /* its object was destroyed between the two steps */

    event->event_type = node->type;
    if (async_kind_of(node->type) == ELEMENT_PORT)
        event->element.port_num = 1;
    else
        event->element.cq = node->element; /* all pointers of the union alike */
    free(node);
    return 0;
}

/* The counters and condition variables are public fields at the same place for every provider, but
 * stock may do more. */
static void acknowledge_one(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
    pthread_mutex_lock(mutex);
    ++*completed;
    pthread_cond_broadcast(cond);
    pthread_mutex_unlock(mutex);
}

static const struct ibv_context *context_of(const struct ibv_async_event *event)
{
    switch (async_kind_of(event->event_type)) {
    case ELEMENT_CQ:
        return event->element.cq->context;
    case ELEMENT_QP:
        return event->element.qp->context;
    case ELEMENT_SRQ:
        return event->element.srq->context;
    case ELEMENT_WQ:
        return event->element.wq->context;
    case ELEMENT_PORT:
        break;
    }
    return NULL;
}

SW_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    const struct ibv_context *context = context_of(event);
    if (!context)
        return; /* a port event names no object that anyone could wait for */
    if (!sw_verbs_is_ours(context->device)) {
        sw_stock()->ack_async_event(event);
        return;
    }
    struct ibv_cq *cq = event->element.cq;
    struct ibv_qp *qp = event->element.qp;
    struct ibv_srq *srq = event->element.srq;
    switch (async_kind_of(event->event_type)) {
    case ELEMENT_CQ:
        acknowledge_one(&cq->mutex, &cq->cond, &cq->async_events_completed);
        break;
    case ELEMENT_QP:
        acknowledge_one(&qp->mutex, &qp->cond, &qp->events_completed);
        break;
    case ELEMENT_SRQ:
        acknowledge_one(&srq->mutex, &srq->cond, &srq->events_completed);
        break;
    case ELEMENT_PORT:
    case ELEMENT_WQ:
        break;
    }
}

/* Drops the element's queued events and returns how many the program has fetched. */
static uint32_t drop_events(struct ibv_context *context, const void *element,
                            const uint32_t *delivered)
{
    struct sw_verbs_context *ctx = sw_verbs_context_of(context);
    unsigned int dropped = 0;
    sw_lock_acquire(&ctx->async_lock);
    struct sw_async_node **at = &ctx->async_head;
    while (*at) {
        struct sw_async_node *node = *at;
        if (node->element != element) {
            at = &node->next;
            continue;
        }
        *at = node->next;
        free(node);
        dropped++;
    }
    ctx->async_tail = at;
    sw_wakeup_retract(context->async_fd, dropped);
    const uint32_t fetched = *delivered;
    sw_lock_release(&ctx->async_lock);
    return fetched;
}

static void wait_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *cond,
                              const uint32_t *completed, uint32_t delivered)
{
    pthread_mutex_lock(mutex);
    while (*completed != delivered)
        pthread_cond_wait(cond, mutex);
    pthread_mutex_unlock(mutex);
}

void sw_async_forget_cq(struct sw_verbs_cq *cq)
{
    const uint32_t delivered = drop_events(cq->ibv.context, cq, &cq->async_delivered);
    wait_acknowledged(&cq->ibv.mutex, &cq->ibv.cond, &cq->ibv.async_events_completed, delivered);
}

void sw_async_forget_qp(struct sw_verbs_qp *qp)
{
    const uint32_t delivered = drop_events(qp->ibv.context, qp, &qp->async_delivered);
    wait_acknowledged(&qp->ibv.mutex, &qp->ibv.cond, &qp->ibv.events_completed, delivered);
}

void sw_async_forget_srq(struct sw_verbs_srq *srq)
{
    const uint32_t delivered = drop_events(srq->ibv.context, srq, &srq->async_delivered);
    wait_acknowledged(&srq->ibv.mutex, &srq->ibv.cond, &srq->ibv.events_completed, delivered);
}
