"""Which topic's news go out first."""
