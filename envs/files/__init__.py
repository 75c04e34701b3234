"""Readers of the files that a site has: Slurm's configuration and accounting, manifests of Kueue and Volcano.

They say what a file holds, in plain dataclasses with the names of the system it belongs to; nothing is decided here.
Workloads and baselines make their own objects from them. docs/files.md lists what is read.

Two kinds of trouble: a value that makes no sense is a `GanglineError` of one line with file and place; words that
nobody here knows are listed in the result (`unknown`) and in one warning per file (`text.UnknownWords`).
"""
