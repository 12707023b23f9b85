# What every command needs: words for people, JSON for programs, an ecosystem's manifest, and the one way to act.
# shellcheck shell=sh disable=SC2034 # the other parts use what is set here

# upper WORD
upper() { printf '%s' "$1" | tr '[:lower:]' '[:upper:]'; }

say() { printf '%s\n' "$*"; }
fail() {
    printf 'eco: %s\n' "$*" >&2
    exit 1
}

need() { [ $# -ge 2 ] || fail "eco $1 needs the name of an ecosystem"; }

# act WORDS COMMAND...: a step, taken or, in a dry run, only said.
act() {
    step=$1
    shift
    if [ "$DRY" = yes ]; then
        say "  would $step"
        return 0
    fi
    say "$step"
    "$@"
}

# The last line of every command that changes something.
finish() {
    if [ "$DRY" = yes ]; then say 'No changes made'; else say "$1"; fi
}

plural() { if [ "$1" = 1 ]; then printf '%s %s' "$1" "$2"; else printf '%s %s' "$1" "${3:-$2s}"; fi; }

# A text as a JSON string. Control characters become spaces.
json() { printf '"%s"' "$(printf '%s' "$1" | tr '\000-\037' ' ' | sed 's/[\\"]/\\&/g')"; }

# load NAME: reads ecosystems/NAME/manifest into NAME, DESCRIPTION, PROVISIONER, RELEASE and REPOS (name:mode ...).
load() {
    NAME=$1
    case $NAME in [!a-z]* | *[!a-z0-9-]*) fail "\`$NAME\` is no name for an ecosystem" ;; esac
    MANIFEST=$ECOSYSTEM_HOME/ecosystems/$NAME/manifest
    if [ ! -f "$MANIFEST" ]; then
        fail "there is no ecosystem \`$NAME\`; there is: $(names | tr '\n' ' ')"
    fi
    DESCRIPTION='' PROVISIONER='' RELEASE='' REPOS='' PROBLEMS=''
    number=0
    while read -r key one two rest; do
        number=$((number + 1))
        case $key in
            '' | '#'*) ;;
            description) DESCRIPTION="$one${two:+ $two}${rest:+ $rest}" ;;
            provisioner) PROVISIONER=$one ;;
            release) RELEASE=$one ;;
            repo)
                case $one in *[!A-Za-z0-9._-]* | '' | .*) problem "line $number: \`$one\` is no name for a repository" && continue ;; esac
                case $two in rw | ro) ;; *) problem "line $number: \`$one\` is neither rw nor ro" && continue ;; esac
                case " $REPOS" in *" $one:"*) problem "line $number: \`$one\` is there twice" && continue ;; esac
                REPOS="$REPOS $one:$two"
                ;;
            *) problem "line $number: unknown word \`$key\`" ;;
        esac
    done <"$MANIFEST"
    [ -n "$REPOS" ] || problem 'no repository'
    case $PROVISIONER in *[!a-z0-9-]* | '') problem 'no provisioner' ;; esac
    case " $REPOS " in *" $RELEASE:rw "*) ;; *) problem "the release repository \`$RELEASE\` is none of the rw ones" ;; esac
    BRANCH=workspace/$NAME
    WORK=$ECOSYSTEM_HOME/workspaces/$NAME
    SCRIPT=provisioners/$PROVISIONER/spin.sh
    STATE=$ECOSYSTEM_HOME/state/$NAME
}

problem() {
    PROBLEMS="$PROBLEMS$*
"
}

# A manifest that is wrong is looked at, never acted on.
sound() { [ -z "$PROBLEMS" ] || fail "the manifest of \`$NAME\` is wrong: $(printf '%s' "$PROBLEMS" | head -n 1)"; }

names() {
    for manifest in "$ECOSYSTEM_HOME"/ecosystems/*/manifest; do
        [ -f "$manifest" ] || continue
        basename "$(dirname "$manifest")"
    done
}

store_of() { printf '%s/repos/%s' "$ECOSYSTEM_HOME" "$1"; }
tree_of() { printf '%s/%s' "$WORK" "$1"; }
is_installed() { [ -e "$(tree_of "$1")/.git" ]; }
is_branch() { git -C "$(store_of "$1")" show-ref --verify --quiet "refs/heads/$2"; }
main_of() { git -C "$(store_of "$1")" rev-parse --abbrev-ref origin/HEAD 2>/dev/null || printf 'origin/main'; }
commit_of() { git -C "$1" rev-parse --short "${2:-HEAD}"; }
changed_in() { git -C "$1" status --porcelain | wc -l | tr -d ' '; }
# Commits of a branch that no remote has.
only_here() { git -C "$(store_of "$1")" rev-list --count "refs/heads/$2" --not --remotes; }
# The ticket branches of a repository.
tickets_of() { git -C "$(store_of "$1")" for-each-ref --format='%(refname:short)' "refs/heads/ticket/$NAME/"; }

some_installed() {
    for entry in $REPOS; do
        if is_installed "${entry%:*}"; then return 0; fi
    done
    return 1
}

must_be_installed() { some_installed || fail "\`$NAME\` is not installed: it has no workspace"; }
