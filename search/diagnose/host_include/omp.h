// OpenMP's functions for a program of one thread: its pragmas are not compiled.
#pragma once
#include <time.h>

struct omp_lock_t {};
struct omp_nest_lock_t {};
enum omp_sched_t { omp_sched_static = 1, omp_sched_dynamic, omp_sched_guided, omp_sched_auto };

inline int omp_get_thread_num() { return 0; }
inline int omp_get_num_threads() { return 1; }
inline int omp_get_max_threads() { return 1; }
inline int omp_get_num_procs() { return 1; }
inline int omp_get_thread_limit() { return 1; }
inline int omp_get_level() { return 0; }
inline int omp_in_parallel() { return 0; }
inline int omp_get_dynamic() { return 0; }
inline int omp_get_nested() { return 0; }
inline void omp_set_num_threads(int) {}
inline void omp_set_dynamic(int) {}
inline void omp_set_nested(int) {}
inline void omp_set_schedule(omp_sched_t, int) {}
inline double omp_get_wtick() { return 1e-9; }
inline double omp_get_wtime()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}
inline void omp_init_lock(omp_lock_t*) {}
inline void omp_set_lock(omp_lock_t*) {}
inline int omp_test_lock(omp_lock_t*) { return 1; }
inline void omp_unset_lock(omp_lock_t*) {}
inline void omp_destroy_lock(omp_lock_t*) {}
inline void omp_init_nest_lock(omp_nest_lock_t*) {}
inline void omp_set_nest_lock(omp_nest_lock_t*) {}
inline void omp_unset_nest_lock(omp_nest_lock_t*) {}
inline void omp_destroy_nest_lock(omp_nest_lock_t*) {}
