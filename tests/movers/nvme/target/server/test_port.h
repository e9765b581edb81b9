/* SPDX-License-Identifier: BSD-2-Clause */
/* A port that no other test has, until this process and its children end. */
#ifndef TEST_PORT_H
#define TEST_PORT_H

#include <stddef.h>

void test_port_claim(char *port, size_t size);

#endif
