/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Importing: a context from another one's cmd_fd, in any process that was handed the descriptor;
 * PDs and regions by handle, in any process of the user on this host; device memory within the
 * process that made it.
 *
 * Keys are checked against the tables of the process whose queue pair is asked. So a region of
 * another process is mapped here (link/direct/process/borrow.h) and becomes a region of this
 * process as well, with keys of its own, at the addresses that the exporter's has. Memory that
 * peers cannot map cannot be imported: EOPNOTSUPP, as for unknown handles.
 */
#include "verbs/import.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/memory/mr_impl.h"
#include "link/direct/process/borrow.h"

#include "verbs/context.h"
#include "verbs/mr.h"
#include "verbs/stock.h"

struct note {
    struct note *next;
    enum sw_import_kind kind;
    uint32_t handle;
    void *object;
};

/* Programs have tens of thousands of regions, and many end in the order in which they began. */
enum { CHAINS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the lists, and what is on them
                                                            against going */
static struct note *chains[CHAINS];

static struct note **import_chain_of(uint32_t handle)
{
    return &chains[handle % CHAINS];
}

void sw_import_add(enum sw_import_kind kind, uint32_t handle, void *object)
{
    struct note *note = malloc(sizeof(*note));
    if (!note)
        return;
    pthread_mutex_lock(&lock);
    struct note **chain = import_chain_of(handle);
    *note = (struct note){*chain, kind, handle, object};
    *chain = note;
    pthread_mutex_unlock(&lock);
}

void sw_import_remove(enum sw_import_kind kind, uint32_t handle)
{
    struct note *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct note **at = import_chain_of(handle); *at && !found; at = &(*at)->next) {
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
static void *find_object(enum sw_import_kind kind, uint32_t handle)
{
    for (struct note *note = *import_chain_of(handle); note; note = note->next)
        if (note->kind == kind && note->handle == handle)
            return note->object;
    return NULL;
}

/* What import_locked() makes of the object, or NULL with errno. */
static void *import_object(struct ibv_context *context, enum sw_import_kind kind, uint32_t handle,
                           void *(*import_locked)(struct ibv_context *context, void *argument,
                                                  void *known),
                           void *argument)
{
    pthread_mutex_lock(&lock);
    void *known = find_object(kind, handle);
    void *made = known ? import_locked(context, argument, known) : NULL;
    int error = errno;
    pthread_mutex_unlock(&lock);
    if (!known)
        return sw_verbs_fail(-EOPNOTSUPP);
    errno = error;
    return made;
}

/* Slot, then a number that is unique in the process. */
#define HANDLE_NUMBER_BITS 20
#define HANDLE_NUMBER_MASK ((1u << HANDLE_NUMBER_BITS) - 1)

uint32_t sw_import_handle(uint32_t number)
{
    return sw_nic.slot << HANDLE_NUMBER_BITS | (number & HANDLE_NUMBER_MASK);
}

static bool import_is_here(enum sw_import_kind kind, uint32_t handle)
{
    pthread_mutex_lock(&lock);
    bool known = find_object(kind, handle) != NULL;
    pthread_mutex_unlock(&lock);
    return known;
}

/* A PD of ours that stands for another process's. */
static struct ibv_pd *borrow_pd(struct ibv_context *context, uint32_t handle)
{
    const uint32_t slot = handle >> HANDLE_NUMBER_BITS, id = handle & HANDLE_NUMBER_MASK;
    int rc = sw_borrow_pd(slot, id);
    struct sw_verbs_pd *pd = rc ? NULL : sw_verbs_object_alloc(context, sizeof(*pd));
    if (!pd)
        return rc ? sw_verbs_fail(rc) : NULL;
    rc = sw_pd_alloc(sw_verbs_context_of(context)->dev, &pd->dev);
    if (rc) {
        sw_verbs_object_free(context, pd);
        return sw_verbs_fail(rc);
    }
    pd->ibv.context = context;
    pd->ibv.handle = handle;
    pd->lender = slot;
    pd->lent_id = id;
    return &pd->ibv;
}

static struct ibv_mr *borrow_mr(struct ibv_pd *ibv, uint32_t handle)
{
    const struct sw_verbs_pd *pd = sw_verbs_pd_of(ibv);
    struct sw_borrowed lent;
    int rc = -EINVAL; /* of another process than the PD */
    if (pd->lender == handle >> HANDLE_NUMBER_BITS)
        rc = sw_borrow_region(pd->lender, pd->lent_id, handle & HANDLE_NUMBER_MASK, &lent);
    if (rc)
        return sw_verbs_fail(rc);
    struct sw_verbs_mr *mr = sw_verbs_object_alloc(ibv->context, sizeof(*mr));
    if (mr)
        rc = sw_mr_reg(pd->dev, lent.bytes, lent.len_bytes, lent.iova, lent.access, &mr->dev);
    if (!mr || rc) {
        sw_borrow_return(&lent);
        if (mr)
            sw_verbs_object_free(ibv->context, mr);
        return rc ? sw_verbs_fail(rc) : NULL;
    }
    mr->ibv = (struct ibv_mr){.context = ibv->context,
                              .pd = ibv,
                              .length = lent.len_bytes,
                              .handle = handle,
                              .lkey = sw_mr_key(mr->dev),
                              .rkey = sw_mr_key(mr->dev)};
    mr->mapping = lent.base;
    mr->mapping_bytes = lent.mapped_bytes;
    mr->is_borrowed = true;
    return &mr->ibv;
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
    if (!import_is_here(SW_IMPORT_PD, pd_handle))
        return borrow_pd(context, pd_handle);
    return import_object(context, SW_IMPORT_PD, pd_handle, pd_locked, NULL);
}

SW_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
    if (!sw_verbs_is_ours(pd->context->device)) {
        sw_stock()->unimport_pd(pd);
        return;
    }
    if (!sw_verbs_pd_of(pd)->lender)
        sw_pd_unref(sw_verbs_pd_of(pd)->dev);
    else if (sw_pd_dealloc(sw_verbs_pd_of(pd)->dev))
        return; /* queue pairs of it are left: so is it */
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
    if (sw_verbs_pd_of(pd)->lender)
        return borrow_mr(pd, mr_handle);
    return import_object(pd->context, SW_IMPORT_MR, mr_handle, mr_locked, pd);
}

SW_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
    struct sw_verbs_mr *own = (struct sw_verbs_mr *)mr;
    if (!sw_verbs_is_ours(mr->context->device)) {
        sw_stock()->unimport_mr(mr);
        return;
    }
    if (own->is_borrowed) {
        if (sw_mr_dereg(own->dev))
            return; /* windows are bound to it */
        munmap(own->mapping, own->mapping_bytes);
    }
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
    return import_object(context, SW_IMPORT_DM, dm_handle, dm_locked, NULL);
}

SW_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
    if (!sw_verbs_is_ours(dm->context->device))
        sw_stock()->unimport_dm(dm);
    else
        sw_dm_unimport(dm);
}
