"""Measuring: real runs of workloads, what they use, and micro-benchmarks."""
