// A slow disk for one process: preloaded, it takes the place of pread, which is how Arrow reads files.
//
// One disk, so one lock: whoever reads waits its turn, then waits for its bytes at SLOWDISK_MIB_PER_SECOND. A reader
// that asks ahead without limit piles up memory here, as it does on a network disk; so it is the reader under test.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;

static void transfer(ssize_t bytes) {
    const char *rate = getenv("SLOWDISK_MIB_PER_SECOND");
    if (bytes <= 0 || !rate) return;
    double seconds = (double)bytes / (atof(rate) * 1048576.0);
    struct timespec pause = {.tv_sec = (time_t)seconds};
    pause.tv_nsec = (long)((seconds - (double)pause.tv_sec) * 1e9);
    pthread_mutex_lock(&disk);
    nanosleep(&pause, NULL);
    pthread_mutex_unlock(&disk);
}

typedef ssize_t reader(int, void *, size_t, off_t);

static ssize_t slowly(const char *name, int file, void *buffer, size_t count, off_t offset) {
    reader *real = (reader *)dlsym(RTLD_NEXT, name);
    ssize_t bytes = real(file, buffer, count, offset);
    transfer(bytes);
    return bytes;
}

ssize_t pread(int file, void *buffer, size_t count, off_t offset) { return slowly("pread", file, buffer, count, offset); }
ssize_t pread64(int file, void *buffer, size_t count, off_t offset) { return slowly("pread64", file, buffer, count, offset); }
