"""What tiles allow at most, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from bench.pages import gemm_limits, hopper_limits

GEMM = {
    "swap": False,
    "tile_n": 128,
    "consumers": 2,
    "consumer_rows": 64,
    "split_k": 2,
    "cluster_rows": 1,
    "cluster_columns": 1,
    "blocks_per_sm": 1,
}


def test_a_split_product_of_one_wave():
    """2 by 32 tiles of 128 by 128 in two parts; 32 steps of 64 in each."""
    of = gemm_limits.limits("M=256,N=4096,K=4096", GEMM)
    assert (of.tiles, of.waves, of.steps) == (128, 1, 32)
    assert of.fill == pytest.approx(128 / 132) and of.useful == 1.0
    assert of.products_us == pytest.approx(2 * 128 * 128 * 2048 / 4096 / 1980)


def test_padding_of_edges_and_of_k_is_no_useful_product():
    """12 by 11 tiles of 256 by 192, of which 17 steps reach to 1,088."""
    tall = {**GEMM, "tile_n": 192, "consumer_rows": 128, "split_k": 1}
    of = gemm_limits.limits("M=3000,N=2056,K=1032", tall)
    assert (of.tiles, of.waves, of.steps) == (132, 1, 17)
    assert of.useful == pytest.approx(3000 * 2056 * 1032 / (3072 * 2112 * 1088))


def test_turned_products_and_clusters_round_to_whole_clusters():
    turned = {**GEMM, "swap": True, "tile_n": 16, "split_k": 1, "cluster_rows": 2}
    of = gemm_limits.limits("M=17,N=1000,K=64", turned)
    assert of.tiles == 8 * 2  # 1000 outputs in 8 tiles of 128, 17 tokens in two of 16


def test_attention_with_padding():
    parameters = {"consumers": 2, "tile_n": 128, "blocks_per_sm": 1, "exp_polynomial": 0}
    of = hopper_limits.limits("B=8,H=16,S_q=577,D=64,dtype=bf16", parameters)
    assert of.row_tiles == 640 and of.useful == pytest.approx((577 / 640) ** 2)
    scores = 128 * 640 * 5
    assert of.products_us == pytest.approx(4 * scores * 64 / 4096 / 1980)
    assert of.exponentials_us == pytest.approx(scores / 16 / 1980)


def test_exponentials_by_polynomial_and_masks():
    parameters = {"consumers": 1, "tile_n": 128, "blocks_per_sm": 2, "exp_polynomial": 2}
    of = hopper_limits.limits("B=1,H=1,S_q=1024,D=64,mask=causal_top_left", parameters)
    assert of.exponentials_us == pytest.approx(64 * (1024 + 64) / 2 * 0.75 / 16 / 1980)
    assert of.waves == pytest.approx(16 / 264)
