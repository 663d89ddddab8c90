"""Verify and cost compositions of parallelism strategies for training large models."""
