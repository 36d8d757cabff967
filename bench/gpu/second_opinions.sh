#!/usr/bin/env bash
# Other tools on the winner of a small search on cuda:0: `greenfast verify`, Nsight Compute and
# compute-sanitizer.
#
#     bash bench/gpu/second_opinions.sh FOLDER
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:?usage: bash bench/gpu/second_opinions.sh FOLDER}
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export GREENFAST_DATA="$scratch/data"
python=${PYTHON:-python3}
greenfast() { "$python" -m greenfast "$@"; }

greenfast search attention --workload mission --template wmma --target cuda:0 --trials 8 --seed 1 \
    --json >"$out/search.json" 2>"$out/search.log"
search=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["id"])' "$out/search.json")
echo "search $search"
greenfast bundle "$search" -o "$out/bundle.zip" &&
    greenfast verify "$out/bundle.zip" --target cuda:0 --json | tee "$out/verify.json"
echo "verify ${PIPESTATUS[0]}"
timeout 60 "$python" -m greenfast profile "$search" --json | tee "$out/profile.json"
mkdir -p "$scratch/bundle" && "$python" -m zipfile -e "$out/bundle.zip" "$scratch/bundle"
timeout 60 ncu --csv --page raw --print-units base --log-file "$out/ncu.log" --launch-count 1 \
    --section SpeedOfLight --section SchedulerStats --section ComputeWorkloadAnalysis \
    "$python" app/bundle/profile_driver.py "$scratch/bundle" 1 mission
for tool in memcheck racecheck synccheck initcheck; do
    began=$SECONDS
    timeout 60 "$python" -m greenfast profile "$search" --sanitizer "$tool"
    echo "$tool $? in $((SECONDS - began)) s"
done
