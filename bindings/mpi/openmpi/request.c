/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each request is in a list until it is complete. opal_progress(), which all calls that wait go
 * through, calls `go_on`. That may happen in several threads at a time; then one of them does it.
 */
#include "request.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include <mpi.h>
#include <ompi/constants.h>
#include <ompi/request/request.h>
#include <opal/runtime/opal_progress.h>

#include "../middle/later.h"
#include "../middle/settings.h"

/* Open MPI's own base of such requests: its MPI layer keeps operator and types there. The header
 * that declares it includes one that no package has. */
typedef struct {
    ompi_request_t super;
    void *callback, *callback_data;
    void *kept[2];
} ompi_coll_base_nbc_request_t;
OMPI_DECLSPEC OBJ_CLASS_DECLARATION(ompi_coll_base_nbc_request_t);

struct mpo_request {
    ompi_coll_base_nbc_request_t super;
    struct mpm_later *later;
    struct mpo_request *next;
};
typedef struct mpo_request mpo_request_t;
OBJ_CLASS_DECLARATION(mpo_request_t);
OBJ_CLASS_INSTANCE(mpo_request_t, ompi_coll_base_nbc_request_t, NULL, NULL);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mpo_request *first_request, **last_request = &first_request;
static bool is_registered;

static void complete_request(struct mpo_request *request)
{
    struct sw_coll_error error = {0};
    if (!mpm_later_end(request->later, &error)) {
        mpm_say("%s", error.text);
        request->super.super.req_status.MPI_ERROR = MPI_ERR_OTHER;
    }
    request->later = NULL;
    ompi_request_complete(&request->super.super, true);
}

/* How many it has completed. */
static int go_on(void)
{
    if (!__atomic_load_n(&first_request, __ATOMIC_RELAXED) || pthread_mutex_trylock(&lock))
        return 0;
    int completed = 0;
    mpm_later_look();
    for (struct mpo_request **link = &first_request; *link;) {
        struct mpo_request *request = *link;
        if (!mpm_later_is_over(request->later)) {
            link = &request->next;
            continue;
        }
        *link = request->next;
        if (!request->next)
            last_request = link;
        complete_request(request);
        completed++;
    }
    pthread_mutex_unlock(&lock);
    return completed;
}

/* The communicator stays until then, though a program may have freed it. */
static int free_request(ompi_request_t **pointer)
{
    ompi_request_t *request = *pointer;
    if (!REQUEST_COMPLETE(request))
        return MPI_ERR_REQUEST;
    struct ompi_communicator_t *communicator = request->req_mpi_object.comm;
    OMPI_REQUEST_FINI(request);
    OBJ_RELEASE(request);
    *pointer = MPI_REQUEST_NULL;
    OBJ_RELEASE(communicator);
    return OMPI_SUCCESS;
}

static int refuse_cancel(ompi_request_t *request, int flag)
{
    (void)request, (void)flag;
    return MPI_ERR_REQUEST;
}

bool mpo_requests_fit(void)
{
    return ompi_coll_base_nbc_request_t_class.cls_sizeof == sizeof(ompi_coll_base_nbc_request_t);
}

bool mpo_is_of_program(const void *caller)
{
    /* Each function of MPI calls from one place, so that there are a dozen. */
    static _Atomic(const void *) known[32];
    _Atomic(const void *) *own =
        &known[((uintptr_t)caller >> 4) % (sizeof(known) / sizeof(*known))];
    if (atomic_load_explicit(own, memory_order_relaxed) == caller)
        return true;
    Dl_info found;
    if (!dladdr(caller, &found) || !found.dli_sname ||
        (strncmp(found.dli_sname, "MPI_I", 5) && strncmp(found.dli_sname, "PMPI_I", 6)))
        return false;
    atomic_store_explicit(own, caller, memory_order_relaxed);
    return true;
}

bool mpo_request_make(struct mpm_later *later, struct ompi_communicator_t *communicator,
                      ompi_request_t **made)
{
    struct mpo_request *request = OBJ_NEW(mpo_request_t);
    if (!request)
        return false;
    ompi_request_t *super = &request->super.super;
    OMPI_REQUEST_INIT(super, false);
    super->req_type = OMPI_REQUEST_COLL;
    super->req_state = OMPI_REQUEST_ACTIVE;
    super->req_status = (ompi_status_public_t){
        .MPI_SOURCE = MPI_ANY_SOURCE, .MPI_TAG = MPI_ANY_TAG, .MPI_ERROR = MPI_SUCCESS};
    super->req_free = free_request;
    super->req_cancel = refuse_cancel;
    OBJ_RETAIN(communicator);
    super->req_mpi_object.comm = communicator;
    request->later = later;
    request->next = NULL;
    pthread_mutex_lock(&lock);
    *last_request = request;
    last_request = &request->next;
    if (!is_registered)
        opal_progress_register(go_on);
    is_registered = true;
    pthread_mutex_unlock(&lock);
    *made = super;
    return true;
}

void mpo_requests_end(void)
{
    if (is_registered)
        opal_progress_unregister(go_on);
    is_registered = false;
}
