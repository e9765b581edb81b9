/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/backend/rbd_image.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/time/clock.h"
#include "nvme/target/backend/errand.h"

/* A client that was killed keeps its lock until its watch ends, after 30 s. */
enum { WAIT_MS = 45000, CONNECT_S = 5, OWNERS_MAX = 8, OPTIONS_MAX = 256, ERROR_BYTES = 512 };

/* A client that was stopped may come back after a weekend: Ceph's own time is an hour. */
#define BLOCKLIST_S "2592000.0"

/* What opens an image; the caller may have left. */
struct opening {
    struct nvt_errand errand; /* must be first */
    struct nvt_rbd_image *image;
    char *pool, *space, *name, *snap; /* NULL: none */
    char *conf, *id;                  /* NULL: as Ceph has it */
    bool is_shared, fences, fences_alone;
    uint32_t wait_ms;
    int rc;
    char error[ERROR_BYTES];
};

/* ---- closing ---- */

static pthread_mutex_t closing_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t closing_ended = PTHREAD_COND_INITIALIZER;
static uint32_t closing_count;

static void end_image(struct nvt_rbd_image *image)
{
    const struct nvt_rbd_api *api = image->api;
    if (image->is_watched)
        api->rbd_update_unwatch(image->image, image->watch);
    if (image->image)
        api->rbd_close(image->image);
    if (image->pool)
        api->rados_ioctx_destroy(image->pool);
    if (image->cluster)
        api->rados_shutdown(image->cluster);
    free(image->name);
    free(image);
}

struct closing {
    struct nvt_errand errand; /* must be first */
    struct nvt_rbd_image *image;
};

static void rbd_close_far(struct nvt_errand *errand)
{
    end_image(((struct closing *)errand)->image);
}

static void drop_closing(struct nvt_errand *errand)
{
    free((struct closing *)errand);
    pthread_mutex_lock(&closing_lock);
    closing_count--;
    pthread_cond_broadcast(&closing_ended);
    pthread_mutex_unlock(&closing_lock);
}

void nvt_rbd_image_close(struct nvt_rbd_image *image)
{
    struct closing *closing = malloc(sizeof(*closing));
    if (!closing)
        return; /* its lock ends with the process */
    *closing =
        (struct closing){.errand = {.work = rbd_close_far, .drop = drop_closing}, .image = image};
    pthread_mutex_lock(&closing_lock);
    closing_count++;
    pthread_mutex_unlock(&closing_lock);
    if (nvt_errand_run(&closing->errand, 0) != -ETIMEDOUT)
        drop_closing(&closing->errand);
}

bool nvt_rbd_settle(uint32_t wait_ms)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    const uint64_t end_ns = (uint64_t)end.tv_nsec + wait_ms * NS_PER_MS;
    end.tv_sec += (time_t)(end_ns / NS_PER_S);
    end.tv_nsec = (long)(end_ns % NS_PER_S);
    pthread_mutex_lock(&closing_lock);
    while (closing_count && !pthread_cond_timedwait(&closing_ended, &closing_lock, &end))
        ;
    const bool is_settled = !closing_count;
    pthread_mutex_unlock(&closing_lock);
    return is_settled;
}

/* ---- opening, by a thread of its own ---- */

__attribute__((format(printf, 3, 4))) static int refuse_image(struct opening *opening, int rc,
                                                              const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(opening->error, sizeof(opening->error), format, args);
    va_end(args);
    if ((rc == -EPERM || rc == -EACCES) && len >= 0 && (size_t)len < sizeof(opening->error))
        snprintf(opening->error + len, sizeof(opening->error) - (size_t)len,
                 "; 'ceph auth caps client.%s mon \"profile rbd\" osd \"profile rbd pool=%s\"' "
                 "gives the right",
                 opening->id ? opening->id : "ID", opening->pool);
    return rc;
}

/* What the library would write to the terminal, its errors say. Its cache would lose what hosts
 * have been told is written, where another target goes on. */
static int set_options(struct opening *opening)
{
    char connect_s[16];
    const uint32_t wait_s = (opening->wait_ms + 999) / 1000;
    const struct nvt_rbd_image *image = opening->image;
    snprintf(connect_s, sizeof(connect_s), "%u", wait_s < CONNECT_S ? wait_s : CONNECT_S);
    const char *const options[][2] = {
        {"log_to_stderr", "false"},          {"err_to_stderr", "false"},
        {"client_mount_timeout", connect_s}, {"rbd_cache", "false"},
        {"rbd_non_blocking_aio", "true"},    {"rbd_blocklist_on_break_lock", "true"}};
    int rc = 0;
    for (size_t i = 0; i < sizeof(options) / sizeof(*options) && !rc; i++)
        rc = image->api->rados_conf_set(image->cluster, options[i][0], options[i][1]);
    return rc;
}

/* Each request goes from thread to thread of librbd. Where these have to share few processors, more
 * of them take longer, and more processor time. What a configuration says otherwise stays. */
static int limit_threads(const struct opening *opening)
{
    static const struct {
        const char *name;
        int usual;
    } pools[] = {{"librados_thread_count", 2}, {"ms_async_op_threads", 3}};
    const struct nvt_rbd_image *image = opening->image;
    cpu_set_t processors;
    char value[16];
    if (sched_getaffinity(0, sizeof(processors), &processors))
        return 0; /* there are more than a thousand */
    const int half = CPU_COUNT(&processors) > 1 ? CPU_COUNT(&processors) / 2 : 1;
    int rc = 0;
    for (size_t i = 0; i < sizeof(pools) / sizeof(*pools) && !rc; i++) {
        if (half >= pools[i].usual ||
            image->api->rados_conf_get(image->cluster, pools[i].name, value, sizeof(value)) ||
            atoi(value) != pools[i].usual)
            continue;
        snprintf(value, sizeof(value), "%d", half);
        rc = image->api->rados_conf_set(image->cluster, pools[i].name, value);
    }
    return rc;
}

static int connect_cluster(struct opening *opening)
{
    struct nvt_rbd_image *image = opening->image;
    const struct nvt_rbd_api *api = image->api;
    const char *conf = opening->conf ? opening->conf : "/etc/ceph/ceph.conf";
    int rc = api->rados_create(&image->cluster, opening->id);
    if (rc) {
        image->cluster = NULL;
        return rc;
    }
    /* rados_conf_read_file() writes to the terminal where there is no file: it is hushed before. */
    rc = set_options(opening);
    if (!rc && api->rados_conf_read_file(image->cluster, opening->conf))
        return refuse_image(opening, -ENOENT,
                            "%s cannot be read: name the cluster's configuration by conf=", conf);
    if (!rc)
        rc = set_options(opening);
    if (!rc)
        rc = limit_threads(opening);
    if (!rc)
        rc = api->rados_connect(image->cluster);
    if (rc == -ENOENT)
        return refuse_image(opening, rc,
                            "client.%s has no keyring, or %s no monitor: see 'keyring' and 'mon "
                            "host' there; id= names another user",
                            opening->id ? opening->id : "admin", conf);
    if (rc == -ETIMEDOUT)
        return refuse_image(opening, rc,
                            "no monitor of %s answers: 'ceph -c %s -s' shows whether one is up",
                            conf, conf);
    if (rc)
        return refuse_image(opening, rc, "the cluster of %s refuses client.%s: %s", conf,
                            opening->id ? opening->id : "admin", strerror(-rc));
    return 0;
}

static int open_pool(struct opening *opening)
{
    struct nvt_rbd_image *image = opening->image;
    const int rc = image->api->rados_ioctx_create(image->cluster, opening->pool, &image->pool);
    if (rc == -ENOENT)
        return refuse_image(opening, rc,
                            "there is no pool %s: 'ceph osd pool create %s && rbd pool init %s' "
                            "makes it",
                            opening->pool, opening->pool, opening->pool);
    if (rc)
        return refuse_image(opening, rc, "pool %s: %s", opening->pool, strerror(-rc));
    if (opening->space)
        image->api->rados_ioctx_set_namespace(image->pool, opening->space);
    return 0;
}

static int open_head(struct opening *opening)
{
    struct nvt_rbd_image *image = opening->image;
    const struct nvt_rbd_api *api = image->api;
    int rc = image->is_read_only
                 ? api->rbd_open_read_only(image->pool, opening->name, &image->image, NULL)
                 : api->rbd_open(image->pool, opening->name, &image->image, NULL);
    if (rc == -ENOENT)
        return refuse_image(opening, rc, "there is no image: 'rbd create --size 10G %s' makes it",
                            image->name);
    if (rc)
        return refuse_image(opening, rc, "cannot be opened: %s", strerror(-rc));
    rc = opening->snap ? api->rbd_snap_set(image->image, opening->snap) : 0;
    if (rc)
        return refuse_image(opening, rc, "there is no snapshot: 'rbd snap create %s' makes it",
                            image->name);
    return 0;
}

/* An image may say otherwise than its client. */
static int check_cache(struct opening *opening)
{
    const struct nvt_rbd_image *image = opening->image;
    int count = OPTIONS_MAX;
    rbd_config_option_t *options = calloc(OPTIONS_MAX, sizeof(*options));
    if (!options)
        return -ENOMEM;
    int rc = image->api->rbd_config_image_list(image->image, options, &count);
    for (int i = 0; i < count && !rc; i++)
        if (!strcmp(options[i].name, "rbd_cache") && strcmp(options[i].value, "false") != 0)
            rc = -EINVAL;
    if (count <= OPTIONS_MAX)
        image->api->rbd_config_image_list_cleanup(options, count);
    free(options);
    if (rc == -EINVAL)
        return refuse_image(opening, rc,
                            "its own settings turn librbd's cache on, which loses what was written "
                            "where a target dies: 'rbd config image rm %s rbd_cache'",
                            image->name);
    return rc;
}

/* ---- the lock ---- */

/* The address of the client that has it, in `out`; empty: nobody. */
static int find_owner(const struct opening *opening, char *out, size_t size)
{
    const struct nvt_rbd_image *image = opening->image;
    char *owners[OWNERS_MAX];
    size_t count = OWNERS_MAX;
    rbd_lock_mode_t mode;
    *out = '\0';
    const int rc = image->api->rbd_lock_get_owners(image->image, &mode, owners, &count);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    if (count)
        snprintf(out, size, "%s", owners[0]);
    image->api->rbd_lock_get_owners_cleanup(owners, count);
    return 0;
}

/* Before the lock is broken: that is an entry of an hour, which changes none that is there. librbd
 * 16 has an option for the time, by which its command is malformed. */
static int shut_out_for_long(const struct opening *opening, const char *owner)
{
    char command[256];
    const char *const commands[] = {command};
    snprintf(command, sizeof(command),
             "{\"prefix\": \"osd blocklist\", \"blocklistop\": \"add\", \"addr\": \"%s\", "
             "\"expire\": " BLOCKLIST_S "}",
             owner);
    return opening->image->api->rados_mon_command(opening->image->cluster, (const char **)commands,
                                                  1, NULL, 0, NULL, NULL, NULL, NULL);
}

/* Another one may take it between the question and the answer. */
static int break_lock(struct opening *opening)
{
    const struct nvt_rbd_image *image = opening->image;
    char owner[128];
    int rc;
    for (int tries = 0; tries < OWNERS_MAX; tries++) {
        rc = find_owner(opening, owner, sizeof(owner));
        if (rc || !*owner)
            break;
        rc = shut_out_for_long(opening, owner);
        if (!rc)
            rc = image->api->rbd_lock_break(image->image, RBD_LOCK_MODE_EXCLUSIVE, owner);
        if (rc && rc != -EBUSY && rc != -ENOENT)
            break;
    }
    if (rc)
        return refuse_image(opening, rc, "its lock cannot be taken from %s: %s",
                            *owner ? owner : "its owner", strerror(-rc));
    return 0;
}

static int check_lock_feature(struct opening *opening)
{
    const struct nvt_rbd_image *image = opening->image;
    uint64_t features = 0;
    const int rc = image->api->rbd_get_features(image->image, &features);
    if (rc)
        return rc;
    if (features & RBD_FEATURE_EXCLUSIVE_LOCK)
        return 0;
    return refuse_image(opening, -EINVAL,
                        "has no exclusive lock, so others may write to it: 'rbd feature enable %s "
                        "exclusive-lock', or serve it by shared",
                        image->name);
}

/* A client that lives refuses at once. The lock of one that has died ends with its watch. */
static int take_image_lock(struct opening *opening)
{
    struct nvt_rbd_image *image = opening->image;
    char owner[128];
    int rc = check_lock_feature(opening);
    if (!rc && (opening->fences || opening->fences_alone))
        rc = break_lock(opening);
    if (rc || opening->fences_alone)
        return rc;
    rc = image->api->rbd_lock_acquire(image->image, RBD_LOCK_MODE_EXCLUSIVE);
    if (rc == -EROFS || rc == -EBUSY) {
        (void)find_owner(opening, owner, sizeof(owner));
        return refuse_image(opening, -EBUSY,
                            "the client at %s has its lock ('rbd status %s'): end it, or serve it "
                            "with ,fence, which takes the lock and shuts that client out",
                            *owner ? owner : "an unknown address", image->name);
    }
    if (rc)
        return refuse_image(opening, rc, "its lock cannot be taken: %s", strerror(-rc));
    image->has_lock = true;
    return 0;
}

/* ---- what is known of it ---- */

static void note_size(void *arg)
{
    struct nvt_rbd_image *image = arg;
    uint64_t bytes;
    if (!image->api->rbd_get_size(image->image, &bytes))
        atomic_store_explicit(&image->size_bytes, bytes, memory_order_relaxed);
}

static void describe_medium(const struct opening *opening)
{
    struct nvt_rbd_image *image = opening->image;
    char fsid[37] = "", id[64] = "", at[32] = "";
    uint64_t snap = 0;
    image->api->rados_cluster_fsid(image->cluster, fsid, sizeof(fsid));
    image->api->rbd_get_id(image->image, id, sizeof(id));
    if (opening->snap && !image->api->rbd_snap_get_id(image->image, opening->snap, &snap))
        snprintf(at, sizeof(at), "@%" PRIu64, snap);
    snprintf(image->medium, sizeof(image->medium), "rbd %s %" PRId64 " %s%s", fsid,
             image->api->rados_ioctx_get_id(image->pool), id, at);
}

static int learn_image(struct opening *opening)
{
    struct nvt_rbd_image *image = opening->image;
    describe_medium(opening);
    int rc = image->api->rbd_update_watch(image->image, &image->watch, note_size, image);
    image->is_watched = !rc;
    note_size(image);
    if (rc)
        return refuse_image(opening, rc, "cannot be watched: %s", strerror(-rc));
    return 0;
}

static void rbd_open_far(struct nvt_errand *errand)
{
    struct opening *opening = (struct opening *)errand;
    const struct nvt_rbd_image *image = opening->image;
    const bool wants_lock = !image->is_read_only && !opening->is_shared;
    (void)nvt_rbd_settle(opening->wait_ms); /* it may be the one that is being closed */
    opening->rc = connect_cluster(opening);
    if (!opening->rc)
        opening->rc = open_pool(opening);
    if (!opening->rc)
        opening->rc = open_head(opening);
    if (!opening->rc && wants_lock)
        opening->rc = take_image_lock(opening);
    if (opening->fences_alone)
        return;
    if (!opening->rc && !image->is_read_only)
        opening->rc = check_cache(opening);
    if (!opening->rc)
        opening->rc = learn_image(opening);
}

/* ---- the caller's side ---- */

static void free_opening(struct opening *opening)
{
    free(opening->pool);
    free(opening->conf);
    free(opening->id);
    free(opening);
}

/* Nobody waits for the image any more. */
static void drop_opening(struct nvt_errand *errand)
{
    struct opening *opening = (struct opening *)errand;
    if (opening->image)
        end_image(opening->image);
    free_opening(opening);
}

static char *copy_text(const char *text)
{
    return text && *text ? strdup(text) : NULL;
}

/* POOL/[NAMESPACE/]IMAGE[@SNAP]: config/spec.c has looked at it. */
static void split_name(struct opening *opening, char *name)
{
    opening->pool = name;
    opening->name = strrchr(name, '/');
    *opening->name++ = '\0';
    opening->space = strchr(name, '/');
    if (opening->space)
        *opening->space++ = '\0';
    opening->snap = strchr(opening->name, '@');
    if (opening->snap)
        *opening->snap++ = '\0';
}

static struct opening *make_opening(const struct nvt_backend_setup *setup,
                                    const struct nvt_rbd_api *api)
{
    char *name = strdup(setup->path);
    struct opening *opening = calloc(1, sizeof(*opening));
    struct nvt_rbd_image *image = calloc(1, sizeof(*image));
    if (image)
        image->name = strdup(setup->path);
    if (!name || !opening || !image || !image->name) {
        free(name);
        free(opening);
        free(image ? image->name : NULL);
        free(image);
        return NULL;
    }
    *opening = (struct opening){.errand = {.work = rbd_open_far, .drop = drop_opening},
                                .image = image,
                                .conf = copy_text(setup->conf),
                                .id = copy_text(setup->id),
                                .is_shared = setup->is_shared,
                                .fences = setup->fences,
                                .wait_ms = setup->wait_ms ? setup->wait_ms : WAIT_MS};
    split_name(opening, name);
    image->api = api;
    image->is_read_only = setup->is_read_only || opening->snap;
    return opening;
}

/* Takes the image out of it, where that is open. */
static int run_opening(struct opening *opening, struct nvt_rbd_image **out, char *error,
                       size_t error_size)
{
    const uint32_t wait_ms = opening->wait_ms;
    char *name = strdup(opening->image->name);
    int rc = nvt_errand_run(&opening->errand, wait_ms);
    if (rc == -ETIMEDOUT) {
        snprintf(error, error_size,
                 "rbd:%s: the cluster has not answered within %u s: 'ceph -s' shows whether it is "
                 "well; or a client that died has the lock for 30 s, and ,fence takes it",
                 name ? name : "", wait_ms / 1000);
        free(name);
        return rc;
    }
    if (!rc)
        rc = opening->rc;
    if (rc)
        snprintf(error, error_size, "rbd:%s: %s", name ? name : "",
                 *opening->error ? opening->error : strerror(-rc));
    free(name);
    if (!rc && out) {
        *out = opening->image;
        opening->image = NULL;
    }
    struct nvt_rbd_image *left = opening->image;
    opening->image = NULL;
    if (left)
        nvt_rbd_image_close(left);
    drop_opening(&opening->errand);
    return rc;
}

int nvt_rbd_image_open(const struct nvt_backend_setup *setup, struct nvt_rbd_image **out,
                       char *error, size_t error_size)
{
    const struct nvt_rbd_api *api = nvt_rbd_api_load(error, error_size);
    if (!api)
        return -ENOENT;
    struct opening *opening = make_opening(setup, api);
    return opening ? run_opening(opening, out, error, error_size) : -ENOMEM;
}

int nvt_rbd_fence(const struct nvt_backend_setup *setup, char *error, size_t error_size)
{
    const struct nvt_rbd_api *api = nvt_rbd_api_load(error, error_size);
    if (!api)
        return -ENOENT;
    struct opening *opening = make_opening(setup, api);
    if (!opening)
        return -ENOMEM;
    opening->fences_alone = true;
    opening->image->is_read_only = false;
    return run_opening(opening, NULL, error, error_size);
}
