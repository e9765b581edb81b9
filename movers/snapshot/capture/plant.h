/* SPDX-License-Identifier: BSD-2-Clause */
/* Faults that a test plants, to show that it finds them. The library is built without. */
#ifndef SW_SNAPSHOT_PLANT_H
#define SW_SNAPSHOT_PLANT_H

#if defined(SNAP_PLANTS)
enum snap_plant {
    SNAP_PLANT_NONE = 0,
    SNAP_PLANT_GATE,  /* a gate that does nothing */
    SNAP_PLANT_LOOK,  /* no second look */
    SNAP_PLANT_ALONE, /* each unit is looked at twice for itself: no instant is common to all */
    SNAP_PLANT_EARLY, /* a unit is marked done before it is copied */
    SNAP_PLANT_FIRST, /* copies that are the first look are not looked at again */
};
extern enum snap_plant snap_planted;
#define SNAP_IS_PLANTED(fault) (snap_planted == (fault))
#else
#define SNAP_IS_PLANTED(fault) false
#endif

#endif
