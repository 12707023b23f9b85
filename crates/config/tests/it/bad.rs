//! A table of bad configurations, each with exactly what is said about it.

use countersign_config::{self as config, Source};

use super::{read, sheet, show};

fn said(cases: &[(&str, &str)]) -> String {
    sheet(cases, |text| read(text).err().unwrap_or_default())
}

#[test]
fn syntax() {
    let cases = [
        ("a value without quotes", "[gateway]\nmode = ask\n"),
        ("an open string", "[gateway]\nmode = \"ask\nsurface = \"router\"\n"),
        ("an open table", "[gateway\nmode = \"ask\"\n"),
        ("a key without a value", "[gateway]\nmode\n"),
        ("a key twice", "[gateway]\nmode = \"ask\"\nmode = \"plan\"\n"),
        ("a table twice", "[gateway]\nmode = \"ask\"\n[gateway]\n"),
        (
            "only the break is reported, not what is before it",
            "[gateway]\nmod = \"ask\"\n\n[confirm\nttl = 5\n",
        ),
        (
            "several duplicate keys and an unknown one",
            "[confirm]\nttl = \"1m\"\nttl = \"2m\"\n[gateway]\nmod = \"ask\"\n",
        ),
        ("a number that is too large", "[limits]\nframe = 99999999999999999999\n"),
        ("a byte order mark and CRLF", "\u{feff}mod = 1\r\n[gateway]\r\nmod = 2\r\n"),
    ];
    insta::assert_snapshot!(said(&cases));
}

#[test]
fn sections() {
    let cases = [
        (
            "unknown keys",
            "mode = \"ask\"\n[gateway]\nmod = \"ask\"\nttl = \"5m\"\nnonsense = 1\n[confrim]\nttl = \"1m\"\n",
        ),
        ("another program's word", "[mcpServers.github]\ncommand = \"npx\"\n"),
        (
            "wrong types",
            "[gateway]\nmode = true\nlisten = 7878\n[intent]\nstrict_server_validation = \"yes\"\n[confirm]\nttl = 300\n",
        ),
        ("a section that is no table", "gateway = \"ask\"\n[ledger]\nreads = [\"soon\"]\n"),
        (
            "unknown words",
            "[gateway]\nmode = \"Execute\"\nsurface = \"web\"\nunlisted = \"refuse\"\nagent_auth = \"require\"\n[ledger]\nreads = \"async\"\n",
        ),
        ("an empty word", "[gateway]\nmode = \"\"\n"),
        (
            "addresses and stores",
            "[gateway]\nlisten = \"7878\"\nstore = \"mysql://db\"\n[desk]\nlisten = \"desk.example.com:80\"\n",
        ),
        (
            "other names of our tools",
            "[gateway]\naliases = { mode = \"set_mod\", get_run = \"get_plan\", \"a b\" = \"get_status\", c = \"rm\" }\n",
        ),
        ("other names that are no table", "[gateway]\naliases = [\"set_mode\"]\n"),
        ("a default above the highest mode", "[gateway]\nmode = \"execute\"\nmax_mode = \"plan\"\n"),
        ("spans", "[confirm]\nttl = \"5 minutes\"\n[upstreams.a]\ncommand = \"a\"\nrelist = \"0s\"\n"),
        ("rows that are kept too short", "[ledger]\nkeep = \"23h\"\n"),
        ("rows that are kept for no span", "keep = \"1d\"\n[ledger]\nkeep = 365\n"),
        ("a life that is too long", "[confirm]\nttl = \"1h\"\n"),
        ("sizes", "[limits]\nframe = \"16MB\"\n"),
        ("a frame that is too small", "[limits]\nframe = 100\n"),
        (
            "both spellings of intent",
            "[intent]\nstrict_server_validation = true\n[intent_declaration]\nstrict_server_validation = false\n",
        ),
    ];
    insta::assert_snapshot!(said(&cases));
}

#[test]
fn upstreams() {
    let cases = [
        (
            "names",
            "[upstreams.GitHub]\ncommand = \"a\"\n[upstreams.a__b]\ncommand = \"a\"\n[upstreams._x]\ncommand = \"a\"\n[upstreams.\"my server\"]\ncommand = \"a\"\n",
        ),
        ("two kinds at once", "[upstreams.a]\ncommand = \"npx\"\nurl = \"https://example.com\"\n"),
        ("no kind", "[upstreams.a]\ntrust = \"review\"\n"),
        (
            "keys of another kind",
            "[upstreams.a]\nurl = \"https://example.com\"\nargs = [\"x\"]\nenv = { A = \"b\" }\n",
        ),
        (
            "unknown and wrong keys",
            "[upstreams.a]\ncommand = \"npx\"\narg = [\"-y\"]\nargs = \"-y\"\ntrust = \"always\"\nprefix = \"no\"\nstart = \"now\"\nenv = { PORT = 80 }\n",
        ),
        ("not a URL", "[upstreams.a]\nurl = \"example.com/mcp\"\n"),
        ("not a table", "upstreams = [\"a\"]\n"),
        ("an upstream that is a string", "[upstreams]\ngithub = \"npx\"\n"),
        ("no such upstream of ours", "[upstreams.a]\nkind = \"memroy\"\n"),
        (
            "two upstreams without prefix",
            "[upstreams.a]\ncommand = \"a\"\nprefix = false\n[upstreams.b]\ncommand = \"b\"\n",
        ),
        (
            "references",
            "[upstreams.a]\ncommand = \"a\"\nargs = [\"${evn:HOME}\", \"${env:}\", \"${HOME}\", \"x ${env:OPEN\"]\n",
        ),
        (
            "a reference behind escapes",
            "[upstreams.a]\ncommand = \"a\"\nargs = [\"\\\"\\u00e9\\\" ${env}\"]\n",
        ),
        (
            "a secret is not shown",
            "[upstreams.a]\nurl = \"https://example.com\"\nberaer = \"ghp_abcdefghijklmnopqrstuvwxyz0123456789\"\n",
        ),
    ];
    insta::assert_snapshot!(said(&cases));
}

#[test]
fn command_tools() {
    let cases = [
        (
            "suggested tools that are not there",
            "[[upstreams.a.tools]]\nname = \"drop\"\nrun = [\"drop\"]\nsuggest = [\"dorp\", 3]\n[[upstreams.a.tools]]\nname = \"x\"\nrun = [\"x\"]\nsuggest = []\n",
        ),
        (
            "lines to be ignored in no preview",
            "[[upstreams.a.tools]]\nname = \"x\"\nrun = [\"x\"]\npreview_ignore = [\"Reading\"]\n",
        ),
        ("missing name and run", "[[upstreams.a.tools]]\ndescription = \"x\"\n"),
        (
            "names",
            "[[upstreams.a.tools]]\nname = \"a b\"\nrun = [\"a\"]\n[[upstreams.a.tools]]\nname = \"b\"\nrun = [\"b\"]\n[[upstreams.a.tools]]\nname = \"b\"\nrun = [\"b\"]\n",
        ),
        ("a line for a shell", "[[upstreams.a.tools]]\nname = \"a\"\nrun = \"git push origin\"\n"),
        (
            "no words, and no program",
            "[[upstreams.a.tools]]\nname = \"a\"\nrun = []\n[[upstreams.a.tools]]\nname = \"b\"\ninput = { x = {} }\nrun = [\"{x}\"]\n",
        ),
        (
            "inputs that are not declared",
            "[[upstreams.a.tools]]\nname = \"a\"\ninput = { workspace = { type = \"string\" } }\nrun = [\"terraform\", \"-chdir={workspce}\", \"{other}\"]\ntype_field = \"worskpace\"\n",
        ),
        (
            "an input that may be absent inside a word",
            "[[upstreams.a.tools]]\nname = \"a\"\ninput = { since = { type = \"string\", optional = true } }\nrun = [\"git\", \"log\", \"--since={since}\"]\n",
        ),
        (
            "a group that never disappears",
            "[[upstreams.a.tools]]\nname = \"a\"\ninput = { x = {} }\nrun = [\"git\", [\"--x\", \"{x}\"]]\n",
        ),
        (
            "a list inside a word",
            "[[upstreams.a.tools]]\nname = \"a\"\ninput = { x = { type = \"array\" } }\nrun = [\"git\", \"--x={x}\"]\n",
        ),
        (
            "input schemas",
            "[[upstreams.a.tools]]\nname = \"a\"\nrun = [\"a\", \"{x}\", \"{y}\"]\n[upstreams.a.tools.input]\nx = { type = \"text\", patern = \"a\", optional = true, default = 1 }\ny = { pattern = \"[a\", maximum = 9007199254740993 }\n\"a b\" = {}\nz = \"string\"\n",
        ),
        (
            "fields",
            "[[upstreams.a.tools]]\nname = \"a\"\nrun = [\"a\"]\neffect = \"delete\"\nconfirm = \"yes\"\nbackground = \"true\"\nok_exit = [0, 999]\nparse = \"yaml\"\noutput = 0\nenv = { \"A=B\" = \"c\" }\nrnu = []\n",
        ),
        ("no tools", "[upstreams.a]\ntools = []\n"),
    ];
    insta::assert_snapshot!(said(&cases));
}

#[test]
fn rules() {
    let cases = [
        (
            "unknown keys",
            "[[rules]]\nmatch = \"a:*\"\nefect = \"read\"\nstrenght = \"human\"\nmode = \"ask\"\n",
        ),
        ("no match", "[[rules]]\neffect = \"read\"\n"),
        ("one bracket", "[rules]\nmatch = \"a:*\"\n"),
        ("not a list", "rules = \"none\"\n"),
        (
            "globs",
            "[[rules]]\nmatch = [\"github:[a\", \"github:{a,b\", \"github:*\", \"a:[z-a]\"]\neffect = \"read\"\n",
        ),
        (
            "wrong types in match",
            "[[rules]]\nmatch = 5\n[[rules]]\nmatch = []\n[[rules]]\nmatch = [\"a:*\", 5, \"\"]\n",
        ),
        (
            "words",
            "[[rules]]\nmatch = \"a:*\"\neffect = \"destructiv\"\nconfirm = \"typed\"\nstrength = \"person\"\nrole = \"admin\"\n",
        ),
        (
            "deny, allow",
            "[[rules]]\nmatch = \"a:*\"\ndeny = false\nallow = \"yes\"\n[[rules]]\nmatch = \"a:*\"\ndeny = 1\n",
        ),
        (
            "limit, timeout",
            "[[rules]]\nmatch = \"a:*\"\nlimit = \"20 per minute\"\ntimeout = \"half a minute\"\n[[rules]]\nmatch = \"a:*\"\nlimit = 20\n",
        ),
        ("paths", "[[rules]]\nmatch = \"a:*\"\nredact = [\"users..pin\", 1]\ntype_field = \"items.*\"\n"),
        (
            "previews",
            "[[rules]]\nmatch = \"a:*\"\npreview = true\n[[rules]]\nmatch = \"a:*\"\npreview = { argument = \"dry_run\" }\n[[rules]]\nmatch = \"a:*\"\npreview = { arg = \"dry\", preview = 1, apply = 1 }\n[[rules]]\nmatch = \"a:*\"\npreview = { tool = \"plan\", digests = [\"x\"] }\n",
        ),
        (
            "commands that preview",
            "[[rules]]\nmatch = \"a:*\"\npreview = \"git diff\"\n[[rules]]\nmatch = \"a:*\"\npreview = []\n[[rules]]\nmatch = \"a:*\"\npreview = [\"{what}\"]\n[[rules]]\nmatch = \"a:*\"\npreview = { run = \"git diff\" }\n[[rules]]\nmatch = \"a:*\"\npreview = { run = [\"git\"], ignored = [\"x\"], ok_exit = [300] }\n[[rules]]\nmatch = \"a:*\"\npreview = [\"git\", [\"diff\"], \"${envy:X}\"]\n",
        ),
    ];
    insta::assert_snapshot!(said(&cases));
}

#[test]
fn conditions() {
    let cases = [
        ("an operator twice", "[[rules]]\nmatch = \"a:*\"\nwhen = \"args.amount >> 10000\"\n"),
        ("an open bracket", "[[rules]]\nmatch = \"a:*\"\nwhen = \"size(args.name > 3\"\n"),
        ("an unknown name", "[[rules]]\nmatch = \"a:*\"\nwhen = \"has(args.x) && agrs.amount > 1\"\n"),
        ("an argument without args", "[[rules]]\nmatch = \"a:*\"\nwhen = \"amount > 1\"\n"),
        ("an unknown function", "[[rules]]\nmatch = \"a:*\"\nwhen = 'args.name.upper() == \"X\"'\n"),
        (
            "behind escapes",
            "[[rules]]\nmatch = \"a:*\"\nwhen = \"args.name == \\\"\\u00e9\\\" && amuont > 1\"\n",
        ),
        (
            "on the third line",
            "[[rules]]\nmatch = \"a:*\"\nwhen = '''\nargs.amount > 10\n  && mode == 'execute'\n  && nwo > timestamp(\"2026-01-01T00:00:00Z\")\n'''\n",
        ),
        (
            "not a string, and empty",
            "[[rules]]\nmatch = \"a:*\"\nwhen = true\n[[rules]]\nmatch = \"a:*\"\nwhen = \" \"\n",
        ),
        (
            "too deep",
            "[[rules]]\nmatch = \"a:*\"\nwhen = \"!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(!(true))))))))))))))))))))))))))\"\n",
        ),
    ];
    insta::assert_snapshot!(said(&cases));
}

#[test]
fn test_cases() {
    let cases = [
        ("missing", "[[tests]]\nname = \"x\"\n"),
        ("one bracket", "[tests]\ntool = \"a:b\"\n"),
        ("not a tool", "[[tests]]\ntool = \"delete_repo\"\nexpect = { verdict = \"refuse\" }\n"),
        (
            "words",
            "[[tests]]\ntool = \"a:b\"\nmode = \"run\"\nrole = \"robot\"\nvariant = \"reads\"\nexpect = { verdict = \"denied\", code = \"E_RULE_DENYED\", effects = \"read\" }\n",
        ),
        (
            "values",
            "[[tests]]\ntool = \"a:b\"\nargs = { id = 9007199254740993, day = 2026-01-01 }\nnow = \"today\"\nintent = \"write\"\nexpect = {}\n",
        ),
        (
            "arguments that are no table",
            "[[tests]]\ntool = \"a:b\"\nargs = \"{}\"\nannotations = true\nexpect = { verdict = \"go\" }\n",
        ),
    ];
    insta::assert_snapshot!(said(&cases));
}

#[test]
fn each_of_several_files_is_checked() {
    let first = Source::new("base.toml", "[gateway]\nmode = \"excute\"\n[upstreams.a]\ncommand = \"a\"\n");
    let second = Source::new(
        "mine.toml",
        "[gateway]\nmode = \"ask\"\n[upstreams.a]\nurl = \"https://example.com\"\n[upstreams.b]\n",
    );
    let found = config::parse(&[first, second]).unwrap_err();
    insta::assert_snapshot!(show(&found));
}
