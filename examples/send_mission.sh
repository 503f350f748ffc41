#!/bin/sh
# Send a mission to a BAT OS daemon and print its answer: one line, with `batos` and jq.
#
#     sh examples/send_mission.sh "Plan a birthday party for a cat lover on a budget" [ENDPOINT]
batos send "$1" --watch --json ${2:+--connect "$2"} | jq -r 'select(.type == "result") | .result.text // .error.message'
