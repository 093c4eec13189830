//! The examples for users, run as they are.

#[path = "../examples/cache.rs"]
mod cache;
#[path = "../examples/config_reload.rs"]
mod config_reload;
#[path = "../examples/event_loop.rs"]
mod event_loop;
#[path = "../examples/routing_table.rs"]
mod routing_table;
#[path = "../examples/tokens.rs"]
mod tokens;
#[path = "../examples/tokio_service.rs"]
mod tokio_service;

#[test]
fn cache() {
    cache::main();
}

#[test]
fn config_reload() {
    config_reload::main();
}

#[test]
fn event_loop() {
    event_loop::main();
}

#[test]
fn routing_table() {
    routing_table::main();
}

#[test]
fn tokens() {
    tokens::main();
}

#[test]
fn tokio_service() {
    tokio_service::main();
}
