"""Spellings that NVRTC reads differently are refused: else another text would be checked."""

from __future__ import annotations

import pytest
from emulator_harness import prepared

from greenfast.search.targets.emulator.source_rewriting import Refused
from greenfast.search.targets.emulator.source_text import device_text

KERNEL = 'extern "C" __global__ void k(int* o) {\n%s\n}\n'


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def examined(emulator, text):
    return emulator.examined(f'#line 1 "test.cu"\n{KERNEL % text}', arch="sm_90", deadline_s=60)


@pytest.mark.parametrize(
    "text, line, words",
    [
        ("// sound \\ \no[0] = 1;", 2, "backslash"),
        ("int i;\n/* \\\t\r\n */", 3, "backslash"),
        ("o[0] = 1; // x\ro[0] = 2;", 2, "carriage return"),
        ("o[0] = 1;\n\0o[0] = 2;", 3, "0x00"),
        ("#define ID(x) x\no[0] = ID(\n\n__LINE__\n);", 3, "`__LINE__`"),
        ("#if __LINE__ == 2\no[0] = 1;\n#endif", 2, "`__LINE__`"),
        ("#define P(a, b) a##b\no[0] = P(__LI, NE__);", 3, "`__LINE__`"),
        ("#define S(x) #x\n#define T(x) S(x)\no[0] = sizeof(T(__TIME__));", 4, "`__TIME__`"),
        ("o[0] = __DATE__[5];", 2, "`__DATE__`"),
        ("o[0] = '\\e';", 2, "`\\e`"),
        ('o[0] = sizeof("\\u00e4");', 2, "`\\u`"),
        ('o[0] = sizeof(u8"ä");', 2, "each byte"),
    ],
)
def test_a_spelling_of_two_readings_is_refused_at_its_line(emulator, text, line, words):
    refused = examined(emulator, text)
    assert isinstance(refused, Refused) and words in refused.sentence, refused
    assert refused.sentence.startswith(f"test.cu:{line}:"), refused


@pytest.mark.parametrize(
    "text",
    [
        '#pragma push_macro("Z")\no[0] = 1;',
        '#define Z 1\n_Pragma("pop_macro(\\"Z\\")") o[0] = Z;',
        '#define S(x) _Pragma(#x)\n#define P(a, b) S(a##b("Z"))\nP(push_, macro) o[0] = 1;',
    ],
)
def test_no_macro_is_kept_for_later(emulator, text):
    refused = examined(emulator, text)
    assert isinstance(refused, Refused) and "_macro`" in refused.reason, refused


@pytest.mark.parametrize(
    "text",
    [
        "// continued \\\no[0] = 1;",
        "o[0] = 1; // ends\r\no[0] = 2;\r",
        '// ä \\u00e4 \\e\no[0] = sizeof("ä\\\\e\\n\\x41\\101");',
        '#ifdef __FILE_NAME__\nno such name;\n#endif\no[0] = sizeof(R"(\\e \\u)");',
        "\f\v#define Z 1\no[0] = Z;",
    ],
)
def test_other_spellings_are_not(emulator, text):
    kept = examined(emulator, text)
    assert isinstance(kept, str) and "no such name" not in kept, kept


def test_an_attribute_that_nvrtc_drops_lays_nothing_out():
    kept = device_text("struct S { [[no_unique_address]] E e; int i; };", (), ())
    assert isinstance(kept, str) and "no_unique_address" not in kept
