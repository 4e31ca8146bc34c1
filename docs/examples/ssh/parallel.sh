#!/bin/sh
# As convert.sh, by GNU parallel: many small parts, so that a fast host takes more of them, and one that is lost costs little.
#
#   DATA=/shared/drives HOSTS=alpha,beta,gamma docs/examples/ssh/parallel.sh
set -eu
: "${DATA:?say where the logs are: DATA=/shared/drives}" "${HOSTS:?say which hosts: HOSTS=alpha,beta}"
here=$(cd "$(dirname "$0")" && pwd)
pipeline=${PIPELINE:-$here/../drives-to-tables.toml}
parts=${PARTS:-32}
# 3 is no failure: done, but some input was damaged; all of it is in the record.
parallel --sshlogin "$HOSTS" --jobs 1 --retries 3 \
    "DATA='$DATA' sluice run '$pipeline' --shard {}/$parts --memory 2GiB --resume --keep-going --progress plain || [ \$? -eq 3 ]" \
    ::: $(seq "$parts")
sluice merge-manifests "$DATA/tables"
