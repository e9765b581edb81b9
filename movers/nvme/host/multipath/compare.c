/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a namespace is the same behind two paths. */
#include <string.h>

#include "nvme/host/multipath/paths.h"

static bool name_is_missing(const uint8_t *bytes, size_t len)
{
    uint8_t any = 0;
    for (size_t i = 0; i < len; i++)
        any |= bytes[i];
    return !any;
}

/* What differs, or NULL. An identifier that one side lacks says nothing. */
static const char *name_that_differs(const struct nvh_namespace *a, const struct nvh_namespace *b)
{
    const struct {
        const char *name;
        const uint8_t *a, *b;
        size_t len;
    } names[] = {
        {"NGUID", a->nguid, b->nguid, sizeof(a->nguid)},
        {"EUI64", a->eui64, b->eui64, sizeof(a->eui64)},
        {"UUID", a->uuid, b->uuid, sizeof(a->uuid)},
    };
    for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (memcmp(names[i].a, names[i].b, names[i].len) != 0 &&
            (name_is_missing(names[i].a, names[i].len) ==
             name_is_missing(names[i].b, names[i].len)))
            return names[i].name;
    return NULL;
}

/* One that is not known yet: all paths have to have it so. */
static bool learn_namespace(struct nvh_paths *paths, struct nvh_path *p)
{
    const uint32_t at = paths->namespaces_count;
    if (at == NVH_NAMESPACES_MAX)
        return true; /* it has no path then, but that of its controller's state */
    paths->namespaces[at] = p->asked;
    for (uint32_t i = 0; i < paths->count; i++)
        paths->paths[i].wants_look = paths->paths[i].wants_look || &paths->paths[i] != p;
    p->namespaces[at].is_there = true;
    atomic_store(&paths->namespaces_count, at + 1);
    return true;
}

bool nvh_path_compare(struct nvh_paths *paths, uint32_t path, uint64_t now_ns)
{
    struct nvh_path *p = &paths->paths[path];
    const struct nvh_namespace *asked = &p->asked;
    const int at = nvh_paths_find(paths, asked->nsid);
    if (!asked->blocks) /* it went meanwhile */
        return true;
    if (at < 0)
        return learn_namespace(paths, p);
    struct nvh_namespace *known = &paths->namespaces[at];
    const char *name = name_that_differs(known, asked);
    if (!name && (known->format != asked->format || known->metadata_bytes != asked->metadata_bytes))
        name = "format";
    if (name) {
        nvh_path_refuse(paths, path, now_ns,
                        "namespace %u there has another %s than behind the other paths",
                        asked->nsid, name);
        return false;
    }
    if (known->blocks != asked->blocks && !p->is_again) {
        nvh_path_refuse(paths, path, now_ns,
                        "namespace %u there has %llu blocks, and %llu behind the other paths",
                        asked->nsid, (unsigned long long)asked->blocks,
                        (unsigned long long)known->blocks);
        return false;
    }
    if (known->blocks != asked->blocks) { /* a target has said that it changed */
        known->blocks = asked->blocks;
        for (uint32_t i = 0; i < paths->count; i++)
            paths->paths[i].wants_look = paths->paths[i].wants_look || i != path;
    }
    p->namespaces[at].is_there = true;
    return true;
}
