"""How fast the engine is in process: append, read, recover, commit, remember."""
