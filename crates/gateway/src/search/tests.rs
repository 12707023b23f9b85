//! What the index promises besides good ranking: order, filters, bounds, and calm under hostile input.

use std::cell::Cell;

use serde_json::{Value, json};

use super::fuzzy_match::within;
use super::terms::{self, WordLink};
use super::{Document, Index, SearchQuery, SearchResults, rank, schema, synonyms};

const NONE: &Value = &Value::Null;

fn tool<'a>(upstream: &'a str, name: &'a str, description: &'a str) -> Document<'a> {
    Document { upstream, name, title: "", description, input_schema: NONE }
}

fn small() -> Vec<Document<'static>> {
    vec![
        tool("github", "delete_branch", "Delete a branch."),
        tool("github", "delete_repository", "Delete a repository."),
        tool("github", "createIssue", "Open an issue."),
        tool("files", "delete_file", "Delete a file."),
        tool("files", "read_file", "Read a file."),
    ]
}

fn names(documents: &[Document<'_>], found: &SearchResults) -> Vec<String> {
    found
        .hits
        .iter()
        .map(|hit| format!("{}:{}", documents[hit.doc].upstream, documents[hit.doc].name))
        .collect()
}

fn first(index: &Index, documents: &[Document<'_>], text: &str) -> String {
    names(documents, &index.search(&SearchQuery::new(text, 1))).concat()
}

/// A small generator of our own: the same input on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn text(&mut self, longest: u64) -> String {
        const BLOCKS: &[(u32, u32)] = &[
            (0x20, 0x60),
            (0x61, 26),
            (0x61, 26),
            (0x41, 26),
            (0x00, 0x20),
            (0xa0, 0x1b0),
            (0x300, 0x70),
            (0x370, 0x190),
            (0x590, 0x170),
            (0x900, 0x80),
            (0xe00, 0x80),
            (0x1100, 0x100),
            (0x2000, 0x70),
            (0x3040, 0xc0),
            (0x4e00, 0x500),
            (0xac00, 0x500),
            (0xfb00, 0x500),
            (0x1f300, 0x300),
            (0xe0000, 0x80),
        ];
        let (start, span) = BLOCKS[self.roll(BLOCKS.len() as u64) as usize];
        let mixed = self.roll(4) == 0;
        let length = self.roll(longest) + 1;
        (0..length)
            .filter_map(|_| {
                let (start, span) =
                    if mixed { BLOCKS[self.roll(BLOCKS.len() as u64) as usize] } else { (start, span) };
                char::from_u32(start + self.roll(u64::from(span)) as u32)
            })
            .collect()
    }
}

#[test]
fn text_is_split_into_words() {
    let check = |text: &str, expect: &[&str]| {
        let words: Vec<String> = terms::words(text, 1_000).into_iter().map(|word| word.text).collect();
        assert_eq!(words, expect, "{text:?}");
    };
    check("delete_branch", &["delete", "branch"]);
    check("deleteBranch", &["delete", "branch"]);
    check("files.read-text:file", &["files", "read", "text", "file"]);
    check("HTTPServer getURLs PRs", &["http", "server", "get", "urls", "prs"]);
    check("sha256Sum s3", &["sha256", "sum", "s3"]);
    check("Ｄｅｌｅｔｅ café ﬁle", &["delete", "cafe", "file"]);
    check("de\u{200b}le\u{ad}te\u{202e} me", &["delete", "me"]);
    check("a\u{0}b\u{7}c\u{1b}[31m", &["a", "b", "c", "31m"]);
    check("GitHub仓库列表", &["git", "hub", "仓库列表"]);
    check("  \t*!?🚀 ", &[]);
    let long = "x".repeat(500);
    assert_eq!(terms::words(&long, 1_000)[0].text.len(), 40);
    assert_eq!(
        terms::words("GitHub仓库", 99).iter().map(|w| w.link).collect::<Vec<_>>(),
        [WordLink::Apart, WordLink::Glued, WordLink::Run]
    );
}

#[test]
fn a_name_in_any_spelling_is_first_with_score_one() {
    let documents = small();
    let index = Index::build(documents.clone());
    for text in [
        "delete_branch",
        "deleteBranch",
        "github:delete_branch",
        "github__delete_branch",
        "GITHUB DELETE BRANCH",
    ] {
        let found = index.search(&SearchQuery::new(text, 3));
        assert_eq!(names(&documents, &found)[0], "github:delete_branch", "{text}");
        assert_eq!(found.hits[0].score, 1.0, "{text}");
        assert!(found.hits.iter().skip(1).all(|hit| hit.score < 1.0), "{text}");
    }
}

#[test]
fn order_is_score_then_name_whatever_the_order_of_documents() {
    let mut documents = vec![
        tool("b", "list_x", "same"),
        tool("a", "list_y", "same"),
        tool("b", "list_a", "same"),
        tool("a", "get_z", ""),
    ];
    let expect = ["a:list_y", "b:list_a", "b:list_x", "a:get_z"];
    for _ in 0..documents.len() {
        documents.rotate_left(1);
        let found = Index::build(documents.clone()).search(&SearchQuery::new("list", 10));
        assert_eq!(names(&documents, &found), expect);
        assert_eq!(found.hits[0].score, found.hits[1].score, "these two are equal and ordered by name");
    }
}

#[test]
fn nothing_searchable_lists_everything_by_name() {
    let documents = small();
    let index = Index::build(documents.clone());
    for text in ["", "  ", "*", "\u{0}\u{1b}\u{200b}", "🚀"] {
        let found = index.search(&SearchQuery::new(text, 2));
        assert_eq!(names(&documents, &found), ["files:delete_file", "files:read_file"], "{text:?}");
        assert_eq!(found.total, 5);
    }
    let found = index.search(&SearchQuery { upstream: Some("github"), ..SearchQuery::new("", 9) });
    assert_eq!(
        names(&documents, &found),
        ["github:createIssue", "github:delete_branch", "github:delete_repository"]
    );
    assert_eq!(Index::build([]).search(&SearchQuery::new("", 9)), SearchResults::default());
    assert_eq!(Index::build([]).search(&SearchQuery::new("delete", 9)), SearchResults::default());
}

#[test]
fn filters_narrow_hits_and_total() {
    let documents = small();
    let index = Index::build(documents.clone());
    let all = index.search(&SearchQuery::new("delete", 1));
    assert_eq!((all.hits.len(), all.total), (1, 3));
    let files = index.search(&SearchQuery { upstream: Some("files"), ..SearchQuery::new("delete", 9) });
    assert_eq!((names(&documents, &files), files.total), (vec!["files:delete_file".to_owned()], 1));
    assert_eq!(
        index.search(&SearchQuery { upstream: Some("file"), ..SearchQuery::new("delete", 9) }),
        SearchResults::default()
    );
    let asked = Cell::new(0);
    let keep = |doc: usize| {
        asked.set(asked.get() + 1);
        doc == 1
    };
    let kept = index.search(&SearchQuery { keep: Some(&keep), ..SearchQuery::new("delete", 9) });
    assert_eq!((names(&documents, &kept), kept.total), (vec!["github:delete_repository".to_owned()], 1));
    assert_eq!(asked.get(), 3, "each match is asked about once, nothing else is");
    assert_eq!(index.search(&SearchQuery::new("delete", 0)), SearchResults { hits: vec![], total: 3 });
    assert_eq!(index.search(&SearchQuery::new("delete", usize::MAX)).hits.len(), 3);
    assert_eq!(index.search(&SearchQuery::new("xylophone", 9)), SearchResults::default());
}

#[test]
fn arguments_are_read_from_nested_schemas() {
    let schema = json!({
        "type": "object",
        "properties": {
            "shippingAddress": {"type": "object", "properties": {"postal_code": {"description": "where it goes"}}},
            "lines": {"type": "array", "items": {"anyOf": [{"properties": {"sku": {}}}, {"enum": ["gift", 3]}]}},
        },
        "$defs": {"Money": {"properties": {"currency": {"const": "EUR"}}}},
    });
    let read = schema::arguments(&schema);
    assert_eq!(read.names, ["shippingAddress", "lines", "postal_code", "currency", "sku"]);
    assert_eq!(read.notes, ["where it goes", "EUR", "gift"]);

    let documents = [
        Document { input_schema: &schema, ..tool("orders", "place", "") },
        tool("orders", "other", "No arguments."),
    ];
    let index = Index::build(documents);
    for text in ["postal_code", "postalCode", "sku", "gift", "shipping address"] {
        assert_eq!(first(&index, &documents, text), "orders:place", "{text}");
    }
    for odd in
        [json!(true), json!([1, 2]), json!("x"), json!({"properties": [1], "enum": {"a": 1}, "anyOf": "x"})]
    {
        assert!(schema::arguments(&odd).names.is_empty());
    }
    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({"properties": {"a": deep}});
    }
    assert_eq!(schema::arguments(&deep).names.len(), 6);
    let wide: Value =
        (0..20_000).map(|n| (format!("p{n}"), json!({}))).collect::<serde_json::Map<_, _>>().into();
    assert!(schema::arguments(&json!({"properties": wide})).names.len() <= 512);
}

#[test]
fn synonyms_beginnings_and_misspellings_are_found() {
    let documents = small();
    let index = Index::build(documents.clone());
    for (text, expect) in [
        ("remove branch", "github:delete_branch"),
        ("erase repo", "github:delete_repository"),
        ("get rid of a file", "files:delete_file"),
        ("report a bug", "github:createIssue"),
        ("reposit", "github:delete_repository"),
        ("brnach", "github:delete_branch"),
        ("delet brnch", "github:delete_branch"),
        ("git hub issue", "github:createIssue"),
    ] {
        assert_eq!(first(&index, &documents, text), expect, "{text}");
    }
}

#[test]
fn scripts_without_spaces_are_found_by_pairs_and_single_characters() {
    let documents = [
        tool("wiki", "a", "在知识库中搜索页面"),
        tool("wiki", "b", "ページを翻訳する"),
        tool("wiki", "c", "페이지를 검색합니다"),
        tool("wiki", "d", "Экспорт раздела в архив"),
        tool("wiki", "e", "ค้นหาหน้า"),
        tool("wiki", "搜索", "a name in Han"),
    ];
    let index = Index::build(documents);
    for (text, expect) in [
        ("知识", "wiki:a"),
        ("页", "wiki:a"),
        ("翻訳", "wiki:b"),
        ("검색", "wiki:c"),
        ("разделы", "wiki:d"),
        ("ค้นหา", "wiki:e"),
        ("搜索", "wiki:搜索"),
    ] {
        assert_eq!(first(&index, &documents, text), expect, "{text}");
    }
}

#[test]
fn repeating_a_word_does_not_beat_being_named_after_it() {
    let stuffed = "delete branch remove drop ".repeat(2_000);
    let mut documents = small();
    documents.push(tool("z", "evil", &stuffed));
    let index = Index::build(documents.clone());
    for text in ["delete branch", "branch", "remove the branch please"] {
        assert_eq!(first(&index, &documents, text), "github:delete_branch", "{text}");
    }
}

#[test]
fn misspelling_steps_agree_with_the_textbook() {
    let check = |a: &str, b: &str, steps: usize, expect: bool| {
        let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
        assert_eq!(within(&a, &b, steps), expect, "{a:?} {b:?} {steps}");
        assert_eq!(within(&b, &a, steps), expect, "{b:?} {a:?} {steps}");
    };
    check("", "", 0, true);
    check("", "ab", 1, false);
    check("branch", "brnach", 1, true);
    check("branch", "branhc", 1, true);
    check("branch", "branches", 1, false);
    check("branch", "branches", 2, true);
    check("delete", "dleet", 2, true);
    check("kitten", "sitting", 2, false);
    check("kitten", "sitting", 3, true);
    check("aab", "ab", 1, true);
}

#[test]
fn word_lists_are_sound() {
    for (word, filler) in [("a", true), ("something", true), ("your", true), ("delete", false), ("", false)] {
        assert_eq!(terms::is_filler(word), filler, "{word}");
    }
    for (word, others) in synonyms::table() {
        assert!(
            others.iter().all(|(other, weight)| *other != word && *weight > 0.0 && *weight < 1.0),
            "{word}"
        );
    }
}

#[test]
fn hostile_text_neither_panics_nor_leaves_the_scale() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..60 {
        let texts: Vec<[String; 4]> = (0..20).map(|_| std::array::from_fn(|_| dice.text(60))).collect();
        let schemas: Vec<Value> =
            (0..20).map(|_| json!({"properties": {dice.text(9): {"title": dice.text(9)}}})).collect();
        let index = Index::build(texts.iter().zip(&schemas).map(
            |([upstream, name, title, description], input_schema)| Document {
                upstream,
                name,
                title,
                description,
                input_schema,
            },
        ));
        for _ in 0..50 {
            let text = dice.text(80);
            let found = index.search(&SearchQuery::new(&text, 7));
            assert!(found.hits.len() == found.total.min(7), "round {round} {text:?}");
            for hit in &found.hits {
                assert!(hit.doc < 20 && hit.score > 0.0 && hit.score <= 1.0, "{text:?} {hit:?}");
                assert_eq!((hit.score * 10_000.0).round() / 10_000.0, hit.score, "four decimals");
            }
            assert!(found.hits.windows(2).all(|pair| pair[0].score >= pair[1].score), "{text:?}");
        }
    }
}

#[test]
fn stems_of_random_words_do_not_panic() {
    let mut dice = Dice(7);
    for _ in 0..100_000 {
        let (start, span) = [('a', 26), ('а', 32), ('α', 25)][dice.roll(3) as usize];
        let length = dice.roll(20) + 1;
        let word: String =
            (0..length).filter_map(|_| char::from_u32(start as u32 + dice.roll(span) as u32)).collect();
        assert!(terms::stem(&word).len() <= word.len().max(24), "{word}");
    }
}

#[test]
fn a_huge_query_is_read_in_part() {
    let documents = small();
    let index = Index::build(documents.clone());
    let flood = format!("delete branch {}", "unheard of words 知识 \u{0}".repeat(100_000));
    assert_eq!(first(&index, &documents, &flood), "github:delete_branch");
    let different: String = (0..5_000).map(|n| format!("w{n} ")).collect();
    assert_eq!(rank::slots(&index, &terms::words(&different, 100_000)).len(), 32);
}

#[test]
fn ten_thousand_tools_are_searched() {
    let verbs = ["create", "delete", "list", "update", "send"];
    let texts: Vec<(String, String)> = (0..10_000)
        .map(|n| {
            (
                format!("{}_thing_{n}", verbs[n % 5]),
                format!("A description of thing {n}, word{} word{}.", n % 97, n % 89),
            )
        })
        .collect();
    let index = Index::build(texts.iter().map(|(name, description)| tool("many", name, description)));
    assert_eq!(index.len(), 10_000);
    let found = index.search(&SearchQuery::new("delete_thing_4321", 3));
    assert_eq!(found.hits[0].doc, 4_321);
    assert_eq!(index.search(&SearchQuery::new("delete", 100)).hits.len(), 100);
    assert_eq!(index.search(&SearchQuery::new("thing", 5)).total, 10_000);
    assert_eq!(index.search(&SearchQuery::new("remove word13 word77", 1)).hits.len(), 1);
}
