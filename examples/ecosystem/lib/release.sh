# Releases: the next version from the latest tag of the release repository, gates, and the commit and tag that make it one.
# shellcheck shell=sh

release_tree() {
    sound
    is_installed "$RELEASE" || fail "\`$NAME\` is not installed: it has no workspace"
    TREE=$(tree_of "$RELEASE")
}

version_tags() {
    git -C "$TREE" -c versionsort.suffix=-alpha -c versionsort.suffix=-beta -c versionsort.suffix=-rc \
        tag --list 'v[0-9]*' --sort=-version:refname |
        grep -E '^v(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}(-(alpha|beta|rc)\.[1-9][0-9]*)?$' || true
}

# The latest version, whole and in parts: MAJOR MINOR PATCH STAGE COUNT.
read_version() {
    CURRENT=$(version_tags | head -n 1)
    CURRENT=${CURRENT:-v0.0.0}
    version=${CURRENT#v}
    core=${version%%-*}
    MAJOR=${core%%.*}
    MINOR=${core#*.}
    MINOR=${MINOR%%.*}
    PATCH=${core##*.}
    STAGE='' COUNT=0
    case $version in
        *-*)
            STAGE=${version#*-}
            COUNT=${STAGE#*.}
            STAGE=${STAGE%%.*}
            ;;
    esac
}

rank() { case $1 in alpha) echo 1 ;; beta) echo 2 ;; rc) echo 3 ;; *) echo 4 ;; esac; }

# Checks before a release: errors end it, warnings are printed. GATES holds both, one per line.
gates() {
    GATES=''
    stage=$1
    if [ "$(changed_in "$TREE")" -gt 0 ]; then
        if [ "$stage" = alpha ]; then gate warning 'there are changes that are not committed'; else gate error 'there are changes that are not committed'; fi
    fi
    on=$(git -C "$TREE" symbolic-ref --quiet --short HEAD || printf '(detached)')
    if [ "$stage" = stable ]; then
        case $on in main | release/*) ;; *) gate "$(strictly)" "a stable release from $on, which is neither main nor release/*" ;; esac
        [ -f "$TREE/CHANGELOG.md" ] || gate error 'there is no CHANGELOG.md'
    fi
    written=$(cat "$TREE/VERSION" 2>/dev/null || true)
    [ "v$written" = "$CURRENT" ] || gate "$(strictly)" "VERSION says ${written:-nothing}, the latest tag $CURRENT"
}

gate() {
    GATES="$GATES$1: $2
"
}
strictly() { if [ "$STRICT" = yes ]; then echo error; else echo warning; fi; }

release_status() {
    release_tree
    read_version
    written=$(cat "$TREE/VERSION" 2>/dev/null || true)
    since=$(since_current | wc -l | tr -d ' ')
    printf '{"ecosystem":%s,"repo":%s,"current":%s,"stage":%s,"version_file":%s,"branch":%s,"commits_since":%s}\n' \
        "$(json "$NAME")" "$(json "$RELEASE")" "$(json "$CURRENT")" "$(json "${STAGE:-stable}")" "$(json "$written")" \
        "$(json "$(git -C "$TREE" rev-parse --abbrev-ref HEAD)")" "$since"
}

release_validate() {
    release_tree
    read_version
    gates "${STAGE:-stable}"
    case $GATES in *error:*) ready=false ;; *) ready=true ;; esac
    printf '{"ecosystem":%s,"current":%s,"ready":%s,"found":[' "$(json "$NAME")" "$(json "$CURRENT")" $ready
    comma=''
    printf '%s' "$GATES" | while IFS= read -r line; do
        printf '%s%s' "$comma" "$(json "$line")"
        comma=','
    done
    printf ']}\n'
}

release_log() {
    release_tree
    case $LIMIT in *[!0-9]* | '') fail "\`$LIMIT\` is no number" ;; esac
    printf '{"ecosystem":%s,"releases":[' "$(json "$NAME")"
    comma=''
    for tag in $(version_tags | head -n "$LIMIT"); do
        printf '%s{"tag":%s,"commit":%s,"subject":%s}' "$comma" "$(json "$tag")" "$(json "$(commit_of "$TREE" "$tag^{commit}")")" \
            "$(json "$(git -C "$TREE" log --max-count=1 --format=%s "$tag^{commit}")")"
        comma=','
    done
    printf ']}\n'
}

since_current() {
    if git -C "$TREE" rev-parse --quiet --verify "refs/tags/$CURRENT" >/dev/null; then
        git -C "$TREE" log --format='%h %s' "$CURRENT..HEAD"
    else
        git -C "$TREE" log --format='%h %s'
    fi
}

release_bump() {
    release_tree
    read_version
    kind=${1:-}
    case $PRE in '' | alpha | beta | rc) ;; *) fail "\`$PRE\` is no stage: alpha, beta or rc" ;; esac
    case $kind in
        patch | minor | major) ;;
        *) fail 'what is bumped has to be said: patch, minor or major' ;;
    esac
    if [ "$kind" = patch ] && [ -n "$STAGE" ] && [ "$PRE" = "$STAGE" ]; then
        # The next of the same stage.
        NEXT=v$MAJOR.$MINOR.$PATCH-$STAGE.$((COUNT + 1))
    else
        case $kind in
            patch) NEXT=v$MAJOR.$MINOR.$((PATCH + 1)) ;;
            minor) NEXT=v$MAJOR.$((MINOR + 1)).0 ;;
            major) NEXT=v$((MAJOR + 1)).0.0 ;;
        esac
        [ -z "$PRE" ] || NEXT=$NEXT-$PRE.1
    fi
    make_release "Bump $NAME ($kind)" "${PRE:-stable}"
}

release_promote() {
    release_tree
    read_version
    [ -n "$STAGE" ] || fail "$CURRENT is stable, and a stable release can't be promoted: bump it"
    if [ -z "$TARGET" ]; then
        case $STAGE in alpha) TARGET=beta ;; beta) TARGET=rc ;; rc) TARGET=stable ;; esac
    fi
    case $TARGET in
        beta | rc | stable) ;;
        *) fail "\`$TARGET\` is no target: beta, rc or stable" ;;
    esac
    [ "$(rank "$TARGET")" -ge "$(rank "$STAGE")" ] || fail "$CURRENT is past $TARGET: promoting goes forward only"
    if [ "$TARGET" = stable ]; then
        NEXT=v$MAJOR.$MINOR.$PATCH
    elif [ "$TARGET" = "$STAGE" ]; then
        NEXT=v$MAJOR.$MINOR.$PATCH-$STAGE.$((COUNT + 1))
    else
        NEXT=v$MAJOR.$MINOR.$PATCH-$TARGET.1
    fi
    make_release "Promote $NAME to $TARGET" "$TARGET"
}

make_release() {
    if [ "$EXPLAIN" = yes ]; then
        say "A release of \`$NAME\` writes the version into $RELEASE, commits and tags it, and pushes both: others see it from then on."
    fi
    gates "$2"
    on=$(git -C "$TREE" symbolic-ref --quiet --short HEAD || printf '(detached)')
    say "$1:"
    say "  Current: $CURRENT"
    say "  Next: $NEXT"
    say "  Branch: $on of $RELEASE at $(commit_of "$TREE")"
    say "  Commits: $(since_current | wc -l | tr -d ' ')"
    since_current | sed 's/^/    /'
    printf '%s' "$GATES" | sed 's/^/  /'
    case $GATES in *error:*) fail "the release is not ready: $(printf '%s' "$GATES" | sed -n 's/^error: //p' | head -n 1)" ;; esac
    case $on in '(detached)') fail "$RELEASE is on no branch" ;; esac
    if git -C "$TREE" rev-parse --quiet --verify "refs/tags/$NEXT" >/dev/null; then fail "there is a tag $NEXT already"; fi
    act 'write VERSION, CHANGELOG.md and README.md' write_version
    act "write releases/$NEXT.json" write_release
    act "commit \"chore(release): $NEXT\"" commit_release
    act "tag $NEXT" git -C "$TREE" tag --annotate --message "$NEXT" "$NEXT"
    act "push $on and $NEXT to the origin of $RELEASE" push_release
    finish "$NEXT is released"
}

write_version() {
    printf '%s\n' "${NEXT#v}" >"$TREE/VERSION"
    {
        printf '# Changelog\n\n## %s (%s)\n\n' "${NEXT#v}" "$(date -u +%Y-%m-%d)"
        since_current | sed 's/^[^ ]* /- /'
        sed '1{/^# Changelog/d}' "$TREE/CHANGELOG.md" 2>/dev/null || true
    } >"$TREE/CHANGELOG.md.new"
    mv "$TREE/CHANGELOG.md.new" "$TREE/CHANGELOG.md"
    if [ -f "$TREE/README.md" ]; then
        sed "s/^Version: .*/Version: ${NEXT#v}/" "$TREE/README.md" >"$TREE/README.md.new"
        mv "$TREE/README.md.new" "$TREE/README.md"
    fi
}

write_release() {
    mkdir -p "$TREE/releases"
    {
        printf '{"tag":%s,"previous":%s,"repos":[' "$(json "$NEXT")" "$(json "$CURRENT")"
        comma=''
        for entry in $REPOS; do
            is_installed "${entry%:*}" || continue
            printf '%s{"name":%s,"commit":%s}' "$comma" "$(json "${entry%:*}")" "$(json "$(git -C "$(tree_of "${entry%:*}")" rev-parse HEAD)")"
            comma=','
        done
        printf ']}\n'
    } >"$TREE/releases/$NEXT.json"
}

commit_release() {
    for file in VERSION CHANGELOG.md README.md "releases/$NEXT.json"; do
        [ ! -f "$TREE/$file" ] || git -C "$TREE" add -- "$file"
    done
    git -C "$TREE" commit --quiet --message "chore(release): $NEXT"
}

push_release() {
    git -C "$TREE" push --quiet --atomic origin "refs/heads/$on:refs/heads/$on" "refs/tags/$NEXT:refs/tags/$NEXT" ||
        fail "$NEXT is committed and tagged here, and could not be pushed"
}
