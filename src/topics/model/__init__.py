"""Frozen values: what JSON decodes into is what the engine takes and gives."""
