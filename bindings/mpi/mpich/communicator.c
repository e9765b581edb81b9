/* SPDX-License-Identifier: BSD-2-Clause */
#include "communicator.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../middle/settings.h"
#include "calls.h"
#include "request.h"
#include "types.h"

/* All that are there, for the end. The lock guards the list and the key. */
struct own_group {
    struct mpm_group group;
    MPI_Comm communicator;
    struct own_group *next;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct own_group *first_group;
static int keyval = MPI_KEYVAL_INVALID;

static bool communicator_gather_cards(void *communicator, const void *card, size_t bytes,
                                      void *cards)
{
    return MPP_REAL(Allgather)(card, (int)bytes, MPI_BYTE, cards, (int)bytes, MPI_BYTE,
                               *(const MPI_Comm *)communicator) == MPI_SUCCESS;
}

static bool pack_elements(const void *from, int count, const void *type, void *to, int bytes)
{
    int position = 0;
    return MPP_REAL(Pack)(from, count, *(const MPI_Datatype *)type, to, bytes, &position,
                          MPI_COMM_SELF) == MPI_SUCCESS &&
           position == bytes;
}

static bool unpack_elements(const void *from, int bytes, void *to, int count, const void *type)
{
    int position = 0;
    return MPP_REAL(Unpack)(from, bytes, &position, to, count, *(const MPI_Datatype *)type,
                            MPI_COMM_SELF) == MPI_SUCCESS;
}

static void poke_mpich(void)
{
    int is_there;
    MPP_REAL(Iprobe)(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
}

static const struct mpm_binding mpich_binding = {
    .in_place = MPI_IN_PLACE,
    .find_type = mpp_find_type,
    .find_op = mpp_find_op,
    .describe = mpp_describe,
    .exchange = communicator_gather_cards,
    .pack = pack_elements,
    .unpack = unpack_elements,
    .keep_type = mpp_keep_type,
    .drop_type = mpp_drop_type,
    .progress = poke_mpich,
};

/* MPI frees the communicator, or a program has deleted all attributes. */
static int delete_attribute(MPI_Comm communicator, int key, void *value, void *state)
{
    (void)communicator, (void)key, (void)state;
    struct own_group *own = value;
    pthread_mutex_lock(&list_lock);
    for (struct own_group **link = &first_group; *link; link = &(*link)->next) {
        if (*link == own) {
            *link = own->next;
            break;
        }
    }
    pthread_mutex_unlock(&list_lock);
    mpm_group_close(&own->group);
    free(own);
    return MPI_SUCCESS;
}

static struct own_group *find_attribute(MPI_Comm communicator)
{
    void *value = NULL;
    int is_there = 0;
    if (keyval == MPI_KEYVAL_INVALID || communicator == MPI_COMM_NULL ||
        MPP_REAL(Comm_get_attr)(communicator, keyval, &value, &is_there) || !is_there)
        return NULL;
    return value;
}

static void make_keyval(void)
{
    pthread_mutex_lock(&list_lock);
    if (keyval == MPI_KEYVAL_INVALID)
        MPP_REAL(Comm_create_keyval)(MPI_COMM_NULL_COPY_FN, delete_attribute, &keyval, NULL);
    pthread_mutex_unlock(&list_lock);
}

static struct own_group *make_group(MPI_Comm communicator)
{
    int is_inter = 1, rank = 0, size = 0;
    struct own_group *own = calloc(1, sizeof(*own));
    if (!own)
        return NULL;
    MPP_REAL(Comm_test_inter)(communicator, &is_inter);
    MPP_REAL(Comm_rank)(communicator, &rank);
    MPP_REAL(Comm_size)(communicator, &size);
    own->communicator = communicator;
    own->group = (struct mpm_group){.binding = &mpich_binding,
                                    .communicator = &own->communicator,
                                    .rank = (uint32_t)rank,
                                    .size = (uint32_t)size,
                                    .state = is_inter || size < 2 ? MPM_UNFIT : MPM_NEW};
    make_keyval();
    if (MPP_REAL(Comm_set_attr)(communicator, keyval, own)) {
        free(own);
        return NULL;
    }
    pthread_mutex_lock(&list_lock);
    own->next = first_group;
    first_group = own;
    pthread_mutex_unlock(&list_lock);
    return own;
}

struct mpm_group *mpp_group(MPI_Comm communicator)
{
    struct own_group *own = find_attribute(communicator);
    if (!own && communicator != MPI_COMM_NULL)
        own = make_group(communicator);
    return own ? &own->group : NULL;
}

int mpp_fail(MPI_Comm communicator, const struct sw_coll_error *error)
{
    mpm_say("%s", error->text);
    MPP_REAL(Comm_call_errhandler)(communicator, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

/* Others may still be at their last operation, and closing would end it. */
void mpp_part(int communicator)
{
    struct own_group *own = find_attribute(communicator);
    if (!own || own->group.state != MPM_OPEN)
        return;
    mpp_requests_complete(&own->group, communicator);
    MPP_REAL(Barrier)(communicator);
    mpm_group_close(&own->group);
}

/* A rank without any takes part as well: it cannot know whether others have one. */
void mpp_part_all(void)
{
    int rank = 0;
    MPP_REAL(Comm_rank)(MPI_COMM_WORLD, &rank);
    mpm_tell_counts(rank);
    MPP_REAL(Barrier)(MPI_COMM_WORLD);
    mpp_requests_end();
    for (struct own_group *own = first_group; own; own = own->next)
        mpm_group_close(&own->group);
}
