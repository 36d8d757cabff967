"""The device of a target and the space of a template on it, before the target is opened."""

from __future__ import annotations

from greenfast.search.devices.facts import Device, device
from greenfast.search.kernels.spec import TemplateSpec
from greenfast.search.kernels.workloads import Items
from greenfast.search.recordings.imported import recorded_space
from greenfast.search.recordings.shelf import find_recording
from greenfast.search.space.space import Space
from greenfast.search.targets import check_target_name
from greenfast.search.targets.elsewhere import device_elsewhere


def target_device(target: str) -> Device:
    """The device whose limits bound the space."""
    family, which = check_target_name(target)
    if family == "emulator":
        return device(which)
    if family == "replay":
        return find_recording(which).heading.device
    if (known := device_elsewhere(target)) is not None:
        return known
    from greenfast.search.targets.cuda import open_device

    return open_device(which).device


def target_space(target: str, template: TemplateSpec, compiled: Items) -> Space:
    """The points that a search on the target can try."""
    family, which = check_target_name(target)
    if family == "replay":
        return recorded_space(template, compiled, find_recording(which))
    return Space(template, compiled, target_device(target))
