"""Routers: copies from one topic to another that cost no WAL write of their own."""
