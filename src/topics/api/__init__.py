"""HTTP in, HTTP out: no decision about records is taken here."""
