"""What the library costs, beside the least it could cost: `python -m benchmarks` from the checkout."""
