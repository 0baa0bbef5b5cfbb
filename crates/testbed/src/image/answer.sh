#!/usr/bin/bash
# answer PORT..: answers each TCP connection and UDP packet on these ports, over IPv4 and IPv6,
# with one line: the pod's name ($ANSWER if set), the port and who asked.
export ANSWER=${ANSWER:-$HOSTNAME} PORT
trap 'kill $(jobs -p); exit 0' TERM INT
for PORT in "$@"; do
  socat "TCP4-LISTEN:$PORT,reuseaddr,fork,backlog=128" EXEC:reply &
  socat "TCP6-LISTEN:$PORT,ipv6only=1,reuseaddr,fork,backlog=128" EXEC:reply &
  socat "UDP4-RECVFROM:$PORT,reuseaddr,fork" EXEC:reply &
  socat "UDP6-RECVFROM:$PORT,ipv6only=1,reuseaddr,fork" EXEC:reply &
done
wait
