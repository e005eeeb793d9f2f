"""What a watcher is sent, frame by frame; no socket, no event loop."""
