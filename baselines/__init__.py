"""Baselines: schedulers that follow rules, one file each; `base.build(name)` finds them."""
