"""World presets, workloads, schedulers, agents and experiments, as YAML."""
