"""Objects: the port that all others use, and S3 behind it. Only this room knows botocore.

- address: the address of an archive, and two names made of it: the group of its backups, and the mark of its commits
- client: the clients of S3: how they are opened, how requests are signed and answers read, and how replaced credentials are taken
- patient: a store that repeats failed requests itself
- port: what the archiver needs of an object store
- s3: the object store S3: requests, and what the store's refusals mean to a user
- shared: the object store of a Python worker, kept open for all its tasks
"""
