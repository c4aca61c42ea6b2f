#!/usr/bin/env bash
# Builds, carries and runs what measures hyb on a card: see card_day.py.
exec python3 "$(dirname "$0")/card_day.py" "$@"
