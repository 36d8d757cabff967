"""The models of GPUs that this machine does not have, by target: an executor notes them.

A plan needs its device before any target is opened, and a cluster's GPUs are known to the cluster.
"""

from __future__ import annotations

from greenfast.search.devices.facts import Device

_devices: dict[str, Device] = {}  # of this process


def note_device(target: str, device: Device | None) -> None:
    """Note the device of a target elsewhere; None: the target is here."""
    if device is None:
        _devices.pop(target, None)
    else:
        _devices[target] = device


def device_elsewhere(target: str) -> Device | None:
    return _devices.get(target)
