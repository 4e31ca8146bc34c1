#!/bin/sh
# Converts all logs below DATA with a Slurm array, and merges the records of its parts if all
# succeed.
#
#   DATA=/shared/drives docs/examples/slurm/submit.sh
#
# DATA and the program must have the same path on every node. If a part fails, the merge is
# cancelled. Run this again to continue an earlier array: finished logs are checked and skipped.
set -eu
cd "$(dirname "$0")"
: "${DATA:?set the folder of the logs: DATA=/shared/drives}"
export DATA
array=$(sbatch --parsable convert.sbatch)
merge=$(sbatch --parsable --dependency="afterok:$array" --kill-on-invalid-dep=yes merge.sbatch)
echo "array $array converts, then $merge merges the records"
