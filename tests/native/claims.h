// Cases and claims. Every .cpp here is a program, alone or with others in one executable: without arguments it names its
// cases, with `case` or `program/case` it runs that case, prints each claim that does not hold with its line, and ends
// with 1.
#pragma once
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace claims {

struct Case {
    const char* file;
    const char* name;
    void (*run)();

    // The program is the file's name without folder and ending.
    bool is(const std::string& program, const std::string& wanted) const {
        const std::string path = file;
        const std::size_t begin = path.rfind('/') + 1;
        return wanted == name && (program.empty() || path.substr(begin, path.rfind('.') - begin) == program);
    }
};
inline std::vector<Case>& cases() {
    static std::vector<Case> all;
    return all;
}
struct Listed {
    Listed(const char* file, const char* name, void (*run)()) { cases().push_back({file, name, run}); }
};

constexpr int most_printed = 10;
inline int broken = 0;

inline void hold(bool holds, const char* file, int line, const std::string& claim) {
    if (!holds && ++broken <= most_printed) std::printf("%s:%d: %s\n", file, line, claim.c_str());
}

template <class T>
std::string shown(const T& value) {
    std::ostringstream text;
    text << value;
    return text.str();
}

template <class Got, class Want>
void same(const Got& got, const Want& want, const char* file, int line, const char* expression) {
    if (!(got == want)) hold(false, file, line, expression + (" is " + shown(got) + ", not ") + shown(want));
}

inline int main(int count, char** words) {
    const std::string word = count == 2 ? words[1] : "";
    const std::size_t slash = word.find('/');
    const std::string program = slash == word.npos ? "" : word.substr(0, slash), name = word.substr(slash + 1);
    for (const Case& one : cases()) {
        if (count == 1) std::printf("%s\n", one.name);
        if (count == 2 && one.is(program, name)) {
            one.run();
            if (broken > most_printed) std::printf("and %d more\n", broken - most_printed);
            std::fflush(stdout);
            return broken ? 1 : 0;
        }
    }
    return count == 1 ? 0 : 2;
}

}  // namespace claims

#define CASE(name)                                         \
    static void name();                                    \
    static const claims::Listed listed_##name(__FILE__, #name, name); \
    static void name()
#define CLAIM(condition) claims::hold(condition, __FILE__, __LINE__, #condition)
#define SAME(got, want) claims::same(got, want, __FILE__, __LINE__, #got)

int main(int count, char** words) { return claims::main(count, words); }
