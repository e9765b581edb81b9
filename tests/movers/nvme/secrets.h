/* SPDX-License-Identifier: BSD-2-Clause */
/* Secrets of a host and a controller for tests of authentication, as users write them. */
#ifndef SW_TESTS_NVME_SECRETS_H
#define SW_TESTS_NVME_SECRETS_H

#define HOST_SECRET "DHHC-1:01:AgkQFx4lLDM6QUhPVl1ka3J5gIeOlZyjqrG4v8bN1Nuz7TWq:"
#define CONTROLLER_SECRET "DHHC-1:00:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC:"

#endif
