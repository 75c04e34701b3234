"""The environment: simulator core, workloads, and the faces that agents see."""
