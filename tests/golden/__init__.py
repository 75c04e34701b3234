"""Recorded cases of the real systems: how they become worlds, and what the baselines must do in them."""
