/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The part of the file system that is ours: a table of paths with the device's name, its uverbs
 * number, the interface and indices as wildcards. Nothing is stored: nodes are looked up in the
 * table and their contents made from the netdev when asked for.
 *
 * Paths given here are absolute and have no ".", ".." or double slashes; links on the way are not
 * followed (path.h does).
 */
#ifndef SW_PRELOAD_TREE_H
#define SW_PRELOAD_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "device/nic/netdev.h"

#define SW_TREE_PATH_MAX 512 /* of a path of ours, and of one leading out of a link of ours */
#define SW_TREE_TEXT_MAX 512 /* of a file's contents or a link's target */

#define SW_TREE_RDMA_CM "/dev/infiniband/rdma_cm" /* the device of the connection manager */

enum sw_tree_kind {
    SW_TREE_DIR,
    SW_TREE_SHARED_DIR, /* the kernel may have one of the same name; both contents show */
    SW_TREE_LINK,
    SW_TREE_FILE,
    SW_TREE_CHAR, /* a character device */
};

struct sw_node {
    const struct sw_tree_row *row;
    struct sw_netdev *dev; /* the device in the path, or NULL */
    bool is_interface;     /* the path names its interface, and not it */
    int number;            /* the index in the path */
};

enum sw_tree_match {
    SW_TREE_FOREIGN, /* nothing of ours is here or below */
    SW_TREE_ABOVE,   /* the kernel's, with something of ours below */
    SW_TREE_NODE,
};

enum sw_tree_match sw_tree_lookup(const char *path, struct sw_node *out);
/* The last component of its path, wildcards as the table has them. */
const char *sw_node_name(const struct sw_node *node);
enum sw_tree_kind sw_node_kind(const struct sw_node *node);

/* The contents of a file or the target of a link. Returns the length without the terminating NUL,
 * or a negative errno: -EINVAL for attributes of an empty GID entry, as the kernel answers. */
int sw_node_text(const struct sw_node *node, char out[SW_TREE_TEXT_MAX]);

/* Calls fn for each of our entries of a directory. */
typedef void (*sw_node_list_fn)(void *arg, const char *name, enum sw_tree_kind kind);
void sw_node_list(const struct sw_node *dir, sw_node_list_fn fn, void *arg);

/* Calls fn for each root of ours whose place is this directory of the kernel's; false: it has none.
 * `path` as the program gave it. */
bool sw_tree_list_roots(const char *path, sw_node_list_fn fn, void *arg);

#endif
