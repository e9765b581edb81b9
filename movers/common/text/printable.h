/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef SW_MOVERS_PRINTABLE_H
#define SW_MOVERS_PRINTABLE_H

/* A stranger's text for a terminal: in place of control characters it has '?'. */
void mover_make_printable(char *text);

#endif
