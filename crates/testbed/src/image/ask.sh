#!/usr/bin/bash
# ask tcp|udp HOST PORT [COUNT]: asks COUNT times who answers there (`answer` in another pod) and
# prints a line for each: the answer, or "-" when there was none within a second.
host=$2
[[ $host == *:* ]] && host="[$host]"
for ((i = 0; i < ${4:-1}; i++)); do
  line=$(echo | socat -T 1 -t 1 - "${1^^}:$host:$3,readbytes=128$([[ $1 == tcp ]] && echo ,connect-timeout=1)" 2>/dev/null)
  line=${line%"${line##*[! ]}"}
  echo "${line:--}"
done
