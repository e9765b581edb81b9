/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The capture: copies of the state in a ring, made while the program computes, and the proof that
 * they show one instant.
 *
 *     the program's thread           the session's thread of I/O
 *     snap_capture_describe()
 *     snap_capture_begin()
 *                                    snap_capture_take(), until it has ended and none is left
 *     snap_capture_gate()            snap_capture_release(), of each unit that was taken
 *
 * The proof, with sums: helpers sum the whole state first. The end of that is the instant. Then
 * they copy unit after unit, and sum what they have copied. So each unit was seen before the
 * instant, and after it, and was the same. A gate that comes in the middle has to copy what is left
 * and nothing else, since a copy is the second look itself; and what one gate lets go may be
 * written to before the rest is copied. Where a unit differs, the gate copies it again. The end of
 * the last copy is the new instant, and all is summed once more behind it: docs/snapshot-format.md.
 *
 * A capture has neither a device nor a store. It never writes to the state, and never reads it
 * after describe or close have returned.
 */
#ifndef SW_SNAPSHOT_CAPTURE_H
#define SW_SNAPSHOT_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sidewire/snapshot.h>

struct snap_capture;
struct snap_copier; /* how memory is copied that processors do not reach */
struct snap_sum;    /* of a block */

struct snap_capture_options {
    uint64_t ring_bytes; /* rounded up to units; two units at least */
    uint32_t unit_bytes; /* a power of two, 1-4 MiB */
    uint32_t helpers;    /* 1-16 */
    uint32_t looks_max;  /* of all that was captured, at the gate */
    enum sw_snap_look look;
    uint64_t seed;              /* of the sums of blocks */
    struct snap_copier *copier; /* of memory that processors do not reach; NULL: there is none */
};

/* A part of the state, and where it begins: in which unit, and at which block of it. */
struct snap_capture_range {
    const void *data;
    uint64_t bytes;
    uint32_t unit, offset; /* offset in bytes */
};

enum snap_capture_outcome {
    SNAP_CAPTURE_NONE = 0,  /* none was begun */
    SNAP_CAPTURE_UNDER_WAY, /* it waits for helpers, the ring or the gate */
    SNAP_CAPTURE_CLEAN,     /* all units are in the queue, and show one instant: may be committed */
    SNAP_CAPTURE_TORN,      /* what was written meanwhile: snap_capture_torn() */
    SNAP_CAPTURE_SKIPPED,   /* the gate was told to give it up */
    SNAP_CAPTURE_LATE,      /* the gate's deadline passed: given up */
    SNAP_CAPTURE_ABORTED,   /* snap_capture_abort() */
};

/* 0, or a negative errno. */
int snap_capture_open(const struct snap_capture_options *options, struct snap_capture **capture);
/* Ends the helpers and unmaps the ring: no sink may use it any more. In a child of fork() it frees
 * what the child has of it. */
void snap_capture_close(struct snap_capture *capture);
/* One mapping, aligned to a page at least, the same until close. */
void *snap_capture_ring(const struct snap_capture *capture, size_t *bytes);

/* What the state is from now on; copied. -EBUSY: a capture is under way. -EINVAL, -EFAULT (not
 * mapped) with the number of the range in `bad`. */
int snap_capture_describe(struct snap_capture *capture, const struct snap_capture_range *ranges,
                          uint32_t ranges_count, uint32_t *bad);
/* 0; -EBUSY: one is under way; -EFAULT with the number of a range that is not mapped. Units of the
 * one before that were taken stay with who has taken them. */
int snap_capture_begin(struct snap_capture *capture, uint32_t *bad);
/* Before the state is written to, by the same thread as begin. Never returns UNDER_WAY: what has
 * not ended by the deadline (CLOCK_MONOTONIC; 0: none) is given up. */
enum snap_capture_outcome snap_capture_gate(struct snap_capture *capture, enum sw_snap_gate how,
                                            uint64_t deadline_ns);
/* The same for some ranges, which are copied first. UNDER_WAY: these may be written to, others not
 * yet. */
enum snap_capture_outcome snap_capture_gate_ranges(struct snap_capture *capture,
                                                   enum sw_snap_gate how, uint32_t first,
                                                   uint32_t count, uint64_t deadline_ns);

/* ---- the thread of I/O ---- */

/* A unit that lies in the ring. */
struct snap_captured {
    uint32_t unit;
    uint32_t slot;               /* for release */
    uint32_t bytes;              /* whole blocks; filled up with zeroes */
    void *data;                  /* in the ring, at the beginning of a block */
    const struct snap_sum *sums; /* of each block of the copy; as long as the slot */
    bool is_again;               /* it was taken before, and has changed: this one counts */
};

/* The next unit of the capture that was begun last; false: there is none at the moment. */
bool snap_capture_take(struct snap_capture *capture, struct snap_captured *captured);
/* The sinks are done with it. Any thread may call. */
void snap_capture_release(struct snap_capture *capture, uint32_t slot);
/* Gives up what is under way: a waiting gate returns ABORTED. Units that were taken are released
 * as ever; those in the queue are gone. Any thread may call. */
void snap_capture_abort(struct snap_capture *capture);
/* An eventfd for poll(2), readable once a unit has come into the queue, or the outcome is there.
 * snap_capture_take() clears it. */
int snap_capture_fd(const struct snap_capture *capture);

struct snap_capture_info {
    enum snap_capture_outcome outcome;
    /* Why a range is TORN that could not be read: -EFAULT: it is not mapped; else a copier's. 0: it
     * has changed. */
    int code;
    bool by_pages; /* the kernel tells what was written, of some of the state at least */
    uint32_t units, units_copied;
    uint64_t state_bytes;         /* of all ranges */
    uint64_t copied_bytes;        /* into the ring, what was copied again too */
    uint64_t changed_bytes;       /* of units that were copied again */
    uint64_t gate_ns, gate_bytes; /* the callers' waits, and what was left to copy at the first */
    uint64_t begun_ns, ended_ns;  /* CLOCK_MONOTONIC; 0: not yet */
    uint64_t processor_ns;        /* of helpers, and of the caller in the gate */
    uint32_t slots, slots_free, torn; /* of the ring; ranges */
};

/* Any thread may call. */
void snap_capture_info_of(struct snap_capture *capture, struct snap_capture_info *info);
/* The numbers of ranges that are torn, and how many there are. */
uint32_t snap_capture_torn(struct snap_capture *capture, uint32_t *numbers, uint32_t numbers_max);

#endif
