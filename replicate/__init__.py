"""Durable, provable replication of training checkpoints."""
