#!/usr/bin/dash
# One answer of `answer`, which runs this for each question. It has always 128 bytes: so `ask`
# knows its end over UDP too.
read -r question
printf '%-127s\n' "$ANSWER port=$PORT peer=$SOCAT_PEERADDR"
