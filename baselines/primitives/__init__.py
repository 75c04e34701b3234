"""Stages that several baselines share: pure functions over the state record."""
