// The same claims of the conversions that processors without F16C use.
#include "gf_emulator/standard.h"
#undef __F16C__
#include "formats.cpp"
