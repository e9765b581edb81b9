/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The extension module sidewire._engine: the handles of transfer.h as objects of Python.
 *
 * The engine wants one thread at a time in an agent. So each agent has a lock, which is taken with
 * the interpreter's lock released, and no function of Python is called while it is held.
 * An object holds references to those that it needs: a transfer to its blocks and peer, blocks to
 * their memory, all to their agent. So the engine never loses what it still uses. Closing an agent
 * frees all handles of the engine at once; `handle` of the others is not looked at afterwards.
 */
#ifndef SW_BINDINGS_PYTHON_MODULE_H
#define SW_BINDINGS_PYTHON_MODULE_H

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>

#include "sidewire/pipe.h"

enum { PY_DIMENSIONS_MAX = 32 };

struct py_agent {
    PyObject ob_base;
    struct sw_xfer_agent *handle; /* NULL: closed */
    pthread_mutex_t lock;
    atomic_uint callers;  /* threads that want the lock */
    atomic_uint sleepers; /* threads that wait for something to come */
    int kick_fd;          /* wakes them: a semaphore */
    unsigned generation;  /* of the process: another one in a child of fork() */
    uint32_t spin_us;
    PyObject *leases;      /* granted ones, until they are revoked */
    PyObject *watcher;     /* of asyncio */
    struct py_agent *next; /* of all that are open */
};

/* What an object's memory is. */
struct py_data {
    void *data; /* of a GPU where `is_cuda` */
    uint64_t bytes;
    bool is_readonly, is_cuda;
    char type[8]; /* as numpy writes it: <f4; |V8 where it is something else */
    int dimensions;
    int64_t shape[PY_DIMENSIONS_MAX];
    Py_buffer view; /* one of the three holds it */
    bool has_view;
    PyObject *owner;
    struct py_managed *managed; /* of DLPack */
};

struct py_memory {
    PyObject ob_base;
    struct py_agent *agent;
    struct sw_xfer_memory *handle; /* NULL: released */
    struct py_data data;
    bool is_file, is_dmabuf;
    Py_ssize_t exports; /* views of it */
    unsigned releases;  /* under way: no view is made meanwhile */
};

struct py_lease {
    PyObject ob_base;
    struct py_memory *memory;
    struct sw_xfer_lease *handle;
};

struct py_peer {
    PyObject ob_base;
    struct py_agent *agent;
    struct sw_xfer_peer *handle;
    PyObject *card; /* bytes */
};

struct py_blocks {
    PyObject ob_base;
    struct py_agent *agent;
    struct py_peer *peer; /* NULL: they are here */
    PyObject *memories;   /* one, or a tuple of them; NULL: they are a peer's */
    bool is_readonly;     /* any of them */
    struct sw_xfer_blocks *handle;
};

struct py_transfer {
    PyObject ob_base;
    struct py_peer *peer;
    struct py_blocks *local, *remote; /* NULL: a notice alone */
    struct sw_xfer_transfer *handle;
};

struct py_pipe {
    PyObject ob_base;
    struct sw_pipe *handle; /* NULL: closed */
    pthread_mutex_t lock;
    unsigned generation;
    uint64_t tag;         /* of the newest array that was sent */
    struct py_pipe *next; /* of all that are open */
};

extern PyTypeObject *py_agent_type, *py_memory_type, *py_lease_type, *py_peer_type, *py_blocks_type,
    *py_transfer_type, *py_pipe_type, *py_pipe_listener_type;
extern PyType_Spec py_agent_spec, py_memory_spec, py_lease_spec, py_peer_spec, py_blocks_spec,
    py_transfer_spec, py_pipe_spec, py_pipe_listener_spec;

/* ---- module.c ---- */

/* A new object of zeros; its type counts it. */
void *py_new(PyTypeObject *type);
void py_free(void *object);
/* Calls what a module of Python has; `arg` is not given away. */
PyObject *py_call(const char *module, const char *name, PyObject *arg);
/* Sets the exception of that status; NULL always. */
PyObject *py_raise(enum sw_xfer_status status, const char *text);
bool py_notice_make_type(PyObject *module);

/* ---- stay.c ---- */

struct py_stay {
    struct py_agent *agent;
    PyThreadState *thread;
};

/* Into the agent, without the interpreter's lock, until py_leave(). False: an exception is set, or,
 * of py_enter_quietly, the agent is closed or belongs to the parent. */
bool py_enter(struct py_stay *stay, struct py_agent *agent);
bool py_enter_quietly(struct py_stay *stay, struct py_agent *agent);
void py_leave(struct py_stay *stay);
bool py_is_forked(const struct py_agent *agent);
void py_kick(struct py_agent *agent);
unsigned py_generation(void);
void py_watch_forks(void);
/* Sets the exception of what is closed. Threads that outlive the interpreter do not return. */
void py_raise_closed(const char *text);
/* The interpreter ends, says the thread that ends it. */
void py_end(void);
/* Polls and sleeps until `is_ready`, which is asked within the agent. 1: it is; 0: the deadline has
 * passed; -1: an exception is set. */
int py_wait(struct py_agent *agent, bool (*is_ready)(void *arg), void *arg, uint64_t deadline_ns);
/* The only argument of a function, which has that name; NULL where it was left out. False: an
 * exception is set. */
bool py_seconds(PyObject *args, PyObject *words, const char *name, uint64_t *deadline_ns);
/* None: never. False: an exception is set. */
bool py_deadline(PyObject *seconds, uint64_t *deadline_ns);

/* ---- data.c ---- */

/* By the buffer protocol, __array_interface__ or DLPack, whichever the object has; nothing is
 * copied. False: an exception is set. */
bool py_data_take(PyObject *object, struct py_data *data);
void py_data_drop(struct py_data *data);
PyObject *py_describe(PyObject *module, PyObject *object);
PyObject *py_bytes_of(PyObject *module, PyObject *object);
PyObject *py_fill(PyObject *module, PyObject *args);

/* ---- index.c ---- */

struct py_index {
    uint64_t *values;
    uint32_t count;
};

/* Takes an array of integers, or any sequence of them. */
bool py_index_take(PyObject *object, struct py_index *index);
void py_index_drop(struct py_index *index);

/* ---- the objects ---- */

void py_pipes_close(void);
PyObject *py_agents_close(PyObject *module, PyObject *none);
PyObject *py_memory_new(struct py_agent *agent, PyObject *object);
PyObject *py_memory_file(struct py_agent *agent, PyObject *args, PyObject *words);
PyObject *py_memory_dmabuf(struct py_agent *agent, PyObject *args, PyObject *words);
PyObject *py_lease_new(struct py_memory *memory, PyObject *args, PyObject *words);
PyObject *py_peer_new(struct py_agent *agent, PyObject *args, PyObject *words);
PyObject *py_blocks_new(struct py_memory *memory, struct py_peer *peer, PyObject *args,
                        PyObject *words);
/* Which number a card's region of that name or number has, and its bytes. */
bool py_find_region(PyObject *card, PyObject *region, uint32_t *part, uint64_t *total);
/* ---- plan.c ---- */

PyObject *py_reshard(PyObject *module, PyObject *args);
PyObject *py_plan_memory(PyObject *module, PyObject *args);
PyObject *py_blocks_of_memories(struct py_agent *agent, PyObject *args, PyObject *words);
PyObject *py_blocks_of_regions(struct py_peer *peer, PyObject *args, PyObject *words);
PyObject *py_transfer_new(struct py_peer *peer, enum sw_xfer_op op, PyObject *local,
                          PyObject *remote, bool has_sums);

/* repr.c: "<sidewire.TYPE LENGTH=... NAME=...>", of the length and of attributes that can be told
 * now; `length` may be NULL, and `names` ends with NULL. */
PyObject *py_show(PyObject *self, const char *type, const char *length, const char *const *names);

#endif
