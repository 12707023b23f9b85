# Looking: what there is, as JSON. Changes nothing, not even an index.
# shellcheck shell=sh disable=SC2046,SC2086,SC2153 # names are plain words, and lists of them are split

look_list() {
    printf '{"ecosystems":['
    comma=''
    for name in $(names); do
        load "$name"
        if some_installed; then installed=true; else installed=false; fi
        if [ -f "$ECOSYSTEM_HOME/environments/$name/deployed" ]; then deployed=true; else deployed=false; fi
        set -- $REPOS
        printf '%s{"name":%s,"description":%s,"repos":%s,"installed":%s,"deployed":%s}' \
            "$comma" "$(json "$name")" "$(json "$DESCRIPTION")" $# $installed $deployed
        comma=','
    done
    printf ']}\n'
}

look_server() {
    set -- $(names)
    printf '{"status":"up","git":%s,"ecosystems":%s}\n' "$(json "$(git --version)")" $#
}

look_describe() {
    printf '{"name":%s,"description":%s,"provisioner":%s,"script":%s,"release":%s,"repos":[' \
        "$(json "$NAME")" "$(json "$DESCRIPTION")" "$(json "$PROVISIONER")" "$(json "$SCRIPT")" "$(json "$RELEASE")"
    comma=''
    for entry in $REPOS; do
        origin=$(git -C "$(store_of "${entry%:*}")" remote get-url origin 2>/dev/null || true)
        printf '%s{"name":%s,"mode":%s,"origin":%s}' "$comma" "$(json "${entry%:*}")" \
            "$(json "$(upper "${entry#*:}")")" "$(json "${origin#"$ECOSYSTEM_HOME"/}")"
        comma=','
    done
    printf ']}\n'
}

look_status() {
    active='' count=0
    for entry in $REPOS; do
        repo=${entry%:*}
        [ -d "$(store_of "$repo")" ] || continue
        for ticket in $(tickets_of "$repo"); do
            count=$((count + 1))
            if is_installed "$repo" && [ "$(git -C "$(tree_of "$repo")" symbolic-ref --quiet --short HEAD)" = "$ticket" ]; then
                active=${ticket##*/}
            fi
        done
    done
    printf '{"workspace":{"ecosystem":%s,"workspace_branch":%s,"active_ticket":%s,"ticket_count":%s},"repos":[' \
        "$(json "$NAME")" "$(json "$BRANCH")" "$(if [ -n "$active" ]; then json "$active"; else printf null; fi)" "$count"
    comma=''
    for entry in $REPOS; do
        printf '%s' "$comma"
        repo_status "${entry%:*}" "$(upper "${entry#*:}")"
        comma=','
    done
    printf ']}\n'
}

repo_status() {
    if ! is_installed "$1"; then
        printf '{"name":%s,"branch":null,"commit":null,"mode":%s,"status":"MISSING","dirty":0,"unpushed":0}' "$(json "$1")" "$(json "$2")"
        return
    fi
    tree=$(tree_of "$1")
    on=$(git -C "$tree" symbolic-ref --quiet --short HEAD || printf '(detached)')
    dirty=$(changed_in "$tree")
    unpushed=$(git -C "$tree" rev-list --count HEAD --not --remotes)
    case $on in
        "$BRANCH" | "ticket/$NAME/"*)
            status=OK
            if [ "$2" = RW ] && [ "$unpushed" -gt 0 ]; then status=UNPUSHED; fi
            if [ "$dirty" -gt 0 ]; then status=DIRTY; fi
            ;;
        *) status=WRONG_BRANCH ;;
    esac
    printf '{"name":%s,"branch":%s,"commit":%s,"mode":%s,"status":"%s","dirty":%s,"unpushed":%s}' \
        "$(json "$1")" "$(json "$on")" "$(json "$(commit_of "$tree")")" "$(json "$2")" $status "$dirty" "$unpushed"
}

look_validate() {
    for entry in $REPOS; do
        [ -d "$(store_of "${entry%:*}")" ] || problem "repository \`${entry%:*}\` is not there"
    done
    [ -x "$ECOSYSTEM_HOME/$SCRIPT" ] || problem "\`$SCRIPT\` is no script that runs"
    if [ -z "$PROBLEMS" ]; then valid=true; else valid=false; fi
    printf '{"ecosystem":%s,"valid":%s,"problems":[' "$(json "$NAME")" $valid
    comma=''
    printf '%s' "$PROBLEMS" | while IFS= read -r line; do
        printf '%s%s' "$comma" "$(json "$line")"
        comma=','
    done
    printf ']}\n'
}
