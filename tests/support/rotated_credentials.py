"""Temporary credentials of MinIO in a file of the AWS chain, which a test replaces."""

import configparser
from pathlib import Path

import boto3

from tests.support.brokers import S3

FROM_FILE_ALONE = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_CONFIG_FILE": "/nonexistent"}


class Rotated:
    """A file of credentials. `rotate` writes others over it and returns the access key that was there."""

    def __init__(self, s3: S3, path: Path) -> None:
        self.path = path
        self.access_key = ""
        self._sts = boto3.client(
            "sts",
            endpoint_url=s3.endpoint,
            aws_access_key_id=s3.access_key,
            aws_secret_access_key=s3.secret_key,
            region_name="us-east-1",
        )
        self.rotate()

    @property
    def environment(self) -> dict[str, str]:
        """For a process that has these credentials and no others."""
        return {**FROM_FILE_ALONE, "AWS_SHARED_CREDENTIALS_FILE": str(self.path)}

    def rotate(self) -> str:
        role = "arn:aws:iam::123456789012:role/archiver"  # MinIO asks for none
        given = self._sts.assume_role(RoleArn=role, RoleSessionName="archiver")["Credentials"]
        text = configparser.RawConfigParser()
        text["default"] = {
            "aws_access_key_id": given["AccessKeyId"],
            "aws_secret_access_key": given["SecretAccessKey"],
            "aws_session_token": given["SessionToken"],
        }
        with self.path.open("w") as file:
            text.write(file)
        before, self.access_key = self.access_key, given["AccessKeyId"]
        return before
