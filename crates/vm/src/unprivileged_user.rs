//! Whom programs run as that this one starts and does not trust: never root.

/// "nobody" where the system does not say who asked for root.
const NOBODY: u32 = 65_534;

/// User and group for them when we are root: whoever called sudo, else nobody. `None` if we are not.
pub(crate) fn unprivileged_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let number = |name: &str| std::env::var(name).ok()?.parse().ok().filter(|id| *id != 0);
    Some((number("SUDO_UID").unwrap_or(NOBODY), number("SUDO_GID").unwrap_or(NOBODY)))
}
