/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * File contents that a template cannot say, in the kernel's formats
 * (Documentation/ABI/stable/sysfs-class-infiniband, drivers/infiniband/core/sysfs.c). Each writes
 * to out[SW_TREE_TEXT_MAX] and returns the length or a negative errno.
 */
#ifndef SW_PRELOAD_TEXT_H
#define SW_PRELOAD_TEXT_H

#include <sys/types.h>

#include "preload/tree.h"

/* Copies `template` with %D (device), %I (interface), %U (uverbs number) and %M (its minor number)
 * filled in. */
int sw_text_expand(const char *template, const struct sw_netdev_info *info, char *out);

/* The number of the connection manager's device. */
dev_t sw_text_rdma_cm_number(void);

int sw_text_cap_mask(const struct sw_node *node, char *out);
int sw_text_cpulist(const struct sw_node *node, char *out);
int sw_text_cpus(const struct sw_node *node, char *out);
int sw_text_gid(const struct sw_node *node, char *out);
int sw_text_gid_ndev(const struct sw_node *node, char *out);
int sw_text_gid_type(const struct sw_node *node, char *out);
int sw_text_guid(const struct sw_node *node, char *out);
int sw_text_node_type(const struct sw_node *node, char *out);
int sw_text_numa_node(const struct sw_node *node, char *out);
int sw_text_phys_state(const struct sw_node *node, char *out);
int sw_text_rdma_cm_dev(const struct sw_node *node, char *out);
int sw_text_rdma_cm_uevent(const struct sw_node *node, char *out);
int sw_text_rate(const struct sw_node *node, char *out);
int sw_text_counter(const struct sw_node *node, char *out);
int sw_text_traffic(const struct sw_node *node, char *out);
int sw_text_state(const struct sw_node *node, char *out);
int sw_text_version(const struct sw_node *node, char *out);

#endif
