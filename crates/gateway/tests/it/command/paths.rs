//! `under(path, dir)` with real files: links are followed when a call comes and again when it is confirmed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use super::gateway::{Scene, scene};

/// Inside the box a write is asked about; outside of it, it is denied.
const FILES: &str = r#"
[upstreams.files]
[[upstreams.files.tools]]
name = "touch"
description = "Make a file"
effect = "write"
input = { path = { type = "string" } }
run = ["touch", "--", "{path}"]

[[rules]]
match = "files:touch"
when = "!under(args.path, 'box')"
deny = "it is outside of the box"
"#;

async fn touch(scene: &Scene, path: &str, more: Value) -> Value {
    let answer = scene.governed("write", "files:touch", &json!({"path": path}), more).await;
    answer["structuredContent"].clone()
}

fn code(answer: &Value) -> &str {
    answer["errors"][0]["code"].as_str().unwrap_or_default()
}

fn furnish(folder: &Path) {
    fs::create_dir_all(folder.join("box/inner")).unwrap();
    fs::create_dir_all(folder.join("outside")).unwrap();
    symlink(folder.join("outside"), folder.join("box/out")).unwrap();
    symlink(folder.join("outside/new"), folder.join("box/dangling")).unwrap();
    symlink("../../outside", folder.join("box/inner/up")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_and_dots_do_not_lead_out_of_a_folder() {
    let scene = scene(&[FILES]).await;
    furnish(scene.folder.path());
    let room = scene.folder.path().display().to_string();
    for (path, expect) in [
        ("box/new", "E_CONFIRM_REQUIRED"),
        ("ROOM/box/new", "E_CONFIRM_REQUIRED"),
        ("ROOM/box/", "E_CONFIRM_REQUIRED"),
        ("ROOM/box/inner/../new", "E_CONFIRM_REQUIRED"),
        ("ROOM/boxes", "E_RULE_DENIED"),
        ("box/../outside/new", "E_RULE_DENIED"),
        ("ROOM/box/../../../../../../etc/passwd", "E_RULE_DENIED"),
        ("box/out/new", "E_RULE_DENIED"),
        ("box/inner/up/new", "E_RULE_DENIED"),
        ("box/dangling", "E_RULE_DENIED"),
        ("box/inner/up/../new", "E_RULE_ERROR"),
        ("~/new", "E_RULE_ERROR"),
        ("file:///etc/passwd", "E_RULE_ERROR"),
        ("", "E_RULE_ERROR"),
    ] {
        let answer = touch(&scene, &path.replace("ROOM", &room), json!({"mode": "execute"})).await;
        let held = answer["data"]["confirm_token"].is_string();
        let said = if held { "E_CONFIRM_REQUIRED" } else { code(&answer) };
        assert_eq!(said, expect, "{path}: {answer}");
    }
    scene.close().await;
}

/// A link that was harmless when the plan was made leads elsewhere when it is confirmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attack_a_link_swapped_after_the_first_phase_is_refused_in_the_second() {
    let scene = scene(&[FILES]).await;
    let folder = scene.folder.path().to_owned();
    furnish(&folder);
    symlink("inner", folder.join("box/link")).unwrap();
    let held = touch(&scene, "box/link/new", json!({"mode": "execute"})).await;
    let token = held["data"]["confirm_token"].as_str().unwrap().to_owned();
    fs::remove_file(folder.join("box/link")).unwrap();
    symlink("../outside", folder.join("box/link")).unwrap();
    let confirmed = json!({"mode": "execute", "confirm_token": token, "yes": true});
    let refused = touch(&scene, "box/link/new", confirmed).await;
    assert_eq!(code(&refused), "E_RULE_DENIED", "{refused}");
    assert!(!folder.join("outside/new").exists());
    scene.close().await;
}
