#!/bin/sh
# peers.sh ROUNDS "MODES" "WORKLOADS": ours and the Rust peers in alternating
# rounds on the recorded streams; JSON lines in RUNS, then a table of medians.
# The streams and the Rust harness are made on first use, below DIR.
set -eu
rounds=${1:-5} modes=${2:-apply1 apply2 seq rw mem} workloads=${3:-w8 w64}
here=$(cd "$(dirname "$0")" && pwd)
dir=${DIR:-$here/out} runs=${RUNS:-$dir/runs.jsonl}
mkdir -p "$dir"
cd "$here/.."
go build -o "$dir/kvw" ./kvw
make_stream() { # name workers capacity
  [ -f "$dir/$1.kvw" ] || go run ./kvw/gen -trace policy/traces/mooncake_conversation_trace.jsonl.gz -workers "$2" -capacity "$3" -out "$dir/$1.kvw"
}
make_stream w8 8 100000
make_stream w64 64 20000
peers=${KVPEERS:-$dir/target/release/kvpeers} # KVPEERS: a harness built before
if [ -z "${KVPEERS:-}" ]; then # the first build takes a quarter of an hour on two cores
  CARGO_TARGET_DIR="$dir/target" cargo build --release --quiet --manifest-path "$here/peers/Cargo.toml"
fi
run() { # program backend mode stream
  # A scheduling group of its own; as root, in front of the machine's other load.
  setsid --wait sh -c '{ echo -20 >/proc/self/autogroup; } 2>/dev/null; exec nice -n "$0" "$@"' "$nice" "$@" >>"$runs"
}
nice=0
[ "$(id -u)" != 0 ] || nice=-20
: >"$runs"
for _ in $(seq "$rounds"); do
  for mode in $modes; do
    for w in $workloads; do
      for peer in ${PEERS:-smg}; do
        run "$peers" "$peer" "$mode" "$dir/$w.kvw"
      done
      for ours in ${OURS:-kvatlas kvatlas-sized}; do
        run "$dir/kvw" "$ours" "$mode" "$dir/$w.kvw"
      done
    done
  done
done
"$dir/kvw" compare "$runs"
