"""Objects, in S3 or what speaks like it."""
