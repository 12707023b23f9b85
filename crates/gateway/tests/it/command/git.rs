//! The preset for git, with the real git in real repositories.
