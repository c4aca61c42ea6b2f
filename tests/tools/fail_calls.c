// Preloaded into a program (LD_PRELOAD), lets chosen calls of the C library fail.
//
//   FAIL_CALLS   what fails: malloc (all that allocates), stat (lstat, fstat, fstatat, statx too),
//                read, pread, write, fsync (fdatasync too), rename, mmap, truncate (ftruncate,
//                fallocate), mkdir or open (openat, fopen, mkostemp and memfd_create too)
//   FAIL_AT      the first call that fails, from 1; 0 or nothing: calls are counted alone
//   FAIL_COUNT   how many fail from there on: 1 if nothing is said, 0 for all
//   FAIL_ERRNO   errno in digits (12 for malloc and mmap, 5 for all else if nothing is said), or
//                "short": a read or a write of half of the bytes, but of one at least
//   FAIL_PATH    only calls about files with this in their names; calls about other files do not
//                count, either
//   FAIL_REPORT  a file that gets the number of calls so far (8 bytes), however the program ends
//
// Forked processes count together. What the C library does inside of itself (a thread's stack, the
// memory behind malloc) is no call.
//
//   cc -O1 -shared -fPIC -o fail_calls.so fail_calls.c
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static struct {
  const char *calls, *path;
  long at, count;
  int error;  // -1: a short read or write
} wanted;
static _Atomic long unshared_calls;
static _Atomic long* calls = &unshared_calls;

static long number(const char* name, long otherwise) {
  const char* const text = getenv(name);
  return text == NULL || *text == '\0' ? otherwise : strtol(text, NULL, 10);
}

// The first constructor: allocations before it are those of the dynamic linker.
__attribute__((constructor(101))) static void begin(void) {
  const char* const what = getenv("FAIL_CALLS");
  if (what == NULL) return;
  const char* const report = getenv("FAIL_REPORT");
  const char* const error = getenv("FAIL_ERRNO");
  const int is_memory = strcmp(what, "malloc") == 0 || strcmp(what, "mmap") == 0;
  const int is_short = error != NULL && strcmp(error, "short") == 0;
  wanted.error = is_short ? -1 : (int)number("FAIL_ERRNO", is_memory ? ENOMEM : EIO);
  wanted.path = getenv("FAIL_PATH");
  wanted.at = number("FAIL_AT", 0);
  wanted.count = number("FAIL_COUNT", 1);
  int file = -1, kind = MAP_SHARED | MAP_ANONYMOUS;
  if (report != NULL) {
    file = (int)syscall(SYS_openat, AT_FDCWD, report, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || syscall(SYS_ftruncate, file, sizeof *calls) != 0) abort();
    kind = MAP_SHARED;
  }
  const long shared =
      syscall(SYS_mmap, NULL, sizeof *calls, PROT_READ | PROT_WRITE, kind, file, 0L);
  if (shared < 0 && shared > -4096) abort();
  if (file >= 0) syscall(SYS_close, file);
  calls = (_Atomic long*)shared;
  wanted.calls = what;  // the last thing: now calls count
}

static int is_wanted(const char* what) {
  return wanted.calls != NULL && strcmp(wanted.calls, what) == 0;
}

static int is_its_turn(void) {
  const long call = atomic_fetch_add(calls, 1) + 1;
  if (wanted.at == 0 || call < wanted.at) return 0;
  if (wanted.count != 0 && call >= wanted.at + wanted.count) return 0;
  if (wanted.error > 0) errno = wanted.error;
  return 1;
}

static int fails_by_name(const char* what, const char* name) {
  if (!is_wanted(what)) return 0;
  if (wanted.path != NULL && (name == NULL || strstr(name, wanted.path) == NULL)) return 0;
  return is_its_turn();
}

static int fails(const char* what, int descriptor) {
  if (!is_wanted(what)) return 0;
  if (wanted.path == NULL) return is_its_turn();
  char link[40], name[4096];
  const int saved = errno;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, name, sizeof name - 1);
  errno = saved;
  if (length < 0) return 0;
  name[length] = '\0';
  return fails_by_name(what, name);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define ALIAS(name, of) __attribute__((alias(#of))) __typeof__(of) name

void* malloc(size_t bytes) {
  return is_wanted("malloc") && is_its_turn() ? NULL : __libc_malloc(bytes);
}

void* calloc(size_t count, size_t bytes) {
  return is_wanted("malloc") && is_its_turn() ? NULL : __libc_calloc(count, bytes);
}

void* realloc(void* old, size_t bytes) {
  return is_wanted("malloc") && is_its_turn() ? NULL : __libc_realloc(old, bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  return is_wanted("malloc") && is_its_turn() ? NULL : __libc_memalign(alignment, bytes);
}

void* memalign(size_t alignment, size_t bytes) { return aligned_alloc(alignment, bytes); }

int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  const int saved = errno;
  void* const given = aligned_alloc(alignment, bytes);
  errno = saved;
  if (given == NULL) return ENOMEM;
  *memory = given;
  return 0;
}

#define STAT_BY_NAME(name)                                                  \
  int name(const char* restrict path, struct stat* restrict about) {        \
    return fails_by_name("stat", path) ? -1 : NEXT(name)(path, about);      \
  }                                                                         \
  int name##64(const char* restrict path, struct stat64* restrict about) {  \
    return fails_by_name("stat", path) ? -1 : NEXT(name##64)(path, about);  \
  }
STAT_BY_NAME(stat)
STAT_BY_NAME(lstat)

int fstat(int file, struct stat* about) {
  return fails("stat", file) ? -1 : NEXT(fstat)(file, about);
}
int fstat64(int file, struct stat64* about) {
  return fails("stat", file) ? -1 : NEXT(fstat64)(file, about);
}

int fstatat(int folder, const char* restrict path, struct stat* restrict about, int flags) {
  return fails_by_name("stat", path) ? -1 : NEXT(fstatat)(folder, path, about, flags);
}
int fstatat64(int folder, const char* restrict path, struct stat64* restrict about, int flags) {
  return fails_by_name("stat", path) ? -1 : NEXT(fstatat64)(folder, path, about, flags);
}

int statx(int folder, const char* restrict path, int flags, unsigned mask,
          struct statx* restrict about) {
  return fails_by_name("stat", path) ? -1 : NEXT(statx)(folder, path, flags, mask, about);
}

// Whether a transfer fails; one that is to be short gets fewer bytes instead.
static int fails_whole(const char* what, int file, size_t* count) {
  if (!fails(what, file)) return 0;
  if (wanted.error >= 0) return 1;
  *count -= *count / 2;
  return 0;
}

ssize_t read(int file, void* bytes, size_t count) {
  return fails_whole("read", file, &count) ? -1 : NEXT(read)(file, bytes, count);
}

ssize_t pread(int file, void* bytes, size_t count, off_t at) {
  return fails_whole("pread", file, &count) ? -1 : NEXT(pread)(file, bytes, count, at);
}
ALIAS(pread64, pread);

ssize_t write(int file, const void* bytes, size_t count) {
  return fails_whole("write", file, &count) ? -1 : NEXT(write)(file, bytes, count);
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t at) {
  return fails_whole("write", file, &count) ? -1 : NEXT(pwrite)(file, bytes, count, at);
}
ALIAS(pwrite64, pwrite);

int ftruncate(int file, off_t bytes) {
  return fails("truncate", file) ? -1 : NEXT(ftruncate)(file, bytes);
}
ALIAS(ftruncate64, ftruncate);

int fallocate(int file, int how, off_t at, off_t bytes) {
  return fails("truncate", file) ? -1 : NEXT(fallocate)(file, how, at, bytes);
}
ALIAS(fallocate64, fallocate);

int fsync(int file) { return fails("fsync", file) ? -1 : NEXT(fsync)(file); }
int fdatasync(int file) { return fails("fsync", file) ? -1 : NEXT(fdatasync)(file); }

int rename(const char* from, const char* to) {
  return fails_by_name("rename", to) ? -1 : NEXT(rename)(from, to);
}

int mkdir(const char* path, mode_t mode) {
  return fails_by_name("mkdir", path) ? -1 : NEXT(mkdir)(path, mode);
}

void* mmap(void* at, size_t bytes, int rights, int kind, int file, off_t offset) {
  return fails("mmap", file) ? MAP_FAILED : NEXT(mmap)(at, bytes, rights, kind, file, offset);
}
ALIAS(mmap64, mmap);

static mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return fails_by_name("open", path) ? -1 : NEXT(open)(path, flags, mode);
}
ALIAS(open64, open);

int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return fails_by_name("open", path) ? -1 : NEXT(openat)(folder, path, flags, mode);
}
ALIAS(openat64, openat);

int mkostemp(char* path, int flags) {
  return fails_by_name("open", path) ? -1 : NEXT(mkostemp)(path, flags);
}
ALIAS(mkostemp64, mkostemp);

int memfd_create(const char* name, unsigned flags) {
  return fails_by_name("open", name) ? -1 : NEXT(memfd_create)(name, flags);
}

FILE* fopen64(const char* path, const char* how) {
  return fails_by_name("open", path) ? NULL : NEXT(fopen64)(path, how);
}
