"""The command `topics`: one file a noun, thin; all it decides is what to print."""
