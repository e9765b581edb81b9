/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a group has decided so far: the sum of its records. Each member that takes the same records
 * in the same order has the same state. A record that does not fit changes nothing.
 */
#ifndef SW_MOVERS_NVME_GROUP_STATE_H
#define SW_MOVERS_NVME_GROUP_STATE_H

#include "nvme/target/group/record.h"

enum nvg_verdict {
    NVG_FITS,
    NVG_NO_GROUP, /* the first record makes the group, and none other does */
    NVG_STALE,    /* it is about an owner or a member that is none any more */
    NVG_NO_ROOM,
    NVG_WRONG, /* no member proposes that */
};

/* What is known of the disk below a namespace, whoever has it. */
struct nvg_disk {
    uint64_t number; /* of the last change; 0: there was none */
    uint32_t error;  /* an errno: what hosts wrote may be lost. 0: it counts as sound */
};

/* A namespace: what it is, who has it, who has reserved it. Or a host, and who has that. */
struct nvg_place {
    bool is_used;
    struct nvg_namespace about; /* of a host the number alone */
    struct nvg_host host;
    struct nvg_hold hold;
    struct nvt_reservation reservation;
    struct nvg_disk disk;
    /* Where all members are active: who asked for its last change, and what that was; opcode 0: a
     * checkpoint does not tell. */
    uint64_t reserved_by;
    struct nvt_reservation_change change;
};

/* A member that is to end the controllers of its hosts, since one of them was said to be quiet. */
struct nvg_calm {
    uint64_t incarnation, id; /* id 0: none is to */
};

struct nvg_state {
    bool has_group, is_all_active;
    uint8_t identity[16];
    char nqn[NVG_NQN_BYTES];
    uint8_t lead_slot;
    uint64_t lead_incarnation; /* 0: nobody has led yet */
    bool has_member[NVG_SLOTS];
    struct nvg_join members[NVG_SLOTS];
    struct nvg_calm calms[NVG_SLOTS];
    struct nvg_place places[NVG_PLACES_MAX + 1]; /* by nsid, then hosts */
};

/* A state, and the one that a checkpoint fills. It takes effect as a whole, or not at all. */
struct nvg_replica {
    uint64_t changes; /* records taken */
    bool is_filling;
    struct nvg_state now, next;
};

/* Whether it fits behind what was taken so far. */
enum nvg_verdict nvg_replica_allows(const struct nvg_replica *replica,
                                    const struct nvg_record *record);
enum nvg_verdict nvg_replica_take(struct nvg_replica *replica, const struct nvg_record *record);

/* The record of a checkpoint behind `cursor`, which begins at 0. False: there are no more. */
bool nvg_state_dump(const struct nvg_state *state, uint32_t *cursor, struct nvg_record *record);
/* The member of that name, or NULL. */
const struct nvg_join *nvg_state_member(const struct nvg_state *state, const char *name);
/* The slot of a member of that name: its own, else a free one; -1: there is none. */
int nvg_state_slot_for(const struct nvg_state *state, const char *name);
/* That very process is a member, and has not left. */
bool nvg_state_has(const struct nvg_state *state, uint8_t slot, uint64_t incarnation);
/* It owns nothing before it has ended its controllers; 0: it may. */
uint64_t nvg_state_calm(const struct nvg_state *state, uint8_t slot, uint64_t incarnation);
/* Whether that is the number of a host. */
static inline bool nvg_is_of_host(uint32_t number)
{
    return number > NVG_NSID_MAX;
}
bool nvg_is_same_host(const struct nvg_host *a, const struct nvg_host *b);
/* The number of that host; 0: it has none. */
uint32_t nvg_state_number_of(const struct nvg_state *state, const struct nvg_host *host);
/* NULL: there is no namespace, or host, of that number. */
const struct nvg_place *nvg_state_place(const struct nvg_state *state, uint32_t nsid);
bool nvg_state_is_owner(const struct nvg_place *place, uint8_t slot, uint64_t incarnation);
/* What contradicts what the state says of a namespace, as the end of a sentence; NULL: nothing. */
const char *nvg_state_differs(const struct nvg_state *state, const struct nvg_namespace *ns);
/* What hosts see as the serial number. */
void nvg_state_serial(const struct nvg_state *state, char serial[NVG_SERIAL_BYTES]);

#endif
