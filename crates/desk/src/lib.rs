//! The desk: where a person sees, decides, and is proved to have decided. Sign-in, REST, events, the page.
//! It knows no way to dispatch a call of its own: what runs, runs through the gateway, after the law was asked.

mod access;
mod api;
mod asked;
mod attempts;
mod chance;
mod desk;
mod events;
mod openapi;
mod page;
mod people;
mod phrase;
mod routes;
mod told;
pub mod views;

pub use chance::{SIGN_IN_LIFE, secret};
pub use desk::{Desk, DeskOptions};
pub use routes::{mount, mount_alone, route_list};
