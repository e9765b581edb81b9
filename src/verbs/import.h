/* SPDX-License-Identifier: BSD-2-Clause */
/* Objects that another context of this process may import, by their handles. */
#ifndef SW_VERBS_IMPORT_H
#define SW_VERBS_IMPORT_H

#include "verbs/object.h"

enum sw_import_kind { SW_IMPORT_PD, SW_IMPORT_MR, SW_IMPORT_DM };

/* From creation to destruction of the original. An object that cannot be noted cannot be
 * imported. */
void sw_import_add(enum sw_import_kind kind, uint32_t handle, void *object);
void sw_import_remove(enum sw_import_kind kind, uint32_t handle);

/* A handle that other processes on this host understand, of a PD's or region's number here. */
uint32_t sw_import_handle(uint32_t number);

/* dm.c */
struct ibv_dm *sw_dm_import(struct ibv_context *context, struct ibv_dm *known);
void sw_dm_unimport(struct ibv_dm *dm);

#endif
