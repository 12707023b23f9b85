//! The house rules as tests: which room may know which, what may be said where, what may be depended on.
//! Everything is in `tests/it`; nothing here is ever part of the product.
