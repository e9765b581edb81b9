/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a target is to serve, as plain data: read from the JSON that `nvmetcli save` writes for the
 * kernel's target, or put together by a command. Nothing here listens, opens or waits.
 */
#ifndef SW_MOVERS_NVME_CONFIG_H
#define SW_MOVERS_NVME_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nvme/target/config/spec.h"
#include "nvme/wire/fabrics.h"

enum {
    NVT_PORTS_MAX = 16,
    NVT_REFERRALS_MAX = 64,   /* of a port */
    NVT_ANA_GROUPS_MAX = 128, /* of a port; also the highest number of a group */
    NVT_SUBSYSTEMS_MAX = 256,
    NVT_NAMESPACES_MAX = 1024, /* of a subsystem */
    NVT_HOSTS_MAX = 1024,      /* known, and those that one subsystem allows */
    NVT_CONFIG_FILE_MAX = 16 << 20,
    NVT_CNTLID_MAX = 0xffef,
    NVT_IN_CAPSULE_DEFAULT = 4096, /* as the kernel's target has it */
    NVT_KEY_MAX = 128,             /* bytes of a secret's text, with its NUL */
    NVT_TRADDR_MAX = 257,
    NVT_TRSVCID_MAX = 33,
    NVT_NAME_MAX = 256,
};

struct nvt_nqn {
    char text[NVF_NQN_MAX + 1];
};

struct nvt_referral {
    char name[NVT_NAME_MAX];
    uint8_t trtype, adrfam; /* NVMF_TRTYPE_*, NVMF_ADDR_FAMILY_* */
    bool enable;
    uint16_t portid;
    char traddr[NVT_TRADDR_MAX], trsvcid[NVT_TRSVCID_MAX];
    struct nvt_nqn subsysnqn; /* of the discovery subsystem there */
};

struct nvt_ana_group {
    uint32_t grpid;
    uint8_t state; /* NVME_ANA_STATE_* */
};

struct nvt_config_port {
    uint16_t portid;
    struct nvt_listen listen;
    uint32_t in_capsule_bytes; /* 0-16384 */
    uint8_t treq;              /* NVMF_TREQ_* */
    bool is_failed;            /* it could not listen: tried anew each time */
    size_t referral_count, ana_group_count, subsystem_count;
    struct nvt_referral *referrals;
    struct nvt_ana_group *ana_groups; /* a group that is not here is optimized */
    struct nvt_nqn *subsystems;
};

struct nvt_config_namespace {
    uint32_t nsid, ana_grpid;
    char *backend;        /* for nvt_backend_spec_parse() */
    uint32_t block_bytes; /* out of that text; 0 where the backend decides */
    bool enable, read_only;
    bool has_nguid;
    bool is_failed;               /* it could not be served: tried anew each time */
    uint8_t uuid[NVT_UUID_BYTES]; /* as configured, else a default: never all zeroes */
    uint8_t nguid[NVT_UUID_BYTES];
};

struct nvt_config_subsystem {
    struct nvt_nqn nqn;
    char serial[21], model[41], firmware[9];
    bool allow_any_host;
    uint16_t cntlid_min, cntlid_max;
    uint16_t qid_max; /* I/O queues of a host; 0 where it is not said */
    size_t host_count, namespace_count;
    struct nvt_nqn *hosts;                   /* allowed */
    struct nvt_config_namespace *namespaces; /* in order of nsid */
};

struct nvt_config_host {
    struct nvt_nqn nqn;
    char dhchap_key[NVT_KEY_MAX], dhchap_ctrl_key[NVT_KEY_MAX]; /* "DHHC-1:...", or empty */
    uint8_t dhchap_hash;                                        /* 1, 2, 3: SHA-256, -384, -512 */
    uint8_t dhchap_dhgroup; /* 0: none, 1-5: ffdhe2048, 3072, 4096, 6144, 8192 */
};

struct nvt_config {
    size_t port_count, subsystem_count, host_count;
    struct nvt_config_port *ports;
    struct nvt_config_subsystem *subsystems;
    struct nvt_config_host *hosts;
};

struct nvt_config_source {
    const char *name;                              /* of the file, for messages */
    const char *machine_id;                        /* for the identities that are not configured */
    void (*warn)(void *context, const char *text); /* may be NULL */
    void *context;
};

/* Return 0, or a negative errno and one line in `error`: file, place, what is wrong, how to mend
 * it. The result is freed with nvt_config_free(). */
int nvt_config_parse(const char *text, size_t len, const struct nvt_config_source *source,
                     struct nvt_config **out, char *error, size_t error_bytes);
/* Reads a file, whose name is source->name. */
int nvt_config_read(const struct nvt_config_source *source, struct nvt_config **out, char *error,
                    size_t error_bytes);
void nvt_config_free(struct nvt_config *config);

/* NULL where there is none. */
struct nvt_config_port *nvt_config_find_port(const struct nvt_config *config, uint16_t portid);
struct nvt_config_subsystem *nvt_config_find_subsystem(const struct nvt_config *config,
                                                       const char *nqn);
struct nvt_config_host *nvt_config_find_host(const struct nvt_config *config, const char *nqn);
struct nvt_config_namespace *nvt_config_find_namespace(const struct nvt_config_subsystem *subsystem,
                                                       uint32_t nsid);
bool nvt_config_allows(const struct nvt_config_subsystem *subsystem, const char *host_nqn);
enum nvme_ana_state nvt_config_ana_state(const struct nvt_config_port *port, uint32_t grpid);

/* Takes over what a backend's text says of the namespace. */
void nvt_config_describe(struct nvt_config_namespace *ns, const struct nvt_backend_spec *spec);
/* Gives it a UUID where none was said. */
void nvt_config_identify(struct nvt_config_namespace *ns, const struct nvt_backend_spec *spec,
                         const char *nqn, const char *machine_id);
/* Another one of the subsystem with the same UUID; NULL: there is none. */
const struct nvt_config_namespace *nvt_config_twin(const struct nvt_config_subsystem *subsystem,
                                                   const struct nvt_config_namespace *ns);

/*
 * Changes, one at a time (config_edit.c). They look at no device and open nothing. Pointers into
 * the configuration are gone after them. Return 0, or a negative errno and one line in `error`.
 */
struct nvt_config_editor {
    struct nvt_config *config;
    const char *machine_id;
    char *error;
    size_t error_bytes;
};

/* NULL: no memory. */
struct nvt_config *nvt_config_copy(const struct nvt_config *config);
/* On all ports, for any host. */
int nvt_config_add_subsystem(const struct nvt_config_editor *editor, const char *nqn);
int nvt_config_remove_subsystem(const struct nvt_config_editor *editor, const char *nqn);
/* By a backend's text; its nsid= or the first free number is in `nsid` then. */
int nvt_config_add_namespace(const struct nvt_config_editor *editor, const char *nqn,
                             const char *backend, uint32_t *nsid);
int nvt_config_remove_namespace(const struct nvt_config_editor *editor, const char *nqn,
                                uint32_t nsid);
/* From the first one on, no others are let in. */
int nvt_config_add_host(const struct nvt_config_editor *editor, const char *nqn,
                        const char *host_nqn);
int nvt_config_remove_host(const struct nvt_config_editor *editor, const char *nqn,
                           const char *host_nqn);
/* Lets the host in, if it knows its secret; or (of_controller) gives the secret that the host may
 * ask the target to know: "DHHC-1:..." */
int nvt_config_admit(const struct nvt_config_editor *editor, const char *nqn, const char *host_nqn,
                     const char *secret, bool of_controller);
/* Serves all subsystems that there are. */
int nvt_config_add_port(const struct nvt_config_editor *editor, const char *listen,
                        uint32_t in_capsule_bytes);
int nvt_config_remove_port(const struct nvt_config_editor *editor, const char *listen);

/* What differs from an old configuration to a new one. */
enum nvt_change_what { NVT_ADDED, NVT_REMOVED, NVT_CHANGED };
enum nvt_change_of { NVT_OF_HOST, NVT_OF_SUBSYSTEM, NVT_OF_NAMESPACE, NVT_OF_PORT };
/* The aspects of NVT_CHANGED: any of these. */
enum nvt_change_aspect {
    NVT_KEYS_DIFFER = 1 << 0,
    NVT_IDENTITY_DIFFERS = 1 << 1, /* serial, model, controller IDs and the like; uuid, nguid */
    NVT_ACCESS_DIFFERS = 1 << 2,   /* which hosts are allowed */
    NVT_BACKEND_DIFFERS = 1 << 3,
    NVT_ENABLE_DIFFERS = 1 << 4,
    NVT_ANA_DIFFERS = 1 << 5,
    NVT_LISTEN_DIFFERS = 1 << 6, /* the address, or what is said when a connection is made */
    NVT_SUBSYSTEMS_DIFFER = 1 << 7,
    NVT_REFERRALS_DIFFER = 1 << 8,
};

/* NULL is what is not there: of something added, its old self. A namespace comes with its
 * subsystem. */
struct nvt_config_change {
    enum nvt_change_of of;
    enum nvt_change_what what;
    unsigned aspects;
    const struct nvt_config_host *old_host, *new_host;
    const struct nvt_config_subsystem *old_subsystem, *new_subsystem;
    const struct nvt_config_namespace *old_namespace, *new_namespace;
    const struct nvt_config_port *old_port, *new_port;
};

/*
 * Calls in an order that can be carried out one by one: what goes (ports, namespaces, subsystems),
 * then what comes or changes (hosts, subsystems with their namespaces, ports), then hosts that go.
 * Each namespace of a subsystem that comes or goes is told too. Ends at the first call that does
 * not return 0, and returns that.
 */
int nvt_config_diff(const struct nvt_config *old, const struct nvt_config *new,
                    int (*change)(void *context, const struct nvt_config_change *change),
                    void *context);

#endif
