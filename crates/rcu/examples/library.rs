//! A shared library with a C interface: a setting that any thread reads and replaces.
//!
//! `cargo build -p reprieve-rcu --release --example library` makes `target/release/examples/liblibrary.so`. A program
//! may close it while threads live that have used it, because it stays loaded (see the guide).

use reprieve_rcu::{Domain, Guard, RcuCell};
use std::cell::RefCell;
use std::sync::OnceLock;

struct Setting {
    domain: Domain,
    value: RcuCell<u64>,
}

fn setting() -> &'static Setting {
    static SETTING: OnceLock<Setting> = OnceLock::new();
    SETTING.get_or_init(|| {
        let domain = Domain::default();
        let value = RcuCell::in_domain(&domain, 0);
        Setting { domain, value }
    })
}

/// A copy of the setting, read in a restartable section.
#[unsafe(no_mangle)]
pub extern "C" fn setting_get() -> u64 {
    setting().value.get()
}

/// The setting, read in a section on a record of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn setting_get_locked() -> u64 {
    let setting = setting();
    *setting.value.load(&setting.domain.lock())
}

/// Enters a section that lasts until the calling thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn setting_hold() {
    thread_local!(static HELD: RefCell<Option<Guard<'static>>> = const { RefCell::new(None) });
    HELD.with(|held| *held.borrow_mut() = Some(setting().domain.lock()));
}

/// Replaces the setting. Returns false if too many old values wait to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn setting_replace(value: u64) -> bool {
    setting().value.try_replace(value).is_ok()
}

/// The number of old values that wait to be freed, after `wait_ms` milliseconds or as soon as there are none.
#[unsafe(no_mangle)]
pub extern "C" fn setting_garbage(wait_ms: u64) -> usize {
    let domain = &setting().domain;
    let _ = domain.synchronize_until(std::time::Instant::now() + std::time::Duration::from_millis(wait_ms));
    domain.reclaim_now();
    domain.stats().garbage_objects
}
