#!/usr/bin/env bash
# Checks and measures hyb on a machine with an NVIDIA card: see gpu_check.py.
exec python3 "$(dirname "$0")/gpu_check.py" "$@"
