"""Variables that are set to one constant on some paths, and not set on the others.

g++ takes the constant for such a variable on all paths, so that nothing in its assembly tells of
the others (unset_variables.py): `float sum; if (lane == 0) sum = 0.0f;`. It does so in passes that
come after its early ones, whose dump still joins the constant with the value of the variable
(DUMP_FLAG; below without the place that stands before each value):

    [kernel.cu:13:11] sum_5 = .DEFERRED_INIT (4, 1, &"sum"[0]);
    # sum_1 = PHI <sum_5(2), 0.0(3)>

A variable that a reference or pointer names joins its values later, when functions are inlined. It
is known by the copy of its value that is not set, which has a number instead of a name:

    [kernel.cu:13:11] _2 = .DEFERRED_INIT (4, 1, &"sum"[0]);
    sum = _2;

A text with either is compiled once more without these passes (NO_FOLDING_FLAGS).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from greenfast.search.targets.emulator.unset_variables import Place

DUMP_FLAG = "-fdump-tree-ealias-lineno"
MOST_STEPS = 100_000  # from a joined value to those before it, in a whole text
_FUNCTION = ";; Function "
_PLACE = r"\[[^\]]*:\d+:\d+\] "
_UNSET = re.compile(r"\s+(?:\[([^\]]*):(\d+):\d+\] )?(\S+) = \.DEFERRED_INIT ")
_JOINED = re.compile(r"\s+# (\S+) = PHI <(.*)>$")
_CHOICE = re.compile(rf"(?:{_PLACE})*(.+?)\(\d+\)(?:, |$)")  # a value, and the block before it
_NAME = re.compile(r"[A-Za-z$][\w.$]*_\d+(?:\(D\))?|_\d+|\w+\(D\)")  # of a value that is computed


def folded_variables(dump: Iterable[str]) -> tuple[Place, ...] | None:
    """The places of variables for which g++ may take a constant, by the lines of its dump.

    None if there are no such variables. A place that is not known is left out, and so are those of
    a text that takes too many steps, which may have such variables.
    """
    try:
        return _folded_variables(dump)
    except _TooLong:
        return ()


class _TooLong(Exception):
    """A hostile text could join values without end."""


def _folded_variables(dump: Iterable[str]) -> tuple[Place, ...] | None:
    steps = iter(range(MOST_STEPS))
    unset: dict[str, Place | None] = {}
    joined: dict[str, list[str]] = {}
    folded: dict[Place | None, None] = {}
    for line in dump:
        if line.startswith(_FUNCTION):
            folded |= dict.fromkeys(_folded(unset, joined, steps))
            unset, joined = {}, {}
        elif "DEFERRED_INIT" in line and (variable := _UNSET.match(line)) is not None:
            file, number, name = variable.groups()
            place = (file, int(number)) if file else None
            if name.startswith("_"):
                folded.setdefault(place)
            unset[name] = place
        elif "PHI <" in line and (join := _JOINED.match(line)) is not None:
            joined[join[1]] = _CHOICE.findall(join[2])
    folded |= dict.fromkeys(_folded(unset, joined, steps))
    return tuple(place for place in folded if place is not None) if folded else None


def _folded(
    unset: Mapping[str, Place | None], joined: Mapping[str, list[str]], steps: Iterator[int]
) -> Iterable[Place | None]:
    for name in _that_join(unset, joined):
        values = _values(name, joined, steps)
        constants = values - unset.keys()
        if len(constants) == 1 < len(values) and not _NAME.fullmatch(min(constants)):
            yield from (unset[value] for value in sorted(values - constants))


def _that_join(unset: Iterable[str], joined: Mapping[str, list[str]]) -> Iterable[str]:
    """The joined values that may be one of the unset ones."""
    users: dict[str, list[str]] = {}
    for name, choices in joined.items():
        for choice in choices:
            users.setdefault(choice, []).append(name)
    reached: dict[str, None] = {}
    left = list(unset)
    while left:
        for user in users.get(left.pop(), ()):
            if user not in reached:
                reached[user] = None
                left.append(user)
    return reached


def _values(name: str, joined: Mapping[str, list[str]], steps: Iterator[int]) -> set[str]:
    """What a joined value may be, through all joins before it. Raises _TooLong."""
    values: set[str] = set()
    seen, left = {name}, [name]
    while left:
        for value in joined[left.pop()]:
            if next(steps, None) is None:
                raise _TooLong
            if value not in joined:
                values.add(value)
            elif value not in seen:
                seen.add(value)
                left.append(value)
    return values
