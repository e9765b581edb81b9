/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/lock.h"

pthread_mutex_t sw_rdmacm_lock = PTHREAD_MUTEX_INITIALIZER;
