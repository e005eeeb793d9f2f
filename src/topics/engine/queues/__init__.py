"""Queues: a topic plus a table of leases. Ready → claimed → acked, given back, or expired."""
