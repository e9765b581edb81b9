/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pipes of <sidewire/pipe.h>, and small arrays as their messages: docs/python.md has the bytes.
 *
 * A call first looks with the interpreter's lock held, as that takes no time worth mentioning. A
 * call that has to wait releases it. No call waits longer than SLICE_MS: the caller asks again.
 */
#include <string.h>

#include "module.h"

enum { SLICE_MS = 50, HEAD_BYTES = 24, MAGIC = 0x41495753, VERSION = 1, INLINE = 1 };

struct message {
    uint8_t head[HEAD_BYTES + 8 * PY_DIMENSIONS_MAX];
    size_t head_bytes;
};

struct py_pipe_listener {
    PyObject ob_base;
    struct sw_pipe_listener *handle;
    unsigned generation;
};

static struct py_pipe *all_pipes;

static struct py_pipe *pipe_of(PyObject *self)
{
    return (struct py_pipe *)self;
}

/* ---- being in a pipe ---- */

struct stay {
    struct py_pipe *pipe;
    PyThreadState *thread; /* NULL: the interpreter's lock is held */
};

static bool enter_pipe(struct stay *stay, struct py_pipe *pipe)
{
    *stay = (struct stay){.pipe = pipe};
    if (pipe->generation != py_generation()) {
        py_raise(SW_XFER_FORKED, sw_xfer_status_text(SW_XFER_FORKED));
        return false;
    }
    if (pthread_mutex_trylock(&pipe->lock)) { /* nobody waits for it with the interpreter's lock */
        PyThreadState *thread = PyEval_SaveThread();
        pthread_mutex_lock(&pipe->lock);
        PyEval_RestoreThread(thread);
    }
    if (pipe->handle)
        return true;
    pthread_mutex_unlock(&pipe->lock);
    py_raise_closed("the connection is closed");
    return false;
}

/* From here on it may wait. */
static void let_go_of_interpreter(struct stay *stay)
{
    stay->thread = PyEval_SaveThread();
}

static void leave_pipe(struct stay *stay)
{
    pthread_mutex_unlock(&stay->pipe->lock);
    if (stay->thread)
        PyEval_RestoreThread(stay->thread);
}

/* False: an exception is set. */
static bool read_slice(PyObject *seconds, uint64_t *deadline_ns)
{
    const uint64_t slice_ns = sw_xfer_deadline_ms(SLICE_MS);
    if (!py_deadline(seconds, deadline_ns))
        return false;
    if (*deadline_ns > slice_ns)
        *deadline_ns = slice_ns;
    return true;
}

/* 1: sent; 0: there was no room in time; -1: an exception is set. */
static int send_parts(struct py_pipe *pipe, const struct sw_pipe_part *parts, unsigned count,
                      PyObject *seconds)
{
    struct stay stay;
    uint64_t deadline_ns;
    if (!enter_pipe(&stay, pipe))
        return -1;
    enum sw_xfer_status status = sw_pipe_send(pipe->handle, parts, count, 0);
    const bool has_waited = status == SW_XFER_TIMEOUT;
    if (has_waited && read_slice(seconds, &deadline_ns)) {
        let_go_of_interpreter(&stay);
        status = sw_pipe_send(pipe->handle, parts, count, deadline_ns);
    }
    leave_pipe(&stay);
    if (PyErr_Occurred() || (has_waited && PyErr_CheckSignals()))
        return -1;
    if (status && status != SW_XFER_TIMEOUT)
        py_raise(status, status == SW_XFER_PEER_GONE ? "the other process has ended the connection"
                                                     : sw_xfer_status_text(status));
    return status == SW_XFER_OK ? 1 : status == SW_XFER_TIMEOUT ? 0 : -1;
}

static int pipe_receive_bytes(struct py_pipe *pipe, uint8_t *data, size_t *bytes, PyObject *seconds)
{
    struct stay stay;
    uint64_t deadline_ns;
    if (!enter_pipe(&stay, pipe))
        return -1;
    enum sw_xfer_status status = sw_pipe_receive(pipe->handle, data, SW_PIPE_MESSAGE_MAX, 0, bytes);
    const bool has_waited = status == SW_XFER_TIMEOUT;
    if (has_waited && read_slice(seconds, &deadline_ns)) {
        let_go_of_interpreter(&stay);
        status = sw_pipe_receive(pipe->handle, data, SW_PIPE_MESSAGE_MAX, deadline_ns, bytes);
    }
    leave_pipe(&stay);
    /* A message that came is never lost to a signal: its handler runs soon enough. */
    if (PyErr_Occurred() || (status == SW_XFER_TIMEOUT && PyErr_CheckSignals()))
        return -1;
    if (status && status != SW_XFER_TIMEOUT)
        py_raise(status, status == SW_XFER_PEER_GONE ? "the other process has ended the connection"
                                                     : sw_xfer_status_text(status));
    return status == SW_XFER_OK ? 1 : status == SW_XFER_TIMEOUT ? 0 : -1;
}

/* ---- arrays as messages ---- */

static void put_number(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get_number(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

/* The bytes of an item, as data->type says: digits behind two letters. 0: no type of a message. */
static unsigned item_bytes(const struct py_data *data)
{
    unsigned size = 0;
    for (const char *at = data->type + 2; *at >= '0' && *at <= '9'; at++)
        size = size * 10 + (unsigned)(*at - '0');
    const char letter = data->type[1];
    const unsigned least = letter == 'c' ? 8 : letter == 'f' ? 2 : 1;
    const unsigned most = letter == 'c' ? 32 : letter == 'f' ? 16 : letter == 'b' ? 1 : 8;
    const bool is_known =
        letter == 'b' || letter == 'i' || letter == 'u' || letter == 'f' || letter == 'c';
    return is_known && size >= least && size <= most && !(size & (size - 1)) ? size : 0;
}

/* False: it is not sent within a message. */
static bool make_message(struct message *message, const struct py_data *data, uint64_t tag)
{
    const unsigned size = item_bytes(data);
    message->head_bytes = HEAD_BYTES + 8u * (unsigned)data->dimensions;
    if (!size || data->is_cuda || message->head_bytes + data->bytes > SW_PIPE_MESSAGE_MAX ||
        (data->has_view && !PyBuffer_IsContiguous(&data->view, 'C')))
        return false;
    memset(message->head, 0, HEAD_BYTES);
    put_number(message->head, MAGIC, 4);
    message->head[4] = VERSION;
    message->head[5] = INLINE;
    message->head[6] = (uint8_t)data->type[1];
    message->head[7] = (uint8_t)data->type[0];
    message->head[8] = (uint8_t)size;
    message->head[9] = (uint8_t)data->dimensions;
    put_number(message->head + 16, tag, 8);
    for (int i = 0; i < data->dimensions; i++)
        put_number(message->head + HEAD_BYTES + 8 * i, (uint64_t)data->shape[i], 8);
    return true;
}

/* Whether it is an array of that type and length within a message that is right. Any other message
 * is looked at by ipc.unpack(). */
static bool is_array_for(const uint8_t *at, size_t bytes, const struct py_data *data)
{
    const unsigned size = item_bytes(data);
    if (bytes < HEAD_BYTES || !size || data->is_cuda || data->is_readonly ||
        (data->has_view && !PyBuffer_IsContiguous(&data->view, 'C')))
        return false;
    const unsigned dimensions = at[9];
    uint64_t total = size;
    if (get_number(at, 4) != MAGIC || at[4] != VERSION || at[5] != INLINE ||
        at[6] != (uint8_t)data->type[1] || at[7] != (uint8_t)data->type[0] || at[8] != size ||
        dimensions > PY_DIMENSIONS_MAX || bytes < HEAD_BYTES + 8 * dimensions)
        return false;
    for (unsigned i = 0; i < dimensions; i++)
        if (__builtin_mul_overflow(total, get_number(at + HEAD_BYTES + 8 * i, 8), &total))
            return false;
    return total == data->bytes && bytes - HEAD_BYTES - 8 * dimensions == total;
}

static PyObject *pipe_send_array(PyObject *self, PyObject *args, PyObject *words)
{
    static char *names[] = {"array", "timeout", NULL};
    PyObject *array, *seconds = NULL;
    struct py_data data;
    struct message message;
    int sent = 0;
    if (!PyArg_ParseTupleAndKeywords(args, words, "O|O:send_array", names, &array, &seconds) ||
        !py_data_take(array, &data))
        return NULL;
    const bool is_small = make_message(&message, &data, pipe_of(self)->tag + 1);
    if (is_small) {
        const struct sw_pipe_part parts[] = {{message.head, message.head_bytes},
                                             {data.data, data.bytes}};
        sent = send_parts(pipe_of(self), parts, 2, seconds);
    }
    py_data_drop(&data);
    if (sent < 0)
        return NULL;
    pipe_of(self)->tag += sent > 0;
    if (!is_small)
        return Py_NewRef(Py_None);
    return PyBool_FromLong(sent);
}

static PyObject *pipe_send(PyObject *self, PyObject *args, PyObject *words)
{
    static char *names[] = {"data", "timeout", NULL};
    PyObject *seconds = NULL;
    const char *data;
    Py_ssize_t bytes;
    if (!PyArg_ParseTupleAndKeywords(args, words, "y#|O:send", names, &data, &bytes, &seconds))
        return NULL;
    const struct sw_pipe_part part = {data, (size_t)bytes};
    const int sent = send_parts(pipe_of(self), &part, 1, seconds);
    return sent < 0 ? NULL : PyBool_FromLong(sent);
}

static PyObject *pipe_recv(PyObject *self, PyObject *args, PyObject *words)
{
    static char *names[] = {"out", "timeout", NULL};
    PyObject *out = Py_None, *seconds = NULL;
    uint8_t at[SW_PIPE_MESSAGE_MAX];
    size_t bytes;
    struct py_data data;
    if (!PyArg_ParseTupleAndKeywords(args, words, "|OO:recv", names, &out, &seconds))
        return NULL;
    const int got = pipe_receive_bytes(pipe_of(self), at, &bytes, seconds);
    if (got < 0)
        return NULL;
    if (!got)
        return Py_NewRef(Py_None);
    if (out != Py_None && py_data_take(out, &data)) {
        const bool is_for_it = is_array_for(at, bytes, &data);
        if (is_for_it && data.bytes)
            memcpy(data.data, at + bytes - data.bytes, data.bytes);
        py_data_drop(&data);
        if (is_for_it)
            return Py_NewRef(out);
    }
    PyErr_Clear(); /* ipc says what is wrong with `out` */
    return PyBytes_FromStringAndSize((const char *)at, (Py_ssize_t)bytes);
}

static PyObject *pipe_next_tag(PyObject *self, PyObject *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong(++pipe_of(self)->tag);
}

/* ---- its beginning and its end ---- */

static PyObject *wrap_pipe(enum sw_xfer_status status, const struct sw_xfer_error *error,
                           struct sw_pipe *handle)
{
    struct py_pipe *pipe = status ? NULL : py_new(py_pipe_type);
    if (status)
        return py_raise(status, error->text);
    if (!pipe) {
        sw_pipe_close(handle);
        return NULL;
    }
    pthread_mutex_init(&pipe->lock, NULL);
    pipe->handle = handle;
    pipe->generation = py_generation();
    pipe->next = all_pipes;
    all_pipes = pipe;
    return (PyObject *)pipe;
}

static bool read_token(PyObject *object, char **token)
{
    Py_ssize_t bytes;
    if (PyBytes_AsStringAndSize(object, token, &bytes))
        return false;
    if (bytes == SW_PIPE_TOKEN_BYTES)
        return true;
    PyErr_SetString(PyExc_ValueError, "a token has 16 bytes");
    return false;
}

static PyObject *pipe_connect(PyObject *type, PyObject *args, PyObject *words)
{
    static char *names[] = {"address", "port", "token", "timeout", NULL};
    (void)type;
    const char *address;
    int port;
    PyObject *token_object, *seconds = NULL;
    char *token, text[16];
    uint64_t deadline_ns;
    struct sw_xfer_error error;
    struct sw_pipe *handle = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, words, "siO|O:connect", names, &address, &port,
                                     &token_object, &seconds) ||
        !read_token(token_object, &token) || !py_deadline(seconds, &deadline_ns))
        return NULL;
    PyOS_snprintf(text, sizeof(text), "%d", port);
    PyThreadState *thread = PyEval_SaveThread();
    const enum sw_xfer_status status =
        sw_pipe_connect(address, text, (const uint8_t *)token, deadline_ns, &error, &handle);
    PyEval_RestoreThread(thread);
    return wrap_pipe(status, &error, handle);
}

static void close_pipe(struct py_pipe *pipe, uint64_t deadline_ns)
{
    for (struct py_pipe **at = &all_pipes; *at; at = &(*at)->next)
        if (*at == pipe) {
            *at = pipe->next;
            break;
        }
    if (!pipe->handle)
        return;
    if (pipe->generation != py_generation()) { /* another thread of the parent may have the lock */
        sw_pipe_close(pipe->handle);
        pipe->handle = NULL;
        return;
    }
    PyThreadState *thread = PyEval_SaveThread();
    pthread_mutex_lock(&pipe->lock);
    struct sw_pipe *handle = pipe->handle;
    pipe->handle = NULL;
    if (handle) {
        sw_pipe_flush(handle, deadline_ns);
        sw_pipe_close(handle);
    }
    pthread_mutex_unlock(&pipe->lock);
    PyEval_RestoreThread(thread);
}

static PyObject *pipe_close(PyObject *self, PyObject *args, PyObject *words)
{
    uint64_t deadline_ns;
    if (!py_seconds(args, words, "timeout", &deadline_ns))
        return NULL;
    close_pipe(pipe_of(self), deadline_ns);
    Py_RETURN_NONE;
}

void py_pipes_close(void)
{
    while (all_pipes) {
        struct py_pipe *pipe = (struct py_pipe *)Py_NewRef((PyObject *)all_pipes);
        close_pipe(pipe, 0);
        Py_DECREF((PyObject *)pipe);
    }
}

static void drop_pipe(PyObject *self)
{
    close_pipe(pipe_of(self), 0);
    py_free(self);
}

static PyObject *get_sleeps(PyObject *self, void *none)
{
    (void)none;
    struct stay stay;
    if (!enter_pipe(&stay, pipe_of(self)))
        return NULL;
    const uint64_t sleeps = sw_pipe_sleeps(stay.pipe->handle);
    leave_pipe(&stay);
    return PyLong_FromUnsignedLongLong(sleeps);
}

static PyGetSetDef members[] = {
    {"sleeps", get_sleeps, NULL, "How often a wait has slept.", NULL},
    {0},
};

#define WORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"connect", WORDS(pipe_connect), METH_VARARGS | METH_KEYWORDS | METH_STATIC,
     "connect(address, port, token, timeout=None)"},
    {"send_array", WORDS(pipe_send_array), METH_VARARGS | METH_KEYWORDS,
     "send_array(array, timeout=None): True, False where it had no room, None where it is no "
     "message."},
    {"send", WORDS(pipe_send), METH_VARARGS | METH_KEYWORDS,
     "send(data, timeout=None): whether it had room."},
    {"recv", WORDS(pipe_recv), METH_VARARGS | METH_KEYWORDS,
     "recv(out=None, timeout=None): `out` where it was filled, else the message; None: none yet."},
    {"next_tag", pipe_next_tag, METH_NOARGS, "The tag of another array."},
    {"close", WORDS(pipe_close), METH_VARARGS | METH_KEYWORDS,
     "close(timeout=None): once all is with the peer."},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, drop_pipe},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {Py_tp_doc, "Small messages to one other process."},
    {0},
};

PyType_Spec py_pipe_spec = {.name = "sidewire.Pipe",
                            .basicsize = sizeof(struct py_pipe),
                            .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            .slots = slots};

/* ---- listeners ---- */

static struct py_pipe_listener *listener_of(PyObject *self)
{
    return (struct py_pipe_listener *)self;
}

static PyObject *new_listener(PyTypeObject *type, PyObject *args, PyObject *words)
{
    static char *names[] = {"address", NULL};
    const char *address;
    struct sw_xfer_error error;
    struct sw_pipe_listener *handle = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, words, "s:PipeListener", names, &address))
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    const enum sw_xfer_status status = sw_pipe_listen(address, NULL, &error, &handle);
    PyEval_RestoreThread(thread);
    if (status)
        return py_raise(status, error.text);
    struct py_pipe_listener *listener = py_new(type);
    if (!listener) {
        sw_pipe_listener_close(handle);
        return NULL;
    }
    listener->handle = handle;
    listener->generation = py_generation();
    return (PyObject *)listener;
}

/* One thread has it: ipc makes one for each pipe. */
static PyObject *listener_accept(PyObject *self, PyObject *args, PyObject *words)
{
    static char *names[] = {"token", "timeout", NULL};
    PyObject *token_object, *seconds = NULL;
    char *token;
    uint64_t deadline_ns;
    struct sw_xfer_error error;
    struct sw_pipe *handle = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, words, "O|O:accept", names, &token_object, &seconds) ||
        !read_token(token_object, &token) || !py_deadline(seconds, &deadline_ns))
        return NULL;
    PyThreadState *thread = PyEval_SaveThread();
    const enum sw_xfer_status status = sw_pipe_accept(
        listener_of(self)->handle, (const uint8_t *)token, deadline_ns, &error, &handle);
    PyEval_RestoreThread(thread);
    return wrap_pipe(status, &error, handle);
}

static void drop_listener(PyObject *self)
{
    if (listener_of(self)->generation == py_generation())
        sw_pipe_listener_close(listener_of(self)->handle);
    py_free(self);
}

static PyObject *get_port(PyObject *self, void *none)
{
    (void)none;
    return PyLong_FromLong(sw_pipe_listener_port(listener_of(self)->handle));
}

static PyGetSetDef listener_members[] = {
    {"port", get_port, NULL, "Where pipes are asked for.", NULL},
    {0},
};

static PyMethodDef listener_methods[] = {
    {"accept", WORDS(listener_accept), METH_VARARGS | METH_KEYWORDS,
     "accept(token, timeout=None): a Pipe."},
    {0},
};

static PyType_Slot listener_slots[] = {
    {Py_tp_new, new_listener},
    {Py_tp_dealloc, drop_listener},
    {Py_tp_methods, listener_methods},
    {Py_tp_getset, listener_members},
    {Py_tp_doc, "PipeListener(address): where a pipe is asked for."},
    {0},
};

PyType_Spec py_pipe_listener_spec = {.name = "sidewire.PipeListener",
                                     .basicsize = sizeof(struct py_pipe_listener),
                                     .flags = Py_TPFLAGS_DEFAULT,
                                     .slots = listener_slots};
