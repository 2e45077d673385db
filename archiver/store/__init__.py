"""Object storage: the interface that other rooms use, and its S3 implementation. The only user of botocore."""
