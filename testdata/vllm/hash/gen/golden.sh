#!/usr/bin/env bash
# golden.sh VERSION|latest: makes the block-hash vectors anew with that vLLM release and compares.
#
# The committed files of that release must come out byte-equal. A release without a seed0 file of its own is run on
# the cases of its era (releases.txt) and must give the same answers. A release that releases.txt does not know is
# run on the cases of the newest era before it and fails in any case: with the differences when it is a new era,
# with the line to add when it is not.
#
#   PYTHON    the Python to build the environment with (default python3)
#   VENVS     where environments are kept (default .venv-golden in the checkout), one folder a release, 5 GB or more
#   OUT       keep what was made in this folder, to be added to testdata if it is new (see testdata/README.md)
set -euo pipefail
version=${1:?usage: golden.sh VERSION|latest}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
vectors=$(dirname "$here")
root=$(cd "$here/../../../.." && pwd)
python=${PYTHON:-python3}
venvs=${VENVS:-$root/.venv-golden}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
out=${OUT:-$scratch/out}
mkdir -p "$out" "$venvs"

if [[ $version == latest ]]; then
  version=$("$python" -m pip index versions vllm 2>/dev/null | sed -n 's/^vllm (\(.*\))$/\1/p')
  [[ -n $version ]] || { echo "golden: PyPI does not tell the newest vllm" >&2; exit 1; }
  echo "golden: the newest vllm is $version"
fi
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+[a-z0-9.]*$ ]] || { echo "golden: $version is no release number" >&2; exit 2; }

venv=$venvs/vllm-$version
if [[ ! -e $venv/.complete ]]; then
  echo "golden: building $venv"
  start=$SECONDS
  rm -rf "$venv"
  PYTHON=$python bash "$here/install.sh" "$version" "$venv"
  touch "$venv/.complete"
  echo "golden: environment built in $((SECONDS - start)) s"
fi

# committed PATTERN: names of committed vector files, without .gz
committed() {
  local path
  for path in "$vectors"/$1; do
    if [[ -e $path ]]; then path=${path##*/}; echo "${path%.gz}"; fi
  done
}

# make_file FILE AS: writes $out/FILE with the seeds that the committed file AS was made with.
make_file() {
  local file=$1 as=$2
  gzip -dc "$vectors/$as.gz" > "$scratch/committed.jsonl"
  case $as in
    *-seed0.jsonl) PYTHONHASHSEED=0 "$venv/bin/python" "$here/generate.py" "$out/$file" 1 "$version" ;;
    *-unset.jsonl) env -u PYTHONHASHSEED "$venv/bin/python" "$here/replay.py" "$scratch/committed.jsonl" "$out/$file" 3 "$version" ;;
    *) echo "golden: $as: no rule how it was made" >&2; return 1 ;;
  esac > "$scratch/log" 2>&1 || { cat "$scratch/log" >&2; return 1; }
}

passed=0 failed=0
for file in $(committed "vllm-$version-*.jsonl.gz"); do
  start=$SECONDS
  make_file "$file" "$file"
  if cmp -s "$scratch/committed.jsonl" "$out/$file"; then
    echo "golden: $file: byte-equal, $(wc -c < "$out/$file") bytes, $((SECONDS - start)) s"
    passed=$((passed + 1))
  else
    echo "golden: $file: DIFFERS"
    "$python" "$here/compare.py" "$scratch/committed.jsonl" "$out/$file" || true
    failed=$((failed + 1))
  fi
done

known=$(awk -v version="$version" '$1 == version' "$here/releases.txt")
file=$(cut -d' ' -f2 <<< "$known").jsonl
newer=
if [[ -z $known ]]; then
  eras=$(committed 'vllm-*-seed0.jsonl.gz' | sed 's/^vllm-//; s/-seed0\.jsonl$//')
  era=$(printf '%s\n%s\n' "$eras" "$version" | sort -V | sed "/^${version//./\\.}\$/,\$d" | tail -1)
  [[ -n $era ]] || { echo "golden: $version is older than every era known here" >&2; exit 1; }
  file=vllm-$era-seed0.jsonl
elif [[ $known == *+xxhash* ]]; then
  newer=--newer-algorithms
fi
if [[ $file != "vllm-$version-seed0.jsonl" ]]; then
  start=$SECONDS
  make_file "vllm-$version-seed0.jsonl" "$file"
  if "$python" "$here/compare.py" "$scratch/committed.jsonl" "$out/vllm-$version-seed0.jsonl" $newer; then
    echo "golden: $version answers as $file, $((SECONDS - start)) s"
    passed=$((passed + 1))
  else
    echo "golden: $version does NOT answer as $file"
    failed=$((failed + 1))
  fi
fi
if [[ -z $known ]]; then
  echo "golden: $version is unknown here. Same answers: add '$version ${file%.jsonl}' to releases.txt and the release to" \
    "the scheme in blockhash. Other answers: commit vectors of it and a new scheme." >&2
  failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
