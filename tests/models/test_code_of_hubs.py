"""No code comes from a hub: what would let it in is refused, before anything is looked for."""

import pytest
from testbed.refusals import refused

import drq

pytest.importorskip("transformers")


@pytest.mark.parametrize(
    "option",
    [
        *("code_revision=main", "allow_all_kernels=1", "use_kernels=1", "kernel_config=x"),
        *("attn_implementation=somebody/attention", "experts_implementation=somebody/experts"),
    ],
)
def test_options_that_let_code_in(option):
    name = option.partition("=")[0]
    words = ["hf:somebody/model must run no code from the hub", f"got {name}", "leave it out"]
    refused(drq.load_model, f"hf:somebody/model?{option}", words=words)


def test_others_are_passed_on():
    refused(drq.load_model, "hf:somebody/model?attn_implementation=eager", words=["hf:somebody/model must have"])
