//! Hostile bytes, a moment of them: the properties the fuzz targets check, on seeds bent at random (`fuzz/`).

#[path = "../../../../fuzz/properties/mutate.rs"]
mod mutate;

#[path = "../../../../fuzz/properties/frame.rs"]
mod frame;
#[path = "../../../../fuzz/properties/header.rs"]
mod header;

#[test]
fn any_bytes_are_a_message_or_an_error() {
    mutate::run(frame::SEEDS, frame::check);
}

#[test]
fn any_headers_are_read_or_refused() {
    mutate::run(header::SEEDS, header::check);
}
