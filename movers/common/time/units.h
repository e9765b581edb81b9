/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_UNITS_H
#define SW_MOVERS_UNITS_H

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

#endif
