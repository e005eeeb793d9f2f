"""Benchmarks: every speed claim of the project is measured here, as ratios inside one run."""
