//! Hostile bytes, a moment of them: the properties the fuzz targets check, on seeds bent at random (`fuzz/`).

#[path = "../../../../fuzz/properties/mutate.rs"]
mod mutate;

#[path = "../../../../fuzz/properties/strict_json.rs"]
mod strict_json;

#[test]
fn any_bytes_are_refused_or_mean_one_thing() {
    mutate::run(strict_json::SEEDS, strict_json::check);
}
