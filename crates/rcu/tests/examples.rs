//! The examples for users, run as they are.

#[path = "../examples/config_reload.rs"]
mod config_reload;
#[path = "../examples/event_loop.rs"]
mod event_loop;
#[path = "../examples/tokens.rs"]
mod tokens;

#[test]
fn config_reload() {
    config_reload::main();
}

#[test]
fn event_loop() {
    event_loop::main();
}

#[test]
fn tokens() {
    tokens::main();
}
