"""Consumer groups: who works on which partition, and how far they have come."""
