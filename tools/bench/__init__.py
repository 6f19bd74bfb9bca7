"""Benchmarks: speed of the compiler and of the runtime."""
