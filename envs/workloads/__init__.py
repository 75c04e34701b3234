"""Where jobs come from: traces, generators, hand-made instances; all of them give a `JobTrace`."""
