"""How fast the server is over loopback, beside Redis, NATS, nginx and the ASGI servers."""
