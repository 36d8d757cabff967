// Macros whose value NVRTC and the host's preprocessor do not share (source_spelling.py), in texts that are judged: a use
// in code stays visible, one in a condition ends the preprocessing.
#undef __LINE__
#undef __DATE__
#undef __TIME__
#undef __FILE__
#define __LINE__ gf_emulator_line()
#define __DATE__ gf_emulator_date()
#define __TIME__ gf_emulator_time()
#define __FILE__ gf_emulator_file()
// Calls whose names show where a text makes a string of one: NVRTC expands them.
#undef assert
#undef va_start
#undef va_arg
#undef va_end
#undef va_copy
#define assert(...) gf_emulator_assert(__VA_ARGS__)
#define va_start(...) gf_emulator_va_start(__VA_ARGS__)
#define va_arg(...) gf_emulator_va_arg(__VA_ARGS__)
#define va_end(...) gf_emulator_va_end(__VA_ARGS__)
#define va_copy(...) gf_emulator_va_copy(__VA_ARGS__)
// A macro for g++, and none for NVRTC: `#ifdef _Pragma` would tell them apart. The operator stays in the text.
#undef _Pragma
// NVRTC does not know these pragmas and keeps the newer macro. g++ obeys them and shows nothing of it.
#pragma GCC poison push_macro pop_macro
