"""Snapshots of the metadata."""
