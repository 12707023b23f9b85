//! The web front end for people: sign-in, the REST API, the event stream and the approvals page. Does not dispatch calls: an
//! approved plan runs through the gateway.

mod api;
mod auth;
mod events;
mod openapi;
mod page;
mod passphrase;
mod random;
mod request;
mod response;
mod routes;
mod sign_in;
mod sign_in_limits;
mod state;
pub mod views;
mod vocabulary;

pub use random::{SIGN_IN_LIFE, secret};
pub use routes::{mount, mount_alone, route_list};
pub use state::{WebOptions, WebState};
