#!/bin/sh
# Send a mission to a BAT OS daemon and print its answer: one line, with `batos` and jq.
#
#     sh examples/send_mission.sh "Plan a birthday party for a cat lover on a budget" [ENDPOINT]
batos send "$1" --watch --json --connect "${2:-tcp://127.0.0.1:5757}" | jq -r 'select(.type == "result") | .result.text // .error.message'
