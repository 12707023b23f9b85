# Environments: what a provisioner's script makes of a workspace's commits. How long that took is kept, to say how long it may take.
# shellcheck shell=sh

spin_deploy() {
    ready_to_spin deploy
    must_be_installed
    if [ "$EXPLAIN" = yes ]; then
        say "Deploying \`$NAME\` runs its provisioner's script: what is committed in its workspace becomes the environment environments/$NAME."
        how_it_stands
    fi
    say "Deploy $NAME:"
    say "  provisioner: $PROVISIONER"
    say "  script: $SCRIPT deploy $NAME"
    say "  estimated duration: $(estimate deploy)"
    for entry in $REPOS; do
        repo=${entry%:*}
        is_installed "$repo" || fail "$repo is not installed: eco install $NAME first"
        say "  $repo: $(git -C "$(tree_of "$repo")" rev-parse --abbrev-ref HEAD) at $(commit_of "$(tree_of "$repo")")"
        changed=$(changed_in "$(tree_of "$repo")")
        [ "$changed" -eq 0 ] || say "    $(plural "$changed" 'changed file') not committed, and not deployed"
    done
    spin deploy
    finish "$NAME is deployed"
}

spin_destroy() {
    ready_to_spin destroy
    if [ "$EXPLAIN" = yes ]; then
        say "Destroying the environment of \`$NAME\` deletes environments/$NAME and everything that was written there since."
        say 'Repositories and workspaces stay as they are: deploying again makes a new one.'
        how_it_stands
    fi
    say "Destroy the environment of $NAME:"
    say "  provisioner: $PROVISIONER"
    say "  script: $SCRIPT destroy $NAME"
    say "  estimated duration: $(estimate destroy)"
    spin destroy
    finish "the environment of $NAME is gone"
}

ready_to_spin() {
    sound
    [ -x "$ECOSYSTEM_HOME/$SCRIPT" ] || fail "\`$SCRIPT\` is no script that runs"
}

how_it_stands() {
    if [ -f "$ECOSYSTEM_HOME/environments/$NAME/deployed" ]; then
        say 'Now deployed:'
        sed 's/^/  /' "$ECOSYSTEM_HOME/environments/$NAME/deployed"
    else
        say 'Now deployed: nothing'
    fi
}

# The script itself says what it would do, or does it.
spin() {
    if [ "$DRY" = yes ]; then
        told=$("$ECOSYSTEM_HOME/$SCRIPT" --dry-run "$1" "$NAME") || fail "$SCRIPT --dry-run $1 $NAME failed"
        printf '%s\n' "$told" | sed 's/^/  would /'
        return
    fi
    begun=$(date +%s)
    "$ECOSYSTEM_HOME/$SCRIPT" "$1" "$NAME" || fail "$SCRIPT $1 $NAME failed"
    mkdir -p "$STATE"
    printf '%s %s %s\n' "$1" "$(($(date +%s) - begun))" "$begun" >>"$STATE/spins"
}

# The middle one of the last nine.
estimate() {
    took=$(sed -n "s/^$1 \([0-9]*\) .*/\1/p" "$STATE/spins" 2>/dev/null | tail -n 9 | sort -n)
    if [ -z "$took" ]; then
        printf 'not known: it never ran here'
        return
    fi
    count=$(printf '%s\n' "$took" | wc -l | tr -d ' ')
    middle=$(printf '%s\n' "$took" | sed -n "$(((count + 1) / 2))p")
    if [ "$middle" -lt 1 ]; then about='under a second'; else about="about $(plural "$middle" second)"; fi
    printf '%s, from %s' "$about" "$(plural "$count" 'past run')"
}
