/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the machine share. */
#ifndef SW_CM_CM_IMPL_H
#define SW_CM_CM_IMPL_H

#include "cm/cm.h"

/* Not even a peer that says otherwise makes us send more often, or give up before. */
#define SW_CM_WAIT_MIN_NS 10000000ull
#define SW_CM_PATIENCE_MIN_NS 500000000ull
/* How long the answer to another copy of a REQ is waited for, where one was refused: as long as a
 * process may have to wait for a processor. */
#define SW_CM_OTHER_ANSWER_NS 2000000000ull
/* A SIDR_REQ does not say when it will be sent again: how long one that came is remembered. */
#define SW_CM_SIDR_MEMORY_NS 2000000000ull

/* A stranger's word counts up to these: how long one answer to it may take, how long all the tries
 * together, and how long it is remembered that it asked. rdma_cm says 4.8 s, and 77 s. */
#define SW_CM_ANSWER_MAX_NS 10000000000ull
#define SW_CM_PATIENCE_MAX_NS 90000000000ull
#define SW_CM_MEMORY_MAX_NS 10000000000ull

/* 4.096 us * 2^exponent, at most SW_CM_WAIT_MAX_NS. IBTA Vol1 12.7.4. */
uint64_t sw_cm_time_ns(uint8_t exponent);

/* table.c: where ids and listeners are found. */
bool sw_cm_has_room(const struct sw_cm *cm);
bool sw_cm_attach(struct sw_cm *cm, struct sw_cm_id *id); /* false: no comm id is free */
void sw_cm_know_remote(struct sw_cm *cm, struct sw_cm_id *id);
void sw_cm_know_remote_qpn(struct sw_cm *cm, struct sw_cm_id *id);
void sw_cm_forget_remote(struct sw_cm_id *id);
void sw_cm_forget_remote_qpn(struct sw_cm_id *id);
/* Out of all tables, without a timer: IDLE. */
void sw_cm_detach(struct sw_cm *cm, struct sw_cm_id *id);
struct sw_cm_id *sw_cm_by_local(const struct sw_cm *cm, uint32_t comm_id);
/* A node is a CA GUID at an address: nobody ends the connections of another. */
struct sw_cm_id *sw_cm_by_remote(const struct sw_cm *cm, uint32_t comm_id, uint64_t ca_guid,
                                 const struct sw_cm_path *path);
struct sw_cm_id *sw_cm_by_request(const struct sw_cm *cm, uint32_t request_id,
                                  const struct sw_cm_path *path);
struct sw_cm_id *sw_cm_by_remote_qpn(const struct sw_cm *cm, uint32_t qpn, uint64_t ca_guid,
                                     const struct sw_cm_path *path);
struct sw_cm_listener *sw_cm_listener_of(const struct sw_cm *cm, uint64_t service_id);
/* An id, of which there may be others, whose path leads to this slot; NULL: none is left. */
struct sw_cm_id *sw_cm_by_slot(const struct sw_cm *cm, uint16_t slot);
/* The id after this one, or the first after NULL; NULL: there is none. */
struct sw_cm_id *sw_cm_id_after(const struct sw_cm *cm, const struct sw_cm_id *id);

/* crowd.c: what strangers can make us keep. */
bool sw_cm_is_crowded(const struct sw_cm *cm, const struct sw_cm_path *path);
void sw_cm_count_asking(struct sw_cm *cm, struct sw_cm_id *id);
/* It does not ask any more, or is no stranger any more. Nothing happens if it is not counted. */
void sw_cm_uncount_asking(struct sw_cm *cm, struct sw_cm_id *id);
/* The id is destroyed and in TIMEWAIT: it ends at once if all that matters is what it said last,
 * and must not be touched; else it lingers, and the oldest that does may end. */
void sw_cm_let_go(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns);
void sw_cm_linger(struct sw_cm *cm, struct sw_cm_id *id);
void sw_cm_stop_lingering(struct sw_cm *cm, struct sw_cm_id *id);
/* The answer to this request is said again; false: nothing is remembered of it. */
bool sw_cm_replied(struct sw_cm *cm, const struct sw_cm_path *path,
                   const struct sw_cm_message *message, uint64_t now_ns);

/* A copy of the REQ of a connection that is over may come late: each process of a host that has
 * the UDP port may get it, and pass it on when it has a processor. It asks for nothing new. */
void sw_cm_keep_past(struct sw_cm *cm, const struct sw_cm_id *id, uint64_t now_ns);
bool sw_cm_is_past(const struct sw_cm *cm, const struct sw_cm_path *path,
                   const struct sw_cm_message *message, uint64_t now_ns);

/* say.c: what is sent. */
struct sw_cm_rej_text {
    uint16_t reason;
    const void *info, *private_data;
    size_t info_len, len;
};
/* Sends a message of the id's, and remembers it. */
void sw_cm_say(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_message *message);
void sw_cm_say_again(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_path *path);
/* The same for what was said by an id that is no more. */
void sw_cm_send_again(struct sw_cm *cm, const struct sw_cm_path *path,
                      const uint8_t mad[SW_MAD_BYTES], enum sw_cm_attribute attribute);
/* Sends a message and forgets it. */
void sw_cm_reply(struct sw_cm *cm, const struct sw_cm_path *path,
                 const struct sw_cm_message *message);
void sw_cm_say_rej(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_rej_text *text);
/* The REJ of a side that gives up, by which the peer may find its id. */
void sw_cm_say_timeout(struct sw_cm *cm, struct sw_cm_id *id);
void sw_cm_say_dreq(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data, size_t len);
void sw_cm_say_sidr_rep(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_sidr_rep *rep);
void sw_cm_say_drep(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data, size_t len);
uint64_t sw_cm_new_transaction(struct sw_cm *cm);

/* What a REQ says about both ends. */
void sw_cm_take_terms(struct sw_cm_id *id, const struct sw_cm_req *req, bool active);

/* life.c: waiting, and ends. */
/* The last message wants an answer: begins to say it again. */
void sw_cm_await(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns);
/* The peer has asked again for the REP that was sent, which pays for another few. */
void sw_cm_await_again(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns);
/* The peer asked for time. */
void sw_cm_be_patient(struct sw_cm *cm, struct sw_cm_id *id, uint64_t wait_ns, uint64_t now_ns);
/* `more_ns`: than the path asks for. */
void sw_cm_enter_timewait(struct sw_cm *cm, struct sw_cm_id *id, uint64_t more_ns, uint64_t now_ns);
/* Sends a DREQ and waits for what comes of it. */
void sw_cm_begin_disconnect(struct sw_cm *cm, struct sw_cm_id *id, const void *private_data,
                            size_t len, uint64_t now_ns);
/* Nobody listens, says the answer to one copy of the REQ: whether another may still come. */
bool sw_cm_awaits_other_answer(struct sw_cm *cm, struct sw_cm_id *id, uint64_t now_ns);
/* IDLE; a destroyed id is its user's again, and must not be touched. */
void sw_cm_end(struct sw_cm *cm, struct sw_cm_id *id);
/* Tells the user: the last thing that is done with an id, as it may be gone then. */
void sw_cm_tell(struct sw_cm *cm, struct sw_cm_id *id, const struct sw_cm_event *event);

#endif
