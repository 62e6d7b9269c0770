#!/usr/bin/env bash
# Installs what the tests run beside: Prometheus and promtool, and Python's prometheus_client in .venv-prometheus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
wanted=scrape/testdata/promclient/requirements.txt
if ! cmp -s $wanted .venv-prometheus/installed; then
  if command -v python3 >/dev/null && python3 -m venv .venv-prometheus && .venv-prometheus/bin/pip install -q --disable-pip-version-check -r $wanted; then
    cp $wanted .venv-prometheus/installed
  else
    echo "metrics: tests of scrape need python3 with venv (Debian, Ubuntu: apt-get install python3-venv)" >&2
    [[ -z ${CI:-} ]] # elsewhere those tests are skipped
  fi
fi
command -v prometheus >/dev/null && command -v promtool >/dev/null && exit
if ! command -v apt-get >/dev/null || [[ $(id -u) != 0 ]]; then
  echo "metrics: tests of dashboards and alerts need prometheus and promtool (Debian, Ubuntu: apt-get install prometheus; macOS: brew install prometheus)" >&2
  [[ -z ${CI:-} ]] # elsewhere those tests are skipped
  exit
fi
echo "metrics: installing prometheus"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null
