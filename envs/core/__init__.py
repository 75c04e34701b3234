"""The simulator: one record per world, kernels over it. Read `types.py` first, then `simulator.py`."""
