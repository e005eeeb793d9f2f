"""What the words mean: topics, records, floors, durability. No sockets."""
