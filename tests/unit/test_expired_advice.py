"""Advice expires with the kernel's files, the toolchain and, on a GPU, the driver."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import pytest

from greenfast.app.views import negatives
from greenfast.app.views.negatives import Today
from greenfast.db.rows import NegativeRow
from greenfast.search.kernels.identity import kernel_identity

NEGATIVE = {field.name: "" for field in fields(NegativeRow)}


@pytest.fixture
def expired(album, monkeypatch):
    """`expired(driver, today)`: the reason for a negative found with a driver."""
    identity = kernel_identity(album.kernel("axpy"))
    services = SimpleNamespace(
        catalogue=album,
        store=SimpleNamespace(plan=lambda search_id: SimpleNamespace(kernel_digest=identity)),
        toolchain=SimpleNamespace(identity=(("nvidia-cuda-nvrtc", "13.0"),)),
    )

    def reason(driver: str, today: str, toolchain: str = "nvrtc 13.0") -> str:
        monkeypatch.setattr(negatives, "driver_of_today", lambda: today)
        row = NegativeRow(
            **{**NEGATIVE, "kernel": "axpy", "driver": driver, "toolchain": toolchain}
        )
        return Today(services).expired(row)

    return reason


def test_another_driver_expires_what_was_found_on_a_gpu(expired):
    assert expired("580.1", "580.1") == ""
    assert (
        expired("580.1", "590.0") == "it was found with driver 580.1, and today's driver is 590.0"
    )
    assert "nvrtc 12.9" in expired("580.1", "590.0", "nvrtc 12.9"), "one reason is enough"


@pytest.mark.parametrize(
    ("driver", "today"), [("", "590.0"), ("580.1", ""), ("unknown", "590.0"), ("", "")]
)
def test_where_a_driver_is_not_known_it_expires_nothing(expired, driver, today):
    assert expired(driver, today) == ""
