# shellcheck shell=bash
printf "%s\n" $1
