#!/bin/sh
# Makes a folder that tests enter by chroot, as root: a release of Debian with these packages and what they need, and nothing else.
# Arguments: the release (bookworm), the folder, packages. They are unpacked, not installed; apt checks their signatures.
# Prints nothing. Only where the machine has Debian's apt, whose address and keys are used.
set -eu

release=${1:?the release} root=${2:?the folder}
shift 2
list="$release $*"
[ "$(cat "$root/.packages" 2>/dev/null)" = "$list" ] && exit 0

mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 's/^URIs: *//p; s/^deb \(\[.*\] \)\{0,1\}\([^ ]*\) .*/\2/p' | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial"
: >"$work/status" # nothing is installed there
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" >"$work/sources.list"
cat >"$work/apt.conf" <<END
Dir::State "$work";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "-";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
END
export APT_CONFIG="$work/apt.conf"
apt-get -qq update
apt-get -qq install --download-only --yes "$@"

rm -rf "$root"
for folder in bin lib lib64 sbin; do
  mkdir -p "$root/usr/$folder"
  ln -s "usr/$folder" "$root/$folder"
done
mkdir -m 1777 "$root/tmp"
mkdir "$root/dev" "$root/proc"
ln -s /proc/self/fd "$root/dev/fd"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/urandom" c 1 9
for package in "$work"/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar --extract --keep-directory-symlink --directory "$root"
done
echo "$list" >"$root/.packages"
