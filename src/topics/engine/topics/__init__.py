"""One topic: where its records are, what is live, what comes next."""
