#!/bin/sh
# Converts all logs below DATA on several hosts by ssh: one part per host in parallel, then merges
# their records.
#
#   DATA=/shared/drives docs/examples/ssh/convert.sh alpha beta gamma
#
# DATA, the pipeline and the program must have the same path on every host. Run it again to
# continue.
set -eu
: "${DATA:?set the folder of the logs: DATA=/shared/drives}"
here=$(cd "$(dirname "$0")" && pwd)
pipeline=${PIPELINE:-$here/../drives-to-tables.toml}
parts=$#
part=0
running=
for host in "$@"; do
    part=$((part + 1))
    # -tt: if this script ends, so do the programs it started.
    ssh -tt "$host" "DATA='$DATA' sluice run '$pipeline' --shard $part/$parts --memory 2GiB --resume --keep-going --progress plain" \
        </dev/null >"convert-$part.log" 2>&1 &
    running="$running $!"
done
failed=0
for each in $running; do
    code=0
    wait "$each" || code=$?
    # 3: some input was damaged, as listed in the record.
    [ "$code" -eq 0 ] || [ "$code" -eq 3 ] || failed=1
done
if [ "$failed" -ne 0 ]; then
    echo "a part failed: see convert-*.log" >&2
    exit 1
fi
sluice merge-manifests "$DATA/tables"
