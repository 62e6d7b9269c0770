#!/usr/bin/env bash
# Installs Prometheus and promtool, with which dashboards and alerts are tested, if they are not there.
set -euo pipefail
command -v prometheus >/dev/null && command -v promtool >/dev/null && exit
if ! command -v apt-get >/dev/null || [[ $(id -u) != 0 ]]; then
  echo "metrics: tests of dashboards and alerts need prometheus and promtool (Debian, Ubuntu: apt-get install prometheus; macOS: brew install prometheus)" >&2
  [[ -z ${CI:-} ]] # elsewhere those tests are skipped
  exit
fi
echo "metrics: installing prometheus"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null
