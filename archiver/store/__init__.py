"""Object storage: a port and its S3 implementation. The only user of botocore."""
