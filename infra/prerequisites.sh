#!/bin/sh
# Checks what the project needs and cannot bring itself; as root on Debian and Ubuntu it installs that.
# Prints the Python to use. Argument: demo (Python, a Java runtime) or test (Python, a JDK).
set -eu

purpose=${1:?demo or test}

find_python() {
  for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
    if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  return 1
}

# The tests compile with javac what asks Kafka's own classes for a second opinion.
has_java() {
  for folder in ${JAVA_HOME:+"$JAVA_HOME/bin/"} ''; do
    version=$("${folder}java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p')
    [ "${version:-0}" -ge 17 ] || return 1
  done
  [ "$purpose" = demo ] || command -v javac >/dev/null
}

# Debian and Ubuntu releases differ in which Java they have, and default-jdk is older than 17 in some.
java_package() {
  [ "$purpose" = demo ] && kind=jre || kind=jdk
  for version in 21 17 25; do
    if apt-cache madison "openjdk-$version-$kind-headless" | grep -q .; then
      echo "openjdk-$version-$kind-headless"
      return
    fi
  done
  echo "default-$kind-headless"
}

install_missing() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >/dev/null
  packages=
  find_python >/dev/null || packages="python3 python3-venv"
  has_java || packages="$packages $(java_package)"
  echo "installing $packages" >&2
  # shellcheck disable=SC2086 # a list of names
  apt-get install -y -qq --no-install-recommends $packages >/dev/null
}

if ! find_python >/dev/null || ! has_java; then
  install_missing </dev/null || true
fi
missing=
find_python >/dev/null || missing="Python 3.11 or later with its venv module"
if ! has_java; then
  [ "$purpose" = demo ] && java="Java 17 or later" || java="a JDK 17 or later (java and javac)"
  missing="${missing:+$missing, and }$java"
fi
if [ -n "$missing" ]; then
  echo "please install $missing, and put it on the PATH" >&2
  exit 2
fi
find_python
