"""What benchmarks compute from what they measure."""

from types import SimpleNamespace

import pytest
import torch

from tools.benchmarks import imagenet_cpu
from tools.benchmarks.gpu_time import IDLE, OTHER, Kernel, kind, shares
from tools.benchmarks.near_ties import BOUNDS, compared

NAMES = {
    "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64": "convolutions and products, float16",
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw": "near ties, float32",
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>": "near ties, float32",
    "nvjet_sm90_hsh_128x160_64x5_1x2_h_ssched_bz_TNT": "convolutions and products, float16",
    "triton_poi_fused__to_copy_add_mul_relu_view_2": "normalisation, activations and sums, fused",
    "triton_poi_fused_add_clamp_sign_sub_0": "steps of the search, fused",
    "void at::native::vectorized_gather_kernel<16, long>": "slots filled and emptied",
    "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda>": OTHER,
}


@pytest.mark.parametrize(("name", "expected"), NAMES.items(), ids=NAMES.values())
def test_kernels_are_told_apart(name, expected):
    assert kind(name) == expected


def test_shares_of_time_add_up_and_count_nothing_twice():
    """Two kernels at once for 2 of 10, a gap of 3."""
    a, b, c = "nvjet_1", "triton_relu", "exp"
    found = shares([Kernel(c, 8, 10), Kernel(a, 0, 4), Kernel(b, 2, 5)])
    assert sum(found.values()) == pytest.approx(1)
    assert found[kind(a)] == pytest.approx(0.4)
    assert found[kind(b)] == pytest.approx(0.1)
    assert found[OTHER] == pytest.approx(0.2)
    assert found[IDLE] == pytest.approx(0.3)


def test_a_bound_says_what_is_searched_again_and_what_stays_wrong():
    whole = torch.ones(4, 2, dtype=torch.bool)
    half = SimpleNamespace(log_odds=torch.tensor([[0.0, 6.0], [0.0, 40.0], [0.0, 10.0], [1.0, 0.0]]), exact=whole, reached=whole)
    full = SimpleNamespace(log_odds=half.log_odds + 2, exact=whole, reached=whole, label=torch.tensor([0, 1, 0, 0]))
    half.label = torch.tensor([1, 1, 1, 0])
    found = compared(half, full, unit=torch.full((4,), 0.5))
    assert set(found["moved"].values()) == {4.0}
    rows = {each["bound"]: (each["again"], each["equal"]) for each in found["bounds"]}
    assert tuple(rows) == BOUNDS
    assert rows[0] == (0, 0.5)
    assert rows[12] == (0.5, 0.75)  # gaps of 12 and 2
    assert rows[20] == (0.75, 1)


def test_labels_on_a_cpu_are_compared_on_the_same_first_images():
    few = {"passes": 30.0, "seconds": 0.84, "peak_mb": 800.0, "right": 1, "right_base": 2}
    rows = [
        {"setting": imagenet_cpu.REFERENCE, "images": 2, "labels": [3, 4], **few},
        {"setting": "instant", "images": 3, "labels": [3, 5, 6], **few},
    ]
    lines = imagenet_cpu.table({"processor": "a CPU", "torch": "2.0", "load": 1.2, "cores": 2, "rows": rows}).splitlines()
    assert lines[0] == "One core of a CPU, torch 2.0; load 1 on 2 cores meanwhile:"
    assert lines[-1] == "| instant | 30 | 0.8 | 800 | 1 of 3, alone 2 | 1 of 2 |"
    assert {imagenet_cpu.REFERENCE, "instant"} <= imagenet_cpu.SETTINGS.keys()
