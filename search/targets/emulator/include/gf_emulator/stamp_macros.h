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
// Stays a call whose name shows where a text makes a string of it: NVRTC expands it.
#undef assert
#define assert(...) gf_emulator_assert(__VA_ARGS__)
// A macro for g++, and none for NVRTC: `#ifdef _Pragma` would tell them apart. The operator stays in the text.
#undef _Pragma
// NVRTC does not know these pragmas and keeps the newer macro. g++ obeys them and shows nothing of it.
#pragma GCC poison push_macro pop_macro
