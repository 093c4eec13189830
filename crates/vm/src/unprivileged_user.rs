//! The user for programs that this process starts but does not trust with root.

/// The user "nobody", for when the system does not say who called sudo.
const NOBODY: u32 = 65_534;

/// User and group for such programs: whoever called sudo, else nobody. `None` if this process is not root.
pub(crate) fn unprivileged_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let number = |name: &str| std::env::var(name).ok()?.parse().ok().filter(|id| *id != 0);
    Some((number("SUDO_UID").unwrap_or(NOBODY), number("SUDO_GID").unwrap_or(NOBODY)))
}
