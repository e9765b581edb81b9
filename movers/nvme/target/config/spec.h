/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What people write to name a backend ("file:/srv/disk.img,ro") and an address ("[::1]:4420").
 */
#ifndef SW_MOVERS_NVME_SPEC_H
#define SW_MOVERS_NVME_SPEC_H

#include <limits.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NVT_SPEC_MAX = 2 * PATH_MAX, /* bytes of a backend's text: a path may have each comma doubled */
    NVT_UUID_BYTES = 16,
    NVT_CONF_BYTES = 256,
    NVT_ID_BYTES = 64,
    NVT_ADDR_MAX = INET6_ADDRSTRLEN + 17, /* with %interface and the NUL */
    NVT_PPM = 1000000,
    NVT_SPEC_LOGS = 5,
    NVT_SPEC_OTHERS = 16,
    NVT_SPEC_LOG_MAX = 256,
};

enum nvt_backend_kind {
    NVT_BACKEND_RAM,
    NVT_BACKEND_NULL,
    NVT_BACKEND_FILE,
    NVT_BACKEND_BLOCK,
    NVT_BACKEND_NVME,
    NVT_BACKEND_NVRAM,
    NVT_BACKEND_RBD,
    NVT_BACKEND_TIER,
    NVT_BACKEND_PATH, /* a path without a kind: nvt_backend_spec_resolve() finds it */
};

/*
 * KIND:REST[,OPTION...]. REST is a size for ram and null, POOL/[NAMESPACE/]IMAGE[@SNAP] for rbd,
 * else a path; a comma in it is written twice. Options: bs=512|4096, ro, shared, uuid=, nguid=,
 * nsid=, for rbd conf=, id= and fence, and for tests error=1%, short=1%, delay=10us, unfenced.
 */
struct nvt_backend_spec {
    enum nvt_backend_kind kind;
    char path[PATH_MAX];
    uint64_t size_bytes;  /* of ram and null, else 0 */
    uint32_t block_bytes; /* 512, 4096, or 0 where it is not said */
    bool read_only, shared, fence, has_uuid, has_nguid;
    char conf[NVT_CONF_BYTES], id[NVT_ID_BYTES]; /* of rbd; empty where they are not said */
    uint32_t wait_ms; /* for the caller of nvt_backend_open(): how long it may take; 0: as usual */
    /* A group says by which keys it reserves the device; 0: it does not. `other_keys`: of members
     * that are there. */
    uint64_t reserve_key, idle_key, other_keys[NVT_SPEC_OTHERS];
    uint32_t other_count;
    bool is_for_all; /* all members of the group have it open at once */
    /* Another target of the group goes on with it: a tier leaves FILE as it is, and the log. */
    bool hands_over;
    /* Where all members of a group have it open at once: by what others know the descriptors of
     * this process; 0: one has it alone. */
    uint64_t shares_as;
    bool unfenced; /* for tests: a group takes it without a fence */
    uint8_t uuid[NVT_UUID_BYTES], nguid[NVT_UUID_BYTES];
    uint32_t nsid;                 /* 0 where it is not said */
    uint32_t error_ppm, short_ppm; /* of a million requests: how many fail, how many end early */
    uint64_t delay_ns;             /* of each request */
    uint64_t ram_bytes;            /* of a tier */
    bool makes_log, drops_damaged;
    uint32_t log_count;
    char logs[NVT_SPEC_LOGS][NVT_SPEC_LOG_MAX];
};

/* Return 0, or -EINVAL and why in `error`. Only resolving, which parse() does too, looks at the
 * file system: what kind of thing a plain path is. */
int nvt_backend_spec_split(const char *text, struct nvt_backend_spec *out, char *error,
                           size_t error_bytes);
int nvt_backend_spec_resolve(struct nvt_backend_spec *spec, char *error, size_t error_bytes);
int nvt_backend_spec_parse(const char *text, struct nvt_backend_spec *out, char *error,
                           size_t error_bytes);
const char *nvt_backend_kind_name(enum nvt_backend_kind kind);
/* A group has it by the reservation of the device itself. */
static inline bool nvt_spec_is_device(const struct nvt_backend_spec *spec)
{
    return spec->kind == NVT_BACKEND_BLOCK || spec->kind == NVT_BACKEND_NVME;
}

/* "4K" and the like, in powers of 1024; 0 or -EINVAL. */
int nvt_size_parse(const char *text, uint64_t *size_bytes);
/* With or without hyphens, 32 hexadecimal digits; 0 or -EINVAL. */
int nvt_uuid_parse(const char *text, uint8_t uuid[NVT_UUID_BYTES]);
void nvt_uuid_format(const uint8_t uuid[NVT_UUID_BYTES], char text[37]);

struct nvt_listen {
    char traddr[NVT_ADDR_MAX]; /* as inet_ntop() writes it, with %interface of a link-local one */
    uint8_t adrfam;            /* NVMF_ADDR_FAMILY_IP4 or _IP6 */
    uint16_t port;
};

/* ADDR, ADDR:PORT, [ADDR6] or [ADDR6]:PORT, all in numbers; the port is 4420 if it is not said. */
int nvt_listen_parse(const char *text, struct nvt_listen *out, char *error, size_t error_bytes);
/* An address alone; an adrfam of 0 takes either family. */
int nvt_addr_parse(const char *text, uint8_t adrfam, struct nvt_listen *out);
/* 1-65535, or 0 if it is none. */
uint16_t nvt_port_parse(const char *text);

#endif
