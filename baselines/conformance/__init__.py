"""Recorded decisions of real systems, run through the schedulers of this package."""
