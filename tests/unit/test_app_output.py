"""What is printed: nothing that a terminal would obey, and exactly one JSON value."""

from __future__ import annotations

import json

import pytest

from greenfast.app.cli.output import duration, print_json
from greenfast.app.cli.trial_run import LONGEST_LOG
from greenfast.app.routes.login import _own_path
from greenfast.search.text import abridged, one_line, visible
from greenfast.search.timing import geometric_mean
from greenfast.search.verdict import Stage


@pytest.mark.parametrize(
    "hostile",
    ["\x1b]0;title\x07", "\x9b31m", "a\rb", "\u202egnp.exe", "\u2066x", "\ud800", "\x00", "\u2028"],
)
def test_what_a_terminal_would_obey_is_written_as_an_escape(hostile):
    shown = visible(hostile)
    assert "\\" in shown and all(character.isprintable() for character in shown)
    assert one_line(f"a\n{hostile}").isprintable()


def test_words_of_other_languages_and_line_feeds_stay():
    assert visible("Größe 大小\n\t[red]x[/red]") == "Größe 大小\n\t[red]x[/red]"


def test_json_is_ascii_and_takes_enumerations(capsys):
    print_json({"stage": Stage.PTXAS, "name": "\u202e\ud800"})
    out = capsys.readouterr().out
    assert out.isascii() and json.loads(out) == {"stage": "ptxas", "name": "\u202e\ud800"}


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "-"), (3.21, "3.2 s"), (245, "4 min 5 s"), (7800, "2 h 10 min")]
)
def test_durations_read_like_speech(seconds, words):
    assert duration(seconds) == words


def test_a_long_log_keeps_both_ends_and_says_what_is_left_out():
    short = abridged("begin" + "x" * 100_000 + "end", LONGEST_LOG)
    assert (
        len(short) < 33_000
        and short.startswith("begin")
        and short.endswith("end")
        and "left out" in short
    )


def test_shortened_text_keeps_both_halves():
    text = "a" * 50 + "b" * 50
    assert abridged(text, 20) == "aaaaaaaaaa\n[... 80 characters left out ...]\nbbbbbbbbbb"


def test_several_workloads_times_become_their_geometric_mean():
    assert geometric_mean([3.0]) == 3.0
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "javascript:x",
        "",
        "/a\nSet-Cookie: x",
    ],
)
def test_after_logging_in_nobody_is_sent_to_another_site(elsewhere):
    assert _own_path(elsewhere) == "/" and _own_path("/searches/s_1") == "/searches/s_1"
