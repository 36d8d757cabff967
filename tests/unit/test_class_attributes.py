"""Attributes and pragmas that lay out memory: NVRTC and the host's compiler differ in some."""

from __future__ import annotations

import pytest

from greenfast.search.targets.emulator.class_bodies import class_bodies, packed_vectors
from greenfast.search.targets.emulator.source_rewriting import Refused
from greenfast.search.targets.emulator.source_text import device_text
from greenfast.search.targets.emulator.source_tokens import PreprocessedText


@pytest.mark.parametrize(
    "text, reason",
    [
        ("struct S { char c; int i; } __attribute__((packed));", "behind a class"),
        ("struct alignas(8) S { char c; } __attribute__((aligned(16))) s;", "behind a class"),
        ("typedef struct { char c; int i; } __attribute__((__packed__)) S;", "behind a class"),
        ("enum E { a, b }\n__attribute__((packed));", "behind a class"),
        ("template <class T> union U { T t; } __attribute__((packed));", "behind a class"),
        ("struct [[gnu::packed]] S { char c; int i; };", "does not know"),
        ("#pragma pack(N)\nint i;", "in different ways"),
        ("#pragma pack(push, one, 1)\nint i;", "in different ways"),
        ("#pragma pack(pop, 1)\nint i;", "in different ways"),
        ("#pragma pack(3)\nint i;", "in different ways"),
        ("struct S { char c;\n#pragma pack(1)\nint i; };", "in a class"),
        ("#pragma pack(1)\nstruct S { char c; alignas(8) int i; };", "`alignas`"),
        ("struct __attribute__((packed)) S { int a : 3; int : 0; char c; };", "`: 0`"),
        ("struct S { [[using gnu: aligned(8)]] char c; };", "does not know"),
    ],
)
def test_a_layout_of_two_readings_is_refused(text, reason):
    refused = device_text(f'# 1 "k.cu"\n{text}\n', (), ())
    assert isinstance(refused, Refused) and reason in refused.sentence, refused


@pytest.mark.parametrize(
    "before, is_refused",
    [
        ("#pragma pack(1)", True),
        ("#pragma pack(push, 4)", True),
        ("#pragma pack(push)\n#pragma pack(2)", True),
        ("#pragma pack(1)\n#pragma pack()", False),
        ("#pragma pack(push, 1)\nstruct S { char c; };\n#pragma pack(pop)", False),
        ("#pragma pack(16)", False),
        ("#pragma pack( push , 8 )", True),
    ],
)
def test_no_header_is_packed(before, is_refused):
    text = f'# 1 "k.cu"\n{before}\n#pragma gf_emulator_header "cuda_fp16.h"\n'
    kept = device_text(text, ("cuda_fp16.h",), ())
    assert isinstance(kept, Refused) is is_refused, kept
    assert not is_refused or "cuda_fp16.h" in kept.sentence


@pytest.mark.parametrize(
    "text",
    [
        "struct __attribute__((packed)) S { char c; int i; };",
        "struct S { char c; int i __attribute__((packed)); __attribute__((aligned(8))) int j; };",
        "void f() {} __attribute__((aligned(16))) int x;",
        "struct S f() { return {}; } __attribute__((aligned(16))) int x;",
        "template <class T> void f() { } __attribute__((aligned(16))) int x;",
        "namespace n { } __attribute__((aligned(16))) int x;",
        "typedef struct { char c; } S __attribute__((aligned(16)));",
        "struct S { int i; } __attribute__((unused)) s;",
    ],
)
def test_others_are_not(text):
    kept = device_text(f'# 1 "k.cu"\n{text}\n', (), ())
    assert isinstance(kept, str) and "PACKED" not in kept, kept


def test_vectors_of_packed_structures_are_known():
    text = """
struct __attribute__((packed)) A { char c; float4 v, w; float4 f(); double3 d;
  struct { int2 in; }; };
#pragma pack(push, 1)
class B { public: const int2 i[3]; };
#pragma pack(pop)
#pragma pack(8)
struct D { char c; float4 v; };
#pragma pack()
struct C { float4 v; };
"""
    tokens = PreprocessedText(text).tokens
    indices = packed_vectors(tokens, class_bodies(tokens))
    assert [tokens[index].text for index in indices] == ["float4", "int2"]
