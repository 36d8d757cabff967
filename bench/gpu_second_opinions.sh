#!/usr/bin/env bash
# A small search on cuda:0, then NVIDIA's own tools and `greenfast verify` on its winner: bench/gpu_second_opinions.sh FOLDER
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?a folder for the results}
mkdir -p "$out"
export GREENFAST_DATA="$out/home"
python=${PYTHON:-python3}
greenfast() { "$python" -m app.cli "$@"; }

greenfast search attention --workload mission --template wmma --target cuda:0 --trials 3 --seed 1 --json >"$out/search.json" 2>"$out/search.log"
search=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["id"])' "$out/search.json")
echo "search $search"
greenfast bundle "$search" -o "$out/bundle.zip" && greenfast verify "$out/bundle.zip" --target cuda:0
echo "verify $?"
greenfast profile "$search" --json | tee "$out/profile.json"
for tool in memcheck racecheck synccheck initcheck; do
    greenfast profile "$search" --sanitizer "$tool"
    echo "$tool $?"
done
mkdir -p "$out/bundle" && "$python" -m zipfile -e "$out/bundle.zip" "$out/bundle"
ncu --csv --page raw --print-units base --log-file "$out/ncu.log" --kernel-name-base function --launch-count 1 \
    --section SpeedOfLight --section LaunchStats --section Occupancy --section ComputeWorkloadAnalysis \
    --section MemoryWorkloadAnalysis --section MemoryWorkloadAnalysis_Tables --section SchedulerStats --section WarpStateStats \
    "$python" app/profile_driver.py "$out/bundle" 1 mission
compute-sanitizer --tool racecheck --log-file "$out/racecheck.log" --show-backtrace no "$python" app/profile_driver.py "$out/bundle" 1 mission
rm -rf "$out/home" "$out/bundle"
