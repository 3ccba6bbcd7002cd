"""Measure DRQ's speed next to that of a plain loop (``drq bench``). It needs only torch, numpy and safetensors."""
