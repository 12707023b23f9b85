//! Lists the files of the page, so that the binary carries each of them; nothing is compiled or fetched.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let here = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    println!("cargo:rerun-if-changed=page");
    let mut names: Vec<String> = Vec::new();
    if let Ok(entries) = fs::read_dir(Path::new(&here).join("page")) {
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    names.sort();
    let mut text =
        String::from("/// The page's files by name.\npub(crate) static FILES: &[(&str, &[u8])] = &[\n");
    for name in names {
        let path = Path::new(&here).join("page").join(&name);
        writeln!(text, "    ({name:?}, include_bytes!({path:?})),").map_err(io::Error::other)?;
    }
    text.push_str("];\n");
    fs::write(Path::new(&out).join("page_files.rs"), text)
}
