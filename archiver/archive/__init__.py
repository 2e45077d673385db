"""What lies in the bucket: how it is written and read."""
