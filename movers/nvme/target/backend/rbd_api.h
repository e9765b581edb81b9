/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * librbd and librados, which are loaded when the first image is opened: a target without images is
 * without them, and they need not be installed.
 */
#ifndef SW_MOVERS_NVME_RBD_API_H
#define SW_MOVERS_NVME_RBD_API_H

#include <rados/librados.h>
#include <rbd/librbd.h>
#include <stddef.h>

#define NVT_RADOS_CALLS(call)                                                                      \
    call(rados_create) call(rados_conf_read_file) call(rados_conf_get) call(rados_conf_set)        \
        call(rados_connect) call(rados_shutdown) call(rados_cluster_fsid) call(rados_ioctx_create) \
            call(rados_ioctx_set_namespace) call(rados_ioctx_get_id) call(rados_ioctx_destroy)     \
                call(rados_mon_command)
#define NVT_RBD_CALLS(call)                                                                     \
    call(rbd_open) call(rbd_open_read_only) call(rbd_close) call(rbd_get_id) call(rbd_get_size) \
        call(rbd_get_features) call(rbd_config_image_list) call(rbd_config_image_list_cleanup)  \
            call(rbd_snap_set) call(rbd_snap_get_id) call(rbd_update_watch)                     \
                call(rbd_update_unwatch) call(rbd_lock_acquire) call(rbd_lock_break)            \
                    call(rbd_lock_get_owners) call(rbd_lock_get_owners_cleanup)                 \
                        call(rbd_aio_create_completion) call(rbd_aio_get_return_value)          \
                            call(rbd_aio_release) call(rbd_aio_read) call(rbd_aio_write)        \
                                call(rbd_aio_flush) call(rbd_aio_discard)                       \
                                    call(rbd_aio_write_zeroes)

#define NVT_RBD_MEMBER(name) typeof(name) *name;

struct nvt_rbd_api {
    NVT_RADOS_CALLS(NVT_RBD_MEMBER)
    NVT_RBD_CALLS(NVT_RBD_MEMBER)
};

/* NULL: they are not there, and `error` says so. One thread at a time opens backends. */
const struct nvt_rbd_api *nvt_rbd_api_load(char *error, size_t error_size);

#endif
