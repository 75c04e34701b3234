"""Slurm: multifactor priority with decayed fair share, a main loop that stops at the first blocked job, backfill."""
