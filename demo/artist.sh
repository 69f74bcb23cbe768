#!/bin/sh
# An escape artist: each of its children tries to live on in another way. All of them end by themselves in 50 s.
nap="sleep 50.$1"
$nap &                                             # an ordinary child
setsid $nap &                                      # a session of its own: out of reach for a group kill
( trap '' TERM; exec $nap ) &                      # deaf to TERM
( setsid sh -c "$nap & exit" </dev/null >/dev/null 2>&1 & )   # a daemon: orphaned, detached, silent
sh -c 'kill -STOP $$; exec '"$nap" &               # asleep: a TERM waits until it is woken
sh -c 'trap "setsid '"$nap"' &" TERM; while :; do sleep 1; done' &   # asked to end, it starts another one
wait
