// All of gf-emulate is in the runtime library, so that the runtime can hide its symbols (program.cpp).
extern "C" int gf_emulator_main(int count, char** words);

int main(int count, char** words) { return gf_emulator_main(count, words); }
