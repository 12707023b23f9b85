# A workspace: a worktree of every repository on the branch workspace/NAME. Made, refreshed, published, put away, thrown away.
# shellcheck shell=sh disable=SC2046,SC2086,SC2153 # names are plain words, and lists of them are split

workspace_install() {
    sound
    if [ "$EXPLAIN" = yes ]; then
        say "Installing \`$NAME\` makes a worktree of each of its repositories under workspaces/$NAME, on the branch $BRANCH."
        say 'What is there already stays as it is.'
    fi
    say "Install $NAME:"
    made=''
    for entry in $REPOS; do
        repo=${entry%:*}
        mode=$(upper "${entry#*:}")
        [ -d "$(store_of "$repo")" ] || fail "repository \`$repo\` is not there"
        if is_installed "$repo"; then
            say "  $repo ($mode) is there already, on $(git -C "$(tree_of "$repo")" rev-parse --abbrev-ref HEAD)"
            continue
        fi
        made="$made $repo"
        if is_branch "$repo" "$BRANCH"; then
            act "check out $repo ($mode) at workspaces/$NAME/$repo on its branch $BRANCH" \
                git -C "$(store_of "$repo")" worktree add --quiet "$(tree_of "$repo")" "$BRANCH" || undo_install
        else
            start=$(main_of "$repo")
            act "check out $repo ($mode) at workspaces/$NAME/$repo on a new branch $BRANCH from $start" \
                git -C "$(store_of "$repo")" worktree add --quiet --no-track -b "$BRANCH" "$(tree_of "$repo")" "$start" || undo_install
        fi
    done
    [ -n "$made" ] || say '  nothing is missing'
    finish "$NAME is installed"
}

# One that can't be made takes those of this run along: half a workspace is none.
undo_install() {
    for repo in $made; do
        git -C "$(store_of "$repo")" worktree remove --force "$(tree_of "$repo")" 2>/dev/null || true
    done
    fail "\`$NAME\` could not be installed; what was made was taken away again"
}

workspace_sync() {
    sound
    must_be_installed
    if [ "$EXPLAIN" = yes ]; then
        say "Syncing \`$NAME\` fetches from every origin and moves branches forward where nothing has to be merged."
    fi
    say "Sync $NAME:"
    for entry in $REPOS; do
        repo=${entry%:*}
        is_installed "$repo" || continue
        start=$(main_of "$repo")
        there=$(git -C "$(store_of "$repo")" ls-remote origin "refs/heads/${start#origin/}" | cut -f 1)
        if [ "$there" = "$(git -C "$(store_of "$repo")" rev-parse "$start")" ]; then
            say "  $repo has what its origin has"
            continue
        fi
        act "fetch $repo and move it forward to $(printf '%.7s' "$there")" sync_one "$repo" "$start"
    done
    finish "$NAME is as its origins are"
}

sync_one() {
    git -C "$(store_of "$1")" fetch --quiet origin
    git -C "$(tree_of "$1")" merge --quiet --ff-only "$2" || say "  $1 has commits of its own: merge $2 by hand"
}

# Branches of a repository that have something no remote has: the workspace's and the tickets'.
to_push() {
    for branch in "$BRANCH" $(tickets_of "$1"); do
        is_branch "$1" "$branch" || continue
        if [ "$(only_here "$1" "$branch")" -gt 0 ]; then printf '%s\n' "$branch"; fi
    done
}

push_all() {
    pushed=0
    for entry in $REPOS; do
        repo=${entry%:*}
        [ "${entry#*:}" = rw ] || continue
        for branch in $(to_push "$repo"); do
            pushed=$((pushed + 1))
            act "push $repo $branch ($(plural "$(only_here "$repo" "$branch")" commit)) to its origin" \
                git -C "$(store_of "$repo")" push --quiet origin "refs/heads/$branch:refs/heads/$branch"
        done
    done
    [ $pushed -gt 0 ] || say '  every commit is on its origin already'
}

workspace_push() {
    sound
    must_be_installed
    if [ "$EXPLAIN" = yes ]; then
        say "Pushing \`$NAME\` publishes the branches of its RW repositories: others see them from then on."
    fi
    say "Push $NAME:"
    push_all
    finish "$NAME is pushed"
}

workspace_archive() {
    sound
    must_be_installed
    if [ "$EXPLAIN" = yes ]; then
        say "Archiving \`$NAME\` pushes every branch, keeps a record of where everything stood, and takes the worktrees away."
        say 'Branches stay: installing it again brings the workspace back.'
    fi
    for entry in $REPOS; do
        if is_installed "${entry%:*}" && [ "$(changed_in "$(tree_of "${entry%:*}")")" -gt 0 ]; then
            fail "${entry%:*} has changes that are not committed: commit them first, or they would be lost"
        fi
    done
    say "Archive $NAME:"
    push_all
    act "keep a record in ecosystems/$NAME/archives/$NAME.json" write_record
    for entry in $REPOS; do
        is_installed "${entry%:*}" || continue
        act "remove the worktree workspaces/$NAME/${entry%:*}" \
            git -C "$(store_of "${entry%:*}")" worktree remove "$(tree_of "${entry%:*}")"
    done
    [ "$DRY" = yes ] || rmdir "$WORK" 2>/dev/null || true
    finish "$NAME is archived; eco install $NAME brings it back"
}

write_record() {
    folder=$ECOSYSTEM_HOME/ecosystems/$NAME/archives
    mkdir -p "$folder"
    {
        printf '{"ecosystem":%s,"archived_at":"%s","workspace_branch":%s,"tickets":[' \
            "$(json "$NAME")" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(json "$BRANCH")"
        comma=''
        for ticket in $(all_tickets); do
            printf '%s%s' "$comma" "$(json "$ticket")"
            comma=','
        done
        printf '],"repos":['
        comma=''
        for entry in $REPOS; do
            is_branch "${entry%:*}" "$BRANCH" || continue
            if [ "${entry#*:}" = ro ]; then readonly_repo=true; else readonly_repo=false; fi
            printf '%s{"name":%s,"branch":%s,"commit":%s,"readonly":%s}' "$comma" "$(json "${entry%:*}")" "$(json "$BRANCH")" \
                "$(json "$(git -C "$(store_of "${entry%:*}")" rev-parse "refs/heads/$BRANCH")")" $readonly_repo
            comma=','
        done
        printf ']}\n'
    } >"$folder/$NAME.json.new"
    mv "$folder/$NAME.json.new" "$folder/$NAME.json"
}

# Commits that only the branches of this ecosystem have, each counted once.
lost_with() {
    git -C "$(store_of "$1")" rev-list --count "--branches=$BRANCH" "--branches=ticket/$NAME/*" --not --remotes --tags
}

workspace_discard() {
    sound
    must_be_installed
    if [ "$EXPLAIN" = yes ]; then
        say "Discarding \`$NAME\` can't be undone: its worktrees are deleted with everything that is not committed, and its branches"
        say 'with every commit that was never pushed. Nothing is pushed first.'
    fi
    lost=0
    say "Discard $NAME:"
    for entry in $REPOS; do
        repo=${entry%:*}
        if is_installed "$repo"; then
            changed=$(changed_in "$(tree_of "$repo")")
            act "delete the directory workspaces/$NAME/$repo ($(plural "$changed" 'changed file'))" \
                git -C "$(store_of "$repo")" worktree remove --force "$(tree_of "$repo")"
        fi
        lost=$((lost + $(lost_with "$repo")))
        for branch in $(tickets_of "$repo") "$BRANCH"; do
            is_branch "$repo" "$branch" || continue
            here=$(only_here "$repo" "$branch")
            act "delete the branch $branch of $repo at $(commit_of "$(store_of "$repo")" "refs/heads/$branch") ($(plural "$here" commit) on no remote)" \
                git -C "$(store_of "$repo")" branch --quiet -D "$branch"
        done
    done
    [ "$DRY" = yes ] || rmdir "$WORK" 2>/dev/null || true
    if [ -f "$ECOSYSTEM_HOME/environments/$NAME/deployed" ]; then
        say "  the environment environments/$NAME stays: amof_spin_destroy takes it down"
    fi
    if [ "$EXPLAIN" = yes ]; then
        [ $lost -eq 0 ] || say "$(plural $lost commit) would be lost for good."
        say "Archive it first (amof_archive_ecosystem): every branch is pushed and a record kept, and discarding then loses nothing."
    fi
    finish "$NAME is discarded"
}
