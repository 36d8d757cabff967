// The macros of integer types of CUDA 13.5, with their expansions.
#define CHAR_BIT 8
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define INT16_C(a) ((::int_least16_t) (a))
#define INT16_MAX 0x7fff
#define INT16_MIN (-0x7fff - 1)
#define INT32_C(a) ((::int_least32_t) (a))
#define INT32_MAX 0x7fffffff
#define INT32_MIN (-0x7fffffff - 1)
#define INT64_C(a) ((::int_least64_t) (a))
#define INT64_MAX 0x7fffffffffffffffLL
#define INT64_MIN (-0x7fffffffffffffffLL - 1)
#define INT8_C(a) ((::int_least8_t) (a))
#define INT8_MAX 127
#define INT8_MIN (-128)
#define INTMAX_C(a) ((::intmax_t) (a))
#define INTMAX_MAX 0x7fffffffffffffffLL
#define INTMAX_MIN (-0x7fffffffffffffffLL - 1)
#define INTPTR_MAX 0x7fffffffffffffffLL
#define INTPTR_MIN (-0x7fffffffffffffffLL - 1)
#define INT_FAST16_MAX 0x7fff
#define INT_FAST16_MIN (-0x7fff - 1)
#define INT_FAST32_MAX 0x7fffffff
#define INT_FAST32_MIN (-0x7fffffff - 1)
#define INT_FAST64_MAX 0x7fffffffffffffffLL
#define INT_FAST64_MIN (-0x7fffffffffffffffLL - 1)
#define INT_FAST8_MAX 127
#define INT_FAST8_MIN (-128)
#define INT_LEAST16_MAX 0x7fff
#define INT_LEAST16_MIN (-0x7fff - 1)
#define INT_LEAST32_MAX 0x7fffffff
#define INT_LEAST32_MIN (-0x7fffffff - 1)
#define INT_LEAST64_MAX 0x7fffffffffffffffLL
#define INT_LEAST64_MIN (-0x7fffffffffffffffLL - 1)
#define INT_LEAST8_MAX 127
#define INT_LEAST8_MIN (-128)
#define INT_MAX 0x7fffffff
#define INT_MIN (-0x7fffffff - 1)
#define LLONG_MAX 0x7fffffffffffffffLL
#define LLONG_MIN (-0x7fffffffffffffffLL - 1)
#define LONG_MAX 0x7fffffffffffffffLL
#define LONG_MIN (-0x7fffffffffffffffLL - 1)
#define PTRDIFF_MAX 0x7fffffffffffffffLL
#define PTRDIFF_MIN (-0x7fffffffffffffffLL - 1)
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define SHRT_MAX 0x7fff
#define SHRT_MIN (-0x7fff - 1)
#define SIZE_MAX 0xffffffffffffffffUL
#define UCHAR_MAX 255
#define UINT16_C(a) ((::uint_least16_t) (a))
#define UINT16_MAX 0xffff
#define UINT32_C(a) ((::uint_least32_t) (a))
#define UINT32_MAX 0xffffffff
#define UINT64_C(a) ((::uint_least64_t) (a))
#define UINT64_MAX 0xffffffffffffffffUL
#define UINT8_C(a) ((::uint_least8_t) (a))
#define UINT8_MAX 255
#define UINTMAX_C(a) ((::uintmax_t) (a))
#define UINTMAX_MAX 0xffffffffffffffffUL
#define UINTPTR_MAX 0xffffffffffffffffUL
#define UINT_FAST16_MAX 0xffff
#define UINT_FAST32_MAX 0xffffffff
#define UINT_FAST64_MAX 0xffffffffffffffffUL
#define UINT_FAST8_MAX 255
#define UINT_LEAST16_MAX 0xffff
#define UINT_LEAST32_MAX 0xffffffff
#define UINT_LEAST64_MAX 0xffffffffffffffffUL
#define UINT_LEAST8_MAX 255
#define UINT_MAX 0xffffffff
#define ULLONG_MAX 0xffffffffffffffffUL
#define ULONG_MAX 0xffffffffffffffffUL
#define USHRT_MAX 0xffff
