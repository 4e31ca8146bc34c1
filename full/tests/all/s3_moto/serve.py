"""An S3 server by others, for tests: moto's, which checks signatures and permissions.

    serve.py [COUNT]

Makes the buckets `logs`, `out` and `many`, the last with COUNT small objects, and two users: one
may do everything, the other only read. Prints the port and the credentials as JSON, and serves
until its input ends.
"""

import json
import logging
import os
import sys

os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "1000"
os.environ.update(AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none")
os.environ["AWS_DEFAULT_REGION"] = "us-east-1"

import boto3
import requests
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f"http://{host}:{port}"


def user(name, actions):
    iam = boto3.client("iam", endpoint_url=url)
    iam.create_user(UserName=name)
    statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=policy)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return [key["AccessKeyId"], key["SecretAccessKey"]]


s3 = boto3.client("s3", endpoint_url=url)
for bucket in ["logs", "out", "many"]:
    s3.create_bucket(Bucket=bucket)
backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
for n in range(int(sys.argv[1]) if len(sys.argv) > 1 else 0):
    backend.put_object("many", f"drives/{n % 100:02}/{n:06}.txt", b"x")
said = {
    "port": port,
    "owner": user("owner", ["s3:*"]),
    "reader": user("reader", ["s3:GetObject", "s3:ListBucket"]),
}
requests.post(f"{url}/moto-api/reset-auth", data=b"0")
print(json.dumps(said), flush=True)
sys.stdin.read()
