"""FlashAttention-3 out of vLLM's wheel: found without importing vLLM, called by its own schema."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest

from greenfast.search.peers.offers import load_offers

SQUARE = {"B": 2, "H": 8, "H_kv": 8, "S_q": 256, "S_kv": 256, "D": 64}
OPTIONS = {"dtype": "bf16", "mask": "none"}


@pytest.fixture
def offers(catalogue):
    return load_offers(catalogue.kernel("attention").folder / "peers.py")


@pytest.fixture(autouse=True)
def without_the_real_one():
    if any(importlib.util.find_spec(name) for name in ("flash_attn_interface", "vllm")):
        pytest.skip("FlashAttention-3 or vLLM is installed here")


def test_neither_of_the_two_is_named_as_missing(offers):
    with pytest.raises(ImportError, match="neither flash_attn_interface nor vLLM's _vllm_fa3_C"):
        offers["offer"]("flash-attention-3", SQUARE, OPTIONS, {"scale": 0.125})


@pytest.mark.parametrize(
    "place", ["vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", "_vllm_fa3_C.abi3.so"]
)
def test_the_library_is_found_in_the_wheel_or_by_itself(tmp_path, monkeypatch, offers, place):
    library = tmp_path / place
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(b"")
    if library.parent != tmp_path:
        (tmp_path / "vllm" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert offers["vllm_library"]() == str(library)
    assert "vllm" not in sys.modules


def test_arguments_follow_the_schema_and_an_unknown_one_is_refused(offers):
    def schema(**types):
        return SimpleNamespace(
            arguments=[SimpleNamespace(name=name, type=kind) for name, kind in types.items()]
        )

    known = schema(q="Tensor", k_new="Optional[Tensor]", is_causal="bool")
    assert offers["arguments"](known, {"q": 1, "is_causal": False}) == [1, None, False]
    with pytest.raises(RuntimeError, match="also asks for cp_size, a int"):
        offers["arguments"](schema(q="Tensor", cp_size="int"), {"q": 1})


def test_the_mask_is_compared_before_anything_runs(tmp_path, monkeypatch, offers):
    loaded = []
    torch = ModuleType("torch")
    operation = SimpleNamespace(default=None)
    torch.ops = SimpleNamespace(
        load_library=loaded.append, _vllm_fa3_C=SimpleNamespace(fwd=operation)
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    (tmp_path / "_vllm_fa3_C.abi3.so").write_bytes(b"")
    monkeypatch.syspath_prepend(str(tmp_path))
    offer = offers["offer"]
    wide = SQUARE | {"S_kv": 512}
    with pytest.raises(ValueError, match="aligned to the bottom right"):
        offer("flash-attention-3", wide, OPTIONS | {"mask": "causal_top_left"}, {"scale": 0.125})
    offered = offer("flash-attention-3", SQUARE, OPTIONS, {"scale": 0.125})
    assert offered["version"].startswith("FlashAttention-3 of vllm")
    assert loaded == [str(tmp_path / "_vllm_fa3_C.abi3.so")] * 2
