#!/bin/sh
# An escape artist: each of its children tries to live on in another way. All of them end by themselves in 50 s. The first
# digit behind the point says which trick it is.
n=$1
sleep "50.1$n" &                                   # an ordinary child
setsid sleep "50.2$n" &                            # a session of its own: out of reach for a group kill
( trap '' TERM; exec sleep "50.3$n" ) &            # ignores TERM
( setsid sh -c "sleep 50.4$n & exit" </dev/null >/dev/null 2>&1 & )   # a daemon: orphaned, detached, silent
sh -c 'kill -STOP $$; exec sleep 50.5'"$n" &       # stopped: a TERM waits until it is continued
sh -c 'trap "setsid sleep 50.6'"$n"' &" TERM; while :; do sleep 50.7'"$n"'; done' 2>/dev/null &   # asked to exit, it starts two more
wait
