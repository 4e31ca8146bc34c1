#!/bin/sh
# Like convert.sh, with GNU parallel: many small parts, so that fast hosts run more of them, and a
# lost one costs little.
#
#   DATA=/shared/drives HOSTS=alpha,beta,gamma docs/examples/ssh/parallel.sh
set -eu
: "${DATA:?set the folder of the logs: DATA=/shared/drives}" "${HOSTS:?set the hosts: HOSTS=alpha,beta}"
here=$(cd "$(dirname "$0")" && pwd)
pipeline=${PIPELINE:-$here/../drives-to-tables.toml}
parts=${PARTS:-32}
# 3 is not a failure: some input was damaged, as listed in the record.
parallel --sshlogin "$HOSTS" --jobs 1 --retries 3 \
    "DATA='$DATA' sluice run '$pipeline' --shard {}/$parts --memory 2GiB --resume --keep-going --progress plain || [ \$? -eq 3 ]" \
    ::: $(seq "$parts")
sluice merge-manifests "$DATA/tables"
