#!/bin/sh
# Converts all logs below DATA with a Slurm array, and merges the records of its parts when all have succeeded.
#
#   DATA=/shared/drives docs/examples/slurm/submit.sh
#
# DATA and the program have to be at the same path on every node. Run it again to go on where an earlier array was ended:
# what is done is checked, and skipped.
set -eu
cd "$(dirname "$0")"
: "${DATA:?say where the logs are: DATA=/shared/drives}"
export DATA
array=$(sbatch --parsable convert.sbatch)
merge=$(sbatch --parsable --dependency="afterok:$array" merge.sbatch)
echo "array $array converts, then $merge merges the records"
