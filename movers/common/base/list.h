/* SPDX-License-Identifier: BSD-2-Clause */
/* A list whose links lie in its members. */
#ifndef SW_MOVERS_LIST_H
#define SW_MOVERS_LIST_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

struct list_node {
    struct list_node *next, *previous;
};

struct list {
    struct list_node head;
};

#define LIST_MEMBER(link, type, field) ((type *)(void *)((char *)(link)-offsetof(type, field)))

static inline void list_init(struct list *list)
{
    list->head.next = list->head.previous = &list->head;
}

static inline bool list_is_empty(const struct list *list)
{
    return list->head.next == &list->head;
}

static inline void list_insert_behind(struct list_node *before, struct list_node *node)
{
    node->previous = before;
    node->next = before->next;
    node->next->previous = node;
    before->next = node;
}

static inline void list_append(struct list *list, struct list_node *node)
{
    list_insert_behind(list->head.previous, node);
}

static inline void list_remove(struct list_node *node)
{
    assert(node->next && node->previous);
    node->previous->next = node->next;
    node->next->previous = node->previous;
    node->next = node->previous = NULL;
}

/* Moves all of `from` to `list`, which was empty. */
static inline void list_take_all(struct list *list, struct list *from)
{
    assert(list_is_empty(list));
    if (list_is_empty(from))
        return;
    list->head = from->head;
    list->head.next->previous = list->head.previous->next = &list->head;
    list_init(from);
}

/* The first, NULL of an empty list. */
static inline struct list_node *list_first(const struct list *list)
{
    return list_is_empty(list) ? NULL : list->head.next;
}

/* The one behind, NULL behind the last. */
static inline struct list_node *list_after(const struct list *list, const struct list_node *node)
{
    return node->next == &list->head ? NULL : node->next;
}

#endif
