"""Holes through which a candidate could mislead the emulator, or stop the search."""

from __future__ import annotations

import copy
import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from emulator_harness import Kernel, kinds, prepared, values

from greenfast.search.errors import Fault
from greenfast.search.loop.evaluate import evaluate, no_baseline
from greenfast.search.targets.emulator.build import ModuleFailed
from greenfast.search.targets.emulator.execute import _Batch
from greenfast.search.targets.emulator.findings import NOUNS, VERBS
from greenfast.search.targets.emulator.flags import FLAVOURS
from greenfast.search.targets.emulator.native_build import NATIVE
from greenfast.search.targets.emulator.report_events import has_shape
from greenfast.search.verdict import Faulted, Stage

HEAD = 'extern "C" __global__ void k(const float* a, float* c) {\n'
INPUTS = {"a": np.arange(1, 65, dtype=np.float32)}
OUTPUTS = {"c": np.zeros(64, np.float32)}


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def test_an_overflow_of_static_shared_memory_ends_at_a_guard_page(emulator):
    """It lay on the emulator's heap, and the C library ended the process as our fault."""
    text = HEAD + (
        "__shared__ float s[48];\n"
        "for (int i = 0; i < 4096; ++i) s[i + (int)a[0] - 1] = 1.0f;\n"
        "c[threadIdx.x] = s[threadIdx.x];\n}\n"
    )
    result = Kernel(emulator, text)(INPUTS, OUTPUTS)
    assert kinds(result) == ["out_of_bounds"], result.faults
    assert "static shared memory" in result.faults[0].sentence


def test_a_call_to_a_forged_address_is_the_candidates_fault(emulator):
    text = HEAD + "((void (*)())(0x1234567000ul + threadIdx.x))();\nc[0] = a[0];\n}\n"
    result = Kernel(emulator, text)(INPUTS, OUTPUTS)
    assert kinds(result) == ["device_fault"]
    assert "a call to address 0x1234567" in result.faults[0].sentence


def test_a_function_beside_a_parameters_type_is_not_run_in_the_kernels_place(emulator):
    """The emulator found it by the type of an argument, and a GPU would run the kernel."""
    text = (
        "#include <cuda/std/utility>\n"
        "namespace own {\nstruct Value { float v; };\n"
        "template <size_t... I> __device__ void invoke(void (*)(const Value*, Value*), void** p,"
        " cuda::std::index_sequence<I...>) { (*(Value**)p[1])->v = 2; }\n}\n"
        'extern "C" __global__ void k(const own::Value* a, own::Value* c) { c->v = 1; }\n'
    )
    assert values(Kernel(emulator, text)(INPUTS, OUTPUTS, block=1), "c")[0] == 1


OTHERS = """
namespace real { extern "C" __global__ void k(const float* a, float* c) { c[0] = 1; } }
namespace shown { __device__ void k(const float* a, float* c) { c[0] = 2; } }
"""


@pytest.mark.parametrize(
    ("text", "is_built"),
    [
        (f"{OTHERS}using shown::k;", False),
        (f"{OTHERS}using namespace shown;", False),
        (OTHERS.replace("void k(const float* a, float* c) { c[0] = 2; }", "void x(const float*, "
         "float* c) { c[0] = 2; } constexpr auto& k = x;") + "using shown::k;", False),
        (f"{OTHERS}using real::k;", True),
    ],
    ids=["declaration", "directive", "reference", "the kernel itself"],
)  # fmt: skip
def test_the_kernel_that_runs_is_the_one_that_a_gpu_launches(emulator, text, is_built):
    """A GPU finds a kernel by its symbol, and a name may find another function in C++."""
    built = emulator.build_module(text, ("k",), flavour="plain", deadline_s=60)
    assert isinstance(built, ModuleFailed) is not is_built
    if is_built:
        assert values(Kernel(emulator, text)(INPUTS, OUTPUTS, block=1), "c")[0] == 1


ASKED = """
template <class R, class... A> constexpr float throws(R (*)(A...)) { return 1; }
template <class R, class... A> constexpr float throws(R (*)(A...) noexcept) { return 0; }
template <class T, int = int(sqrtf(T(4)))> constexpr float folded(int) { return 1; }
template <class T> constexpr float folded(long) { return 0; }
template <class T, int = memcmp(T("a"), "a", 1)> constexpr float compared(int) { return 1; }
template <class T> constexpr float compared(long) { return 0; }
"""


def test_no_build_is_told_from_another_by_its_functions(emulator):
    """A text was right in plain builds, whose outputs are compared, and wrong on a GPU."""
    asked = ("throws(&memcpy)", "throws(&std::memset)", "throws(&expf)", "compared<const char*>(0)",
             "folded<float>(0)")  # fmt: skip
    text = ASKED + HEAD + "".join(f"c[{at}] = {each};" for at, each in enumerate(asked)) + "}\n"
    answers = [
        values(Kernel(emulator, text, flavour=flavour)(INPUTS, OUTPUTS, block=1), "c")[:5].tolist()
        for flavour in FLAVOURS
    ]
    assert answers[0][:3] == [1, 1, 1], "as NVRTC declares them"
    assert answers[1:] == answers[:1] * 2


NAMED = """
struct F { __device__ float operator()() const { return sizeof(__func__); } };
"""
OPEN = "enum Open { one = 1 };\n"
CLOSED = "enum Closed : unsigned { one = 1 };\nenum class Scoped { two };\n"
ASKS = "template <class T> constexpr bool below() { return __underlying_type(T)(-1) < 0; }\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NAMED + HEAD + "c[0] = F()();\n}\n", "`__func__` is spelled differently"),
        (HEAD + "auto f = [] { return sizeof(__FUNCTION__); };\nc[0] = f();\n}\n", "__FUNCTION__"),
        (OPEN + ASKS + HEAD + "c[0] = below<Open>();\n}\n", "the type of an enum differently"),
    ],
    ids=["member", "lambda", "enum"],
)
def test_a_text_does_not_ask_what_tells_a_gpu_from_the_emulator(emulator, text, words):
    """NVRTC answered 14 and 1, and g++ 11 and 0: right here, and anything else on a GPU."""
    failed = emulator.build_module(text, ("k",), flavour="plain", deadline_s=60)
    assert isinstance(failed, ModuleFailed) and words in failed.log


def test_what_both_compilers_answer_alike_is_not_refused(emulator):
    text = CLOSED + ASKS + HEAD + "c[0] = below<Closed>(); c[1] = below<Scoped>();\n}\n"
    kernel = Kernel(emulator, text)
    assert values(kernel(INPUTS, OUTPUTS, block=1), "c")[:2].tolist() == [0, 1]


FIELDS = "struct B { unsigned a : 3; int b; };\n"


@pytest.mark.parametrize(
    "use",
    ["c[0] = (b.a++) - 2 < 0;", "c[0] = (c[1] > 0 ? b.a : 0) - 2 < 0;",
     "c[0] = (c[1] > 0 ? 0 : b.a) - 2 < 0;", "auto x = c[1] > 0 ? b.a : 0; c[0] = x - 2 < 0;",
     "c[0] = (b.b, b.a) - 2 < 0;"],
)  # fmt: skip
def test_a_bit_field_is_not_used_where_compilers_give_it_other_types(emulator, use):
    """NVRTC and g++ answered 0 and 1, or 1 and 0."""
    text = f"{FIELDS}{HEAD}B b{{1}};\n{use}\n}}\n"
    failed = emulator.build_module(text, ("k",), flavour="plain", deadline_s=60)
    assert isinstance(failed, ModuleFailed) and "the bit-field `a` another type" in failed.log


def test_other_uses_of_bit_fields_mean_the_same_to_both_compilers(emulator):
    uses = (
        "b.a++; ++b.a; for (int i = 0; i < 2; b.a--) i++;\n"
        "unsigned x = a[0] < 5 ? b.a : 7; c[0] = x; c[1] = b.a - 2 < 0; c[2] = min(3, int(b.a));\n"
        "switch (b.b) { case 0: b.a = 2; break; default: b.a = 3; }\n"
        "c[3] = (c[2] < 5 ? int(b.a) : 0) - 3 < 0;\n"
    )
    kernel = Kernel(emulator, f"{FIELDS}{HEAD}B b{{1}};\n{uses}}}\n")
    assert values(kernel(INPUTS, OUTPUTS, block=1), "c")[:4].tolist() == [1, 1, 1, 1]


def test_objects_that_fill_the_memory_are_refused_and_no_fault(emulator):
    text = "__device__ float big[1 << 28];\n" + HEAD + "big[threadIdx.x] = 1; c[0] = big[1];\n}\n"
    failed = emulator.build_module(text, ("k",), flavour="plain", deadline_s=60)
    assert isinstance(failed, ModuleFailed) and failed.reason == "refused"
    assert "1024 MiB" in failed.log


def test_shared_memory_that_no_block_has_is_refused_and_no_fault(emulator):
    text = HEAD + "__shared__ char big[1 << 30]; big[threadIdx.x] = 1; c[0] = big[1];\n}\n"
    failed = emulator.build_module(text, ("k",), flavour="plain", deadline_s=60)
    assert isinstance(failed, ModuleFailed) and failed.reason == "refused"
    assert "no block has so much shared memory" in failed.log


PARTY = {"action": "read", "site": 4, "block": [0, 0, 0], "thread": [1, 0, 0]}
LINES = (
    {
        "event": "fault",
        "kind": "deadlock",
        "sentence": "s",
        "block": [0, 0, 0],
        "thread": [0, 0, 0],
        "site": -1,
        "note": False,
        "waiting": [{"thread": [0, 0, 0], "operation": "x", "mask": 1, "site": 4}],
    },
    {
        "event": "finding",
        "kind": "race",
        "offset": 4,
        "bytes": 4,
        "memory": "shared",
        "detail": "",
        "party": PARTY,
        "other": PARTY,
    },
    {"event": "ours", "why": "memory"},
)
NONSENSE = (None, True, [], {}, -1.5, "x" * 5000, 2**70, [1, 2], [[1], 2, 3], {"site": 1})
ALSO_RIGHT = (("note", True), ("waiting", []), ("other", None))


def paths(value, at=()):
    """Each place of a value, the inner ones too."""
    inside = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value) if isinstance(value, list) else inside
    for key, part in inside:
        yield (*at, key)
        yield from paths(part, (*at, key))


def changed(line, path, value):
    line = copy.deepcopy(line)
    place = line
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return line


@pytest.mark.parametrize("line", LINES, ids=[line["event"] for line in LINES])
def test_a_forged_line_of_another_shape_is_ignored(line):
    batch = _Batch(None, None, ())
    right = {**line, "tag": batch.tag}
    assert batch._parse(json.dumps(right).encode()) == right
    for path in paths(line):
        for value in (*NONSENSE, ...):
            if (path[-1], value) in ALSO_RIGHT or (value is ... and path == ("waiting", 0)):
                continue
            forged = changed(right, path, value)
            assert batch._parse(json.dumps(forged).encode()) is None, (path, value)


def test_every_action_of_the_emulator_is_known():
    text = (NATIVE / "findings.cpp").read_text()
    assert all(f'return "{action}"' in text for action in VERBS)
    assert text.count("case Action::") == len(VERBS) == len(NOUNS)


def test_numbers_and_truth_are_not_the_same():
    assert not has_shape({**LINES[0], "site": True}) and not has_shape({**LINES[0], "note": 1})


@pytest.mark.parametrize(("code", "attempts"), [("machine_busy", 1), ("child_lost", 3)])
def test_a_rendering_child_that_is_starved_faults_its_trial_and_not_the_search(code, attempts):
    def starved(candidate):
        raise Fault("rendering got too little processor time", code=code)

    context = SimpleNamespace(render=starved, stop=threading.Event())
    evaluated = evaluate(None, context, no_baseline)
    assert isinstance(evaluated.verdict, Faulted)
    assert (evaluated.verdict.stage, evaluated.verdict.code) == (Stage.RENDER, code)
    assert evaluated.attempts == attempts and evaluated.source is None
