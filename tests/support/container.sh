#!/bin/sh
# Becomes a program that sees what it would see in a container: a network, a host name and a /dev/shm of
# its own, its volumes, and the names of its neighbours. Run by `unshare --net --mount --uts --ipc`:
#   container.sh NAME ADDRESS ROOT HOSTS "SOURCE:TARGET SOURCE:TARGET..." PROGRAM ARGUMENT...
# ROOT is an empty folder that becomes /. Whoever started it moves an interface eth0 here once
# ROOT.unshared exists.
set -eu
name=$1 address=$2 root=$3 hosts=$4 volumes=$5
shift 5
hostname "$name"
mount -t tmpfs tmpfs "$root"
for entry in /*; do
  if [ -L "$entry" ]; then
    cp -P "$entry" "$root/"
  elif [ -d "$entry" ]; then
    mkdir "$root$entry"
    mount --rbind "$entry" "$root$entry"
  fi
done
mount -t tmpfs shm "$root/dev/shm"
mount --bind "$hosts" "$root/etc/hosts"
for volume in $volumes; do
  source=${volume%%:*} target=$root${volume#*:}
  if [ -d "$source" ]; then
    mkdir -p "$target"
  else
    mkdir -p "${target%/*}"
    touch "$target"
  fi
  mount --bind "$source" "$target"
done
touch "$root.unshared"
tries=0
until ip link show eth0 >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ "$tries" -lt 600 ] || { echo "container.sh: no eth0 came" >&2; exit 1; }
  sleep 0.05
done
ip link set lo up
ip address add "$address/24" dev eth0
ip link set eth0 up
exec chroot "$root" "$@"
