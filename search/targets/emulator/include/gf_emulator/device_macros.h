// The macros that NVRTC defines for device code, for the preprocessing of a candidate's text (g++ -E -undef). The
// architecture and the release come on the command line. Taken from NVRTC 13.5, which a test compares with this list;
// macros that only its own headers use are left out.
#undef __COUNTER__
#undef __INCLUDE_LEVEL__
#undef __TIMESTAMP__
#undef __BASE_FILE__
#undef __FILE_NAME__
#undef _GNU_SOURCE
#undef __STDC_UTF_16__
#undef __STDC_UTF_32__
#undef __has_attribute
#undef __has_feature
#undef __has_include_next
#undef __has_builtin
#undef __has_cpp_attribute
#undef __has_include
// Compilers answer these differently. An answer that is no expression ends the preprocessing.
#define __has_builtin a GPU and the emulator differ
#define __has_cpp_attribute a GPU and the emulator differ
#define __has_include a GPU and the emulator differ

#define __INCLUDE_LEVEL__ 0  // NVRTC gets one flat text
#define __BASE_FILE__ __BASE_FILE__  // the rules refuse its use: the name differs
#define __align__(n) __attribute__((aligned(n)))
#define __annotate__(a) __attribute__((a))
#define __block_size__(...) __attribute__((block_size(__VA_ARGS__)))
#define __builtin_align__(a) __align__(a)
#define __cluster_dims__(...) __attribute__((cluster_dims(__VA_ARGS__)))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __local_maxnreg__(...) __attribute__((local_maxnreg(__VA_ARGS__)))
#define __location__(a) __attribute__((a))
#define __maxnreg__(...) __attribute__((maxnreg(__VA_ARGS__)))
#define __CUDA_ARCH_HAS_FEATURE__(name) __CUDA_ARCH_FEAT_##name
// They stay calls: macros of the stand-in headers answer them.
#define assert(...) assert(__VA_ARGS__)
#define va_start(...) va_start(__VA_ARGS__)
#define va_arg(...) va_arg(__VA_ARGS__)
#define va_end(...) va_end(__VA_ARGS__)
#define va_copy(...) va_copy(__VA_ARGS__)

#define CUDARTAPI
#define NULL 0
#define _BOOL 1
#define _CRTIMP
#define _WCHAR_T 1
#define __ARRAY_OPERATORS 1
#define __CHAR16_T_AND_CHAR32_T 1
#define __CLZLL_PARAMETER_TYPE long long int
#define __CLZ_PARAMETER_TYPE int
#define __CLZ_RETURN_TYPE int
#define __COMMON_FUNCTIONS_H__
#define __CUDACC_DEVICE_ATOMIC_BUILTINS__ 1
#define __CUDACC_RTC_BUILTIN_CRT_HELPERS__ 1
#define __CUDACC_RTC_BUILTIN_VECTOR_TYPES__ 1
#define __CUDACC_RTC__ 1
#define __CUDACC__ 1
#define __CUDANVVM__ 1
#define __CUDA_FTZ 0
#define __CUDA_PREC_DIV 1
#define __CUDA_PREC_SQRT 1
#define __CUDA_RUNTIME_API_H__
#define __CUDA_RUNTIME_H__
#define __DEVICE_ATOMIC_FUNCTIONS_H__
#define __DEVICE_DOUBLE_FUNCTIONS_H__
#define __DEVICE_FUNCTIONS_H__
#define __DEVICE_LAUNCH_PARAMETERS_H__
#define __DEVICE_TYPES_H__
#define __DRIVER_TYPES_H__
#define __EDG_CONSTEXPR_ENABLED__ 1
#define __EDG_IA64_ABI 1
#define __EDG_PTRDIFF_TYPE__ long
#define __EDG_RUNTIME_USES_NAMESPACES 1
#define __EDG_SIZE_TYPE__ unsigned long
#define __EDG_TYPE_TRAITS_ENABLED 1
#define __EDG_VERSION__ 608
#define __EDG__ 1
#define __EXCEPTIONS 1
#define __HOST_CONFIG_H__
#define __HOST_DEFINES_H__
#define __LIBRARY_TYPES_H__
#define __LP64__ 1
#define __MATH_FUNCTIONS_H__
#define __NVCC_DIAG_PRAGMA_SUPPORT__ 1
#define __NVRTC_DEVICE_RUNTIME_H__
#define __NV_BUILTIN_INITIALIZER_LIST 1
#define __NV_BUILTIN_MOVE_FORWARD 1
#define __NV_GLIBC_PROVIDES_IEC_60559_FUNCS 0
#define __NV_TARGET_H
#define __NV_TL_BUILTIN__
#define __NV_TL__
#define __PLACEMENT_DELETE 1
#define __PRAGMA_REDEFINE_EXTNAME 1
#define __RTTI 1
#define __SIGNED_CHARS__ 1
#define __SM_100_RT_H__
#define __SM_30_INTRINSICS_H__
#define __SM_32_INTRINSICS_H__
#define __SM_35_ATOMIC_FUNCTIONS_H__
#define __SM_35_INTRINSICS_H__
#define __SM_80_RT_H__
#define __SM_90_RT_H__
#define __STDCPP_DEFAULT_NEW_ALIGNMENT__ 16ul
#define __SURFACE_INDIRECT_FUNCTIONS_H__
#define __SURFACE_TYPES_H__
#define __TEXTURE_INDIRECT_FUNCTIONS_H__
#define __TEXTURE_TYPES_H__
#define __THROW
#define __VARIADIC_TEMPLATES 1
#define __VECTOR_FUNCTIONS_H__
#define __VECTOR_TYPES_H__
#define __cdecl
#define __constant__ __attribute__((constant))
#define __cpp_aggregate_bases 201603L
#define __cpp_aggregate_nsdmi 201304L
#define __cpp_alias_templates 200704L
#define __cpp_aligned_new 201606L
#define __cpp_attributes 200809L
#define __cpp_binary_literals 201304L
#define __cpp_capture_star_this 201603L
#define __cpp_constexpr 201603L
#define __cpp_decltype 200707L
#define __cpp_decltype_auto 201304L
#define __cpp_deduction_guides 201703L
#define __cpp_delegating_constructors 200604L
#define __cpp_digit_separators 201309L
#define __cpp_enumerator_attributes 201411L
#define __cpp_exceptions 199711L
#define __cpp_fold_expressions 201603L
#define __cpp_generic_lambdas 201304L
#define __cpp_guaranteed_copy_elision 201606L
#define __cpp_hex_float 201603L
#define __cpp_if_constexpr 201606L
#define __cpp_inheriting_constructors 201511L
#define __cpp_init_captures 201304L
#define __cpp_initializer_lists 200806L
#define __cpp_inline_variables 201606L
#define __cpp_lambdas 200907L
#define __cpp_namespace_attributes 201411L
#define __cpp_nested_namespace_definitions 201411L
#define __cpp_noexcept_function_type 201510L
#define __cpp_nontype_template_args 201411L
#define __cpp_nontype_template_parameter_auto 201606L
#define __cpp_nsdmi 200809L
#define __cpp_range_based_for 201603L
#define __cpp_raw_strings 200710L
#define __cpp_ref_qualifiers 200710L
#define __cpp_return_type_deduction 201304L
#define __cpp_rtti 199711L
#define __cpp_rvalue_references 200610L
#define __cpp_sized_deallocation 201309L
#define __cpp_static_assert 201411L
#define __cpp_structured_bindings 201606L
#define __cpp_template_template_args 201611L
#define __cpp_threadsafe_static_init 200806L
#define __cpp_unicode_characters 200704L
#define __cpp_unicode_literals 200710L
#define __cpp_user_defined_literals 200809L
#define __cpp_variable_templates 201304L
#define __cpp_variadic_templates 200704L
#define __cpp_variadic_using 201611L
#define __cudart_builtin__ __attribute__((cudart_builtin))
#define __device__ __attribute__((device))
#define __device_builtin__ __attribute__((device_builtin))
#define __device_builtin_surface_type__ __attribute__((device_builtin_surface_type))
#define __device_builtin_texture_type__ __attribute__((device_builtin_texture_type))
#define __experimental_foreign_decl__ __attribute__((experimental_foreign_decl)) __attribute__((tile))
#define __export__
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __global__ __attribute__((global))
#define __grid_constant__ __attribute__((grid_constant))
#define __host__ __attribute__((host))
#define __import__
#define __inline_hint__ __attribute__((nv_inline_hint))
#define __managed__ __attribute__((managed))
#define __no_return__ __attribute__((noreturn))
#define __noinline__ __attribute__((noinline))
#define __nv_pure__ __attribute__((nv_pure))
#define __nv_register_params__ __attribute__((nv_register_params))
#define __shared__ __attribute__((shared))
#define __specialization_static static
#define __thread__ __thread
#define __tile__ __attribute__((tile))
#define __tile_builtin__ __attribute__((tile_builtin))
#define __tile_global__ __attribute__((tile_global))
#define __volatile__ volatile
