#!/bin/sh
# The provisioner `local`: an environment is a folder, environments/NAME, with the committed files of every repository of a workspace.
#   spin.sh [--dry-run] deploy|destroy NAME     with $ECOSYSTEM_HOME set
set -eu

dry=no
if [ "${1:-}" = --dry-run ]; then
    dry=yes
    shift
fi
[ $# -eq 2 ] || { echo 'spin.sh [--dry-run] deploy|destroy NAME' >&2; exit 2; }
name=$2
workspace=$ECOSYSTEM_HOME/workspaces/$name
environment=$ECOSYSTEM_HOME/environments/$name

# What is deployed, a line for each repository.
facts() {
    for tree in "$workspace"/*/; do
        printf '%s %s\n' "$(basename "$tree")" "$(git -C "$tree" rev-parse --short HEAD)"
    done
}

case $1 in
    deploy)
        for tree in "$workspace"/*/; do
            [ -e "$tree/.git" ] || { echo "nothing to deploy in workspaces/$name" >&2; exit 1; }
            repo=$(basename "$tree")
            echo "put what is committed in $repo into environments/$name/$repo (files: $(git -C "$tree" ls-tree -r --name-only HEAD | wc -l | tr -d ' '))"
            [ "$dry" = no ] || continue
            mkdir -p "$environment.new/$repo"
            git -C "$tree" archive --format=tar HEAD | tar -x -f - -C "$environment.new/$repo"
        done
        if [ -d "$environment" ]; then echo "replace what is in environments/$name"; fi
        [ "$dry" = no ] || exit 0
        facts >"$environment.new/deployed"
        # The new one stands whole before the old one goes.
        rm -rf "$environment.old"
        if [ -d "$environment" ]; then mv "$environment" "$environment.old"; fi
        mv "$environment.new" "$environment"
        rm -rf "$environment.old"
        ;;
    destroy)
        if [ ! -d "$environment" ]; then
            echo "find nothing to delete: environments/$name is not there"
            exit 0
        fi
        echo "delete environments/$name (files: $(find "$environment" -type f | wc -l | tr -d ' '))"
        [ "$dry" = no ] || exit 0
        rm -rf "$environment"
        ;;
    *) echo "unknown command \`$1\`" >&2; exit 2 ;;
esac
