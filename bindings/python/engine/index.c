/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers of blocks: arrays of any integer type, read in one go. */
#include <stdlib.h>
#include <string.h>

#include "module.h"

/* Reads one integer in native order; false where it is negative. */
static bool read_value(const char *at, Py_ssize_t size, bool is_signed, uint64_t *value)
{
    *value = 0;
    memcpy(value, at, (size_t)size); /* little-endian, as all machines that this runs on */
    return !is_signed || !(at[size - 1] & 0x80);
}

static bool read_view(const Py_buffer *view, struct py_index *index)
{
    const char *format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=' || *format == '<')
        format++;
    const bool is_signed = *format && strchr("bhilqn", *format);
    if (!*format || format[1] || !strchr("bhilqnBHILQN", *format) || view->ndim != 1 ||
        view->itemsize > 8) {
        PyErr_SetString(PyExc_TypeError,
                        "block numbers are an array of integers, of one dimension");
        return false;
    }
    const Py_ssize_t count = view->len / view->itemsize;
    if (count < 1 || count > (Py_ssize_t)UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError,
                        "there has to be at least one block, and no more than 2^32");
        return false;
    }
    index->values = malloc((size_t)count * sizeof(*index->values));
    if (!index->values) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!read_value((const char *)view->buf + i * view->itemsize, view->itemsize, is_signed,
                        &index->values[i])) {
            PyErr_SetString(PyExc_ValueError, "a block number is negative");
            py_index_drop(index);
            return false;
        }
    index->count = (uint32_t)count;
    return true;
}

bool py_index_take(PyObject *object, struct py_index *index)
{
    *index = (struct py_index){.values = NULL};
    PyObject *array = NULL;
    Py_buffer view;
    if (!PyObject_CheckBuffer(object)) {
        PyObject *imported = PyImport_ImportModule("array");
        array = imported ? PyObject_CallMethod(imported, "array", "sO", "q", object) : NULL;
        Py_XDECREF(imported);
        if (!array)
            return false;
        object = array;
    }
    bool is_fine = !PyObject_GetBuffer(object, &view, PyBUF_ND | PyBUF_FORMAT);
    if (is_fine) {
        is_fine = read_view(&view, index);
        PyBuffer_Release(&view);
    }
    Py_XDECREF(array);
    return is_fine;
}

void py_index_drop(struct py_index *index)
{
    free(index->values);
    *index = (struct py_index){.values = NULL};
}
