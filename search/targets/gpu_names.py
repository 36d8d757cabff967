"""The GPUs that a target's name means: `cuda:0`, `cuda:0,1`, `cuda:all`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from greenfast.search.devices.facts import Device
from greenfast.search.errors import UsageError

ALL = "all"
_NUMBERS = re.compile(r"[0-9]{1,6}(,[0-9]{1,6})*", re.ASCII)
MEND = "cuda:0 is the first GPU, cuda:0,1 the first two, cuda:all every GPU of one model"


def check_gpus(which: str) -> None:
    """UsageError unless `which` is `all` or a list of different numbers."""
    if which == ALL:
        return
    if _NUMBERS.fullmatch(which) is None:
        raise UsageError(f"unknown target {f'cuda:{which}'!r}", code="unknown_target", mend=MEND)
    numbers = numbers_of(which, 0)
    repeated = next((number for number in numbers if numbers.count(number) > 1), None)
    if repeated is not None:
        raise UsageError(
            f"the target cuda:{which} names GPU {repeated} twice", code="unknown_target", mend=MEND
        )


def names_several(which: str) -> bool:
    """Whether `which` can mean more than one GPU."""
    return which == ALL or "," in which


def numbers_of(which: str, count: int) -> tuple[int, ...]:
    """The GPUs' numbers; `all` means those of a machine with `count` GPUs."""
    if which == ALL:
        return tuple(range(count))
    return tuple(int(number) for number in which.split(","))


def require_one_model(which: str, gpus: Sequence[tuple[int, Device]]) -> None:
    """UsageError unless all GPUs are of the first one's model."""
    first, facts = gpus[0]
    for number, other in gpus[1:]:
        if other != facts:
            same = ",".join(str(number) for number, device in gpus if device == facts)
            raise UsageError(
                f"the GPUs of cuda:{which} differ: cuda:{first} is {_named(facts)}, and "
                f"cuda:{number} is {_named(other)}",
                code="mixed_gpus",
                mend=f"name GPUs of one model, such as cuda:{same}",
            )


def _named(facts: Device) -> str:
    return f"{facts.title} ({facts.arch}, {facts.multiprocessors} SMs)"
