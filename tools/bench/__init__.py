"""Benchmarks: contenders side by side, each round in a fresh process, medians over the rounds."""
