/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/rbd_api.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>

/* False: the library has no such function. It stays loaded as long as the process. */
static bool find_call(void *library, const char *name, void *place)
{
    void *found = dlsym(library, name);
    *(void **)place = found;
    return found;
}

static bool load_calls(struct nvt_rbd_api *api)
{
    void *rados = dlopen("librados.so.2", RTLD_NOW | RTLD_LOCAL);
    void *rbd = rados ? dlopen("librbd.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
    bool are_all = rbd;
#define FIND_RADOS(name) are_all = are_all && find_call(rados, #name, &api->name);
#define FIND_RBD(name) are_all = are_all && find_call(rbd, #name, &api->name);
    NVT_RADOS_CALLS(FIND_RADOS)
    NVT_RBD_CALLS(FIND_RBD)
    return are_all;
}

const struct nvt_rbd_api *nvt_rbd_api_load(char *error, size_t error_size)
{
    static struct nvt_rbd_api api;
    static bool is_loaded;
    is_loaded = is_loaded || load_calls(&api);
    if (is_loaded)
        return &api;
    const char *why = dlerror();
    snprintf(error, error_size, "rbd: librbd cannot be loaded (%s); apt-get install librbd1",
             why ? why : "it is too old");
    return NULL;
}
