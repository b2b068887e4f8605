/* Delays what waits for the disk: LD_PRELOAD in front of a server. SLOW_DISK_MS says by how much. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_for_disk(void) {
    const char *said = getenv("SLOW_DISK_MS");
    long ms = said ? atol(said) : 0;
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&left, NULL);
}

int fsync(int fd) {
    wait_for_disk();
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
    wait_for_disk();
    return (int)syscall(SYS_fdatasync, fd);
}
