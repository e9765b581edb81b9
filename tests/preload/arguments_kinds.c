/* SPDX-License-Identifier: BSD-2-Clause */
#include "arguments_kinds.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

char *kinds_page;

static struct kind kinds[40];
static int kind_count;
static char *hidden;    /* no access */
static char *read_only; /* zeros */
static DIR *streams[2][SIDES];

const struct kind *kinds_find(char letter)
{
    for (int i = 0; i < kind_count; i++)
        if (kinds[i].letter == letter)
            return &kinds[i];
    fprintf(stderr, "no kind of argument is called '%c'\n", letter);
    abort();
}

static void add_both(char letter, const char *name, long libc, long hook, bool is_node)
{
    if (!kind_count || kinds[kind_count - 1].letter != letter)
        kinds[kind_count++].letter = letter;
    struct kind *kind = &kinds[kind_count - 1];
    kind->values[kind->count++] = (struct value){name, {libc, hook}, is_node};
}

static void add(char letter, const char *name, long value)
{
    add_both(letter, name, value, value, false);
}

static void add_address(char letter, const char *name, const void *address)
{
    add(letter, name, (long)(intptr_t)address);
}

static void add_paths(char letter, const char *name, const char *libc, const char *hook)
{
    add_both(letter, name, (long)(intptr_t)libc, (long)(intptr_t)hook, true);
}

static void add_opened(char letter, const char *name, const char *libc, const char *hook)
{
    const int flags = O_RDONLY | O_CLOEXEC;
    add_both(letter, name, open(libc, flags), open(hook, flags), true);
}

static char scratch[] = "/tmp/sidewire-arguments-XXXXXX";
static char file_path[64], none_path[64];

/* A string that ends where the page does. */
static char *at_end(const char *text)
{
    size_t len = strlen(text) + 1;
    char *own =
        mmap(NULL, 2 * BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(own + BUFFER_BYTES, BUFFER_BYTES, PROT_NONE);
    return memcpy(own + BUFFER_BYTES - len, text, len);
}

static char *repeated(const char *start, const char *part, size_t len)
{
    char *text = calloc(1, len + 64);
    strcpy(text, start);
    for (size_t used = strlen(text); used < len; used += strlen(part))
        strcpy(text + used, part);
    return text;
}

static char *without_end(const char *start)
{
    char *own = at_end("");
    memset(own + 1 - BUFFER_BYTES, '/', BUFFER_BYTES);
    return memcpy(own + 1 - 64, start, strlen(start));
}

static void add_bad_addresses(char letter)
{
    add_address(letter, "NULL", NULL);
    add_address(letter, "no access", hidden);
    add(letter, "8", 8);
    add(letter, "-1", -1);
    add(letter, "no address", (long)(1ul << 62));
}

static void add_path_kind(void)
{
    add_address('p', "a file", file_path);
    add_bad_addresses('p');
    add_address('p', "\"\"", "");
    add_address('p', "no end", without_end("infiniband"));
    add_address('p', "/sys without end", without_end("/sys/class/infiniband"));
    add_address('p', "long", repeated("/sys/class/infiniband", "/.", 6000));
    add_address('p', "long name", repeated("/sys/class/infiniband/", "x", 300));
    add_address('p', "long relative", repeated("infiniband", "x", 6000));
    add_address('p', "at the end", at_end("sw_"));
    add_address('p', "a directory", scratch);
    add_address('p', "nothing", none_path);
    add_paths('p', "node file", "/sys/class/net/lo/address",
              "/sys/class/infiniband/sw_lo/node_type");
    add_paths('p', "node directory", "/sys/devices/virtual/net/lo",
              "/sys/devices/virtual/infiniband/sw_lo");
    add_paths('p', "node link", "/sys/class/net/lo", "/sys/class/infiniband/sw_lo");
    add_paths('p', "node file/", "/sys/class/net/lo/address/",
              "/sys/class/infiniband/sw_lo/node_type/");
    add_paths('p', "no node", "/sys/class/net/lo/nothing", "/sys/class/infiniband/sw_lo/nothing");
}

static int file, null;
enum { EPOLL, UNIX, UNIX_PEER, TCP, LISTENER, SOCKETS };
static int sockets[SOCKETS] = {-1, -1, -1, -1, -1};

static void make_listener(void)
{
    close(sockets[LISTENER]);
    sockets[LISTENER] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listen(sockets[LISTENER], 1))
        abort();
}

/* Each child has its own, under the same numbers; but for the listener, which takes long. */
static void make_sockets(void)
{
    for (int i = 0; i < LISTENER; i++)
        close(sockets[i]);
    sockets[EPOLL] = epoll_create1(EPOLL_CLOEXEC);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, &sockets[UNIX]))
        abort();
    sockets[TCP] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
}

static void add_descriptor_kinds(void)
{
    int pipes[2];
    const int none = 999;
    file = open(file_path, O_RDWR | O_CLOEXEC);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    add('d', "AT_FDCWD", AT_FDCWD);
    add('d', "-1", -1);
    add('d', "not open", none);
    add('d', "INT_MIN", INT_MIN);
    add('d', "a file", file);
    add_opened('d', "a node directory", "/sys/devices/virtual/net/lo",
               "/sys/devices/virtual/infiniband/sw_lo");
    if (pipe2(pipes, O_NONBLOCK | O_CLOEXEC))
        abort();
    for (const char *letter = "fs"; *letter; letter++) {
        add(*letter, "a file", file);
        add(*letter, "-1", -1);
        add(*letter, "not open", none);
        add(*letter, "INT_MAX", INT_MAX);
        add(*letter, "INT_MIN", INT_MIN);
        add(*letter, "a pipe", pipes[0]);
        add(*letter, "a directory", open(scratch, O_RDONLY | O_CLOEXEC));
        if (*letter == 's')
            break;
        add_opened('f', "a node", "/sys/class/net/lo/address",
                   "/sys/class/infiniband/sw_lo/node_type");
        add_opened('f', "a node directory", "/sys/devices/virtual/net/lo",
                   "/sys/devices/virtual/infiniband/sw_lo");
    }
    make_sockets();
    make_listener();
    add('s', "an epoll set", sockets[EPOLL]);
    add('s', "a Unix socket", sockets[UNIX]);
    add('s', "a TCP socket", sockets[TCP]);
    add('s', "a TCP listener", sockets[LISTENER]);
}

static int visit(void)
{
    return 1;
}

static void add_numbers(char letter, const long *numbers, size_t count)
{
    static char names[400][16];
    static int used;
    for (size_t i = 0; i < count; i++) {
        snprintf(names[used], sizeof(names[used]), "%#lx", numbers[i]);
        add(letter, names[used++], numbers[i]);
    }
}
#define ADD_NUMBERS(letter, ...)                     \
    add_numbers(letter, (const long[]){__VA_ARGS__}, \
                sizeof((const long[]){__VA_ARGS__}) / sizeof(long))

static void add_number_kinds(void)
{
    ADD_NUMBERS('0', 0);
    ADD_NUMBERS('o', O_RDONLY, O_WRONLY, O_RDWR | O_TRUNC, O_RDWR | O_CREAT | O_EXCL, O_DIRECTORY,
                O_RDONLY | O_CREAT, O_NOFOLLOW, O_PATH, O_PATH | O_NOFOLLOW, O_PATH | O_DIRECTORY,
                O_TMPFILE | O_RDWR, O_DIRECTORY | O_CREAT, O_TMPFILE, -1, 1 << 30);
    ADD_NUMBERS('m', 0600, 0, -1);
    ADD_NUMBERS('a', F_OK, R_OK, X_OK, R_OK | X_OK, 8, 1 << 20); /* root may do more to sysfs */
    ADD_NUMBERS('t', 0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_EACCESS, AT_REMOVEDIR << 20,
                AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, -1);
    ADD_NUMBERS('k', STATX_BASIC_STATS, 0, STATX__RESERVED, -1);
    ADD_NUMBERS('v', 1, 0, 3, -1);
    ADD_NUMBERS('n', 64, 0, 1, BUFFER_BYTES, INT_MAX, -1);
    /* The length of a mapping: INT_MAX would take away what lies above, the libraries or not, as it
     * comes. */
    ADD_NUMBERS('e', 64, 0, 1, BUFFER_BYTES, -1);
    ADD_NUMBERS('N', BUFFER_BYTES, 0, 63, -1);
    ADD_NUMBERS('U', 0, 1, 2, -1); /* what a signal does */
    ADD_NUMBERS('z', 0, 1, 2, 5, SIGBUS, 64, 1 << 20, INT_MAX, INT_MIN, -1);
    ADD_NUMBERS('Z', 0, AF_UNIX, AF_INET, AF_INET6, 99, -1);
    ADD_NUMBERS('c', 100, 0, 1, INT_MAX, -1);
    ADD_NUMBERS('g', 1, 0, 2, 16, 1 << 20, -1);
    ADD_NUMBERS('h', 64, 0, 1);
    ADD_NUMBERS('w', 20, 1, 0, -1);
    ADD_NUMBERS('I', FIONREAD, FIONBIO, TIOCGWINSZ, 0, -1);
    ADD_NUMBERS('Q', SOL_SOCKET, SO_ERROR, SO_RCVTIMEO, IPPROTO_TCP, 0, -1);
}

static void add_pointer_kinds(void)
{
    static const char *modes[] = {"r", "w", "a", "", "r+", "z", "rxe"};
    static int four;
    static struct iovec parts[64], bad_parts[64];
    static struct msghdr messages[64];
    static struct timespec no_time;
    static struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = 0x0100};
    four = 4;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    parts[0] = (struct iovec){kinds_page, 64};
    bad_parts[0] = (struct iovec){hidden, 64};
    for (const char *letter = "bB"; *letter; letter++) {
        add_address(*letter, "a page", kinds_page);
        add_address(*letter, "the end of a page", kinds_page + BUFFER_BYTES - 8);
        add_address(*letter, "read-only", read_only);
        add_bad_addresses(*letter);
    }
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        add_address('F', modes[i], modes[i]);
    add_bad_addresses('F');
    add_address('S', "a stream", fopen(file_path, "r+e"));
    add_address('S', "NULL", NULL);
    add_address('x', "an attribute", "user.none");
    add_bad_addresses('x');
    add_address('L', "a library", "libc.so.6");
    add_address('L', "no library", "/nothing.so");
    add_bad_addresses('L');
    add_address('C', "a function", (const void *)visit);
    add_address('y', "4", &four);
    add_bad_addresses('y');
    add_address('V', "a part", parts);
    add_address('V', "a bad part", bad_parts);
    add_bad_addresses('V');
    add_address('M', "messages", messages);
    add_bad_addresses('M');
    add_address('T', "no time", &no_time);
    add_address('T', "no access", hidden);
    add_address('A', "an address", &to);
    add_address('A', "zeros", read_only);
    add_bad_addresses('A');
    add_both('D', "a stream", (long)(intptr_t)streams[0][LIBC], (long)(intptr_t)streams[0][HOOK],
             false);
    add_both('D', "of a node", (long)(intptr_t)streams[1][LIBC], (long)(intptr_t)streams[1][HOOK],
             true);
    add_bad_addresses('D');
}

void kinds_prepare(void)
{
    char *area = mmap(NULL, 4 * BUFFER_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    kinds_page = area;
    hidden = area + BUFFER_BYTES;
    read_only = area + 2 * BUFFER_BYTES;
    if (area == MAP_FAILED || mprotect(kinds_page, BUFFER_BYTES, PROT_READ | PROT_WRITE) ||
        mprotect(read_only, BUFFER_BYTES, PROT_READ) || !mkdtemp(scratch) || chdir(scratch))
        abort();
    snprintf(file_path, sizeof(file_path), "%s/file", scratch);
    snprintf(none_path, sizeof(none_path), "%s/none", scratch);
    const int fd = open(file_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (write(fd, "text\n", 5) != 5 || close(fd))
        abort();
    for (int side = LIBC; side < SIDES; side++) {
        streams[0][side] = opendir(scratch);
        streams[1][side] = opendir(side == LIBC ? "/sys/devices/virtual/net/lo"
                                                : "/sys/devices/virtual/infiniband/sw_lo");
    }
    add_path_kind();
    add_descriptor_kinds();
    add_number_kinds();
    add_pointer_kinds();
}

void kinds_clean(void)
{
    unlink(file_path);
    unlink(none_path);
    unlink("sw_"); /* a path that was given */
    if (chdir("/") || rmdir(scratch))
        perror(scratch);
}

void kinds_renew(enum side side, bool has_sockets, bool has_listener)
{
    for (int i = 0; i < 2; i++)
        rewinddir(streams[i][side]);
    lseek(file, 0, SEEK_SET);
    dup2(null, STDERR_FILENO); /* libc says why it ends a program */
    if (has_sockets)
        make_sockets();
    if (has_listener)
        make_listener();
}

void kinds_remove_made(void)
{
    syscall(SYS_unlinkat, AT_FDCWD, none_path, 0);
}
