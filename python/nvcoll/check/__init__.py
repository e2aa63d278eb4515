"""Logs of benchmarks of NCCL, beside predictions: ``nvcoll check``."""
