// SPDX-License-Identifier: BSD-2-Clause
// The pages of ranks: what they say while the program is elsewhere, and who may read them.
#include "ranks.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collectives/comm/sweep.h"
#include "collectives/core/recorder.h"

enum { READY, GO };

static char runtime[] = "/tmp/coll_page.XXXXXX";
static char folder[64];

static int make_runtime(void **state)
{
    (void)state;
    if (!mkdtemp(runtime) || setenv("XDG_RUNTIME_DIR", runtime, 1))
        return -1;
    snprintf(folder, sizeof(folder), "%s/sidewire-coll", runtime);
    ranks_have_pages = true;
    return unsetenv(COLL_PAGE_OFF);
}

static int remove_runtime(void **state)
{
    (void)state;
    rmdir(folder);
    return rmdir(runtime);
}

// How many files there are; `path` is that of this rank in a communicator other than `but`.
static int find_pages(uint32_t rank, uint64_t but, char *path, size_t room)
{
    char end[24], beginning[24];
    int count = 0;
    DIR *dir = opendir(folder);
    snprintf(end, sizeof(end), "-%u" COLL_PAGE_SUFFIX, rank);
    snprintf(beginning, sizeof(beginning), "%016" PRIx64, but);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        const size_t length = strlen(entry->d_name), tail = strlen(end);
        count += entry->d_name[0] != '.';
        if (length > tail && !strcmp(entry->d_name + length - tail, end) &&
            strncmp(entry->d_name, beginning, 16) != 0)
            snprintf(path, room, "%s/%.60s", folder, entry->d_name);
    }
    if (dir)
        closedir(dir);
    return count;
}

static int count_pages(void)
{
    char path[160];
    return find_pages(0, 0, path, sizeof(path));
}

static struct coll_page read_page_but(uint32_t rank, uint64_t but)
{
    char path[160] = "";
    struct coll_page copy = {.magic = 0};
    find_pages(rank, but, path, sizeof(path));
    const int fd = open(path, O_RDONLY);
    const struct coll_page *page = mmap(NULL, sizeof(*page), PROT_READ, MAP_SHARED, fd, 0);
    assert_true(fd >= 0 && page != MAP_FAILED && coll_page_read(page, &copy));
    munmap((void *)(uintptr_t)page, sizeof(*page));
    close(fd);
    return copy;
}

static struct coll_page read_page(uint32_t rank)
{
    assert_int_equal(count_pages(), 2);
    return read_page_but(rank, 0);
}

// Rank 0 posts, and computes. Rank 1 comes when it is told to.
static void post_and_compute(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_request *request = NULL;
    float mine[5] = {0}, sum[5];
    const struct sw_coll_call call = {
        .kind = SW_COLL_ALL_REDUCE, .type = SW_COLL_F32, .send = mine, .recv = sum, .count = 5};
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
    if (rank->rank == 0)
        need_ok(rank, sw_coll_post(rank->coll, &call, 0, &error, &request), &error);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, GO, 1);
    need_ok(rank,
            rank->rank ? sw_coll_run(rank->coll, &call, 0, &error) : sw_coll_wait(request, &error),
            &error);
}

static void page__tells_of_an_operation_while_the_program_computes(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 2, post_and_compute, NULL);
    flag_await(ranks.shared, READY, 2);
    const struct coll_page page = read_page(0), other = read_page(1);
    assert_int_equal(page.pid, ranks.pids[0]);
    assert_true(page.job == other.job && page.size == 2 && other.rank == 1);
    assert_true(page.state.number == 2 && page.ended == 1 && page.state.since_ns);
    assert_int_equal(page.state.activity, COLL_IN_OPERATION);
    assert_int_equal(page.state.kind, SW_COLL_ALL_REDUCE);
    assert_int_equal(page.state.type, SW_COLL_F32);
    assert_int_equal(page.state.count, 5);
    assert_true(coll_page_awaits(&page, 1) && !coll_page_awaits(&page, 0));
    assert_true(other.state.number == 1 && other.ended == 1 && !other.state.is_waiting);
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 0);
    assert_int_equal(count_pages(), 0);
}

static void receive_and_compute(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_request *request = NULL;
    uint16_t data[7] = {0};
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
    if (rank->rank == 0)
        need_ok(rank, sw_coll_recv_post(rank->coll, 1, data, 7, SW_COLL_U16, 0, &error, &request),
                &error);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, GO, 1);
    need_ok(rank,
            rank->rank ? sw_coll_send(rank->coll, 0, data, 7, SW_COLL_U16, 0, &error)
                       : sw_coll_wait(request, &error),
            &error);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, GO, 2);
}

static void page__tells_of_a_message(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 2, receive_and_compute, NULL);
    flag_await(ranks.shared, READY, 2);
    const struct coll_page page = read_page(0);
    assert_int_equal(page.state.activity, COLL_IN_RECV);
    assert_true(page.state.message == 1 && page.state.count == 7 && page.state.since_ns);
    assert_int_equal(page.state.type, SW_COLL_U16);
    assert_true(coll_page_awaits(&page, 1));
    flag_raise(ranks.shared, GO);
    flag_await(ranks.shared, READY, 4);
    const struct coll_page after = read_page(0);
    assert_true(after.state.activity == COLL_IN_OPERATION && !after.state.is_waiting);
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 0);
}

static bool blocks_alone(const struct coll_page *page, uint32_t rank)
{
    bool is_so = true;
    for (uint32_t other = 0; other < page->size; other++)
        is_so = is_so && coll_page_blocks(page, other) == (other == rank);
    return is_so;
}

// Rank 0 waits for a message that it has no receive for, then by one, while an operation of its is
// under way to which rank 2 does not come.
static void wait_for_rank_1(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll_request *request = NULL, *message = NULL;
    const struct sw_coll_call barrier = {.kind = SW_COLL_BARRIER};
    const struct sw_coll_message wanted = {.count = 7, .type = SW_COLL_U16};
    uint16_t data[7] = {0};
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
    if (rank->rank == 0) {
        need_ok(rank, sw_coll_post(rank->coll, &barrier, 0, &error, &request), &error);
        sw_coll_poll(rank->coll);
        flag_raise(rank->shared, READY);
        flag_await(rank->shared, GO, 1);
        sw_coll_await(rank->coll, 1, &wanted);
        sw_coll_poll(rank->coll);
        flag_raise(rank->shared, READY);
        flag_await(rank->shared, GO, 2);
        sw_coll_await(rank->coll, 1, NULL);
        flag_raise(rank->shared, READY);
        flag_await(rank->shared, GO, 3);
        need_ok(rank, sw_coll_recv_post(rank->coll, 1, data, 7, SW_COLL_U16, 0, &error, &message),
                &error);
        need_ok(rank, sw_coll_wait(message, &error), &error);
        need_ok(rank, sw_coll_wait(request, &error), &error);
        return;
    }
    flag_await(rank->shared, GO, 4);
    if (rank->rank == 1)
        need_ok(rank, sw_coll_send(rank->coll, 0, data, 7, SW_COLL_U16, 0, &error), &error);
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
}

static void page__tells_what_the_program_waits_for(void **state)
{
    struct ranks ranks;
    static struct coll_page page;
    (void)state;
    ranks_start(&ranks, 3, wait_for_rank_1, NULL);
    flag_await(ranks.shared, READY, 1);
    page = read_page_but(0, 0);
    assert_int_equal(page.state.activity, COLL_IN_OPERATION);
    assert_true(coll_page_awaits(&page, 2) && blocks_alone(&page, UINT32_MAX)); // it computes
    flag_raise(ranks.shared, GO);
    flag_await(ranks.shared, READY, 2);
    page = read_page_but(0, 0);
    assert_int_equal(page.state.activity, COLL_IN_RECV);
    assert_true(page.state.message == 1 && page.state.count == 7 && blocks_alone(&page, 1));
    assert_int_equal(page.state.type, SW_COLL_U16);
    flag_raise(ranks.shared, GO);
    flag_await(ranks.shared, READY, 3);
    page = read_page_but(0, 0);
    if (page.state.activity == COLL_IN_OPERATION)
        assert_true(page.state.number == 2 && blocks_alone(&page, UINT32_MAX));
    flag_raise(ranks.shared, GO);
    do { // its receive is posted, and waited for
        nap_ms(1);
        page = read_page_but(0, 0);
    } while (page.state.activity != COLL_IN_RECV || !blocks_alone(&page, 1));
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 0);
}

static void page__is_the_users_alone(void **state)
{
    struct ranks ranks;
    struct stat file;
    char path[160] = "";
    (void)state;
    ranks_start(&ranks, 2, post_and_compute, NULL);
    flag_await(ranks.shared, READY, 2);
    assert_int_equal(find_pages(1, 0, path, sizeof(path)), 2);
    assert_false(stat(path, &file));
    assert_int_equal(file.st_mode & 0777, 0600);
    assert_false(stat(folder, &file));
    assert_int_equal(file.st_mode & 0777, 0700);
    // It has a lock as long as its process lives.
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = open(path, O_RDONLY);
    assert_false(fcntl(fd, F_GETLK, &lock));
    assert_int_equal(lock.l_type, F_WRLCK);
    assert_int_equal(lock.l_pid, ranks.pids[1]);
    close(fd);
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 0);
}

static void page__can_be_left_out(void **state)
{
    struct ranks ranks;
    (void)state;
    setenv(COLL_PAGE_OFF, "off", 1);
    ranks_start(&ranks, 2, post_and_compute, NULL);
    flag_await(ranks.shared, READY, 2);
    assert_int_equal(count_pages(), 0);
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 0);
    unsetenv(COLL_PAGE_OFF);
}

// Each rank has a folder of its own, on a file system of one page that is taken.
static void fill_folder(struct rank *rank)
{
    char path[160], page[4096] = "";
    (void)rank;
    need(!unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    need(!mount("none", runtime, "tmpfs", 0, "size=4096,mode=700"));
    snprintf(path, sizeof(path), "%s/full", runtime);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    need(write(fd, page, sizeof(page)) == sizeof(page));
    close(fd);
}

static void meet_without_pages(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    need(!count_pages());
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
}

static void page__is_left_out_where_the_disk_is_full(void **state)
{
    struct ranks ranks;
    (void)state;
    if (geteuid())
        skip(); // it may not mount
    ranks_start(&ranks, 2, meet_without_pages, fill_folder);
    ranks_end(&ranks, 0);
}

// Rank 1 is left out. Rank 0 may shrink it, so its page is still there.
static void fail_together(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    const struct sw_coll_call barrier = {.kind = SW_COLL_BARRIER};
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, READY, 2 + rank->rank);
    need(sw_coll_run(rank->coll, &barrier, sw_coll_deadline_ms(100), &error) == SW_COLL_TIMEOUT);
    need(count_pages() == (rank->rank ? 1 : 2));
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, READY, 4);
}

static void page__of_a_failure_is_removed(void **state)
{
    (void)state;
    ranks_run(2, fail_together);
}

// A child of fork() closes what it has inherited, and the parent's page stays.
static void fork_and_close(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
    const pid_t child = fork();
    int how = -1;
    if (!child) {
        sw_coll_close(rank->coll);
        _exit(0);
    }
    need(waitpid(child, &how, 0) == child && !how);
    need(count_pages() == 2);
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
}

static void page__stays_when_a_child_closes(void **state)
{
    (void)state;
    ranks_run(2, fork_and_close);
}

// ---- after a failure, and out of one another ----

static bool awaits_alone(const struct coll_page *page, uint32_t awaited)
{
    bool is_so = page->state.is_waiting == (awaited != page->rank);
    for (uint32_t rank = 0; rank < page->size; rank++)
        is_so = is_so && coll_page_awaits(page, rank) == (rank == awaited && rank != page->rank);
    return is_so;
}

// Until its page says so. `awaited` may be this rank itself: then it waits for nobody.
static struct coll_page await_activity(uint32_t rank, enum coll_activity activity, uint32_t awaited)
{
    for (uint32_t ms = 0; ms < PATIENCE_MS; ms++, nap_ms(1)) {
        const struct coll_page page = read_page_but(rank, 0);
        if (page.state.activity == activity && awaits_alone(&page, awaited))
            return page;
    }
    fail_msg("rank %u does not say that it awaits rank %u", rank, awaited);
    return (struct coll_page){0};
}

// Rank 1 is killed, and 2 stopped, so that rank 0 awaits its vote. Then it awaits it in shrink.
static void shrink_when_told(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *shrunk = NULL;
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
    flag_raise(rank->shared, READY);
    if (rank->rank == 1)
        pause();
    need(sw_coll_barrier(rank->coll, 0, &error) == SW_COLL_RANK_GONE);
    flag_await(rank->shared, GO, rank->rank ? 2 : 1);
    need_ok(rank, sw_coll_shrink(rank->coll, 0, &error, &shrunk), &error);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, GO, 3);
    sw_coll_close(shrunk);
}

static void page__tells_of_agreement_and_shrink(void **state)
{
    struct ranks ranks;
    char path[160] = "";
    (void)state;
    ranks_start(&ranks, 3, shrink_when_told, NULL);
    flag_await(ranks.shared, READY, 3);
    kill(ranks.pids[2], SIGSTOP);
    kill(ranks.pids[1], SIGKILL);
    static struct coll_page page;
    page = await_activity(0, COLL_IN_AGREEMENT, 2);
    assert_true(page.state.since_ns && !page.parent);
    kill(ranks.pids[2], SIGCONT);
    flag_raise(ranks.shared, GO);
    await_activity(0, COLL_IN_SHRINK, 2);
    await_activity(2, COLL_HAS_FAILED, 2);
    flag_raise(ranks.shared, GO);
    flag_await(ranks.shared, READY, 5);
    for (uint32_t rank = 0; rank <= 2; rank += 2) {
        static struct coll_page shrunk;
        shrunk = read_page_but(rank / 2, page.job);
        assert_true(shrunk.parent == page.job && shrunk.size == 2);
        assert_int_equal(shrunk.pid, ranks.pids[rank]);
    }
    find_pages(1, read_page_but(1, page.job).job, path, sizeof(path));
    assert_false(unlink(path)); // of the one that was killed
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 1u << 1);
    assert_int_equal(count_pages(), 0);
}

static void split_and_stay(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    struct sw_coll *part = NULL;
    need_ok(rank, sw_coll_split(rank->coll, rank->rank ? 1 : -1, 0, 0, &error, &part), &error);
    flag_raise(rank->shared, READY);
    flag_await(rank->shared, GO, 1);
    if (part)
        sw_coll_close(part);
}

static void page__of_a_part_names_the_whole(void **state)
{
    struct ranks ranks;
    (void)state;
    ranks_start(&ranks, 3, split_and_stay, NULL);
    flag_await(ranks.shared, READY, 3);
    assert_int_equal(count_pages(), 5);
    const struct coll_page whole = read_page_but(2, 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct coll_page part = read_page_but(rank, whole.job);
        assert_true(part.parent == whole.job && part.size == 2 && !whole.parent);
        assert_int_equal(part.pid, ranks.pids[rank + 1]);
    }
    flag_raise(ranks.shared, GO);
    ranks_end(&ranks, 0);
    assert_int_equal(count_pages(), 0);
}

// ---- reading ----

static void write_number(struct coll_page *page, uint64_t number)
{
    coll_page_write_begin(page);
    page->state.number = number;
    memset(page->state.awaited, (int)(number & 0xff), sizeof(page->state.awaited));
    page->state.count = ~number;
    coll_page_write_end(page);
}

static void page__is_never_read_in_part(void **state)
{
    enum { WRITES = 300000 };
    struct coll_page copy, *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_ptr_not_equal(page, MAP_FAILED);
    page->sequence = 1;
    assert_false(coll_page_read(page, &copy));
    page->sequence = 2;
    write_number(page, 0);
    const pid_t child = fork();
    if (!child) {
        for (uint64_t number = 1; number <= WRITES; number++)
            write_number(page, number);
        _exit(0);
    }
    do {
        if (!coll_page_read(page, &copy))
            continue; // the writer was interrupted in the midst of it
        assert_true(copy.state.count == ~copy.state.number);
        for (size_t i = 0; i < sizeof(copy.state.awaited); i++)
            assert_int_equal(copy.state.awaited[i], copy.state.number & 0xff);
    } while (copy.state.number < WRITES);
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    munmap(page, sizeof(*page));
}

// ---- those of the dead ----

enum { JOBS = COLL_DEAD_KEPT + 2, HOUR_S = 3600 };

// A page that nobody has locked, as a killed rank leaves it so long ago. Returns its descriptor.
static int leave_page(uint64_t job, const char *suffix, time_t ago_s)
{
    static struct coll_recorder recorder;
    const struct timespec then[2] = {{.tv_sec = time(NULL) - ago_s},
                                     {.tv_sec = time(NULL) - ago_s}};
    char path[160];
    recorder.page = (struct coll_page){
        .magic = COLL_PAGE_MAGIC, .version = COLL_PAGE_VERSION, .job = job, .rank = 7, .size = 8};
    snprintf(path, sizeof(path), "%s/%016" PRIx64 "-7%s", folder, job, suffix);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, &recorder, sizeof(recorder)), sizeof(recorder));
    assert_false(futimens(fd, then));
    return fd;
}

static bool has_page(uint64_t job, const char *suffix)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%016" PRIx64 "-7%s", folder, job, suffix);
    return !access(path, F_OK);
}

static void remove_page(uint64_t job, const char *suffix)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/%016" PRIx64 "-7%s", folder, job, suffix);
    assert_false(unlink(path));
}

static void meet_once(struct rank *rank)
{
    struct sw_coll_error error = {.text = ""};
    need_ok(rank, sw_coll_barrier(rank->coll, 0, &error), &error);
}

static void pages__of_the_dead_are_not_kept_for_ever(void **state)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    (void)state;
    mkdir(folder, 0700);
    close(leave_page(1, COLL_PAGE_SUFFIX, 2 * HOUR_S));
    close(leave_page(2, COLL_PAGE_SUFFIX ".new", 2 * HOUR_S));
    close(leave_page(3, COLL_PAGE_SUFFIX, 0));
    close(leave_page(4, ".mine", 2 * HOUR_S));
    const int locked = leave_page(5, COLL_PAGE_SUFFIX, 2 * HOUR_S);
    assert_false(fcntl(locked, F_SETLK, &lock));
    for (uint64_t i = 0; i < JOBS; i++)
        close(leave_page(100 + i, COLL_PAGE_SUFFIX, (time_t)(HOUR_S / 2 + i)));
    ranks_run(2, meet_once);
    assert_false(has_page(1, COLL_PAGE_SUFFIX) || has_page(2, COLL_PAGE_SUFFIX ".new"));
    for (uint64_t i = 0; i < JOBS; i++) {
        assert_int_equal(has_page(100 + i, COLL_PAGE_SUFFIX), i < COLL_DEAD_KEPT);
        if (i < COLL_DEAD_KEPT)
            remove_page(100 + i, COLL_PAGE_SUFFIX);
    }
    remove_page(3, COLL_PAGE_SUFFIX);
    remove_page(4, ".mine");
    remove_page(5, COLL_PAGE_SUFFIX);
    close(locked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages__of_the_dead_are_not_kept_for_ever),
        cmocka_unit_test(page__tells_of_an_operation_while_the_program_computes),
        cmocka_unit_test(page__tells_of_a_message),
        cmocka_unit_test(page__tells_what_the_program_waits_for),
        cmocka_unit_test(page__is_the_users_alone),
        cmocka_unit_test(page__can_be_left_out),
        cmocka_unit_test(page__is_left_out_where_the_disk_is_full),
        cmocka_unit_test(page__of_a_failure_is_removed),
        cmocka_unit_test(page__stays_when_a_child_closes),
        cmocka_unit_test(page__tells_of_agreement_and_shrink),
        cmocka_unit_test(page__of_a_part_names_the_whole),
        cmocka_unit_test(page__is_never_read_in_part),
    };
    return cmocka_run_group_tests(tests, make_runtime, remove_runtime);
}
