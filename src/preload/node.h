/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nodes of the tree as a program meets them: a descriptor, a struct stat. An open node is a memfd
 * with the contents of the moment and the node's path in its name, so it is known again after dup,
 * fork and exec, and nothing needs cleaning up.
 */
#ifndef SW_PRELOAD_NODE_H
#define SW_PRELOAD_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "preload/path.h"

/* The result of open() with these flags: a descriptor, or -1 with errno. */
int sw_node_open(const struct sw_found *found, int flags);

/* Stores a struct stat where the program wants it, which may be a bad address. A directory that the
 * kernel has too shows as the kernel's. Returns 0, or -1 with errno. */
int sw_node_stat(const struct sw_found *found, struct stat *out);
/* 0, or -1 with errno EFAULT. */
int sw_node_store(void *to, const void *from, size_t len);
/* Answers access(): 0, or -1 with errno. */
int sw_node_access(const struct sw_found *found, int mode);

uint64_t sw_node_inode(const char *path);
uint8_t sw_node_dirent_type(enum sw_tree_kind kind);

/* Whether fd was opened from a node of ours. `status` is its true struct stat if known, else NULL.
 */
bool sw_node_of_fd(int fd, const struct stat *status, struct sw_found *out);

/* Whether a descriptor with this true struct stat is a channel of the connection manager: its node
 * is the device's. */
bool sw_node_of_channel(const struct stat *status, struct sw_found *out);

#endif
