/* SPDX-License-Identifier: BSD-2-Clause */
/* What Open MPI finds when it loads mca_coll_sidewire.so. */
#include <ompi_config.h>

#include <ompi/constants.h>
#include <ompi/mca/coll/coll.h>

#include "../middle/settings.h"
#include "module.h"
#include "request.h"

static int open_component(void)
{
    return mpm_is_on() ? OMPI_SUCCESS : OMPI_ERR_NOT_AVAILABLE;
}

static int close_component(void)
{
    mpo_requests_end();
    mpo_tell_counts();
    return OMPI_SUCCESS;
}

static int ask_component(bool enable_progress_threads, bool enable_mpi_threads)
{
    (void)enable_progress_threads, (void)enable_mpi_threads;
    return OMPI_SUCCESS;
}

__attribute__((visibility("default")))
const mca_coll_base_component_2_0_0_t mca_coll_sidewire_component = {
    .collm_version = {MCA_COLL_BASE_VERSION_2_0_0, .mca_component_name = "sidewire",
                      .mca_component_major_version = 1, .mca_component_minor_version = 0,
                      .mca_component_release_version = 0, .mca_open_component = open_component,
                      .mca_close_component = close_component},
    .collm_data = {.param_field = MCA_BASE_METADATA_PARAM_CHECKPOINT},
    .collm_init_query = ask_component,
    .collm_comm_query = mpo_module_make,
};
