"""What ``drq bench`` measures: DRQ beside the loop that one first writes. It runs on torch, numpy and safetensors alone."""
