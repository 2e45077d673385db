"""Objects: the port that all others use, and S3 behind it. Only this room knows botocore.

- address: where an archive lies, and the names that come from it
- client: the clients of S3: how they are opened, signed and read, and opened again when credentials were replaced
- patient: A store whose requests are repeated where they are made
- port: what the archiver asks of an object store
- s3: the object store: a small port, and S3 behind it
- shared: the object store of a Python worker, kept open for all its tasks
"""
