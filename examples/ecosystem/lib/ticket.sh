# Tickets: one branch in every RW repository, ticket/ECOSYSTEM/ID.
# shellcheck shell=sh disable=SC2317 # what each_rw calls

all_tickets() {
    for entry in $REPOS; do
        if [ -d "$(store_of "${entry%:*}")" ]; then tickets_of "${entry%:*}"; fi
    done | sed 's,.*/,,' | sort -u
}

ticket_list() {
    printf '{"ecosystem":%s,"tickets":[' "$(json "$NAME")"
    comma=''
    for ticket in $(all_tickets); do
        printf '%s{"id":%s,"repos":[' "$comma" "$(json "$ticket")"
        inner=''
        for entry in $REPOS; do
            is_branch "${entry%:*}" "ticket/$NAME/$ticket" || continue
            printf '%s%s' "$inner" "$(json "${entry%:*}")"
            inner=','
        done
        printf ']}'
        comma=','
    done
    printf ']}\n'
}

ticket_of() {
    sound
    must_be_installed
    [ $# -eq 1 ] || fail 'the id of a ticket is needed'
    case $1 in [!A-Za-z]* | *[!A-Za-z0-9-]*) fail "\`$1\` is no id for a ticket" ;; esac
    TICKET=ticket/$NAME/$1
}

# Every RW repository has to follow, so each is asked before any is moved.
each_rw() {
    for entry in $REPOS; do
        [ "${entry#*:}" = rw ] || continue
        is_installed "${entry%:*}" || continue
        [ "$(changed_in "$(tree_of "${entry%:*}")")" -eq 0 ] || fail "${entry%:*} has changes that are not committed: commit them first"
    done
    for entry in $REPOS; do
        [ "${entry#*:}" = rw ] || continue
        is_installed "${entry%:*}" || continue
        "$1" "${entry%:*}"
    done
}

ticket_start() {
    ticket_of "$@"
    if [ "$EXPLAIN" = yes ]; then say "Starting $1 makes the branch $TICKET in every RW repository and switches to it."; fi
    if is_branch "$RELEASE" "$TICKET"; then fail "there is a ticket \`$1\` already: switch to it"; fi
    say "Start $1:"
    start_one() { act "make and check out $TICKET in $1" git -C "$(tree_of "$1")" switch --quiet --create "$TICKET"; }
    each_rw start_one
    finish "$1 is started"
}

ticket_switch() {
    ticket_of "$@"
    if [ "$EXPLAIN" = yes ]; then say "Switching to $1 checks out $TICKET in every RW repository that has it."; fi
    is_branch "$RELEASE" "$TICKET" || fail "there is no ticket \`$1\`; there is: $(all_tickets | tr '\n' ' ')"
    say "Switch to $1:"
    switch_one() {
        if is_branch "$1" "$TICKET"; then
            act "check out $TICKET in $1" git -C "$(tree_of "$1")" switch --quiet "$TICKET"
        fi
    }
    each_rw switch_one
    finish "$1 is checked out"
}

ticket_end() {
    ticket_of "$@"
    if [ "$EXPLAIN" = yes ]; then say "Ending $1 merges $TICKET into $BRANCH where that is a step forward, and checks $BRANCH out. The branch stays."; fi
    is_branch "$RELEASE" "$TICKET" || fail "there is no ticket \`$1\`; there is: $(all_tickets | tr '\n' ' ')"
    say "End $1:"
    end_one() {
        act "check out $BRANCH in $1" git -C "$(tree_of "$1")" switch --quiet "$BRANCH"
        is_branch "$1" "$TICKET" || return 0
        if git -C "$(store_of "$1")" merge-base --is-ancestor "refs/heads/$BRANCH" "refs/heads/$TICKET"; then
            act "move $BRANCH of $1 forward to $TICKET" git -C "$(tree_of "$1")" merge --quiet --ff-only "$TICKET"
        else
            say "  $1: $BRANCH has commits of its own, merge $TICKET by hand"
        fi
    }
    each_rw end_one
    finish "$1 is ended"
}
