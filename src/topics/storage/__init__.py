"""Bytes that survive: the disk, the write-ahead log, segments and snapshots."""
