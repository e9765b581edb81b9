/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Importing: a context from another one's cmd_fd, in any process that was handed the descriptor;
 * PDs, regions and device memory by handle, within the process that made them. Across processes
 * they cannot be shared: keys are checked against the tables of the process whose queue pair is
 * asked, and that process cannot grant what another one registered. There a handle is unknown:
 * EOPNOTSUPP.
 */
#include "verbs/import.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/context.h"
#include "verbs/mr.h"
#include "verbs/stock.h"

struct note {
    struct note *next;
    enum sw_import_kind kind;
    uint32_t handle;
    void *object;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list, and what is on it
                                                            against going */
static struct note *notes;

void sw_import_add(enum sw_import_kind kind, uint32_t handle, void *object)
{
    struct note *note = malloc(sizeof(*note));
    if (!note)
        return;
    pthread_mutex_lock(&lock);
    *note = (struct note){notes, kind, handle, object};
    notes = note;
    pthread_mutex_unlock(&lock);
}

void sw_import_remove(enum sw_import_kind kind, uint32_t handle)
{
    struct note *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct note **at = &notes; *at && !found; at = &(*at)->next) {
        if ((*at)->kind == kind && (*at)->handle == handle) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    free(found);
}

/* With the lock held. */
static void *find(enum sw_import_kind kind, uint32_t handle)
{
    for (struct note *note = notes; note; note = note->next)
        if (note->kind == kind && note->handle == handle)
            return note->object;
    return NULL;
}

/* What import_locked() makes of the object, or NULL with errno. */
static void *import(struct ibv_context *context, enum sw_import_kind kind, uint32_t handle,
                    void *(*import_locked)(struct ibv_context *context, void *argument,
                                           void *known),
                    void *argument)
{
    pthread_mutex_lock(&lock);
    void *known = find(kind, handle);
    void *made = known ? import_locked(context, argument, known) : NULL;
    int error = errno;
    pthread_mutex_unlock(&lock);
    if (!known)
        return sw_verbs_fail(-EOPNOTSUPP);
    errno = error;
    return made;
}

static void *pd_locked(struct ibv_context *context, void *argument, void *known)
{
    (void)argument;
    struct sw_verbs_pd *original = known, *pd = sw_verbs_object_alloc(context, sizeof(*pd));
    if (!pd)
        return NULL;
    pd->ibv.context = context;
    pd->ibv.handle = original->ibv.handle;
    pd->dev = original->dev;
    sw_pd_ref(pd->dev);
    return &pd->ibv;
}

SW_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->import_pd(context, pd_handle);
    return import(context, SW_IMPORT_PD, pd_handle, pd_locked, NULL);
}

SW_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
    if (!sw_verbs_is_ours(pd->context->device)) {
        sw_stock()->unimport_pd(pd);
        return;
    }
    sw_pd_unref(sw_verbs_pd_of(pd)->dev);
    sw_verbs_object_free(pd->context, pd);
}

/* The address is another process's business in general, so it is not told: ibv_import_mr(3). */
static void *mr_locked(struct ibv_context *context, void *argument, void *known)
{
    struct ibv_pd *pd = argument;
    struct sw_verbs_mr *original = known, *mr = NULL;
    if (sw_verbs_pd_of(original->ibv.pd)->dev != sw_verbs_pd_of(pd)->dev)
        return sw_verbs_fail(-EINVAL);
    mr = sw_verbs_object_alloc(context, sizeof(*mr));
    if (!mr)
        return NULL;
    mr->ibv = original->ibv;
    mr->ibv.context = context;
    mr->ibv.pd = pd;
    mr->ibv.addr = NULL;
    return &mr->ibv;
}

SW_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
    if (!sw_verbs_is_ours(pd->context->device))
        return sw_stock()->import_mr(pd, mr_handle);
    return import(pd->context, SW_IMPORT_MR, mr_handle, mr_locked, pd);
}

SW_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
    if (!sw_verbs_is_ours(mr->context->device))
        sw_stock()->unimport_mr(mr);
    else
        sw_verbs_object_free(mr->context, mr);
}

static void *dm_locked(struct ibv_context *context, void *argument, void *known)
{
    (void)argument;
    return sw_dm_import(context, known);
}

SW_EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t dm_handle)
{
    if (!sw_verbs_is_ours(context->device))
        return sw_stock()->import_dm(context, dm_handle);
    return import(context, SW_IMPORT_DM, dm_handle, dm_locked, NULL);
}

SW_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
    if (!sw_verbs_is_ours(dm->context->device))
        sw_stock()->unimport_dm(dm);
    else
        sw_dm_unimport(dm);
}
