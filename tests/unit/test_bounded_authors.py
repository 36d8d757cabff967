"""A kernel's files cannot hang or fill the process that loads and renders them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from greenfast.search.cpu_time import process_s
from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError
from greenfast.search.kernels.author_files import LARGEST_FILE_BYTES, parsed_toml, read_author_file
from greenfast.search.kernels.expressions import expression
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource, RenderFailed, render
from greenfast.search.rendering.child import MEMORY_BYTES, RENDER_S
from greenfast.search.rendering.children import Renderers, TextFailed, renderers
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve
from greenfast.search.text import filled

PATIENCE_S = 2.0  # processor time of a refusal, far below what the attack would take


@pytest.fixture(autouse=True)
def _takes_little_processor_time():
    begin_s = time.process_time()
    yield
    assert time.process_time() - begin_s < PATIENCE_S


@pytest.mark.parametrize(
    "text",
    [
        "10 ** (10 ** 9)",
        "2 ** 2 ** 2 ** 2 ** 2 ** 2",
        "'x' * 10 ** 10",
        "('x' if True else 'y') * 10 ** 9",
        "(True and 'x') * 10 ** 9",
        "max('x', 'y') * 10 ** 9",
        "'%999999999d' % 5",
        "('%999999999d' or 1) % 5",
        "(1,) * 10 ** 9",
        "(1, 2)",
        "1 in ((1,) * 10 ** 9)",
        "1 if (1, 2) else 0",
        "(" * 150 + "1" + ")" * 150 + "**99",
        "-" * 900 + "1",
        "not " * 200 + "1",
        "1 << 10 ** 9",
        "[0] * 10 ** 9",
        "2 ** -10000000000",
        "(2 ** 64 + 2 ** 64) ** 64 ** 2",
    ],
)
def test_an_expression_that_would_grow_is_refused_at_load_with_its_place(text):
    with pytest.raises(SpecError, match=r"kernel.toml, \[work\] flop") as refused:
        expression(text, "kernel.toml, [work] flop")
    assert refused.value.code == "bad_expression"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("name * 10 ** 10", {"name": "x"}),
        ("10 ** 10 * (name if n else 0)", {"name": "x", "n": 1}),
        ("name % 5", {"name": "%999999999d"}),
        ("name + name", {"name": "x"}),
        ("n ** 64", {"n": 2**64}),
        ("n * n", {"n": 2**60}),
        ("n + 1", {"n": 10**4000}),
        ("n ** 0.5", {"n": -8}),
        ("n ** 64 * n ** 64 * n ** 64", {"n": 2**64}),
    ],
)
def test_values_that_would_grow_are_refused_when_computed(text, values):
    with pytest.raises(SpecError, match=r"attention/mma\.toml, tile") as refused:
        expression(text, "attention/mma.toml, tile")(values)
    assert refused.value.code == "bad_expression" and len(str(refused.value)) < 300


def test_a_chain_of_powers_ends_at_its_second_link():
    """Each local uses the one before it: 64 bits, then 4,096, then 262,144 and so on."""
    square = expression("a ** 64", "wmma.toml, [locals] a")
    with pytest.raises(SpecError, match="beyond"):
        square({"a": square({"a": 2})})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a" + ".a" * 200_000 + " = 1", "parts"),
        ("a = " + "[" * 100_000 + "]" * 100_000, "nested"),
        ("a = " + "[" * 40 + "]" * 40, "nested"),
        ("a = " + "9" * 5000, "TOML"),
        ("a = 0x" + "f" * 500_000, "beyond"),
        ("a = { b = { c = 0x" + "f" * 60 + " } }", "beyond"),
        ('"a"' + '."a"' * 100_000 + " = 1", "parts"),
    ],
    ids=["dots", "lists", "deep", "digits", "hexadecimal", "inner", "quoted"],
)
def test_toml_that_would_grow_is_refused(text, reason):
    with pytest.raises(SpecError, match=reason) as refused:
        parsed_toml(text, "kernel.toml")
    assert refused.value.code == "bad_toml" and refused.value.message.startswith("kernel.toml: ")


def test_dots_in_text_are_no_keys():
    text = f"a = \"{'x.' * 50}\"  # {'y.' * 50}\nb.c = '''\n{'z.' * 50}'''\n"
    assert parsed_toml(text, "kernel.toml")["b"] == {"c": "z." * 50}


def test_only_a_plain_file_of_a_limited_size_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(b"x" * (LARGEST_FILE_BYTES + 1))
    (tmp_path / "right").write_text("text")
    for name in ("pipe", "zero", "folder", "large", "missing"):
        with pytest.raises(SpecError, match=f"^kernel/{name}: "):
            read_author_file(tmp_path / name, f"kernel/{name}")
    assert read_author_file(tmp_path / "right", "right") == "text"


def test_a_sentence_shows_values_and_nothing_else():
    values = {"tile_m": 64, "mask": "{tile_m}"}
    sentence = "{tile_m} {tile_m:>999999999} {tile_m.__class__} {mask} {0} {unknown}"
    shown = "64 {tile_m:>999999999} {tile_m.__class__} {tile_m} {0} {unknown}"
    assert filled(sentence, values) == shown


# The line of each is 8, where the template has `{{ threads }}`.
LOOPS = {
    "nested_ranges": "{% for a in range(99999) %}{% for b in range(99999) %}"
    "{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "doubling": "{% set ns = ['x'] %}{% for a in range(99) %}{% set ns = ns + ns %}{% endfor %}"
    "{% for a in range(9999) %}{% for b in range(99999) %}{% set q = 1 %}{% endfor %}{% endfor %}",
}
GROWTH = {
    "power": "{{ 10 ** (10 ** 9) }}",
    "tower": "{{ 2 ** (2 ** (2 ** (2 ** (2 ** 2)))) }}",
    "repetition": "{{ 'a' * 500000000 }}",
    "list": "{{ ([0] * 500000000)|length }}",
    "reversed": "{{ 500000000 * 'a' }}",
    "format": "{{ '%999999999d' % 5 }}",
    "format_with_a_name": "{{ '%(a)999999999d' % {'a': 5} }}",
    "format_with_a_star": "{{ '%.*f' % (99999, 5.0) }}",
    "square": "{% set n = 2 ** 4000 %}{{ n * n * n * n }}",
    "range": "{{ range(10 ** 9)|list }}",
    "width": "{{ 'a'|center(2000000000) }}",
    "method": "{{ '{:>2000000000}'.format(5) }}",
    "chance": "{{ [1, 2]|random }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "loads a module": "{{ 'a'.encode('bz2') }}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
}


def _rendered(catalogue):
    kernel = catalogue.kernel("axpy")
    template, preset = kernel.preset("right:plain")
    compiled = kernel.workloads[0].compile_time(kernel)
    candidate = preset_candidate(template, preset.name, compiled)
    point = resolve(template, candidate.parameters, compiled, device("h200"))
    return render(kernel, template, point, catalogue.include_dirs)


@pytest.mark.parametrize("attack", GROWTH)
def test_a_template_that_grows_is_refused_at_its_line(broken_kernel, attack):
    failed = _rendered(broken_kernel("right.cu.j2", "{{ threads }}", GROWTH[attack]))
    assert isinstance(failed, RenderFailed)
    assert failed.line == Line("axpy/right.cu.j2", 8)
    assert 0 < len(failed.message) < 400 and "/" not in failed.message


@pytest.mark.parametrize(
    "attack",
    [
        attack if attack == "nested_ranges" else pytest.param(attack, marks=pytest.mark.slow)
        for attack in LOOPS
    ],
)
def test_a_template_without_end_is_ended_at_its_line(broken_kernel, attack):
    failed = _rendered(broken_kernel("right.cu.j2", "{{ threads }}", LOOPS[attack]))
    assert isinstance(failed, RenderFailed) and failed.line == Line("axpy/right.cu.j2", 8)
    assert f"more than {RENDER_S:g} s" in failed.message


def test_a_text_that_doubles_ends_at_the_limit_of_memory(broken_kernel):
    grow = "{% set a = 'x' * 999999 %}" + "".join(
        f"{{% set {new} = {' ~ '.join(8 * old)} %}}"
        for old, new in zip("abcd", "bcde", strict=True)
    )
    failed = _rendered(broken_kernel("right.cu.j2", "{{ threads }}", grow + "{{ e|length }}"))
    assert isinstance(failed, RenderFailed) and f"{MEMORY_BYTES >> 20} MiB" in failed.message
    assert failed.line == Line("axpy/right.cu.j2", 8)


@pytest.mark.parametrize("character", ["\\ud800", "\\0"])
def test_a_character_that_no_source_can_hold_is_refused_at_its_line(broken_kernel, character):
    text = f"{{{{ '{character}' }}}}"
    failed = _rendered(broken_kernel("right.cu.j2", "{{ threads }}", text))
    assert isinstance(failed, RenderFailed) and failed.line == Line("axpy/right.cu.j2", 8)
    assert failed.message.startswith("the text holds '\\")


def test_after_a_refusal_the_same_child_renders_the_next_candidate():
    renderer = Renderers(1)
    try:
        assert isinstance(renderer.rendered("{{ 1 // 0 }}", {}), TextFailed)
        first = renderer.pool.all[0].process.pid
        assert renderer.rendered("a{{ n }}\n\n\nb", {"n": 1}) == (["a1", "", "b"], [1, 2, 4])
        assert renderer.pool.all[0].process.pid == first
    finally:
        renderer.pool.close()


def test_a_child_that_is_killed_is_replaced_and_its_death_is_no_verdict():
    renderer = Renderers(1)
    killed: list[int] = []

    def kill_the_first() -> None:
        while not killed:
            if running := renderer.pool.all:
                killed.append(running[0].process.pid)
                os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.01)

    try:
        watcher = threading.Thread(target=kill_the_first)
        watcher.start()
        assert renderer.rendered("{{ 'a' * 3 }}", {}) == (["aaa"], [1])
        watcher.join()
        assert renderer.pool.all[0].process.pid != killed[0]
    finally:
        renderer.pool.close()


def test_a_rendering_child_has_no_file_and_no_process():
    renderer = Renderers(1)
    try:
        renderer.rendered("a", {})
        pid = renderer.pool.all[0].process.pid
        status = Path(f"/proc/{pid}/status").read_text()
        assert "Seccomp:\t2\n" in status and "NoNewPrivs:\t1\n" in status
        assert process_s(pid) < 5.0
    finally:
        renderer.pool.close()


def test_confined_python_reads_and_starts_nothing(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret").write_text("canary")
    script = f"""
import os, socket, subprocess
from greenfast.search.confinement import confine
confine(["{tmp_path}/inside"])
def refused(work):
    try: work()
    except OSError: return True
    return False
assert refused(lambda: open("{tmp_path}/secret"))
assert refused(lambda: open("/proc/{os.getpid()}/environ"))
assert refused(lambda: open("/proc/self/environ"))
assert refused(lambda: open("{tmp_path}/inside/new", "w"))
assert refused(lambda: os.truncate("{tmp_path}/secret", 0))
assert refused(socket.socket)
assert refused(os.fork)
assert refused(lambda: os.kill({os.getpid()}, 0))
assert refused(lambda: os.setpriority(os.PRIO_PROCESS, {os.getpid()}, 5))
os.listdir("{tmp_path}/inside")
print("held")
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "held\n", ended.stderr
    assert (tmp_path / "secret").read_text() == "canary"


HOSTILE = {
    "tower": ('flop = "2 * N"', 'flop = "2 ** 2 ** 2 ** 2 ** 2 ** 2"'),
    "long_number": ('flop = "2 * N"', "flop = 0x" + "f" * 100_000),
    "dots": ('flop = "2 * N"', 'flop = "2 * N"\na' + ".a" * 100_000 + " = 1"),
}


@pytest.mark.parametrize("attack", [*HOSTILE, "pipe"])
def test_greenfast_templates_names_the_file_of_a_hostile_kernel(tmp_path, broken_kernel, attack):
    catalogue = broken_kernel("kernel.toml", "name", "name")
    path = tmp_path / "templates" / "axpy" / "kernel.toml"
    text = path.read_text()
    if attack == "pipe":
        path.unlink()
        os.mkfifo(path)
    else:
        old, new = HOSTILE[attack]
        assert old in text
        path.write_text(text.replace(old, new))
    (failure,) = type(catalogue)(catalogue._roots).kernels()
    assert isinstance(failure, SpecError) and failure.message.startswith("axpy/kernel.toml")
    assert len(failure.message) < 400


def test_honest_operators_have_their_values(album):
    assert isinstance(_rendered(album), RenderedSource)
    text = "{{ 'ab' * 3 }} {{ 7 % 4 }} {{ 2 ** 10 }} {{ 2.5 * 2 }} {{ [1] * 2 }}"
    formats = " {{ '%03d%%%s' % (7, 'x') }}"
    assert renderers().rendered(text + formats, {}) == (["ababab 3 1024 5.0 [1, 1] 007%x"], [1])
