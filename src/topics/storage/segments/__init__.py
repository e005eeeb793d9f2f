"""Segments: the long-term store of records."""
