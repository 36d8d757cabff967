"""The version of the checks that a verdict passed.

Raise it by one with each change after which a candidate that was judged correct or safe before
could be rejected: a corrected gate, a new rule for texts, a new case for every kernel. Do not raise
it for messages, speed, or checks of one kernel (kernel.toml), which have digests of their own.
Verdicts of another version stay in the database but are not reused: the candidate is evaluated
again, and a champion needs a recheck.

1  the first with a number: macros of CUDA's headers in conditions, names of entries, sizes that
   contradict their defaults
2  texts are read as compilers read them: raw strings with a quote in their delimiter, attributes in
   operands of `asm`, tokens with line breaks or left-out words between them, directives behind a
   digit separator, includes in comments and under conditions, namespace std in all its forms
3  atomics on shared memory that nobody wrote; blocks that wait for more others than the GPU holds;
   sizes of whole steps of a submitted source; a case in which
   blocks of a bounded grid walk from tile to tile; tensors that are aligned as promised and no more
4  sources of cp.async that are overwritten before the wait; results of an exchange in shared memory
   that nobody wrote; blocks of a bounded grid have two tiles each, and not only eight rows;
   far strides of rows for candidates with large tiles, and of tensors that had one row; blocks that
   walk tiles without work
5  a reference cannot change the inputs that the candidate gets
6  numbers of 64 bits are compared in full; outputs of whole numbers start as a number that is not
   -1; memory that CUB's collectives use one after another without a barrier; outputs that depend on
   a variable that is not set
7  blocks give way to others before they store a flag; variables that are not set also in arrays
   that stay in memory, among numbers of 16 bits, and in members that a constructor leaves out;
   blocks run on other multiprocessors in each order; reads of the device's heap after a free
8  texts that ask whether a function of CUDA is noexcept
9  only a relaxed one, so that wrong rejections are not reused: a whole number that is within its
   bound may be the poison
10 other threads run behind an atomic that only reads; wgmma with 12 columns. Relaxed: swizzled
   boxes at multiples of 128 bytes
11 texts that ask for the name of a function, or for the type of an enum that has none
12 functions of the C library, of mathematics and of headers that a text does not include are those
   that NVRTC declares, with its types; uses of bit-fields that compilers read differently
13 the shortest of the launches that repeat another one
14 work left out of long rows of launches, and until a pause; answers kept in the device's heap;
   results that depend on the place of a warp in its multiprocessor; races in later calls of a
   kernel that keeps something in `__device__` memory
15 tensor copies as a GPU does them: boxes begin at multiples of 16 bytes, stores have no negative
   coordinates, rows that are shorter than the swizzle have gaps, and NaN outside has other bits
16 launches that are timed one by one write the bytes that were taken away right before them
17 variables that one constant sets on some paths and nothing on the others; unset floats in memory
"""

CHECKS_VERSION = 17
CHECKS = "checks"  # the entry of an environment; one without it is from before version 1


def is_of_today(environment: dict[str, str]) -> bool:
    """Whether a verdict with this environment passed today's checks."""
    return environment.get(CHECKS) == str(CHECKS_VERSION)
