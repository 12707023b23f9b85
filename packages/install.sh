#!/bin/sh
# Installs countersign from the tarball of a release, after checking its SHA-256. Needs no root.
#
#   sh install.sh [--version VERSION] [--prefix FOLDER] [--from URL-OR-FOLDER]
#
# --version   the release; without it, the newest
# --prefix    where bin and share are; without it, ~/.local
# --from      where the files of the release are; without it, GitHub
set -eu

releases=https://github.com/countersign/countersign/releases

say() { printf 'countersign: %s\n' "$*"; }
die() { say "$*" >&2 && exit 1; }

# The platform as the tarballs are named.
platform() {
  case $(uname -m) in
    x86_64 | amd64) processor=x86_64 ;;
    aarch64 | arm64) processor=aarch64 ;;
    *) die "there is no build for $(uname -m): build it with cargo" ;;
  esac
  case $(uname -s) in
    Linux) printf '%s-linux' "$processor" ;;
    Darwin) printf '%s-macos' "$processor" ;;
    *) die "there is no tarball for $(uname -s): use npm, uv or the zip file" ;;
  esac
}

# fetch NAME: a file of the release, into the temporary folder.
fetch() {
  case $from in
    http://* | https://*)
      if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --output "$room/$1" "$from/$1"
      elif command -v wget >/dev/null; then
        wget --quiet --output-document="$room/$1" "$from/$1"
      else
        die 'neither curl nor wget is installed'
      fi || die "can't fetch $from/$1"
      ;;
    *) cp "$from/$1" "$room/$1" || die "can't read $from/$1" ;;
  esac
}

sha256() {
  if command -v sha256sum >/dev/null; then
    sha256sum "$1"
  elif command -v shasum >/dev/null; then
    shasum -a 256 "$1"
  else
    die 'neither sha256sum nor shasum is installed: the tarball could not be checked'
  fi | cut -d ' ' -f 1
}

# place FILE TARGET: copies a file below the prefix, with its folder.
place() {
  mkdir -p "$(dirname "$prefix/$2")"
  cp "$1" "$prefix/$2.new" && mv -f "$prefix/$2.new" "$prefix/$2"
}

# All of it is read before any of it runs: a download that breaks off does nothing.
main() {
  prefix=$HOME/.local from=$releases/latest/download
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || die "$1 needs a value, or is unknown"
    case $1 in
      --version) from=$releases/download/v$2 ;;
      --prefix) prefix=$2 ;;
      --from) from=$2 ;;
      *) die "unknown argument $1" ;;
    esac
    shift 2
  done

  platform=$(platform)
  room=$(mktemp -d)
  trap 'rm -rf "$room"' EXIT
  fetch SHA256SUMS
  line=$(grep -- "  countersign-[^ ]*-$platform\.tar\.gz\$" "$room/SHA256SUMS") || die "this release has no tarball for $platform"
  [ "$(printf '%s\n' "$line" | wc -l)" -eq 1 ] || die "this release has several tarballs for $platform"
  wanted=${line%% *} file=${line##* }
  fetch "$file"
  found=$(sha256 "$room/$file")
  [ "$found" = "$wanted" ] || die "$file has the wrong SHA-256 ($found instead of $wanted): nothing was installed"

  mkdir "$room/tree" && tar -C "$room/tree" -xzf "$room/$file"
  tree=$(echo "$room"/tree/countersign-*)
  version=$("$tree/bin/countersign" version) || die 'the binary does not run here: its C library is newer than that of this machine'
  place "$tree/bin/countersign" bin/countersign
  for page in "$tree"/man/man1/*.1; do place "$page" "share/man/man1/${page##*/}"; done
  place "$tree/completions/countersign.bash" share/bash-completion/completions/countersign
  place "$tree/completions/countersign.zsh" share/zsh/site-functions/_countersign
  place "$tree/completions/countersign.fish" share/fish/vendor_completions.d/countersign.fish
  say "installed $version as $prefix/bin/countersign"
  case :$PATH: in
    *:"$prefix/bin":*) say 'try it: countersign demo' ;;
    *) say "try it: $prefix/bin/countersign demo ($prefix/bin is not on your PATH)" ;;
  esac
}

main "$@"
