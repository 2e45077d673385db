"""Records in memory, and the codecs from and to bytes."""
