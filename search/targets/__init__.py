"""Where candidates run. A target is one class here and one line in the registry below."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from greenfast.search.devices.facts import device_names
from greenfast.search.errors import UsageError, unknown_name
from greenfast.search.targets.gpu_names import check_gpus, names_several

if TYPE_CHECKING:
    from greenfast.search.targets.base import Target

RUN_DEADLINE_S = 30.0


@dataclass(frozen=True)
class TargetSettings:
    """The surroundings that a target may need."""

    cache_folder: Path
    include_dirs: tuple[Path, ...]
    workers: int  # host threads that one run may use
    run_deadline_s: float = RUN_DEADLINE_S  # for one emulated run
    # GPU's UUID -> held while that GPU is used
    turn: Callable[[str], AbstractContextManager[None]] = lambda uuid: nullcontext()


def _emulator(which: str, settings: TargetSettings) -> Target:
    from greenfast.search.targets.emulator.target import EmulatorTarget

    return EmulatorTarget(
        which,
        settings.cache_folder,
        settings.include_dirs,
        settings.workers,
        settings.run_deadline_s,
    )


def _cuda(which: str, settings: TargetSettings) -> Target:
    from greenfast.search.targets.cuda import open_device

    return open_device(which, settings.cache_folder, settings.run_deadline_s, settings.turn)


def _replay(which: str, settings: TargetSettings) -> Target:
    from greenfast.search.targets.replay import ReplayTarget

    return ReplayTarget(which)


FAMILIES: dict[str, Callable[[str, TargetSettings], Target]] = {
    "cuda": _cuda,
    "emulator": _emulator,
    "replay": _replay,
}


def check_target_name(name: str) -> tuple[str, str]:
    """`family:which` taken apart; UsageError with the known targets when there is no such thing."""
    from greenfast.search.recordings.shelf import recording_names

    family, separator, which = name.partition(":")
    if family not in FAMILIES or not separator:
        raise unknown_name(
            "target",
            name,
            [
                *(f"emulator:{known}" for known in device_names()),
                "cuda:0",
                *(f"replay:{known}" for known in recording_names()),
            ],
        )
    if family == "emulator" and which not in device_names():
        raise unknown_name("target", name, [f"emulator:{known}" for known in device_names()])
    if family == "cuda":
        check_gpus(which)
    if family == "replay" and which not in recording_names():
        raise unknown_name("target", name, [f"replay:{known}" for known in recording_names()])
    return family, which


def require_one_device(name: str, purpose: str) -> None:
    """UsageError for a target of several GPUs; `purpose` begins the sentence."""
    family, which = check_target_name(name)
    if family == "cuda" and names_several(which):
        raise UsageError(
            f"{purpose} uses one GPU, but {name} can name several",
            code="one_gpu_only",
            mend="name one, such as cuda:0",
        )


def open_target(name: str, settings: TargetSettings) -> Target:
    """The target of that name, ready to be prepared."""
    family, which = check_target_name(name)
    return FAMILIES[family](which, settings)
