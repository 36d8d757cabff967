// gf-emulate is all in the runtime library, so that the runtime may hide its insides (program.cpp).
extern "C" int gf_emulator_main(int count, char** words);

int main(int count, char** words) { return gf_emulator_main(count, words); }
