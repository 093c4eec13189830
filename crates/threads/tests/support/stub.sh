#!/bin/sh
# Stands in for a program of the peers: takes the same options, measures nothing, and goes wrong as its name says.
name=${0##*/}
identity="\"scheme\":\"$name\",\"library\":\"lib-$name\",\"version\":\"1.2\",\"kind\":\"lock\""

if [ "$1" = --describe ]; then
    case $name in
    liar) echo '{"scheme":"other","library":"l","version":"1","kind":"lock"}' ;;
    mute) exit 0 ;;
    *) echo "{$identity}" ;;
    esac
    exit 0
fi

options="" delay_count=10 errors=0 background=0
while [ $# -gt 1 ]; do
    key=$(echo "${1#--}" | sed 's/-/_/g') value=$2
    [ "$name $key" != 'deaf readers' ] || value=77
    case $key in
    pids) pids=$value ;;
    *_cpus) options="$options,\"$key\":[$value]" ;;
    *) options="$options,\"$key\":$value" ;;
    esac
    [ "$key" != seed ] || seed=$value
    shift 2
done

case $name in
fails)
    echo 'first line' >&2
    echo 'reader 3 met a freed node' >&2
    exit 1
    ;;
refuses)
    echo 'refuses: --entries does not take that' >&2
    exit 2
    ;;
lacks)
    echo 'this kernel has no membarrier' >&2
    exit 69
    ;;
dies) kill -9 $$ ;;
nonsense)
    echo 'all is well'
    exit 0
    ;;
mute) exit 0 ;;
floods) # more than there is room for, and no more than that: it must be safe to be wrong about the room
    head -c 1000000 /dev/zero 2>/dev/null && exit 0
    echo 'cannot write any more' >&2
    exit 3
    ;;
hangs) # with a child of its own
    sleep 1000 &
    echo "$$ $!" >"$pids.new"
    mv "$pids.new" "$pids"
    wait
    ;;
sleeps) exec sleep 1000 ;;
errs) errors=3 ;;
frees-nothing) delay_count=0 ;;
helped) background=70.5 ;;
esac

cat <<END
{$identity,"options":{${options#,},"fault":null},
"deletes":{"asked_per_s":5000,"delivered_per_s":4999.5,"delivered":10,"freed":$delay_count,"pending_at_end":0},
"delay_ns":{"count":$delay_count,"mean":2500.5,"p50":2000,"p90":2500,"p99":3000,"max":4$seed},"errors":$errors,
"writer":{"cpu_ns_per_delete":600.5,"background_cpu_ns_per_delete":$background,"retire_ns_mean":1.0},
"readers":{"lookups":3000,"cpu_ns_per_lookup":80.25,"misses":0},"unreclaimed_peak":{"objects":7,"bytes":448},
"notes":["a note of $name"]}
END
