/* SPDX-License-Identifier: BSD-2-Clause */
/* `sidewire status`: which way the connections of running programs took under `run --sockets`, and
 * why. Reads what each process has published (sockets/published.h); asks nobody. */
#include <argp.h>
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/json.h"
#include "sockets/published.h"

struct status_args {
    bool as_json;
    long pid; /* 0: all */
};

static error_t cli_parse_status(int key, char *value, struct argp_state *state)
{
    struct status_args *args = state->input;
    char *end;
    switch (key) {
    case 'j':
        args->as_json = true;
        return 0;
    case 'o':
        args->as_json = sw_take_format(state, value);
        return 0;
    case ARGP_KEY_ARG:
        args->pid = strtol(value, &end, 10);
        if (*end || args->pid <= 0 || state->arg_num)
            argp_error(state, "it takes one process ID, and got '%s'", value);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "Print JSON", 0},
    SW_OPTION_FORMAT,
    {0},
};

static const struct argp argp = {
    .options = options,
    .parser = cli_parse_status,
    .args_doc = "[PID]",
    .doc =
        "Lists the TCP sockets of running programs under `sidewire run --sockets`: which went by "
        "RDMA, which by TCP, and why. Those of your own processes; of all, as root."
        "\v"
        "Status: 0, or 1 if there is no such program.",
};

struct printer {
    bool as_json, any;
    long pid;
    char program[64];
};

static const char *const way_names[] = {[SW_WAY_LISTEN] = "listen",
                                        [SW_WAY_DIRECT] = "rdma direct",
                                        [SW_WAY_ROCE] = "rdma roce",
                                        [SW_WAY_TCP] = "tcp"};

static const char *address_text(const union sw_address *address, char out[INET6_ADDRSTRLEN + 10])
{
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa.sa_family == AF_INET) {
        inet_ntop(AF_INET, &address->in.sin_addr, text, sizeof(text));
        sprintf(out, "%s:%u", text, ntohs(address->in.sin_port));
    } else if (address->sa.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &address->in6.sin6_addr, text, sizeof(text));
        sprintf(out, "[%s]:%u", text, ntohs(address->in6.sin6_port));
    } else {
        strcpy(out, "-");
    }
    return out;
}

static void status_print_record(struct printer *printer, const struct sw_published_record *record)
{
    char local[INET6_ADDRSTRLEN + 10], peer[INET6_ADDRSTRLEN + 10];
    bool listens = record->way == SW_WAY_LISTEN;
    const char *way = listens ? (*record->reason ? "tcp" : "rdma, tcp") : way_names[record->way];
    const char *kind = listens ? "listen" : record->incoming ? "in" : "out";
    address_text(&record->local, local);
    address_text(&record->peer, peer);
    if (!printer->as_json) {
        if (!printer->any)
            printf("%7s  %-15s  %4s  %-6s  %-21s  %-21s  %-11s  %s\n", "PID", "PROGRAM", "FD",
                   "KIND", "LOCAL", "PEER", "WAY", "WHY");
        printf("%7ld  %-15s  %4d  %-6s  %-21s  %-21s  %-11s  %s\n", printer->pid, printer->program,
               record->fd, kind, local, peer, way, record->reason);
    } else {
        printf("%s\n  {\"pid\": %ld, ", printer->any ? "," : "", printer->pid);
        sw_json_member(stdout, "program", printer->program);
        printf(", \"fd\": %d, ", record->fd);
        sw_json_member(stdout, "kind", kind);
        fputs(", ", stdout);
        sw_json_member(stdout, "local", local);
        fputs(", ", stdout);
        sw_json_member(stdout, "peer", peer);
        fputs(", ", stdout);
        sw_json_member(stdout, "way", way);
        fputs(", ", stdout);
        sw_json_member(stdout, "reason", record->reason);
        fputc('}', stdout);
    }
    printer->any = true;
}

/* A record as it was at one moment; false: free, or it keeps changing. */
static bool record_read(int file, uint32_t number, struct sw_published_record *out)
{
    enum { TRIES = 100 };
    off_t at = (off_t)(sizeof(struct sw_published_header) + number * sizeof(*out));
    for (int i = 0; i < TRIES; i++) {
        uint32_t after;
        if (pread(file, out, sizeof(*out), at) != sizeof(*out) ||
            pread(file, &after, sizeof(after), at) != sizeof(after))
            return false;
        if (out->seq == after && after % 2 == 0) {
            out->reason[sizeof(out->reason) - 1] = '\0';
            return out->way != SW_WAY_NONE && out->way <= SW_WAY_TCP;
        }
    }
    return false;
}

/* What a process has published; returns whether the file is that. */
static bool print_file(struct printer *printer, int file)
{
    struct sw_published_header header;
    if (pread(file, &header, sizeof(header), 0) != sizeof(header) ||
        header.magic != SW_PUBLISHED_MAGIC || header.capacity > SW_PUBLISHED_CAPACITY)
        return false;
    struct sw_published_record record;
    for (uint32_t i = 0; i < header.used && i < header.capacity; i++)
        if (record_read(file, i, &record))
            status_print_record(printer, &record);
    if (header.untold)
        sw_fault(NULL, "process %ld had %u connections more than there is room to tell of",
                 printer->pid, header.untold);
    return true;
}

static void status_read_name(struct printer *printer)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/comm", printer->pid);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(printer->program, sizeof(printer->program), file))
        strcpy(printer->program, "?");
    printer->program[strcspn(printer->program, "\n")] = '\0';
    if (file)
        fclose(file);
}

/* The process that made the file; children that have it for a moment tell nothing. */
static bool print_process(struct printer *printer)
{
    char folder[64];
    snprintf(folder, sizeof(folder), "/proc/%ld/fd", printer->pid);
    DIR *fds = opendir(folder);
    const struct dirent *entry;
    bool found = false;
    while (fds && !found && (entry = readdir(fds))) {
        char target[64];
        ssize_t len = readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1);
        if (len < 0)
            continue;
        target[len] = '\0';
        if (strncmp(target, "/memfd:" SW_PUBLISHED_NAME, strlen("/memfd:" SW_PUBLISHED_NAME)))
            continue;
        int file = openat(dirfd(fds), entry->d_name, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            status_read_name(printer);
            found = print_file(printer, file);
            close(file);
        }
    }
    if (fds)
        closedir(fds);
    return found;
}

int sw_command_status(int argc, char **argv)
{
    struct status_args args = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    struct printer printer = {.as_json = args.as_json};
    DIR *processes = opendir("/proc");
    if (!processes) {
        sw_fault(NULL, "cannot read /proc: %s", strerror(errno));
        return SW_STATUS_NO;
    }
    bool found = false;
    const struct dirent *entry;
    if (args.as_json)
        fputs("{\"sockets\": [", stdout);
    while ((entry = readdir(processes))) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        printer.pid = strtol(entry->d_name, NULL, 10);
        if (!args.pid || args.pid == printer.pid)
            found |= print_process(&printer);
    }
    closedir(processes);
    if (args.as_json)
        puts("\n]}");
    if (!found)
        sw_fault("sidewire run --sockets -- CMD",
                 "no program with TCP sockets is running under --sockets");
    return found ? SW_STATUS_OK : SW_STATUS_NO;
}
